//! Serves the admin API to the subcommands and to operators' programs. The file mode of the Unix socket decides who can connect
//! to it; over TCP, a client certificate does. Every change is written to the audit record before it is made.

mod openapi;
mod routes;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    future::pending,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    BoxError, Extension, Router,
    body::{Body, Bytes},
    extract::{RawPathParams, RawQuery, State},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use pingora::protocols::{Ssl, Stream, l4::stream::Stream as Socket};
use serde_json::Map;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
    sync::{mpsc::Receiver, watch},
};

use crate::{
    admin::{Admin, AdminPeer, ConnectionExtension, peer::Author},
    api::{AdminQuestion, error::AdminError, log::ExportLog, node::Backup, wire},
    edges::connection_slots::{ConnectionSlot, ConnectionSlots},
    front::tls::{self, TlsListener},
    side::{
        admin::routes::router,
        connection::{self, ClientWaits},
        service::ServeFuture,
    },
};

/// The maximum number of concurrent connections. When it is reached, a new connection replaces one that has no request.
const CONNECTIONS_MAX: usize = 64;
/// The pause after a failed accept. Usually no file descriptor is free, so an immediate retry would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The maximum lifetime of a connection. It is short, because clients make one call on each connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(60);
/// The maximum lifetime of a connection on which a backup, an export or another long call runs.
const BACKUP_WAIT: Duration = Duration::from_secs(4 * 3600);
/// The timeouts of clients. The answer's timeout is so long that only the lifetime of the connection limits an answer.
const CLIENT_WAITS: ClientWaits = ClientWaits {
    head: Duration::from_secs(10),
    answer: BACKUP_WAIT,
};

/// Serves the admin API on a Unix socket until `shutdown` turns true. Calls that run then may finish.
pub(crate) async fn serve_unix(listener: UnixListener, state: Admin, mut shutdown: watch::Receiver<bool>) {
    let router = router(state);
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A closed channel means the same as `true`.
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the admin socket; weir tries again");
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

/// Serves one connection, at most for its lifetime. Errors of the connection are ignored, because the client notices them.
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

/// The timeout for a TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Returns a function that serves the admin API on one TCP connection, with TLS.
pub(crate) fn serve_tls(state: Admin, tls: Arc<TlsListener>) -> impl Fn(Stream) -> ServeFuture + Send + Sync {
    let router = router(state);
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    move |stream| {
        let (router, tls, slots) = (router.clone(), Arc::clone(&tls), Arc::clone(&slots));
        Box::pin(async move {
            let Some(slot) = slots.acquire() else { return };
            let Ok(socket) = stream.into_any().downcast::<Socket>() else {
                return;
            };
            let handshake = tokio::select! {
                handshake = tokio::time::timeout(HANDSHAKE_WAIT, tls.accept(*socket)) => handshake,
                () = slot.given_way() => return,
            };
            let Ok(Ok(stream)) = handshake else { return };
            // The listener has verified the client's certificate. A client whose certificate's subject cannot be read is refused
            // here, because the audit record needs it.
            let shown = stream
                .get_ssl()
                .and_then(|tls| tls::describe_holder(tls.peer_certificate_der()?));
            if let Some(holder) = shown {
                serve_connection(stream, slot, AdminPeer::Certified(holder.into()), router).await;
            }
        })
    }
}

/// Sends a backup of the store.
async fn backup(
    State(admin): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    author: Author,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let backup: Backup = wire::read(Vec::new(), &query.unwrap_or_default(), Map::new())?;
    let pieces = admin.back_up(&author, backup)?;
    extension.extend();
    let kind = Backup::MEDIA.iter().map(|kind| (header::CONTENT_TYPE, *kind)).next();
    Ok((kind.map(|kind| [kind]), in_pieces(pieces, Ok::<_, Infallible>)).into_response())
}

/// Sends an export of the log. If the export fails, the last chunk is missing, so the client notices that it is incomplete.
async fn log_export(
    State(admin): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    author: Author,
    segments: RawPathParams,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let segments = segments.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let export: ExportLog = wire::read(segments.collect(), &query.unwrap_or_default(), Map::new())?;
    let kind = [(header::CONTENT_TYPE, export.form.media_type())];
    let pieces = admin.export_log(&author, export).await?;
    extension.extend();
    Ok((kind, in_pieces(pieces, |piece| piece)).into_response())
}

/// Creates a body from pieces, each of which is sent as soon as it arrives.
fn in_pieces<P, B, E>(pieces: Receiver<P>, sent: fn(P) -> Result<B, E>) -> Body
where
    P: Send + 'static,
    B: Into<Bytes> + 'static,
    E: Into<BoxError> + 'static,
{
    Body::from_stream(stream::unfold((pieces, sent), async |(mut pieces, sent)| {
        let piece = pieces.recv().await?;
        Some((sent(piece), (pieces, sent)))
    }))
}
