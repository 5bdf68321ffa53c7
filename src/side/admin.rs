//! The admin API: accounts, keys, the log, models and providers, for the subcommands, the console and the portal. On a unix socket
//! the file's mode decides who may connect, over TCP ([`tcp`]) a certificate; every change is in the audit record before it
//! is made.

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
    admin::{Admin, ConnectionExtension, Peer},
    edges::connection_slots::{ConnectionSlot, ConnectionSlots},
    side::connection::{self, ClientWaits},
};

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

/// Serves until the watch turns true; running requests may end.
pub(crate) async fn serve(listener: UnixListener, state: Admin, mut shutdown: watch::Receiver<bool>) {
    let router = routes::router(state);
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
