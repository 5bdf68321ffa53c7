//! What a request may cost, and whether its key and account can pay for it.

use std::{sync::Arc, time::Instant};

use crate::{
    billing::{Bill, NotAdmitted, Wanted},
    clock,
    config::money::MoneyConfig,
    domain::{
        consumption::{Modifiers, Row, UsageSource},
        json_scan::Scan,
        key::{KeyDenied, KeyRecord},
        ledger::{Denied, Scope},
        money::NanoUsd,
        operation::Operation,
        refusal::{Limit, Refusal},
        route::Route,
        secret::{KeyDigest, ServiceKey},
        usage::Usage,
    },
    gateway::{Gateway, entry::millis_between, estimate::Basis},
};

/// Whose request it is.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The digest of the key.
    pub digest: KeyDigest,
    /// The key.
    pub key: Arc<KeyRecord>,
    /// Its text, as the client presented it: to be looked for in what goes to a provider.
    pub presented: ServiceKey,
}

/// What is known of a request that wants to be forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// weir's identifier of it.
    pub request_id: &'a str,
    /// What is asked for.
    pub operation: Operation,
    /// The model's name as the client gave it.
    pub model: &'a str,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// How long it may wait for what running requests hold.
    pub limits: &'a MoneyConfig,
    /// What its estimate stands on.
    pub basis: &'a Basis,
    /// What its body says.
    pub scan: &'a Scan,
    /// When its head had come.
    pub arrived: Instant,
}

/// Why there is no hold.
#[derive(Debug)]
pub enum NoHold {
    /// Running requests hold all that is left: it is to wait.
    Held(Denied),
    /// To be answered with this.
    Refused(Refusal),
}

