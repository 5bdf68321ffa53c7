//! Receives a request: reads its head, and decides whether a provider or weir itself answers it.

use std::time::Duration;

use http::StatusCode;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::{
            End,
            refusal::{Refusal, RefusalReply},
        },
        keys::KeyRecord,
        ledger::reports,
        wire::operation::RequestTarget,
    },
    edges::clock,
    gateway::{
        admission::{self, AdmissionOutcome},
        answer::fields,
        caller::{self, Caller},
        client_stream,
        exchange::{Exchange, RequestStage},
        forward::Forward,
        handshake::{self, SocketHandshake},
        parts::Gateway,
        reply,
        request::head::{self, QueryKeys},
        turn_link::turn_link,
    },
    stability::public::PublicResponse,
    telemetry::access_log::SocketMark,
};

/// The way in which a request is answered.
enum RequestDecision {
    /// A provider answers it.
    Forward(Box<Forward>),
    /// weir answers it.
    Reply(RefusalReply),
    /// The public stability service or the portal answers the request. The string is the operation's name in the access log.
    Publish(&'static str, PublicResponse),
    /// The connection becomes a socket.
    OpenSocket(Box<SocketHandshake>),
}

/// Receives a request's head: sets the connection's timeouts, and removes keys from the query.
pub(crate) fn receive_head(gateway: &Gateway, session: &mut Session, exchange: &mut Exchange) {
    let limits = &exchange.live.config.gateway;
    client_stream::offer_keepalive(session, limits.keepalive);
    client_stream::withdraw_keepalive(session, &gateway.drain);
    if session.is_http2() {
        // Over HTTP/1.1, the client's connection itself limits the time of writes (`ClientConnection`).
        session.set_write_timeout(Some(limits.write));
    }
    session.set_total_drain_timeout(Some(Duration::from_secs(1)));
    fields::suppress_interim_heads(session);
    head::forget_spelling(session.req_header_mut());
    let query_keys = head::strip_query_keys(session.req_header_mut());
    exchange.protocol = head::protocol(session.req_header(), &query_keys);
    let record = &mut exchange.log.record;
    record.protocol = Some(exchange.protocol.as_str());
    record.client_version = if session.is_http2() { 2 } else { 1 };
    record.socket = turn_link(session).map(|link| link.mark());
    exchange.stage = RequestStage::Arrived(query_keys);
}

/// Reads and checks the request. Returns true if weir has answered the request itself, so that nothing is forwarded.
pub(crate) async fn respond(gateway: &Gateway, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
    fail::fail_point!("request_filter");
    let RequestStage::Arrived(query_keys) = exchange.take_stage() else {
        return Error::e_explain(ErrorType::InternalError, "the request has no arrival stage");
    };
    let decision = decide(gateway, session, exchange, &query_keys).await;
    client_stream::withdraw_keepalive(session, &gateway.drain);
    match decision {
        Ok(RequestDecision::Forward(forward)) => {
            head::end_connection(session.req_header_mut());
            exchange.stage = RequestStage::Forwarding(forward);
            return Ok(false);
        }
        Ok(RequestDecision::Reply(answer)) => reply::send_reply(session, exchange, answer).await,
        Ok(RequestDecision::Publish(operation, answer)) => {
            reply::send_published(session, exchange, operation, answer).await
        }
        Ok(RequestDecision::OpenSocket(handshake)) => open_socket(session, exchange, handshake).await?,
        Err(End::Refused(refusal)) => {
            if refusal.status() == StatusCode::UNAUTHORIZED.as_u16()
                && let Some(link) = turn_link(session)
            {
                link.on_key_refused();
            }
            reply::refuse(session, exchange, refusal).await?;
        }
        Err(end) => {
            exchange.log.close(&end);
            return Err(Error::explain(ErrorType::ConnectionClosed, "the client left while sending").into_down());
        }
    }
    Ok(true)
}

async fn decide(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    keys: &QueryKeys,
) -> Result<RequestDecision, End> {
    head::check_size(session.req_header(), &exchange.live.config.gateway)?;
    if let Some(answer) = reply::find_published(&gateway.pages.public, gateway.billing.time(), session) {
        return Ok(RequestDecision::Publish("stability", answer));
    }
    if let Some(portal) = &gateway.pages.portal
        && let Some((operation, answer)) = reply::find_portal_response(portal, session).await
    {
        return Ok(RequestDecision::Publish(operation, answer));
    }
    let target = head::target(session.req_header())?;
    exchange.log.record.operation = match &target {
        RequestTarget::Forward { operation, .. } => Some(operation.as_str()),
        RequestTarget::ListModels | RequestTarget::ShowModel { .. } => Some("models"),
        RequestTarget::OwnUsage => Some("own_usage"),
        RequestTarget::ManagedSettings | RequestTarget::Spend => Some("agents"),
        RequestTarget::Socket => Some("socket"),
        RequestTarget::Hello => Some("hello"),
    };
    let reply = match target {
        RequestTarget::Hello => reply::hello_reply(),
        RequestTarget::OwnUsage => Box::pin(own_usage_reply(gateway, session, exchange, keys)).await?,
        RequestTarget::ManagedSettings | RequestTarget::Spend => {
            Box::pin(agent_reply(gateway, session, exchange, keys, &target)).await?
        }
        RequestTarget::Forward { operation, model } => {
            let caller = authenticate(gateway, session, exchange, keys).await?;
            if gateway.drain.running() > gateway.limits.running_max {
                return Err(Refusal::TooManyRunning.into());
            }
            match admission::admit(gateway, session, exchange, caller, operation, model).await? {
                AdmissionOutcome::Forward(forward) => return Ok(RequestDecision::Forward(forward)),
                AdmissionOutcome::WarmUp(model) => reply::warm_up_reply(&model, clock::unix_seconds()),
            }
        }
        RequestTarget::Socket => {
            let handshake = Box::pin(accept_socket(gateway, session, exchange, keys)).await?;
            return Ok(RequestDecision::OpenSocket(handshake));
        }
        RequestTarget::ListModels => {
            let caller = authenticate(gateway, session, exchange, keys).await?;
            model_list_reply(gateway, session, exchange, &caller, None)?
        }
        RequestTarget::ShowModel { model } => {
            let caller = authenticate(gateway, session, exchange, keys).await?;
            model_list_reply(gateway, session, exchange, &caller, Some(&model))?
        }
    };
    Ok(RequestDecision::Reply(reply))
}

/// Accepts the handshake of a socket. If a POST would be refused now, the handshake gets the same refusal. In every other case in
/// which no socket can be opened, the refusal tells the client to continue with POST (ARCHITECTURE.md, "What clients make of
/// weir's refusals").
async fn accept_socket(
    gateway: &Gateway,
    session: &Session,
    exchange: &mut Exchange,
    keys: &QueryKeys,
) -> Result<Box<SocketHandshake>, Refusal> {
    let sockets = exchange.live.config.sockets;
    if !sockets.enabled {
        return Err(Refusal::UpgradeUnavailable);
    }
    let caller = authenticate(gateway, session, exchange, keys).await?;
    if gateway.drain.running() > gateway.limits.running_max {
        return Err(Refusal::TooManyRunning);
    }
    let accept = handshake::accept_value(session.req_header()).filter(|_| !gateway.drain.is_closing());
    let accept = accept.ok_or(Refusal::UpgradeUnavailable)?;
    let slot = gateway
        .limits
        .socket_slots
        .acquire(caller.key.id.as_str(), sockets.per_key_max)
        .ok_or(Refusal::UpgradeUnavailable)?;
    let request_id = exchange.log.record.request_id.clone();
    Ok(Box::new(SocketHandshake {
        head: handshake::request_head(session.req_header()),
        accept,
        socket_id: request_id.replacen("req_", "sock_", 1).into(),
        request_id,
        digest: caller.digest,
        address: head::known_client(session, &gateway.limits.trusted_proxies),
        _slot: slot,
    }))
}

/// Lets the connection become a socket, and closes the handshake's line in the access log.
async fn open_socket(session: &mut Session, exchange: &mut Exchange, handshake: Box<SocketHandshake>) -> Result<()> {
    let mark = SocketMark {
        id: handshake.socket_id.clone(),
        lane: None,
    };
    if !client_stream::leave_for_socket(session, handshake) {
        return reply::refuse(session, exchange, Refusal::UpgradeUnavailable).await;
    }
    let record = &mut exchange.log.record;
    record.socket = Some(mark);
    record.status = StatusCode::SWITCHING_PROTOCOLS.as_u16();
    exchange.log.close(&End::Complete);
    Ok(())
}

/// Identifies the caller, and checks that the caller's key is valid. The access log names the key even if the key is invalid.
async fn authenticate(
    gateway: &Gateway,
    session: &Session,
    exchange: &mut Exchange,
    keys: &QueryKeys,
) -> Result<Caller, Refusal> {
    let caller = caller::identify(gateway, session, exchange, keys).await?;
    exchange.log.name_key(&caller.key);
    let now = gateway.billing.time().now_seconds(clock::instant());
    caller.check(now)?;
    gateway.keys.record_use(&caller.key.id, now);
    Ok(caller)
}

async fn own_usage_reply(
    gateway: &Gateway,
    session: &Session,
    exchange: &mut Exchange,
    keys: &QueryKeys,
) -> Result<RefusalReply, Refusal> {
    let asker = head::client(session, &gateway.limits.trusted_proxies);
    gateway.pages.own_usage.admit(asker, clock::instant())?;
    let caller = caller::identify(gateway, session, exchange, keys).await?;
    exchange.log.name_key(&caller.key);
    caller.check_except_expiry(gateway.billing.time().now_seconds(clock::instant()))?;
    let now_ms = gateway.billing.time().now_ms(clock::instant());
    let is_off = |provider: &str| gateway.switches.is_off(provider);
    let (head, usage) = (session.req_header(), &gateway.pages.own_usage);
    let base = usage.site.base(head, head::peer_address(session));
    let asked = (head.uri.query(), base.as_deref());
    let catalogue = &exchange.live.catalogue;
    usage.reply(&caller.key, catalogue, is_off, asked, now_ms).await
}

fn model_list_reply(
    gateway: &Gateway,
    session: &Session,
    exchange: &Exchange,
    caller: &Caller,
    wanted: Option<&str>,
) -> Result<RefusalReply, Refusal> {
    let query = session.req_header().uri.query();
    let is_off = |provider: &str| gateway.switches.is_off(provider);
    reply::reply(
        &exchange.live.catalogue,
        is_off,
        &caller.key,
        exchange.protocol,
        wanted,
        query,
    )
}

/// Answers a request of a signed-in agent.
///
/// # Errors
/// Returns the refusal if agents cannot sign in here, the address sends too many requests, the key is invalid or the store does
/// not answer.
pub(crate) async fn agent_reply(
    gateway: &Gateway,
    session: &Session,
    exchange: &mut Exchange,
    keys: &QueryKeys,
    target: &RequestTarget,
) -> Result<RefusalReply, Refusal> {
    let agents = gateway.pages.agents.as_ref().ok_or(Refusal::UnknownPath)?;
    let asker = head::client(session, &gateway.limits.trusted_proxies);
    gateway.pages.own_usage.admit(asker, clock::instant())?;
    let caller = caller::identify(gateway, session, exchange, keys).await?;
    exchange.log.name_key(&caller.key);
    let now = gateway.billing.time().now_seconds(clock::instant());
    if let RequestTarget::Spend = target {
        caller.check_except_expiry(now)?;
        return spend_reply(gateway, &caller.key).await;
    }
    caller.check(now)?;
    gateway.keys.record_use(&caller.key.id, now);
    let settings = agents.settings.as_ref().ok_or(Refusal::UnknownPath)?;
    Ok(reply::managed_settings_reply(settings, &session.req_header().headers))
}

async fn spend_reply(gateway: &Gateway, key: &KeyRecord) -> Result<RefusalReply, Refusal> {
    let spend = gateway.pages.own_usage.spend(key).await?;
    let now_ms = gateway.billing.time().now_ms(clock::instant());
    Ok(RefusalReply {
        status: 200,
        headers: vec![
            ("content-type", "application/json".to_owned()),
            ("cache-control", "no-store".to_owned()),
        ],
        body: reports::quota_report(&key.terms, &spend, now_ms)
            .to_string()
            .into_bytes(),
    })
}
