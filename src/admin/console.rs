//! Links into the console in the admin API: whoever reaches the API opens a session in a browser.

use axum::{Extension, Json, extract::State};
use serde_json::json;

use super::{
    fields::{self, Body},
    peer::Peer,
    reply::{AdminError, JsonResult},
    state::Admin,
};

/// `POST /v1/console/links`
pub(super) async fn issue(State(state): State<Admin>, Extension(peer): Extension<Peer>, body: Body) -> JsonResult {
    let body = fields::object(body)?;
    if let Some(other) = body.keys().find(|field| *field != "role") {
        return Err(fields::unknown(other, &["role"]));
    }
    let role = body.get("role").map(|role| role.as_str().unwrap_or_default());
    let Some(console) = &state.console else {
        return Err(AdminError::not_found(
            "the console is off: set `listen` of [console] in the configuration and start weir anew",
        ));
    };
    let link = console.issue(&peer, role).map_err(AdminError::invalid)?;
    let values = json!({ "role": role });
    state.audit(peer, "console.open", "", &values).await?;
    Ok(Json(
        json!({ "url": link.url, "good_for_seconds": link.good_for_seconds }),
    ))
}
