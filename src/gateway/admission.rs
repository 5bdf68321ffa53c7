//! Admission: authenticates the caller, reads the body, finds the model's route, puts the hold and issues the ticket.

use std::sync::Arc;

use bytes::Bytes;
use pingora_proxy::Session;
use rand::RngExt;

use crate::{
    billing::Bill,
    clock,
    config::GatewayConfig,
    domain::{
        catalogue::Model,
        credential::{self, CredentialError},
        json_scan::{self, Scan, ScanLimits},
        key::{KeyDenied, KeyRecord},
        not_forwarded::PresentedKey,
        operation::Operation,
        protocol::Protocol,
        query,
        refusal::Refusal,
        route::{self, Leg, Route, RouteError},
        rules::{self, RequestFacts},
        secret::KeyPrefix,
        session_hint,
    },
    gateway::{
        Gateway,
        attempts::Attempts,
        body::{self, GatherError, GatheredBody},
        entry::Entry,
        estimate::Basis,
        exchange::Forward,
        funds::{self, Caller},
        held,
        intake::{self, BodyHead, QueryKeys},
        key_slots::KeySlot,
        listing,
        owner::Owner,
        peer, permits, state,
        ticket::Ticket,
    },
    key_cache::FindError,
    live::Live,
};

/// Finds the key's record and checks that it is neither revoked nor expired. Reads no byte of the body.
pub async fn authenticate(
    gateway: &Gateway,
    session: &Session,
    prefix: &KeyPrefix,
    shape: Protocol,
    keys: &QueryKeys,
    entry: &mut Entry,
) -> Result<Caller, Refusal> {
    let offered = intake::offered(session.req_header(), keys);
    let key = credential::take(shape, &offered, prefix).map_err(|error| match error {
        CredentialError::Missing => Refusal::CredentialMissing,
        CredentialError::Ambiguous => Refusal::CredentialAmbiguous,
        CredentialError::Malformed => Refusal::KeyUnknown,
    })?;
    let digest = key.digest();
    let asker = || peer::client(session, &gateway.trusted_proxies);
    let found = gateway.keys.find(&digest, clock::instant(), asker).await;
    let found = found.map_err(|error| match error {
        FindError::Limited { wait } => Refusal::KeyNotLookedUp { wait },
        FindError::Store(error) => {
            tracing::warn!(%error, "the key store did not answer");
            Refusal::StoreUnavailable
        }
    })?;
    let record = found.ok_or(Refusal::KeyUnknown)?;
    entry.record.key_id = Some(record.id.as_str().to_owned());
    entry.record.account = Some(record.account.clone());
    let now = gateway.billing.time().now_seconds(clock::instant());
    record.check(now).map_err(|denied| match denied {
        KeyDenied::Revoked => Refusal::KeyRevoked,
        KeyDenied::Expired => Refusal::KeyExpired,
    })?;
    gateway.keys.touch(&record.id, now);
    Ok(Caller {
        digest,
        key: record,
        presented: key,
    })
}

/// Reads the body, finds the model and its route, and issues the ticket. On refusal the entry goes back to the caller,
/// who closes it.
pub async fn admit(
    gateway: &Gateway,
    session: &mut Session,
    live: &Arc<Live>,
    caller: Caller,
    operation: Operation,
    path_model: Option<String>,
    mut entry: Entry,
) -> Result<Forward, (Entry, GatherError)> {
    match prepare(gateway, session, live, &caller, operation, path_model, &mut entry).await {
        Ok(prepared) => Ok(forward(gateway, session, live, caller, operation, prepared, entry)),
        Err(error) => Err((entry, error)),
    }
}

struct Prepared {
    bill: Option<Bill>,
    basis: Basis,
    asked: String,
    model: Arc<Model>,
    attempts: Attempts,
    stream: bool,
    scan: Scan,
    body: GatheredBody,
    count_slot: Option<KeySlot>,
}

