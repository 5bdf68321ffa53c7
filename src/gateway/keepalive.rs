//! Whether a client's HTTP/1.1 connection carries further requests.
//!
//! Pingora closes the connection of every request that failed at its provider, also when the client has a whole answer whose
//! head says `keep-alive`; a client with a pool then writes its next request into a connection that is closing. So what an
//! answer has promised is kept here: when the client has been answered to the end, the connection is taken out of Pingora's
//! session and parked, and [`super::front`] goes on with it.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use http::Version;
use pingora::{
    apps::{HttpPersistentSettings, ReusedHttpStream},
    protocols::http::ServerSession,
};
use pingora_proxy::Session;

use crate::gateway::{client_stream::ClientStream, drain::Drain};

/// The head is here: offers to keep the connection for `idle` behind this request, where the client wants it and the process
/// does not end. An HTTP/1.0 client's is closed, because nothing else tells it where an answer of unknown length ends.
pub fn offer(session: &mut Session, idle: Duration) {
    let is_old = session.req_header().version == Version::HTTP_10;
    let is_wanted = session.get_keepalive().is_some();
    session.set_keepalive((is_wanted && !is_old).then_some(idle.as_secs()));
    // Pingora would give up every connection whose request is answered before its end, and with `100 Continue` at that. What
    // is left of a body is read behind the answer; where that is too much `reply` gives the connection up.
    session.set_close_on_response_before_downstream_finish(false);
}

/// Once nothing new is taken the connection ends with the answer that runs on it, and says so.
pub fn withdraw(session: &mut Session, drain: &Drain) {
    if drain.is_closing() {
        session.set_keepalive(None);
    }
}

/// The request has failed, and its client has a whole answer: parks the connection if it can carry further requests.
pub async fn park(session: &mut Session) {
    let Some(parking) = parking(session) else {
        return;
    };
    let settings = HttpPersistentSettings::for_session(session);
    let nobody = ServerSession::new_custom(Box::new(()));
    let finished = std::mem::replace(&mut *session.downstream_session, nobody);
    if let Ok(Some(stream)) = finished.finish().await {
        parking.put(ReusedHttpStream::from_reusable_stream(stream, settings));
    }
}

fn parking(session: &Session) -> Option<Arc<Parking>> {
    let stream = session.downstream_session.stream()?;
    (**stream).as_any().downcast_ref::<ClientStream>()?.parking()
}

/// Where a connection waits to be gone on with: at most one, for each connection has its own.
#[derive(Debug, Default)]
pub struct Parking(Mutex<Option<ReusedHttpStream>>);

impl Parking {
    /// What the connection itself knows of it: it must not keep itself alive.
    pub fn sign(self: &Arc<Self>) -> Weak<Self> {
        Arc::downgrade(self)
    }

    fn put(&self, stream: ReusedHttpStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    /// The connection, if it was parked.
    pub fn take(&self) -> Option<ReusedHttpStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
