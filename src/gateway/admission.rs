//! Admits requests: reads the body, finds the route to the requested model, takes the hold and issues the ticket.

use std::{pin::pin, sync::Arc, time::Duration};

use http::{HeaderMap, header};
use pingora_proxy::Session;
use rand::RngExt;
use smol_str::SmolStr;

use crate::{
    domain::{
        faults::{End, refusal::Refusal},
        keys::{
            KeyRecord,
            forwarding::{self, PresentedKey},
        },
        wire::{
            json_scan::{Scan, ScanLimits},
            operation::Operation,
            protocol::Protocol,
            session_hint::{self, SessionHint},
        },
    },
    edges::clock,
    gateway::{
        attempt::attempts::AttemptPlan,
        caller::Caller,
        client::Client,
        exchange::Exchange,
        forward::Forward,
        key_slots::KeySlot,
        parts::Gateway,
        provider_state,
        request::{
            self, Request,
            body::RequestBody,
            body_work::{FREE_BYTES_MAX, KeyWork},
            head::{self, BodyHead},
            read_body::{self, AT_ONCE_TOKENS_MAX},
        },
        ticket::Ticket,
        turn_link::turn_link,
        usage_estimate::UsageEstimator,
    },
    money::billing::{Admission, AdmissionRequest, AdmissionStart, Bill, QueueTicket},
    providers::{ConfigSnapshot, Route},
};

/// The party that answers an admitted request.
pub(crate) enum AdmissionOutcome {
    /// A provider answers it.
    Forward(Box<Forward>),
    /// weir itself answers the request, because the client only uses it to prepare a conversation on its socket. The string is
    /// the name of the model as the client sent it.
    WarmUp(String),
}

/// Admits a request: reads its body, finds the requested model and its route, and takes the hold. A request that is refused
/// through the client's fault, or whose client disconnects, counts towards the key's request rate like a served one. A request
/// for a token count never does.
pub(crate) async fn admit(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    caller: Caller,
    operation: Operation,
    path_model: Option<String>,
) -> Result<AdmissionOutcome, End> {
    let key = Arc::clone(&caller.key);
    let admitted = try_admit(gateway, session, exchange, caller, operation, path_model).await;
    let counts = match &admitted {
        Err(End::Refused(refusal)) => refusal.is_client_fault(),
        Err(_) | Ok(AdmissionOutcome::WarmUp(_)) => true,
        Ok(AdmissionOutcome::Forward(_)) => false,
    };
    if counts && !operation.is_token_count() {
        gateway.billing.count_refused(&key);
    }
    admitted
}

async fn try_admit(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    caller: Caller,
    operation: Operation,
    path_model: Option<String>,
) -> Result<AdmissionOutcome, End> {
    let live = Arc::clone(&exchange.live);
    let body_head = head::check_body(session.req_header(), live.config.gateway.bodies.bytes_max)?;
    forwarding::check_query(operation, session.req_header().uri.query())
        .map_err(|reason| Refusal::QueryInvalid { reason })?;
    let tags = head::read_tags(session.req_header(), &live.config.gateway)?;
    let count_slot = count_slot(gateway, &live, &caller.key, operation)?;
    let read = read_request(gateway, session, exchange, &caller, operation, path_model, body_head).await?;
    let log = &mut *exchange.log;
    if turn_link(session).is_some_and(|link| link.is_warm_up()) {
        log.record.model = Some(read.route.prices.model.clone());
        log.record.stream = true;
        return Ok(AdmissionOutcome::WarmUp(read.asked));
    }
    let stream = is_stream(operation, &read.scan);
    let basis = usage_estimator(gateway, &live, &caller.key, &read, operation);
    let asking = AdmissionRequest {
        key: caller.key_for_billing(),
        request_id: &log.record.request_id,
        operation,
        model_asked: &read.asked,
        stream,
        transport: log.record.transport(),
        tags: &tags,
        route: basis.route(),
        estimate: basis.estimate(&read.scan),
        arrived: log.started,
        limits: &live.config.money,
    };
    let (bill, hint) = request_admission(gateway, session, &asking, &read).await?;
    log.record.model = Some(read.route.prices.model.clone());
    log.record.stream = stream;
    let ticket = Ticket::issue(log, bill, basis);
    let Caller { key, presented, digest } = caller;
    let query = session.req_header().uri.query();
    let request = Request {
        live,
        operation,
        stream,
        asked: read.asked,
        model: Arc::clone(&read.route.model),
        query: forwarding::forwarded_query(operation, query, &PresentedKey::new(&presented)),
        presented,
        scan: read.scan,
    };
    let client = Client::new(gateway.metrics(), session, &request, key, count_slot);
    let forward = begin_forward(request, read.body, (&read.route, hint), ticket, client)?;
    let work = gateway.limits.bodies.work(digest);
    let mut forward = edit_body(forward, &session.req_header().headers, &work).await?;
    forward.connect_client(session, &gateway.limits.detached_permits, &gateway.reporters.metrics);
    Ok(AdmissionOutcome::Forward(forward))
}

