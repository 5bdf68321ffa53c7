//! The admin API over TCP: with TLS, and for clients that show a certificate.

use std::{sync::Arc, time::Duration};

use pingora::protocols::{Ssl, Stream, l4::stream::Stream as Socket};

use super::{CONNECTIONS_MAX, routes::router, served};
use crate::{
    admin::{Admin, Peer},
    edges::connection_slots::ConnectionSlots,
    front::tls::{certificate, listener::Listener},
    side::service::ServeFuture,
};

/// How long a handshake may take.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Serves connections of a listener, each in a call.
pub(crate) fn serve(state: Admin, tls: Arc<Listener>) -> impl Fn(Stream) -> ServeFuture + Send + Sync {
    let router = router(state);
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    move |stream| {
        let (router, tls, slots) = (router.clone(), Arc::clone(&tls), Arc::clone(&slots));
        Box::pin(async move {
            let Some(slot) = slots.take() else { return };
            let Ok(socket) = stream.into_any().downcast::<Socket>() else {
                return;
            };
            let handshake = tokio::select! {
                handshake = tokio::time::timeout(HANDSHAKE_WAIT, tls.accept(*socket)) => handshake,
                () = slot.given_way() => return,
            };
            let Ok(Ok(stream)) = handshake else { return };
            // The listener lets nobody in without one; whose name cannot be written down stays out, too.
            let shown = stream
                .get_ssl()
                .and_then(|tls| certificate::holder(tls.peer_certificate_der()?));
            if let Some(holder) = shown {
                served(stream, slot, Peer::Certified(holder.into()), router).await;
            }
        })
    }
}