impl From<Refusal> for NoHold {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Puts a hold for the request; `None` where nothing is charged. A key that was changed meanwhile is read again once: no limit
/// of a key is said to be reached that has just been raised, on whichever node.
pub async fn hold(
    gateway: &Gateway,
    caller: &Caller,
    asked: &Asked<'_>,
    route: &Route,
) -> Result<Option<Bill>, NoHold> {
    if asked.operation.counts_tokens() {
        return Ok(None);
    }
    if let Some(denied) = gateway.billing.waits_behind(&caller.key) {
        return Err(NoHold::Held(denied));
    }
    let began = clock::instant();
    let first = gateway.billing.admit(wanted(&caller.key, asked, route)).await;
    gateway
        .metrics()
        .admission_took(clock::instant().saturating_duration_since(began));
    let (key, answer) = match first {
        Err(refused) if may_be_outdated(refused) => {
            let key = fresh(gateway, &caller.digest, clock::instant()).await?;
            let is_news = refused == NotAdmitted::StaleKey || key.revision != caller.key.revision;
            let answer = match is_news {
                true => gateway.billing.admit(wanted(&key, asked, route)).await,
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

/// What is said of it that a request was not admitted; it was asked for at `began`.
pub(super) fn refused(gateway: &Gateway, key: &KeyRecord, refused: NotAdmitted, began: Instant) -> Refusal {
    match refused {
        NotAdmitted::Denied(denied) => {
            gateway.lately.refused(&key.id, denied, began);
            refusal(gateway, denied, key)
        }
        // What this node alone knows is no answer of the store: it is not remembered.
        NotAdmitted::DeniedAlone(denied) => refusal(gateway, denied, key),
        NotAdmitted::JournalFull => Refusal::JournalFull,
        // A key that changes faster than it can be read is not served on a guess.
        NotAdmitted::StaleKey | NotAdmitted::StoreAway => Refusal::StoreUnavailable,
    }
}

/// Refuses a key before its body is read if it was refused lately and the store says that it still is: what was changed by an
/// operator meanwhile counts. Whoever passes is asked for again with the body, by [`hold`].
pub async fn refuse_known(gateway: &Gateway, caller: &Caller, operation: Operation) -> Result<(), Refusal> {
    let (id, now) = (&caller.key.id, clock::instant());
    // A store that is away says nothing, and a key at hand has its grace.
    if operation.counts_tokens() || !gateway.keys.store_is_reachable() {
        return Ok(());
    }
    let Some(denied) = gateway.lately.recall(id, now) else {
        return Ok(());
    };
    let key = match may_be_outdated(NotAdmitted::Denied(denied)) {
        true => match fresh(gateway, &caller.digest, now).await {
            // Nobody is refused on a guess.
            Err(Refusal::StoreUnavailable) => return Ok(()),
            found => found?,
        },
        false => Arc::clone(&caller.key),
    };
    match gateway.billing.still_denied(&key, denied).await {
        Some(denied) => Err(refusal(gateway, denied, &key)),
        None => {
            gateway.lately.forget(id);
            Ok(())
        }
    }
}

/// How a store's no is said.
pub(super) fn refusal(gateway: &Gateway, denied: Denied, key: &KeyRecord) -> Refusal {
    match denied {
        Denied::KeyRevoked => Refusal::KeyRevoked,
        Denied::KeyExpired => Refusal::KeyExpired,
        denied => {
            let now = gateway.billing.time().now_seconds(clock::instant());
            Limit::of(denied, key.terms.reset, now).map_or(Refusal::KeyRevoked, Refusal::Limited)
        }
    }
}

/// Whether the refusal rests on what this node knows of the key.
fn may_be_outdated(refused: NotAdmitted) -> bool {
    match refused {
        NotAdmitted::StaleKey => true,
        NotAdmitted::Denied(denied) => match denied {
            Denied::KeyExpired | Denied::QuotaExhausted(_) | Denied::QuotaHeld(_) => true,
            Denied::Concurrency { scope, .. } | Denied::RateLimited { scope, .. } => scope == Scope::Key,
            Denied::KeyRevoked
            | Denied::AccountUnknown
            | Denied::AccountSuspended
            | Denied::BalanceExhausted
            | Denied::BalanceHeld => false,
        },
        NotAdmitted::DeniedAlone(_) | NotAdmitted::StoreAway | NotAdmitted::JournalFull => false,
    }
}

/// The key as the store has it.
pub(super) async fn fresh(gateway: &Gateway, digest: &KeyDigest, now: Instant) -> Result<Arc<KeyRecord>, Refusal> {
    let found = gateway.keys.find_anew(digest, now).await;
    let key = found
        .map_err(|_| Refusal::StoreUnavailable)?
        .ok_or(Refusal::KeyUnknown)?;
    let now = gateway.billing.time().now_seconds(clock::instant());
    key.check(now).map_err(|denied| match denied {
        KeyDenied::Revoked => Refusal::KeyRevoked,
        KeyDenied::Expired => Refusal::KeyExpired,
    })?;
    Ok(key)
}

/// What the request is admitted with.
pub(super) fn wanted<'a>(key: &'a KeyRecord, asked: &Asked<'_>, route: &Route) -> Wanted<'a> {
    let expected = asked.basis.expected(asked.scan);
    Wanted {
        key,
        expected,
        prices: route
            .legs
            .iter()
            .map(|leg| (leg.provider.name.clone(), Arc::clone(&leg.price)))
            .collect(),
        row: Row {
            // By the store's clock, which says when it admits.
            time_ms: 0,
            admitted_ms: 0,
            request_id: asked.request_id.to_owned(),
            account: key.account.clone(),
            key_id: key.id.clone(),
            protocol: asked.operation.protocol().as_str().to_owned(),
            model_asked: asked.model.to_owned(),
            model: route.model.name.clone(),
            provider: route
                .legs
                .first()
                .map_or_else(String::new, |leg| leg.provider.name.clone()),
            status: 0,
            outcome: "crash".to_owned(),
            stream: asked.stream,
            usage: Usage {
                input_uncached: expected.input_total(),
                ..Usage::default()
            },
            usage_source: UsageSource::Estimated,
            parts: Vec::new(),
            modifiers: Modifiers::default(),
            price_version: String::new(),
            cost_nano_usd: NanoUsd::ZERO,
            latency_ms: millis_between(asked.arrived, clock::instant()),
            ttft_ms: None,
        },
    }
}