/// A request whose body has been read: the body, the facts in it, and the route to the requested model.
struct RoutedRequest {
    body: RequestBody,
    scan: Box<Scan>,
    /// The model's name as the client sent it.
    asked: String,
    route: Arc<Route>,
}

/// Reads a request's body and finds the route to the requested model. If the request can be refused without its body, the body is
/// not read.
async fn read_request(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    caller: &Caller,
    operation: Operation,
    path_model: Option<String>,
    body_head: BodyHead,
) -> Result<RoutedRequest, End> {
    let (live, record) = (&exchange.live, &mut exchange.log.record);
    let (catalogue, switches) = (&live.catalogue, &gateway.switches);
    let mut by_path = None;
    // If the path names the model, the request can be refused because of that model before the body is read.
    if let Some(asked) = &path_model {
        let model = request::find_model(catalogue, operation, asked)?;
        record.model_asked = Some(asked.as_str().into());
        request::find_route(live, switches, &caller.key, operation, asked, model)?;
        by_path = Some(model);
    }
    let (billing, is_heavy) = (&gateway.billing, body_head.is_heavy());
    if let Err(refusal) = billing
        .refuse_early(caller.key_for_billing(), operation, is_heavy)
        .await
    {
        let found = Box::pin(find_model(gateway, session, live, caller, operation, body_head)).await?;
        if let Some((request_bytes, model)) = found {
            (record.request_bytes, record.model_asked) = (request_bytes, model);
        }
        return Err(refusal.into());
    }
    let (body, scan) = read_body(gateway, session, live, caller, operation.protocol(), body_head).await?;
    record.request_bytes = body.bytes.len() as u64;
    check_usage(operation, &scan)?;
    let asked = request::requested_name(operation, path_model, &scan)?;
    fail::fail_point!("admission");
    let model = by_path.map_or_else(|| request::find_model(catalogue, operation, &asked), Ok)?;
    record.model_asked = Some(asked.as_str().into());
    let route = request::find_route(live, switches, &caller.key, operation, &asked, model)?;
    request::check_named_models(catalogue, &caller.key, operation, &route, &scan.models, &body.bytes)?;
    Ok(RoutedRequest {
        body,
        scan,
        asked,
        route,
    })
}

/// Chooses the provider and credential of the first attempt, and builds the request that is forwarded.
fn begin_forward(
    request: Request,
    mut body: RequestBody,
    (route, hint): (&Arc<Route>, Option<SessionHint>),
    ticket: Ticket,
    client: Client,
) -> Result<Box<Forward>, Refusal> {
    if route.endpoints.len() > 1 || route.is_translated() {
        // The client's original body is needed again only for an attempt at another provider, or for another translation.
        body.keep_original();
    }
    let (dice, now) = (rand::rng().random(), clock::instant());
    let attempts = AttemptPlan::begin(route, hint, body.probing(), dice, now).ok_or(Refusal::Internal)?;
    Ok(Forward::new(request, attempts, body, ticket, client))
}

