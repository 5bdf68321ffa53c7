//! The hold of a request: what it may cost, and whether its key and account can pay for it.

use std::{sync::Arc, time::Instant};

use smol_str::SmolStr;

use crate::{
    config::money::MoneyConfig,
    domain::{
        faults::refusal::{Limit, Refusal},
        keys::{key::KeyRecord, secret::KeyDigest},
        ledger::{Denial, Scope, tag::Tag},
        wire::{json_scan::Scan, operation::Operation},
    },
    edges::clock,
    gateway::{
        admission::caller::{self, Caller},
        entry::millis_between,
        estimate::Basis,
        parts::Gateway,
        request::head::BodyHead,
    },
    money::billing::{Bill, NotAdmitted, Wanted},
};

/// A request that asks for a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// weir's request id.
    pub request_id: &'a SmolStr,
    /// The requested operation.
    pub operation: Operation,
    /// The model's name as the client gave it.
    pub model: &'a str,
    /// The client wants a streamed answer.
    pub stream: bool,
    /// What the client attributes it to.
    pub(crate) tags: &'a [Tag],
    /// The configuration's `[money]`: how long, and with how many others, the request may wait for holds of running
    /// requests.
    pub limits: &'a MoneyConfig,
    /// What its estimate is based on.
    pub basis: &'a Basis,
    /// The facts read from its body.
    pub scan: &'a Scan,
    /// When its head arrived.
    pub arrived: Instant,
}

/// Why a request got no hold.
#[derive(Debug)]
pub(crate) enum NoHold {
    /// Running requests hold all that is left; the request may wait.
    Held(Denial),
    /// The request is to be answered with this refusal.
    Refused(Refusal),
}

