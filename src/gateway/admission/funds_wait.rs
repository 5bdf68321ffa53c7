//! Lets a request wait while running requests hold all that is left: a hold, or a part of it, comes back when a request
//! ends. A request whose limit is spent does not wait.

use std::sync::Arc;

use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;

use crate::{
    domain::{faults::refusal::Refusal, keys::key::KeyRecord, ledger::Denial},
    edges::{clock, limiter::client::Client},
    gateway::{
        admission::{
            caller::Caller,
            funds::{self, Asked, NoHold},
        },
        parts::Gateway,
        peer,
        request::Rejection,
    },
    money::billing::{Bill, NotAdmitted, QueuePosition},
};

/// Waits until the store admits the request, for at most `[money] held_wait_ms` and while the client is connected.
pub(crate) async fn wait(
    gateway: &Gateway,
    session: &mut Session,
    caller: &Caller,
    asked: &Asked<'_>,
    no_hold: NoHold,
) -> Result<Option<Bill>, Rejection> {
    let denied = match no_hold {
        NoHold::Held(denied) => denied,
        NoHold::Refused(refusal) => return Err(refusal.into()),
    };
    let key = &caller.key;
    let place = gateway.billing.wait_behind(key, denied, asked.limits.held_waiting_max);
    let Some(place) = place.filter(|_| !asked.limits.held_wait.is_zero()) else {
        return Err(funds::refusal(gateway, denied, key).into());
    };
    let asker = peer::client(session, &gateway.limits.trusted_proxies);
    tokio::select! {
        biased;
        bill = in_turn(gateway, caller, asker, asked, place) => bill.map(Some).map_err(Rejection::from),
        () = left(session) => Err(Rejection::ClientGone),
    }
}

/// Asks again in turn. The time limit covers the waiting, not the store's last answer.
async fn in_turn(
    gateway: &Gateway,
    caller: &Caller,
    asker: Client,
    asked: &Asked<'_>,
    mut place: QueuePosition,
) -> Result<Bill, Refusal> {
    let until = tokio::time::Instant::from_std(clock::instant() + asked.limits.held_wait);
    let mut key = Arc::clone(&caller.key);
    let mut said = None;
    loop {
        if tokio::time::timeout_at(until, place.turn()).await.is_err() {
            let denied = said.or_else(|| place.denied()).unwrap_or(Denial::BalanceHeld);
            return Err(funds::refusal(gateway, denied, &key));
        }
        key = current(gateway, caller, asker, key).await;
        let mut answer = gateway.billing.admit(funds::wanted(&key, asked)).await;
        if answer.as_ref().err() == Some(&NotAdmitted::StaleKey) {
            key = funds::fresh(gateway, &caller.digest, clock::instant()).await?;
            answer = gateway.billing.admit(funds::wanted(&key, asked)).await;
        }
        if let Err(NotAdmitted::Denied(denied)) = answer
            && denied.is_held()
        {
            place.refused(&key.id, denied);
            said = Some(denied);
            continue;
        }
        place.done();
        return answer.map_err(|refused| funds::refused(gateway, &key, refused, clock::instant()));
    }
}

/// The key's record as the cache has it now: its quota may have been raised meanwhile.
async fn current(gateway: &Gateway, caller: &Caller, asker: Client, known: Arc<KeyRecord>) -> Arc<KeyRecord> {
    match gateway.keys.find(&caller.digest, clock::instant(), || asker).await {
        Ok(Some(key)) => key,
        // The admission decides whether the key is still valid.
        Ok(None) | Err(_) => known,
    }
}

/// Returns when the client has disconnected. Never returns while the end of an HTTP/1.1 body is unread, because a
/// disconnect cannot be seen then.
async fn left(session: &mut Session) {
    let body_is_done = session.is_body_done();
    match &mut *session.downstream_session {
        ServerSession::H2(stream) => {
            let _ = stream.idle().await;
        }
        http1 if body_is_done => {
            // Ends only with an error: the client has closed, or sent data behind its request.
            while http1.read_body_or_idle(true).await.is_ok() {}
        }
        _ => std::future::pending().await,
    }
}
