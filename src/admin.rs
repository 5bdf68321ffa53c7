//! The admin API without its listeners: what is asked of it, for the subcommands, the console and the portal. Every change is in
//! the audit record before it is made.

mod accounts;
pub(crate) mod ask;
pub(crate) mod audit;
pub(crate) mod author;
mod change;
mod changes_seen;
mod connection_extension;
mod counters;
mod fields;
mod home;
mod keys;
pub(crate) mod local;
pub(crate) mod log;
mod log_home;
mod node;
mod overview;
mod own_journal;
mod parts;
mod peer;
mod providers;
mod query;
mod recent;
mod reply;
pub(crate) mod sessions;
mod state;
mod usage;
mod verify;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post},
};

pub(crate) use connection_extension::ConnectionExtension;
pub(crate) use home::{LogHome, LogHomes};
pub(crate) use parts::{ConsoleLinks, Providers, Upgrades};
pub(crate) use peer::Peer;
pub(crate) use state::{Admin, Stores};

/// The largest request body.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// The API as a service of HTTP.
pub(crate) fn router(state: Admin, routes: Router<Admin>) -> Router {
    let changes = state.changes_seen.clone();
    routes
        .route("/v1/log", get(log::query))
        .route("/v1/log/latest", get(log::latest::query))
        .route("/v1/log/newest", get(log::newest::query))
        .route("/v1/log/export/{form}", get(log::export::send))
        .route("/v1/log/home", get(log_home::about))
        .route("/v1/log/home/verify", get(log_home::verify))
        .route("/v1/log/home/fill", post(log_home::fill))
        .route("/v1/log/journal", get(own_journal::verify))
        .route("/v1/log/journal/fill", post(own_journal::fill))
        .route("/v1/log/counters", get(counters::verify))
        .route("/v1/log/verify", get(verify::verify))
        .route("/v1/log/mend", post(verify::mend))
        .route("/v1/log/verified", post(verify::verified))
        .route("/v1/overview", get(overview::page))
        .route("/v1/usage", get(usage::report))
        .route("/v1/keys", post(keys::create).get(keys::listing::list))
        .route(
            "/v1/keys/{id}",
            get(keys::show).patch(keys::update).delete(keys::delete),
        )
        .route("/v1/keys/{id}/lower", post(keys::lower))
        .route("/v1/keys/{id}/rotate", post(keys::rotation::rotate))
        .route("/v1/keys/{id}/end-overlap", post(keys::rotation::end_overlap))
        .route("/v1/keys/{id}/revoke", post(keys::revoke))
        .fallback(async || reply::AdminError::not_found("no such path in the admin API"))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(changes, changes_seen::counted))
        .with_state(state)
}
