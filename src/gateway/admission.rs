//! Admission: reads the body, finds the model's route, puts the hold and issues the ticket.

pub(crate) mod caller;
pub(crate) mod named_state;
pub(crate) mod permits;

use std::sync::Arc;

use http::{HeaderMap, header};
use pingora_proxy::Session;
use rand::RngExt;

use crate::{
    domain::{
        catalogue::route::{Leg, Route},
        faults::{end::End, refusal::Refusal},
        keys::{key::KeyRecord, not_forwarded::PresentedKey, query},
        wire::{
            json_scan::{Scan, ScanLimits},
            operation::Operation,
            protocol::Protocol,
            session_hint::{self, SessionHint},
        },
    },
    edges::clock,
    gateway::{
        admission::caller::Caller,
        attempt::attempts::Attempts,
        estimate::Basis,
        exchange::Exchange,
        forward::Forward,
        key_slots::KeySlot,
        log_entry::LogEntry,
        parts::Gateway,
        peer,
        recipient::{Recipient, owner::Owner},
        request::{
            Request,
            body::RequestBody,
            body_work::{FREE_BYTES_MAX, KeyWork},
            gather,
            head::{self, BodyHead},
            model,
            scanning::{self, AT_ONCE_BYTES_MAX},
        },
        tags,
        ticket::Ticket,
    },
    money::billing::{Admission, AdmissionRequest, Bill, PricedRoute, QueueTicket},
    providers::live::Live,
};

/// Reads the body, finds the model and its route, and puts the hold. A request that is refused, or given up by its client,
/// takes as much of its key's rate as one that is served; not so a token count, which has no part in that.
pub(crate) async fn admit(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    caller: Caller,
    operation: Operation,
    path_model: Option<String>,
) -> Result<Box<Forward>, End> {
    let key = Arc::clone(&caller.key);
    let admitted = consider(gateway, session, exchange, caller, operation, path_model).await;
    let counts = match &admitted {
        Err(End::Refused(refusal)) => refusal.is_of_client(),
        Err(_) => true,
        Ok(_) => false,
    };
    if counts && !operation.counts_tokens() {
        gateway.billing.count_refused(&key);
    }
    admitted
}

async fn consider(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    caller: Caller,
    operation: Operation,
    path_model: Option<String>,
) -> Result<Box<Forward>, End> {
    let live = Arc::clone(&exchange.live);
    let log = &mut *exchange.log;
    let body_head = head::check_body(session.req_header(), live.config.gateway.bodies.bytes_max)?;
    query::check(operation, session.req_header().uri.query()).map_err(|reason| Refusal::QueryInvalid { reason })?;
    let tags = tags::of(session.req_header(), &live.config.gateway)?;
    let count_slot = permits::count_slot(gateway, &live, &caller.key, operation)?;
    let (catalogue, switches) = (&live.catalogue, &gateway.switches);
    // A model named in the path can be refused before the body is read.
    if let Some(model) = &path_model {
        log.record.model_asked = model::known(catalogue, operation, model);
        model::route(catalogue, switches, &caller.key, operation, model)?;
    }
    let by_head = (operation, body_head);
    let (body, scan) = body_unless_refused(gateway, session, &live, &caller, by_head, log).await?;
    log.record.request_bytes = body.bytes.len() as u64;
    check_usage(operation, &scan)?;
    let asked = model::asked(operation, path_model, &scan)?;
    fail::fail_point!("admission");
    log.record.model_asked = model::known(catalogue, operation, &asked);
    let route = model::route(catalogue, switches, &caller.key, operation, &asked)?;
    model::check_named(catalogue, &caller.key, operation, &route, &scan.models, &body.bytes)?;
    let stream = match operation.protocol() {
        Protocol::Gemini => operation == Operation::StreamGenerateContent,
        Protocol::Messages | Protocol::Responses => scan.stream == Some(true),
    };
    let basis = basis(gateway, &live, &caller.key, &route, operation, &scan)?;
    let basis = basis.naming(&scan.models, operation.protocol(), &body.bytes);
    let asking = AdmissionRequest {
        key: caller.found(),
        request_id: &log.record.request_id,
        operation,
        model_asked: &asked,
        stream,
        tags: &tags,
        route: basis.route(),
        estimate: basis.estimate(&scan),
        arrived: log.started,
        limits: &live.config.money,
    };
    let (bill, hint) = hold(gateway, session, &live, &asking, &route, (&scan, &body)).await?;
    log.record.model = Some(route.model.name.clone());
    log.record.stream = stream;
    let ticket = Ticket::issue(log, bill, basis);
    let work = gateway.limits.bodies.work(caller.digest);
    let Caller { key, presented, .. } = caller;
    let query = session.req_header().uri.query();
    let request = Request {
        live,
        operation,
        stream,
        asked,
        model: route.model,
        query: query::forwarded(operation, query, &PresentedKey::new(&presented)),
        presented,
        scan,
    };
    let prepared = prepare(request, route.legs, hint, body);
    let prepared = edit(prepared?, &session.req_header().headers, &work).await?;
    let recipient = recipient(gateway, session, &prepared, key, count_slot);
    let Prepared {
        request,
        attempts,
        body,
    } = prepared;
    Ok(Forward::new(request, attempts, body, ticket, recipient))
}

