//! Providers in the admin API: list, switch off, switch on.

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use serde_json::{Value, json};

use super::{
    peer::Peer,
    reply::{AdminError, JsonResult},
    state::Admin,
};

pub(super) async fn list(State(state): State<Admin>) -> Json<Value> {
    Json(json!({ "providers": state.providers.providers() }))
}

pub(super) async fn enable(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> JsonResult {
    switch(&state, peer, name, true).await
}

pub(super) async fn disable(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> JsonResult {
    switch(&state, peer, name, false).await
}

async fn switch(state: &Admin, peer: Peer, name: String, on: bool) -> JsonResult {
    let known = state.providers.providers();
    // One that has left the configuration can still be switched on, or its switch would stay for ever.
    if !on && known.iter().all(|provider| provider.name != name) {
        let names: Vec<&str> = known.iter().map(|provider| provider.name.as_str()).collect();
        return Err(AdminError::not_found(format!(
            "no such provider; there are {}",
            names.join(", ")
        )));
    }
    let of_name = known.iter().find(|provider| provider.name == name);
    if on && let Some(why) = of_name.and_then(|provider| provider.why_off.as_deref()) {
        return Err(AdminError::invalid(format!(
            "{name} is off by its configuration, which no switch changes: {why}"
        )));
    }
    let operation = if on { "provider.enable" } else { "provider.disable" };
    state.audit(peer, operation, "", &json!({ "provider": name })).await?;
    let providers = std::sync::Arc::clone(&state.providers);
    let changing = {
        let name = name.clone();
        tokio::task::spawn_blocking(move || providers.switch(&name, on))
    };
    let changed = match changing.await {
        Ok(Ok(changed)) => changed,
        Ok(Err(error)) => {
            return Err(AdminError::failed(format!(
                "the switch cannot be written down: {error}"
            )));
        }
        Err(error) => return Err(AdminError::failed(error.to_string())),
    };
    Ok(Json(json!({ "provider": name, "enabled": on, "changed": changed })))
}
