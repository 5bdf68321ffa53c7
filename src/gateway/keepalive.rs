//! Decides whether a client's HTTP/1.1 connection carries further requests.

use std::{sync::Arc, time::Duration};

use http::Version;
use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;

use crate::gateway::{client_stream::ClientStream, drain::Drain, parking::ConnectionParking};

/// Offers to keep the connection for `idle` after this request, if the client wants that. An HTTP/1.0 connection is closed,
/// because only its end delimits an answer of unknown length.
pub(crate) fn offer_keepalive(session: &mut Session, idle: Duration) {
    let is_old = session.req_header().version == Version::HTTP_10;
    let is_wanted = session.get_keepalive().is_some();
    session.set_keepalive((is_wanted && !is_old).then_some(idle.as_secs()));
    // By default Pingora closes every connection whose request is answered before its end, even by `100 Continue`. weir reads the
    // rest of a body after the answer; if that is too much, `reply` closes the connection.
    session.set_close_on_response_before_downstream_finish(false);
}

/// During shutdown, announces that the connection closes after the current answer.
pub(crate) fn withdraw_keepalive(session: &mut Session, drain: &Drain) {
    if drain.is_closing() {
        session.set_keepalive(None);
    }
}

/// Parks the connection of a failed request whose client got a complete answer, if it can carry further requests.
///
/// Pingora closes the connection of every request that failed at its provider, even if the head of the client's complete answer
/// says `keep-alive`. A client with a connection pool would then write its next request into a closing connection. So the
/// connection is taken out of Pingora's session, and [`super::front`] continues with it.
pub(crate) async fn park_connection(session: &mut Session) {
    let Some(parking) = parking_of(session) else {
        return;
    };
    let nobody = ServerSession::new_custom(Box::new(()));
    let finished = std::mem::replace(&mut *session.downstream_session, nobody);
    if let Ok(Some(stream)) = finished.finish().await {
        parking.put(stream.into_parts().0);
    }
}

fn parking_of(session: &Session) -> Option<Arc<ConnectionParking>> {
    let stream = session.downstream_session.stream()?;
    (**stream).as_any().downcast_ref::<ClientStream>()?.parking()
}