/// A request whose first endpoint is chosen.
struct Prepared {
    request: Request,
    attempts: Attempts,
    body: RequestBody,
}

impl Prepared {
    /// Edits the body for the first provider.
    fn edit(mut self, headers: &HeaderMap) -> Result<Self, Refusal> {
        let leg = self.attempts.leg();
        let facts = self.request.facts(headers, leg);
        self.body.edit_for(leg, &facts, &self.request.scan)?;
        Ok(self)
    }
}

/// Chooses the first provider and credential.
fn prepare(
    request: Request,
    legs: Vec<Leg>,
    hint: Option<SessionHint>,
    mut body: RequestBody,
) -> Result<Prepared, Refusal> {
    if legs.len() > 1 {
        // Only a further provider needs the body as the client sent it.
        body.keep_original();
    }
    let (pools, probing) = (Arc::clone(&request.live.pools), body.probing());
    let (dice, now) = (rand::rng().random(), clock::instant());
    let attempts = Attempts::begin(request.operation, legs, pools, hint, probing, dice, now);
    Ok(Prepared {
        attempts: attempts.ok_or(Refusal::Internal)?,
        request,
        body,
    })
}

/// Edits the body for the first provider. The edits of a route that has some take another walk over the body, which is done and
/// charged as the scan is.
async fn edit(prepared: Prepared, headers: &HeaderMap, work: &KeyWork) -> Result<Prepared, Refusal> {
    let length = prepared.body.bytes.len();
    if !prepared.attempts.has_edits() || length <= FREE_BYTES_MAX {
        return prepared.edit(headers);
    }
    if length <= AT_ONCE_BYTES_MAX {
        return work.charged(|| prepared.edit(headers));
    }
    let headers = headers.clone();
    // Boxed, because few bodies are so large and each request would carry the room for it.
    Box::pin(work.in_turn(move || prepared.edit(&headers))).await?
}

/// The client of a request, as the first provider's file treats its departure.
fn recipient(
    gateway: &Gateway,
    session: &mut Session,
    prepared: &Prepared,
    key: Arc<KeyRecord>,
    count_slot: Option<KeySlot>,
) -> Recipient {
    let request = &prepared.request;
    let presence = permits::presence(gateway, request, &prepared.attempts.leg().provider);
    Recipient {
        gate: permits::connection(session, request, presence.as_ref()),
        presence,
        owner: Some(Owner::new(
            key,
            session_hint::is_kept(request.operation.protocol(), &request.scan),
        )),
        stream_gauge: request.stream.then(|| gateway.metrics().stream_opened()),
        count_slot,
    }
}

/// What the request's estimates are based on, with the prices of its route.
fn basis(
    gateway: &Gateway,
    live: &Live,
    key: &KeyRecord,
    route: &Route,
    operation: Operation,
    scan: &Scan,
) -> Result<Basis, Refusal> {
    let priced = Arc::new(PricedRoute::of(route).ok_or(Refusal::Internal)?);
    let (learnt, catalogue) = (&gateway.learnt, &live.catalogue);
    let basis = Basis::new(learnt, catalogue, key, &route.model, priced, operation, scan);
    Ok(basis)
}

/// Reads the whole body and scans it, unless the request is refused by its head.
async fn body_unless_refused(
    gateway: &Gateway,
    session: &mut Session,
    live: &Live,
    caller: &Caller,
    (operation, body_head): (Operation, BodyHead),
    log: &mut LogEntry,
) -> Result<(RequestBody, Scan), End> {
    let (billing, key) = (&gateway.billing, caller.found());
    if let Err(refusal) = billing.refuse_early(key, operation, body_head.is_heavy()).await {
        Box::pin(find_model(gateway, session, live, caller, (operation, body_head), log)).await?;
        return Err(refusal.into());
    }
    read_body(gateway, session, live, caller, operation.protocol(), body_head).await
}

