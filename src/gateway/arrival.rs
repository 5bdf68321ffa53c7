//! A request's arrival: its head, and who deals with it.

use std::time::Duration;

use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::{
            end::End,
            refusal::{Refusal, Reply},
        },
        wire::operation::Target,
    },
    edges::clock,
    gateway::{
        admission::{
            self,
            caller::{self, Caller},
        },
        agents,
        answer::interim,
        exchange::{Exchange, Stage},
        forward::Forward,
        keepalive,
        parts::Gateway,
        peer,
        reply::{self, greeting, listing, portal, published},
        request::head::{self, QueryKeys},
    },
    stability::public::PublicResponse,
};

/// What is to be done with a request.
enum Decision {
    /// A provider answers it.
    Forward(Box<Forward>),
    /// weir answers it.
    Reply(Reply),
    /// The public stability service or the portal answers it, by the name that the log has.
    Publish(&'static str, PublicResponse),
}

/// First look at a request's head: sets the connection's timeouts and takes keys out of the query.
pub(crate) fn arrive(gateway: &Gateway, session: &mut Session, exchange: &mut Exchange) {
    let limits = &exchange.live.config.gateway;
    keepalive::offer(session, limits.keepalive);
    keepalive::withdraw(session, &gateway.drain);
    if session.is_http2() {
        // Over HTTP/1.1 the client's connection limits writing (`front/guarded.rs`).
        session.set_write_timeout(Some(limits.write));
    }
    session.set_total_drain_timeout(Some(Duration::from_secs(1)));
    interim::keep_from_client(session);
    head::forget_spelling(session.req_header_mut());
    let query_keys = head::strip_query_keys(session.req_header_mut());
    exchange.protocol = head::shape(session.req_header(), &query_keys);
    let record = &mut exchange.log.record;
    record.protocol = Some(exchange.protocol.as_str());
    record.client_version = if session.is_http2() { 2 } else { 1 };
    exchange.stage = Stage::Arrived(query_keys);
}

/// Reads and checks the request. Returns true if weir has answered it here and nothing is forwarded.
pub(crate) async fn handle(gateway: &Gateway, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
    fail::fail_point!("request_filter");
    let Stage::Arrived(query_keys) = exchange.take_stage() else {
        return Error::e_explain(ErrorType::InternalError, "a request without a beginning");
    };
    let decision = decide(gateway, session, exchange, &query_keys).await;
    keepalive::withdraw(session, &gateway.drain);
    match decision {
        Ok(Decision::Forward(forward)) => {
            head::end_connection(session.req_header_mut());
            exchange.stage = Stage::Forwarding(forward);
            return Ok(false);
        }
        Ok(Decision::Reply(answer)) => reply::give(session, exchange, answer).await,
        Ok(Decision::Publish(operation, answer)) => published::send(session, exchange, operation, answer).await,
        Err(End::Refused(refusal)) => reply::refuse(session, exchange, refusal).await?,
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
) -> Result<Decision, End> {
    head::check_size(session.req_header(), &exchange.live.config.gateway)?;
    if let Some(answer) = published::find(&gateway.pages.public, gateway.billing.time(), session) {
        return Ok(Decision::Publish("stability", answer));
    }
    if let Some(portal) = &gateway.pages.portal
        && let Some((operation, answer)) = portal::find(portal, session).await
    {
        return Ok(Decision::Publish(operation, answer));
    }
    let target = head::target(session.req_header())?;
    exchange.log.record.operation = match &target {
        Target::Forward { operation, .. } => Some(operation.as_str()),
        Target::ListModels | Target::ShowModel { .. } => Some("models"),
        Target::OwnUsage => Some("own_usage"),
        Target::ManagedSettings | Target::Spend => Some("agents"),
        Target::Hello => Some("hello"),
    };
    let reply = match target {
        Target::Hello => greeting::reply(),
        Target::OwnUsage => Box::pin(own_usage(gateway, session, exchange, keys)).await?,
        Target::ManagedSettings | Target::Spend => {
            Box::pin(agents::reply(gateway, session, exchange, keys, &target)).await?
        }
        Target::Forward { operation, model } => {
            let caller = authenticate(gateway, session, exchange, keys).await?;
            if gateway.drain.running() > gateway.limits.running_max {
                return Err(Refusal::TooManyRunning.into());
            }
            let forward = admission::admit(gateway, session, exchange, caller, operation, model).await?;
            return Ok(Decision::Forward(forward));
        }
        Target::ListModels => {
            let caller = authenticate(gateway, session, exchange, keys).await?;
            list(gateway, session, exchange, &caller, None)?
        }
        Target::ShowModel { model } => {
            let caller = authenticate(gateway, session, exchange, keys).await?;
            list(gateway, session, exchange, &caller, Some(&model))?
        }
    };
    Ok(Decision::Reply(reply))
}

/// Finds the caller, and checks that its key is valid. The access log gets the key in any case.
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
    gateway.keys.touch(&caller.key.id, now);
    Ok(caller)
}

async fn own_usage(
    gateway: &Gateway,
    session: &Session,
    exchange: &mut Exchange,
    keys: &QueryKeys,
) -> Result<Reply, Refusal> {
    let asker = peer::client(session, &gateway.limits.trusted_proxies);
    gateway.pages.own_usage.admit(asker, clock::instant())?;
    let caller = caller::identify(gateway, session, exchange, keys).await?;
    exchange.log.name_key(&caller.key);
    caller.check_but_expiry(gateway.billing.time().now_seconds(clock::instant()))?;
    let now_ms = gateway.billing.time().now_ms(clock::instant());
    let is_off = |provider: &str| gateway.switches.is_off(provider);
    let (head, usage) = (session.req_header(), &gateway.pages.own_usage);
    let base = usage.site.base(head, peer::address(session));
    let asked = (head.uri.query(), base.as_deref());
    let catalogue = &exchange.live.catalogue;
    usage.reply(&caller.key, catalogue, is_off, asked, now_ms).await
}

fn list(
    gateway: &Gateway,
    session: &Session,
    exchange: &Exchange,
    caller: &Caller,
    wanted: Option<&str>,
) -> Result<Reply, Refusal> {
    let query = session.req_header().uri.query();
    let is_off = |provider: &str| gateway.switches.is_off(provider);
    listing::reply(
        &exchange.live.catalogue,
        is_off,
        &caller.key,
        exchange.protocol,
        wanted,
        query,
    )
}
