//! What a request may cost, and whether its key and account can pay for it.

use std::{sync::Arc, time::Instant};

use crate::{
    billing::{Bill, NotAdmitted, Wanted},
    clock,
    domain::{
        consumption::{Modifiers, Row, UsageSource},
        key::{KeyDenied, KeyRecord},
        ledger::{Denied, Scope},
        money::NanoUsd,
        operation::Operation,
        refusal::{Limit, Refusal},
        route::Route,
        secret::KeyDigest,
        usage::Usage,
    },
    gateway::Gateway,
};

/// Whose request it is.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The digest of the key.
    pub digest: KeyDigest,
    /// The key.
    pub key: Arc<KeyRecord>,
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
    /// What it is estimated at.
    pub tokens: Tokens,
}

/// An estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Of the input.
    pub input: u64,
    /// Of the output.
    pub output: u64,
}

/// Puts a hold for the request; `None` where nothing is charged. A key that was changed meanwhile is read again once: no limit
/// of a key is said to be reached that has just been raised, on whichever node.
pub async fn hold(
    gateway: &Gateway,
    caller: &Caller,
    asked: &Asked<'_>,
    route: &Route,
) -> Result<Option<Bill>, Refusal> {
    if asked.operation.counts_tokens() {
        return Ok(None);
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
    answer.map(Some).map_err(|refused| match refused {
        NotAdmitted::Denied(denied) => {
            gateway.lately.refused(&key.id, denied, began);
            refusal(denied, &key)
        }
        NotAdmitted::JournalFull => Refusal::JournalFull,
        // A key that changes faster than it can be read is not served on a guess.
        NotAdmitted::StaleKey | NotAdmitted::StoreAway => Refusal::StoreUnavailable,
    })
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
        Some(denied) => Err(refusal(denied, &key)),
        None => {
            gateway.lately.forget(id);
            Ok(())
        }
    }
}

/// How a store's no is said.
fn refusal(denied: Denied, key: &KeyRecord) -> Refusal {
    match denied {
        Denied::KeyRevoked => Refusal::KeyRevoked,
        Denied::KeyExpired => Refusal::KeyExpired,
        denied => {
            Limit::of(denied, key.terms.reset, clock::unix_seconds()).map_or(Refusal::KeyRevoked, Refusal::Limited)
        }
    }
}

/// Whether the refusal rests on what this node knows of the key.
fn may_be_outdated(refused: NotAdmitted) -> bool {
    match refused {
        NotAdmitted::StaleKey => true,
        NotAdmitted::Denied(denied) => match denied {
            Denied::KeyExpired | Denied::QuotaExhausted { .. } => true,
            Denied::Concurrency { scope, .. } | Denied::RateLimited { scope, .. } => scope == Scope::Key,
            Denied::KeyRevoked | Denied::AccountUnknown | Denied::AccountSuspended | Denied::BalanceExhausted => false,
        },
        NotAdmitted::StoreAway | NotAdmitted::JournalFull => false,
    }
}

async fn fresh(gateway: &Gateway, digest: &KeyDigest, now: Instant) -> Result<Arc<KeyRecord>, Refusal> {
    let found = gateway.keys.find_anew(digest, now).await;
    let key = found
        .map_err(|_| Refusal::StoreUnavailable)?
        .ok_or(Refusal::KeyUnknown)?;
    key.check(clock::unix_seconds()).map_err(|denied| match denied {
        KeyDenied::Revoked => Refusal::KeyRevoked,
        KeyDenied::Expired => Refusal::KeyExpired,
    })?;
    Ok(key)
}

fn wanted<'a>(key: &'a KeyRecord, asked: &Asked<'_>, route: &Route) -> Wanted<'a> {
    let now = clock::unix_millis();
    Wanted {
        key,
        output_tokens: asked.tokens.output,
        prices: route
            .legs
            .iter()
            .map(|leg| (leg.provider.name.clone(), Arc::clone(&leg.price)))
            .collect(),
        row: Row {
            time_ms: now,
            admitted_ms: now,
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
                input_uncached: asked.tokens.input,
                ..Usage::default()
            },
            usage_source: UsageSource::Estimated,
            parts: Vec::new(),
            modifiers: Modifiers::default(),
            price_version: String::new(),
            cost_nano_usd: NanoUsd::ZERO,
            latency_ms: 0,
            ttft_ms: None,
        },
    }
}