/// Reads the body of a request that is refused by its head, for the name of the model, which decides the refusal's form. That is
/// done only where a provider has a form of its own, and the path does not name the model, for a body that is not heavy and whose
/// client does not wait to be asked for it. Whatever is wrong with the body, the refusal stays the same.
async fn find_model(
    gateway: &Gateway,
    session: &mut Session,
    live: &Live,
    caller: &Caller,
    (operation, body_head): (Operation, BodyHead),
    log: &mut LogEntry,
) -> Result<(), End> {
    let is_told_by_head = session.req_header().headers.contains_key(header::EXPECT);
    let is_read = !operation.model_in_path() && !body_head.is_heavy() && !is_told_by_head;
    if !is_read || !live.catalogue.has_own_error_forms(operation.protocol()) {
        return Ok(());
    }
    match read_body(gateway, session, live, caller, operation.protocol(), body_head).await {
        Ok((body, scan)) => {
            log.record.request_bytes = body.bytes.len() as u64;
            if let Ok(asked) = model::asked(operation, None, &scan) {
                log.record.model_asked = model::known(&live.catalogue, operation, &asked);
            }
            Ok(())
        }
        Err(End::Refused(_)) => Ok(()),
        Err(end) => Err(end),
    }
}

/// Reads the whole body and scans it.
async fn read_body(
    gateway: &Gateway,
    session: &mut Session,
    live: &Live,
    caller: &Caller,
    protocol: Protocol,
    body_head: BodyHead,
) -> Result<(RequestBody, Scan), End> {
    let limits = &live.config.gateway;
    let address = peer::client_alone(session, &gateway.limits.trusted_proxies);
    let lease = gateway.limits.bodies.lease(caller.digest, address);
    let work = gateway.limits.bodies.work(caller.digest);
    let reading = async {
        let body = gather::gather(session, body_head, &limits.bodies, lease, &work).await?;
        let limits = ScanLimits {
            depth_max: limits.json_depth_max,
            references_max: limits.references_max,
        };
        let scan = scanning::scan(&body, protocol, limits, &work).await?;
        Ok::<_, End>((body, scan))
    };
    tokio::select! {
        biased;
        read = reading => read,
        () = gateway.drain.out_of_time() => Err(Refusal::Stopping.into()),
    }
}

/// Refuses a request whose usage weir could not observe, such as a background response.
fn check_usage(operation: Operation, scan: &Scan) -> Result<(), Refusal> {
    match scan.unseen_usage {
        Some(place) if operation == Operation::Responses => Err(Refusal::UsageUnseen { place }),
        _ => Ok(()),
    }
}

/// Asks billing for admission, and looks up the state at a provider that the request names. Both may call the store, so they
/// run concurrently. Returns the bill, which a token count has not, and what the choice of provider and credential follows
/// where there is one.
async fn hold(
    gateway: &Gateway,
    session: &mut Session,
    live: &Live,
    asking: &AdmissionRequest<'_>,
    route: &Route,
    (scan, body): (&Scan, &RequestBody),
) -> Result<(Option<Bill>, Option<SessionHint>), End> {
    let key = asking.key.record;
    let named = named_state::look_up(gateway, &key.account, route, scan);
    let admission = async {
        if asking.operation.counts_tokens() {
            return Ok(None);
        }
        let answered = |time| gateway.metrics().admission_took(time);
        gateway.billing.admit(asking, answered).await.map(Some)
    };
    let (named, admission) = tokio::join!(named, admission);
    let bill = match admission? {
        None => None,
        Some(Admission::Admitted(bill)) => Some(bill),
        // Boxed, because few requests wait and each would carry the room for it.
        Some(Admission::Queued(ticket)) => Some(Box::pin(wait(session, ticket)).await?),
    };
    named.refuse_others(gateway, key, bill.as_ref(), &body.bytes).await?;
    let has_choice = route.legs.len() > 1 || live.pools.has_choice(route);
    let headers = &session.req_header().headers;
    let of_session = || session_hint::session(key.id.as_str(), headers, &body.bytes, scan);
    Ok((bill, has_choice.then(|| named.hint().or_else(of_session)).flatten()))
}

/// Waits in the queue while the client is connected.
async fn wait(session: &mut Session, ticket: QueueTicket<'_>) -> Result<Bill, End> {
    tokio::select! {
        biased;
        bill = ticket.admitted() => bill.map_err(End::from),
        () = peer::left(session) => Err(End::ClientLeft),
    }
}