async fn prepare(
    gateway: &Gateway,
    session: &mut Session,
    live: &Arc<Live>,
    from: &Caller,
    operation: Operation,
    path_model: Option<String>,
    entry: &mut Entry,
) -> Result<Prepared, GatherError> {
    let key = &from.key;
    let limits = &live.config.gateway;
    let body_head = intake::check_body_head(session.req_header(), limits.body_bytes_max)?;
    query::check(operation, session.req_header().uri.query()).map_err(|reason| Refusal::QueryInvalid { reason })?;
    let count_slot = permits::count_slot(gateway, live, key, operation)?;
    // A model named in the path can be refused before the body is read.
    if let Some(model) = &path_model {
        routed(gateway, live, key, operation, model, entry)?;
    }
    funds::refuse_known(gateway, from, operation).await?;
    let (mut body, scan) = read_body(gateway, session, limits, body_head).await?;
    entry.record.request_bytes = body.bytes.len() as u64;
    check_usage(operation, &scan)?;
    let model = asked_model(operation, path_model, &scan)?;
    fail::fail_point!("admission");
    let route = routed(gateway, live, key, operation, &model, entry)?;
    let shared = route.legs.len() > 1 || live.pools.has_choice(&route);
    let stream = match operation.protocol() {
        Protocol::Gemini => operation == Operation::StreamGenerateContent,
        Protocol::Messages | Protocol::Responses => scan.stream == Some(true),
    };
    let basis = Basis::new(&gateway.learnt, &live.catalogue, key, &route.model, operation, &scan);
    let asked = funds::Asked {
        request_id: &entry.record.request_id,
        operation,
        model: &model,
        stream,
        limits: &live.config.money,
        basis: &basis,
        scan: &scan,
        arrived: entry.started,
    };
    // Both may call the store, so they run concurrently.
    let named = state::look_up(gateway, &key.account, operation, &scan);
    let (named, bill) = tokio::join!(named, funds::hold(gateway, from, &asked, &route));
    let bill = match bill {
        Err(no_hold) => held::wait(gateway, session, from, &asked, &route, no_hold).await?,
        Ok(bill) => bill,
    };
    named.refuse_others(gateway, key, bill.as_ref(), &body.bytes).await?;
    let headers = &session.req_header().headers;
    let of_session = || session_hint::session(key.id.as_str(), headers, &body.bytes, &scan);
    let hint = shared.then(|| named.hint().or_else(of_session)).flatten();
    // Only a further provider needs the body as the client sent it.
    body.original = (route.legs.len() > 1).then(|| body.bytes.clone());
    let dice = rand::rng().random();
    let attempts = Attempts::begin(
        operation,
        route.legs,
        Arc::clone(&live.pools),
        hint,
        body.probing(),
        dice,
        clock::instant(),
    )
    .ok_or(Refusal::Internal)?;
    edit_body(session, operation, &model, attempts.leg(), &scan, &mut body)?;
    Ok(Prepared {
        bill,
        basis,
        asked: model,
        model: route.model,
        attempts,
        stream,
        scan,
        body,
        count_slot,
    })
}

/// Reads the whole body and scans it.
async fn read_body(
    gateway: &Gateway,
    session: &mut Session,
    limits: &GatewayConfig,
    body_head: BodyHead,
) -> Result<(GatheredBody, Scan), GatherError> {
    let gathered = body::gather(
        session,
        body_head,
        limits.body_bytes_max,
        limits.body_pace(),
        &gateway.budget,
    );
    let body = tokio::select! {
        biased;
        gathered = gathered => gathered?,
        () = gateway.drain.out_of_time() => return Err(Refusal::Stopping.into()),
    };
    let scan = json_scan::scan(
        &body.bytes,
        &ScanLimits {
            depth_max: limits.json_depth_max,
        },
    )
    .map_err(|error| Refusal::BodyInvalid {
        reason: error.to_string(),
    })?;
    Ok((body, scan))
}

/// Refuses a request whose usage weir could not observe, such as a background response.
fn check_usage(operation: Operation, scan: &Scan) -> Result<(), Refusal> {
    match scan.unseen_usage {
        Some(place) if operation == Operation::Responses => Err(Refusal::UsageUnseen { place }),
        _ => Ok(()),
    }
}

/// Applies the provider's edits to the client's body. The edited copy counts in the budget, in addition to the original
/// while that is kept for a further provider.
pub fn edit_body(
    session: &Session,
    operation: Operation,
    asked: &str,
    leg: &Leg,
    scan: &Scan,
    body: &mut GatheredBody,
) -> Result<(), Refusal> {
    let facts = RequestFacts {
        operation,
        model: asked,
        upstream_model: &leg.upstream_model,
        headers: &session.req_header().headers,
    };
    let edited =
        rules::edit_body(&leg.provider.body, &facts, &body.bytes, scan).map_err(|error| Refusal::BodyInvalid {
            reason: error.to_string(),
        })?;
    if let Some(edited) = edited {
        let kept = body.original.as_ref().map_or(0, Bytes::len);
        let more = ((edited.len() + kept) as u64).saturating_sub(body.lease.bytes());
        if !body.lease.grow(more) {
            return Err(Refusal::BodyBudgetExhausted);
        }
        body.bytes = edited.into();
    }
    Ok(())
}

