//! The admin API: accounts, keys, the log, models and providers, for the subcommands, the console and the portal. On a unix
//! socket the file's mode decides who may connect, over TCP a certificate. Every change is in the audit record before it is made.

mod openapi;
mod routes;
mod streams;
pub(crate) mod tcp;

use std::{future::pending, pin::pin, sync::atomic::Ordering, time::Duration};

use axum::{Extension, Router};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
    sync::watch,
};

use crate::{
    admin::{Admin, AdminPeer, ConnectionExtension},
    edges::connection_slots::{ConnectionSlot, ConnectionSlots},
    side::connection::{self, ClientWaits},
};

/// The maximum number of connections. Beyond it, those without a request give way to new ones.
const CONNECTIONS_MAX: usize = 64;
/// The pause after a failed accept: usually file descriptors have run out, and an immediate retry would fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The maximum lifetime of a connection: clients make one call on each.
const CONNECTION_WAIT: Duration = Duration::from_secs(60);
/// The maximum lifetime of a connection with a backup, an export or another long call.
const BACKUP_WAIT: Duration = Duration::from_secs(4 * 3600);
/// The timeout for a request's head. An answer is limited only by the lifetime of its connection.
const CLIENT_WAITS: ClientWaits = ClientWaits {
    head: Duration::from_secs(10),
    answer: BACKUP_WAIT,
};

/// Serves until `shutdown` turns true. Running requests may finish.
pub(crate) async fn serve_unix(listener: UnixListener, state: Admin, mut shutdown: watch::Receiver<bool>) {
    let router = routes::router(state);
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A closed channel means the same as true.
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
        let Some(slot) = slots.acquire() else {
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            let credentials = stream.peer_cred().ok();
            let peer = AdminPeer::Process {
                uid: credentials.map(|credentials| credentials.uid()),
                pid: credentials.and_then(|credentials| credentials.pid()),
            };
            serve_connection(stream, slot, peer, router).await;
        });
    }
}

/// Serves a connection, at most for its lifetime. Errors are ignored: the client sees them.
async fn serve_connection<S>(stream: S, slot: ConnectionSlot, peer: AdminPeer, router: Router)
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