/// Edits the body for the first provider. If the route has edits, they take another pass over the body. That pass is charged to
/// the key, as the scan is. It runs on this thread only if the body is small enough to be scanned completely on this thread.
async fn edit_body(mut forward: Box<Forward>, headers: &HeaderMap, work: &KeyWork) -> Result<Box<Forward>, Refusal> {
    let is_quick = |body: &RequestBody| {
        read_body::can_scan_at_once(body) && forward.request.scan.tape.tokens() <= AT_ONCE_TOKENS_MAX
    };
    let length = forward.body.as_ref().map_or(0, |body| body.bytes.len());
    if !forward.attempts.has_edits() || length <= FREE_BYTES_MAX {
        forward.edit_body(headers)?;
    } else if forward.body.as_ref().is_some_and(is_quick) {
        work.run_charged(|| forward.edit_body(headers))?;
    } else {
        let headers = headers.clone();
        let edited = work.run_in_turn(move || forward.edit_body(&headers).map(|()| forward));
        // Boxed: otherwise the future of every request would reserve memory for this rare case.
        return Box::pin(edited).await?;
    }
    Ok(forward)
}

/// Acquires one of the key's slots for token counts; returns `None` for other operations. Agents request token counts in bursts
/// (25 requests at once were observed). These requests are free, so they have a limit of their own (docs/interface.md, Token
/// counts).
fn count_slot(
    gateway: &Gateway,
    live: &ConfigSnapshot,
    key: &KeyRecord,
    operation: Operation,
) -> Result<Option<KeySlot>, Refusal> {
    if !operation.is_token_count() {
        return Ok(None);
    }
    let concurrency = live.config.gateway.count_tokens_concurrency;
    let slot = gateway.limits.count_slots.acquire(key.id.as_str(), concurrency);
    slot.map(Some).ok_or(Refusal::CountTokensBusy { concurrency })
}

/// Builds the estimator of the request's usage, with the prices of the request's route.
fn usage_estimator(
    gateway: &Gateway,
    live: &ConfigSnapshot,
    key: &KeyRecord,
    read: &RoutedRequest,
    operation: Operation,
) -> UsageEstimator {
    let (learnt, catalogue) = (&gateway.learnt, &live.catalogue);
    let (model, prices) = (&read.route.model, Arc::clone(&read.route.prices));
    let mut basis = UsageEstimator::new(learnt, catalogue, key, model, prices, operation, &read.scan);
    basis.set_named_models(&read.scan.models, operation.protocol(), &read.body.bytes);
    basis
}

/// Finds the model of a request that billing has already refused. The form of the refusal depends on the model's provider. Reads
/// the body, but only if all of these are true: some provider has its own form of errors, the path does not name the model, the
/// body is not heavy (see `BodyHead::is_heavy`), and the client does not wait for `100 Continue`. An invalid body does not change
/// the refusal. Returns `None` if no valid body was read. Otherwise, returns the body's length in bytes, and the model's name if
/// the catalogue has the model.
async fn find_model(
    gateway: &Gateway,
    session: &mut Session,
    live: &ConfigSnapshot,
    caller: &Caller,
    operation: Operation,
    body_head: BodyHead,
) -> Result<Option<(u64, Option<SmolStr>)>, End> {
    let is_told_by_head = session.req_header().headers.contains_key(header::EXPECT);
    let is_read = !operation.has_model_in_path() && !body_head.is_heavy() && !is_told_by_head;
    if !is_read || !live.catalogue.has_own_error_forms(operation.protocol()) {
        return Ok(None);
    }
    match read_body(gateway, session, live, caller, operation.protocol(), body_head).await {
        Ok((body, scan)) => {
            let asked = request::requested_name(operation, None, &scan).ok();
            let known = asked.filter(|asked| request::find_model(&live.catalogue, operation, asked).is_ok());
            Ok(Some((body.bytes.len() as u64, known.map(SmolStr::from))))
        }
        Err(End::Refused(_)) => Ok(None),
        Err(end) => Err(end),
    }
}

