//! Has another process take this one's place.

use axum::{Extension, Json, extract::State};
use serde_json::json;

use super::{
    connection_extension::ConnectionExtension,
    peer::Peer,
    reply::{AdminError, JsonResult},
    state::Admin,
    upgrades::Upgraded,
};

pub(super) async fn upgrade(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    Extension(extension): Extension<ConnectionExtension>,
) -> JsonResult {
    let Some(upgrades) = state.upgrades.clone() else {
        return Err(AdminError::not_found(
            "this weir was not started by `weir serve`: it cannot be upgraded",
        ));
    };
    state.audit(peer, "upgrade", "", &json!({})).await?;
    // A large journal takes the next process longer than other calls may take.
    extension.extend();
    let Upgraded { pid, running } = upgrades.upgrade().await.map_err(AdminError::failed)?;
    Ok(Json(json!({ "pid": pid, "running": running })))
}
