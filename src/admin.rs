//! The admin API without its listeners: what is asked of it, for the subcommands, the console and the portal. Every change is in
//! the audit record before it is made.

mod accounts;
pub(crate) mod ask;
pub(crate) mod audit;
mod audited;
pub(crate) mod author;
mod backup;
mod changes_seen;
mod connection_extension;
mod console;
pub(crate) mod console_links;
mod counters;
mod fields;
mod home;
mod keys;
pub(crate) mod local;
pub(crate) mod log;
mod log_home;
mod overview;
mod own_journal;
mod peer;
mod providers;
mod query;
mod recent;
mod reply;
mod served;
pub(crate) mod sessions;
mod sign_ins;
mod state;
mod upgrade;
mod upgrades;
mod usage;
mod verify;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    middleware,
    routing::{delete, get, post},
};
use serde_json::json;

pub(crate) use connection_extension::ConnectionExtension;
pub(crate) use home::{LogHome, LogHomes};
pub(crate) use peer::Peer;
pub(crate) use served::{CredentialView, ModelView, PassedOverView, PlaceView, ProviderView, Providers};
pub(crate) use state::{Admin, Stores};
pub(crate) use upgrades::{Upgraded, Upgrades};

/// The largest request body.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// The API as a service of HTTP.
pub(crate) fn router(state: Admin, routes: Router<Admin>) -> Router {
    let changes = state.changes_seen.clone();
    routes
        .route("/v1/audit", get(audited::page))
        .route("/v1/console/links", post(console::issue))
        .route("/v1/console/sessions", get(sessions::list).delete(sessions::end_all))
        .route("/v1/console/sessions/{id}", delete(sessions::end))
        .route("/v1/backup", get(backup::send))
        .route(
            "/v1/keys/{id}/sign-ins",
            get(sign_ins::list).post(sign_ins::decide).delete(sign_ins::end),
        )
        .route("/v1/models", get(models))
        .route("/v1/providers", get(providers::list))
        .route("/v1/providers/{name}/enable", post(providers::enable))
        .route("/v1/providers/{name}/disable", post(providers::disable))
        .route("/v1/upgrade", post(upgrade::upgrade))
        .fallback(async || reply::AdminError::not_found("no such path in the admin API"))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(changes, changes_seen::counted))
        .with_state(state)
}

async fn models(State(state): State<Admin>) -> Json<serde_json::Value> {
    Json(json!({ "models": state.providers.models() }))
}