/// Reads the complete body and scans it. Refuses the request if the drain ends meanwhile.
async fn read_body(
    gateway: &Gateway,
    session: &mut Session,
    live: &ConfigSnapshot,
    caller: &Caller,
    protocol: Protocol,
    body_head: BodyHead,
) -> Result<(RequestBody, Box<Scan>), End> {
    let limits = &live.config.gateway;
    let address = head::known_client(session, &gateway.limits.trusted_proxies);
    let lease = gateway.limits.bodies.lease(caller.digest, address);
    let work = gateway.limits.bodies.work(caller.digest);
    let link = turn_link(session).cloned();
    let reading = pin!(async {
        // The message of a socket has been read before its request began.
        let (body, fault) = match link {
            Some(link) => {
                let metrics = Arc::clone(&gateway.reporters.metrics);
                // Boxed: otherwise the future of every request would reserve memory for this one, which only requests on sockets
                // need.
                Box::pin(link.read_body_in_share(limits.bodies.bytes_max, metrics, &work)).await?
            }
            None => (
                read_body::read_body(session, body_head, &limits.bodies, lease, &work).await?,
                None,
            ),
        };
        let limits = ScanLimits {
            depth_max: limits.json_depth_max,
            references_max: limits.references_max,
        };
        let scan = read_body::scan(&body, protocol, limits, &work).await?;
        match fault {
            Some(reason) => Err(End::from(Refusal::BodyInvalid {
                reason: reason.to_owned(),
            })),
            None => Ok((body, scan)),
        }
    });
    tokio::select! {
        biased;
        read = reading => read,
        () = gateway.drain.expired() => Err(Refusal::Stopping.into()),
    }
}

/// Whether the client requests a streamed answer.
fn is_stream(operation: Operation, scan: &Scan) -> bool {
    match operation.protocol() {
        Protocol::Gemini => operation == Operation::StreamGenerateContent,
        Protocol::Messages | Protocol::Responses => scan.stream == Some(true),
    }
}

/// Refuses a Responses request whose usage weir could not observe, such as a background response.
fn check_usage(operation: Operation, scan: &Scan) -> Result<(), Refusal> {
    match scan.unseen_usage {
        Some(place) if operation == Operation::Responses => Err(Refusal::UsageUnseen { place }),
        _ => Ok(()),
    }
}

/// Requests admission from billing, and looks up the provider state that the request names. If both call the store, the calls run
/// concurrently. Returns the bill (`None` for a token count) and the hint for the choice of provider and credential (`None` if
/// the route leaves no choice, or if nothing gives a hint).
async fn request_admission(
    gateway: &Gateway,
    session: &mut Session,
    asking: &AdmissionRequest<'_>,
    read: &RoutedRequest,
) -> Result<(Option<Bill>, Option<SessionHint>), End> {
    let (key, route, scan, body) = (asking.key.record, &read.route, &read.scan, &read.body.bytes);
    let named = provider_state::look_up(&gateway.sessions, &key.account, route, scan);
    let mut answered = |time: Duration| gateway.metrics().store.admission.observe(time.as_secs_f64());
    // A token count is free, so it needs no admission by billing.
    let admitting = (!asking.operation.is_token_count()).then(|| gateway.billing.admit(asking, &mut answered));
    let (named, admission) = match admitting {
        None => (named.await, None),
        Some(AdmissionStart::Decided(admission)) => {
            let admission = admission?;
            (named.await, Some(admission))
        }
        Some(AdmissionStart::Pending(pending)) => {
            let (named, admission) = tokio::join!(named, Box::pin(pending.decide(&mut answered)));
            (named, Some(admission?))
        }
    };
    let bill = match admission {
        None => None,
        Some(Admission::Admitted(bill)) => Some(bill),
        // Boxed: otherwise the future of every request would reserve memory for the few that wait.
        Some(Admission::Queued(ticket)) => Some(Box::pin(wait_in_queue(session, ticket)).await?),
    };
    named
        .check_ownership(&gateway.billing, key, bill.as_ref(), body)
        .await?;
    let headers = &session.req_header().headers;
    let of_session = || session_hint::session_hint(key.id.as_str(), headers, body, scan);
    let hint = route.has_choice().then(|| named.hint().or_else(of_session));
    Ok((bill, hint.flatten()))
}

/// Waits in the queue until the request is admitted or refused, or its client disconnects.
async fn wait_in_queue(session: &mut Session, ticket: QueueTicket<'_>) -> Result<Bill, End> {
    tokio::select! {
        biased;
        bill = ticket.wait_for_admission() => bill.map_err(End::from),
        () = head::wait_for_disconnect(session) => Err(End::ClientLeft),
    }
}