fn asked_model(operation: Operation, path_model: Option<String>, scan: &Scan) -> Result<String, Refusal> {
    let invalid = |reason: &str| Refusal::BodyInvalid {
        reason: reason.to_owned(),
    };
    if let Some(model) = path_model {
        if operation == Operation::GeminiCountTokens || scan.has_contents {
            return Ok(model);
        }
        return Err(invalid("`contents` is missing: a generateContent request needs it"));
    }
    match &scan.model {
        Some(model) if model.text.is_empty() => Err(invalid("`model` is empty: name the model that is to answer")),
        Some(model) => Ok(model.text.clone()),
        None => Err(invalid("`model` is missing: name the model that is to answer")),
    }
}

fn routed(
    gateway: &Gateway,
    live: &Live,
    key: &KeyRecord,
    operation: Operation,
    model: &str,
    entry: &mut Entry,
) -> Result<Route, Refusal> {
    let name = || model.to_owned();
    if !json_scan::is_plausible_model(model) {
        return Err(Refusal::ModelUnknown { model: name() });
    }
    if live.catalogue.resolve(operation.protocol(), model).is_some() {
        // Only known names are logged: an unknown one may be anything, even a key pasted into the wrong field.
        entry.record.model_asked = Some(name());
    }
    let is_off = |provider: &str| gateway.switches.is_off(provider);
    let route = route::route(&live.catalogue, operation, model, is_off).map_err(|error| match error {
        RouteError::ModelUnknown => Refusal::ModelUnknown { model: name() },
        RouteError::ModelNotServed { protocols } => Refusal::ModelNotServed {
            model: name(),
            protocols,
        },
        RouteError::CountTokensUnsupported => Refusal::CountTokensUnsupported {
            model: name(),
            possible: listing::serving(&live.catalogue, key, operation),
        },
        RouteError::ProviderOff => Refusal::ProviderDisabled { model: name() },
    })?;
    if !key.allows_model(&route.model.name) {
        return Err(Refusal::ModelNotAllowed { model: name() });
    }
    Ok(route)
}

fn forward(
    gateway: &Gateway,
    session: &mut Session,
    live: &Arc<Live>,
    caller: Caller,
    operation: Operation,
    prepared: Prepared,
    mut entry: Entry,
) -> Forward {
    let Prepared {
        bill,
        basis,
        asked,
        model,
        attempts,
        stream,
        scan,
        body,
        count_slot,
    } = prepared;
    let Caller { key, presented, .. } = caller;
    entry.record.model = Some(model.name.clone());
    entry.record.stream = stream;
    let query = session.req_header().uri.query();
    let query = query::forwarded(operation, query, &PresentedKey::new(&presented));
    let (presence, gate) = if operation.counts_tokens() {
        // Counting is free and creates no state, so an answer that nobody reads has no use.
        (None, Arc::default())
    } else {
        let presence = permits::presence(gateway, live, &attempts.leg().provider, &model, stream);
        let taking = live.config.gateway.answer_pace();
        let gate = permits::connection(session, presence.as_ref(), taking);
        (presence, gate)
    };
    Forward {
        ticket: Ticket::issue(entry, bill, basis),
        operation,
        stream,
        live: Arc::clone(live),
        asked,
        presented,
        owner: Some(Owner::new(key, session_hint::is_kept(operation.protocol(), &scan))),
        gate,
        model,
        edited_for: attempts.legs_left_behind(),
        attempts,
        scan,
        query,
        body: Some(body),
        replay_bytes: 0,
        watch: None,
        head_seen: false,
        again: false,
        rewriter: None,
        doubtful: None,
        error_answer: None,
        whole_error: None,
        refusal: None,
        stream_gauge: stream.then(|| gateway.metrics().stream_opened()),
        presence,
        count_slot,
    }
}

/// Whether a further attempt can send the body again.
pub fn can_resend(forward: &Forward) -> bool {
    forward.body.as_ref().is_some_and(GatheredBody::can_resend)
}
