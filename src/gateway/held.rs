//! A request that running ones leave nothing for waits its turn, for a while: what they hold comes back, all or in part, when
//! they end. What is spent is no matter of waiting.

use std::sync::Arc;

use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;

use crate::{
    billing::{Bill, NotAdmitted, Place},
    clock,
    domain::{key::KeyRecord, ledger::Denied, refusal::Refusal, route::Route},
    gateway::{
        Gateway,
        body::GatherError,
        funds::{self, Asked, Caller, NoHold},
        peer,
    },
    limiter::client::Client,
};

/// Waits until the store admits the request where it is only held what it needs, as long as `[money] held_wait_ms` allows and
/// the client is there.
pub async fn wait(
    gateway: &Gateway,
    session: &mut Session,
    caller: &Caller,
    asked: &Asked<'_>,
    route: &Route,
    no_hold: NoHold,
) -> Result<Option<Bill>, GatherError> {
    let denied = match no_hold {
        NoHold::Held(denied) => denied,
        NoHold::Refused(refusal) => return Err(refusal.into()),
    };
    let key = &caller.key;
    let place = gateway.billing.wait_behind(key, denied, asked.limits.held_waiting_max);
    let Some(place) = place.filter(|_| !asked.limits.held_wait.is_zero()) else {
        return Err(funds::refusal(gateway, denied, key).into());
    };
    let asker = peer::client(session, &gateway.trusted_proxies);
    tokio::select! {
        biased;
        bill = in_turn(gateway, caller, asker, asked, route, place) => bill.map(Some).map_err(GatherError::from),
        () = left(session) => Err(GatherError::ClientGone),
    }
}

/// The time counts until the request is asked for the last time, not until the store has answered.
async fn in_turn(
    gateway: &Gateway,
    caller: &Caller,
    asker: Client,
    asked: &Asked<'_>,
    route: &Route,
    mut place: Place,
) -> Result<Bill, Refusal> {
    let until = tokio::time::Instant::from_std(clock::instant() + asked.limits.held_wait);
    let mut key = Arc::clone(&caller.key);
    let mut said = None;
    loop {
        if tokio::time::timeout_at(until, place.turn()).await.is_err() {
            let denied = said.or_else(|| place.denied()).unwrap_or(Denied::BalanceHeld);
            return Err(funds::refusal(gateway, denied, &key));
        }
        key = current(gateway, caller, asker, key).await;
        let mut answer = gateway.billing.admit(funds::wanted(&key, asked, route)).await;
        if answer.as_ref().err() == Some(&NotAdmitted::StaleKey) {
            key = funds::fresh(gateway, &caller.digest, clock::instant()).await?;
            answer = gateway.billing.admit(funds::wanted(&key, asked, route)).await;
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

/// The key as this node knows it now: its quota may have been raised meanwhile.
async fn current(gateway: &Gateway, caller: &Caller, asker: Client, known: Arc<KeyRecord>) -> Arc<KeyRecord> {
    match gateway.keys.find(&caller.digest, clock::instant(), || asker).await {
        Ok(Some(key)) => key,
        // The store decides whether it still works.
        Ok(None) | Err(_) => known,
    }
}

/// Ends when the client has left. Where the end of an HTTP/1.1 body is still to be read nobody can tell: then never.
async fn left(session: &mut Session) {
    let body_is_done = session.is_body_done();
    match &mut *session.downstream_session {
        ServerSession::H2(stream) => {
            let _ = stream.idle().await;
        }
        http1 if body_is_done => {
            // It ends with an error only: the client has closed, or sent what no request may have behind it.
            while http1.read_body_or_idle(true).await.is_ok() {}
        }
        _ => std::future::pending().await,
    }
}
