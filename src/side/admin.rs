//! The admin API: accounts, keys, the log, models and providers, for the subcommands, the console and the portal. On a unix socket
//! the file's mode decides who may connect, over TCP ([`tcp`]) a certificate; every change is in the audit record before it
//! is made.

mod accounts;
mod audited;
mod author;
mod backup;
mod change;
mod changes_seen;
mod connection_extension;
mod console;
pub(crate) mod console_links;
mod counters;
mod fields;
mod home;
mod keys;
pub(crate) mod local;
mod log;
mod log_home;
mod overview;
mod own_journal;
mod peer;
mod providers;
mod query;
mod reply;
mod served;
pub(crate) mod sessions;
mod sign_ins;
mod state;
pub(crate) mod tcp;
mod upgrade;
mod upgrades;
mod usage;
mod verify;

use std::{future::pending, pin::pin, sync::atomic::Ordering, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, State},
    middleware,
    routing::{delete, get, post},
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
    sync::watch,
};

use crate::{
    edges::connection_slots::{ConnectionSlot, ConnectionSlots},
    side::connection::{self, ClientWaits},
};
use connection_extension::ConnectionExtension;
pub(crate) use home::{LogHome, LogHomes};
pub(crate) use peer::Peer;
pub(crate) use served::{CredentialView, ModelView, PassedOverView, PlaceView, ProviderView, Providers};
pub(crate) use state::{AdminState, Stores};
pub(crate) use upgrades::{Upgraded, Upgrades};

/// The largest request body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Connections served at once. Beyond it those that have not asked for anything give way to new ones.
const CONNECTIONS_MAX: usize = 64;
/// The pause after a failed accept: most often descriptors have run out, and asking again at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a whole connection may last: the client makes one call on each.
const CONNECTION_WAIT: Duration = Duration::from_secs(60);
/// How long one may last that takes a backup, or an export of the log.
const BACKUP_WAIT: Duration = Duration::from_secs(4 * 3600);
/// How long a client may take to send a request's head; its answer has all the time that its connection has.
const CLIENT_WAITS: ClientWaits = ClientWaits {
    head: Duration::from_secs(10),
    answer: BACKUP_WAIT,
};

fn router(state: AdminState) -> Router {
    let changes = state.changes_seen.clone();
    Router::new()
        .route("/v1/accounts", post(accounts::create).get(accounts::list))
        .route("/v1/accounts/{id}", get(accounts::show).patch(accounts::update))
        .route("/v1/accounts/{id}/credit", post(accounts::credit))
        .route("/v1/accounts/{id}/adjust", post(accounts::adjust))
        .route("/v1/accounts/{id}/suspend", post(accounts::suspend))
        .route("/v1/accounts/{id}/resume", post(accounts::resume))
        .route("/v1/audit", get(audited::page))
        .route("/v1/console/links", post(console::issue))
        .route("/v1/console/sessions", get(sessions::list).delete(sessions::end_all))
        .route("/v1/console/sessions/{id}", delete(sessions::end))
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
        .route("/v1/backup", get(backup::send))
        .route("/v1/keys", post(keys::create).get(keys::listing::list))
        .route(
            "/v1/keys/{id}",
            get(keys::show).patch(keys::update).delete(keys::delete),
        )
        .route("/v1/keys/{id}/lower", post(keys::lower))
        .route("/v1/keys/{id}/rotate", post(keys::rotation::rotate))
        .route("/v1/keys/{id}/end-overlap", post(keys::rotation::end_overlap))
        .route("/v1/keys/{id}/revoke", post(keys::revoke))
        .route(
            "/v1/keys/{id}/sign-ins",
            get(sign_ins::list).post(sign_ins::decide).delete(sign_ins::end),
        )
        .route("/v1/models", get(models))
        .route("/v1/providers", get(providers::list))
        .route("/v1/providers/{name}/enable", post(providers::enable))
        .route("/v1/providers/{name}/disable", post(providers::disable))
        .route("/v1/upgrade", post(upgrade::upgrade))
        .fallback(async || reply::ApiError::not_found("no such path in the admin API"))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(changes, changes_seen::counted))
        .with_state(state)
}

async fn models(State(state): State<AdminState>) -> Json<serde_json::Value> {
    Json(json!({ "models": state.providers.models() }))
}

/// Serves until the watch turns true; running requests may end.
pub(crate) async fn serve(listener: UnixListener, state: AdminState, mut shutdown: watch::Receiver<bool>) {
    let router = router(state);
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A closed channel means the same as true: whoever could say so is gone.
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin socket cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = slots.take() else {
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            let credentials = stream.peer_cred().ok();
            let peer = Peer::Process {
                uid: credentials.map(|credentials| credentials.uid()),
                pid: credentials.and_then(|credentials| credentials.pid()),
            };
            served(stream, slot, peer, router).await;
        });
    }
}

/// Serves a connection for as long as one may last. Its errors are its client's to see.
async fn served<S>(stream: S, slot: ConnectionSlot, peer: Peer, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let extension = ConnectionExtension::default();
    let router = router.layer(Extension(peer)).layer(Extension(extension.clone()));
    let mut serving = pin!(connection::serve(stream, slot, router, CLIENT_WAITS, pending()));
    let ended = tokio::time::timeout(CONNECTION_WAIT, &mut serving).await;
    if ended.is_err() && extension.0.load(Ordering::Relaxed) {
        let _ = tokio::time::timeout(BACKUP_WAIT, serving).await;
    }
}

#[cfg(test)]
mod tests;