impl From<Refusal> for NoHold {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Puts a hold for the request; `None` if the operation is free. If the key may have changed, its record is read again
/// once, so that a limit that was just raised, on whichever node, is not reported as reached.
pub(crate) async fn hold(gateway: &Gateway, caller: &Caller, asked: &Asked<'_>) -> Result<Option<Bill>, NoHold> {
    if asked.operation.counts_tokens() {
        return Ok(None);
    }
    if let Some(denied) = gateway.billing.waits_behind(&caller.key) {
        return Err(NoHold::Held(denied));
    }
    let began = clock::instant();
    let first = gateway.billing.admit(wanted(&caller.key, asked)).await;
    gateway
        .metrics()
        .admission_took(clock::instant().saturating_duration_since(began));
    let (key, answer) = match first {
        Err(refused) if may_be_outdated(refused) => {
            let key = fresh(gateway, &caller.digest, clock::instant()).await?;
            let is_news = refused == NotAdmitted::StaleKey || key.revision != caller.key.revision;
            let answer = match is_news {
                true => gateway.billing.admit(wanted(&key, asked)).await,
                false => Err(refused),
            };
            (key, answer)
        }
        answer => (Arc::clone(&caller.key), answer),
    };
    match answer {
        Ok(bill) => Ok(Some(bill)),
        Err(NotAdmitted::Denied(denied)) if denied.is_held() => Err(NoHold::Held(denied)),
        Err(not_admitted) => Err(refused(gateway, &key, not_admitted, began).into()),
    }
}

/// The refusal for a request that was not admitted. `began` is when the ledger was asked.
pub(crate) fn refused(gateway: &Gateway, key: &KeyRecord, refused: NotAdmitted, began: Instant) -> Refusal {
    match refused {
        NotAdmitted::Denied(denied) => {
            gateway.limits.recent_refusals.remember(&key.id, denied, began);
            refusal(gateway, denied, key)
        }
        // A denial by this node alone is no answer of the store, so it is not remembered.
        NotAdmitted::DeniedAlone(denied) => refusal(gateway, denied, key),
        NotAdmitted::JournalFull => Refusal::JournalFull,
        // A key that changes faster than it can be read is not served on a guess.
        NotAdmitted::StaleKey | NotAdmitted::StoreAway => Refusal::StoreUnavailable,
    }
}

/// Refuses a request before its body is read for what no body can change. This costs a call only where a refusal is likely,
/// and an operator's change takes effect at once, because the store confirms it. A request that passes is still checked
/// by [`hold`].
///
/// - A rate or concurrency limit is seen by what this node has admitted and refused itself.
/// - A key that was refused within the last minute is asked for.
/// - So is one whose body is heavy, unless the store said a moment ago that there is money for it: then to receive and
///   decode the body takes far longer than the call. For small bodies the call would be the longer wait.
pub(crate) async fn refuse_early(
    gateway: &Gateway,
    caller: &Caller,
    operation: Operation,
    body: BodyHead,
) -> Result<(), Refusal> {
    if operation.counts_tokens() {
        return refuse_spent(gateway, caller).await;
    }
    let (key, now) = (&caller.key, clock::instant());
    let foreseen = gateway.billing.foresees(key);
    if !gateway.keys.store_is_reachable() {
        // Rates hold without the store. Nothing else can be confirmed, and a cached key has its grace.
        return foreseen.map_or(Ok(()), |denied| Err(refusal(gateway, denied, key)));
    }
    if let Some(denied) = foreseen.or_else(|| gateway.limits.recent_refusals.recall(&key.id, now)) {
        return confirm(gateway, caller, denied, now).await;
    }
    if body.is_heavy()
        && !gateway.billing.vouches_for(key)
        && let Some(denied) = gateway.billing.denies(key).await
    {
        gateway.limits.recent_refusals.remember(&key.id, denied, now);
        return confirm(gateway, caller, denied, now).await;
    }
    Ok(())
}

/// Refuses a token count, which is free, for a key whose quota is spent: such a key cannot be used (docs/interface.md, Token
/// counts). The store is asked, once, only where the key has a quota; while it is away nobody is refused.
async fn refuse_spent(gateway: &Gateway, caller: &Caller) -> Result<(), Refusal> {
    let now = clock::instant();
    if !gateway.keys.store_is_reachable() {
        return Ok(());
    }
    match gateway.billing.quota_denies(&caller.key).await {
        Some(denied) => confirm(gateway, caller, denied, now).await,
        None => Ok(()),
    }
}

/// Refuses for `denied` if the store says that it holds.
async fn confirm(gateway: &Gateway, caller: &Caller, denied: Denial, now: Instant) -> Result<(), Refusal> {
    let key = match may_be_outdated(NotAdmitted::Denied(denied)) {
        true => match fresh(gateway, &caller.digest, now).await {
            // Without the store's answer nobody is refused.
            Err(Refusal::StoreUnavailable) => return Ok(()),
            found => found?,
        },
        false => Arc::clone(&caller.key),
    };
    match gateway.billing.still_denied(&key, denied).await {
        Some(denied) => Err(refusal(gateway, denied, &key)),
        None => {
            gateway.limits.recent_refusals.forget(&key.id);
            Ok(())
        }
    }
}

/// The refusal for a denial by the ledger.
pub(crate) fn refusal(gateway: &Gateway, denied: Denial, key: &KeyRecord) -> Refusal {
    match denied {
        Denial::KeyRevoked => Refusal::KeyRevoked,
        Denial::KeyExpired => Refusal::KeyExpired,
        denied => {
            let now = gateway.billing.time().now_seconds(clock::instant());
            Limit::of(denied, key.terms.reset, now).map_or(Refusal::KeyRevoked, Refusal::Limited)
        }
    }
}

/// Whether the denial depends on the key's record, which this node may have in an old version.
fn may_be_outdated(refused: NotAdmitted) -> bool {
    match refused {
        NotAdmitted::StaleKey => true,
        NotAdmitted::Denied(denied) => match denied {
            Denial::KeyExpired | Denial::QuotaExhausted(_) | Denial::QuotaHeld(_) => true,
            Denial::Concurrency { scope, .. } | Denial::RateLimited { scope, .. } => scope == Scope::Key,
            Denial::KeyRevoked
            | Denial::AccountUnknown
            | Denial::AccountSuspended
            | Denial::BalanceExhausted
            | Denial::BalanceHeld => false,
        },
        NotAdmitted::DeniedAlone(_) | NotAdmitted::StoreAway | NotAdmitted::JournalFull => false,
    }
}

/// The key's record, read from the store now.
pub(crate) async fn fresh(gateway: &Gateway, digest: &KeyDigest, now: Instant) -> Result<Arc<KeyRecord>, Refusal> {
    let found = gateway.keys.find_anew(digest, now).await;
    let key = found
        .map_err(|_| Refusal::StoreUnavailable)?
        .ok_or(Refusal::KeyUnknown)?;
    let now = gateway.billing.time().now_seconds(clock::instant());
    key.check(digest, now).map_err(caller::refusal)?;
    Ok(key)
}

/// What the ledger is asked to admit.
pub(crate) fn wanted<'a>(key: &Arc<KeyRecord>, asked: &Asked<'a>) -> Wanted<'a> {
    Wanted {
        key: Arc::clone(key),
        request_id: asked.request_id.clone(),
        protocol: asked.operation.protocol(),
        model_asked: asked.model,
        stream: asked.stream,
        tags: asked.tags,
        route: asked.basis.route(),
        estimate: asked.basis.estimate(asked.scan),
        latency_ms: millis_between(asked.arrived, clock::instant()),
    }
}
