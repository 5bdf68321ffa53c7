//! The admin API over TCP: with TLS, for clients with a certificate.

use std::{sync::Arc, time::Duration};

use pingora::protocols::{Ssl, Stream, l4::stream::Stream as Socket};

use super::{CONNECTIONS_MAX, routes::router, serve_connection};
use crate::{
    admin::{Admin, AdminPeer},
    edges::connection_slots::ConnectionSlots,
    front::tls::{certificate, listener::TlsListener},
    side::service::ServeFuture,
};

/// The timeout of a handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Returns a function that serves one connection.
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
            // The listener requires a certificate. A holder whose name cannot be recorded is refused here.
            let shown = stream
                .get_ssl()
                .and_then(|tls| certificate::describe_holder(tls.peer_certificate_der()?));
            if let Some(holder) = shown {
                serve_connection(stream, slot, AdminPeer::Certified(holder.into()), router).await;
            }
        })
    }
}
