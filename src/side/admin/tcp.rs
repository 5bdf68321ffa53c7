//! The admin API over TCP: with TLS, and for clients that show a certificate.

use std::{sync::Arc, time::Duration};

use pingora::protocols::{Ssl, Stream, l4::stream::Stream as Socket};
use tokio::sync::Semaphore;

use super::{AdminState, CONNECTIONS_MAX, Peer, router, served};
use crate::{
    front::tls::{certificate, listener::Listener},
    side::service::ServeFuture,
};

/// How long a handshake may take.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Serves connections of a listener, each in a call.
pub(crate) fn serve(state: AdminState, tls: Arc<Listener>) -> impl Fn(Stream) -> ServeFuture + Send + Sync {
    let router = router(state);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    move |stream| {
        let (router, tls, connections) = (router.clone(), Arc::clone(&tls), Arc::clone(&connections));
        Box::pin(async move {
            let Ok(_place) = connections.try_acquire() else { return };
            let Ok(socket) = stream.into_any().downcast::<Socket>() else {
                return;
            };
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_WAIT, tls.accept(*socket)).await else {
                return;
            };
            // The listener lets nobody in without one; whose name cannot be written down stays out, too.
            let shown = stream
                .get_ssl()
                .and_then(|tls| certificate::holder(tls.peer_certificate_der()?));
            if let Some(holder) = shown {
                served(stream, Peer::Certified(holder.into()), router).await;
            }
        })
    }
}
