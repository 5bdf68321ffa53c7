//! A request's arrival: its head, and who deals with it.

use std::time::Duration;

use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::{
    console,
    domain::{
        faults::{
            outcome::Outcome,
            refusal::{Refusal, Reply},
        },
        wire::operation::Target,
    },
    edges::clock,
    gateway::{
        admission::{self, Admitted, caller},
        agents,
        answer::interim,
        entry::Entry,
        exchange::{Arrived, Exchange, Stage},
        keepalive,
        parts::Gateway,
        peer,
        reply::{self, greeting, listing, portal, published},
        request::{
            Rejection,
            head::{self, QueryKeys},
        },
    },
    stability::public::PublicResponse,
};

/// What is to be done with a request.
enum Decision {
    /// A provider answers it.
    Forward(Box<Admitted>),
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
    session.set_write_timeout(Some(limits.write));
    session.set_total_drain_timeout(Some(Duration::from_secs(1)));
    interim::keep_from_client(session);
    let query_keys = head::strip_query_keys(session.req_header_mut());
    exchange.shape = head::shape(session.req_header(), &query_keys);
    if let Stage::Arrived(arrived) = &mut exchange.stage {
        arrived.query_keys = query_keys;
        arrived.entry.record.protocol = Some(exchange.shape.as_str());
        arrived.entry.record.client_version = if session.is_http2() { 2 } else { 1 };
    }
}

/// Reads and checks the request. Returns true if weir has answered it here and nothing is forwarded.
pub(crate) async fn handle(gateway: &Gateway, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
    fail::fail_point!("request_filter");
    let Stage::Arrived(arrived) = exchange.take_stage() else {
        return Error::e_explain(ErrorType::InternalError, "a request without a beginning");
    };
    let Arrived { mut entry, query_keys } = *arrived;
    let decision = decide(gateway, session, exchange, &query_keys, &mut entry).await;
    keepalive::withdraw(session, &gateway.drain);
    match decision {
        Ok(Decision::Forward(admitted)) => {
            head::end_connection(session.req_header_mut());
            exchange.stage = Stage::Forwarding(admitted.issue(entry));
            return Ok(false);
        }
        Ok(Decision::Reply(answer)) => reply::give(session, exchange.shape, entry, answer).await,
        Ok(Decision::Publish(operation, answer)) => published::send(session, operation, answer, entry).await,
        Err(Rejection::Refused(refusal)) => {
            reply::refuse(session, &exchange.live, exchange.shape, entry, &refusal).await?;
        }
        Err(Rejection::ClientGone) => {
            entry.close(Outcome::ClientGone);
            return Err(Error::explain(ErrorType::ConnectionClosed, "the client left while sending").into_down());
        }
    }
    Ok(true)
}

async fn decide(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &Exchange,
    keys: &QueryKeys,
    entry: &mut Entry,
) -> Result<Decision, Rejection> {
    let (live, shape) = (&exchange.live, exchange.shape);
    head::check_size(session.req_header(), &live.config.gateway)?;
    if let Some(answer) = published::find(&gateway.pages.public, gateway.billing.time(), session) {
        return Ok(Decision::Publish("stability", answer));
    }
    if let Some(portal) = &gateway.pages.portal
        && let Some((operation, answer)) = portal::find(portal, session).await
    {
        return Ok(Decision::Publish(operation, answer));
    }
    let target = head::target(session.req_header())?;
    entry.record.operation = match &target {
        Target::Forward { operation, .. } => Some(operation.as_str()),
        Target::ListModels | Target::ShowModel { .. } => Some("models"),
        Target::OwnUsage => Some("own_usage"),
        Target::ManagedSettings | Target::Spend => Some("agents"),
        Target::Hello => Some("hello"),
    };
    if target == Target::Hello {
        return Ok(Decision::Reply(greeting::reply()));
    }
    if target == Target::OwnUsage {
        return Ok(Decision::Reply(
            Box::pin(own_usage(gateway, session, exchange, keys, entry)).await?,
        ));
    }
    if matches!(target, Target::ManagedSettings | Target::Spend) {
        let answer = agents::reply(gateway, session, exchange, keys, (&target, entry));
        return Ok(Decision::Reply(Box::pin(answer).await?));
    }
    let caller = caller::authenticate(gateway, session, live, shape, keys, entry).await?;
    let wanted = match target {
        Target::Forward { .. } if gateway.drain.running() > gateway.limits.running_max => {
            return Err(Refusal::TooManyRunning.into());
        }
        Target::Forward { operation, model } => {
            let admitted = admission::admit(gateway, session, live, caller, operation, model, entry).await?;
            return Ok(Decision::Forward(admitted));
        }
        Target::ListModels | Target::OwnUsage | Target::ManagedSettings | Target::Spend | Target::Hello => None,
        Target::ShowModel { model } => Some(model),
    };
    Ok(Decision::Reply(list(
        gateway,
        session,
        exchange,
        &caller,
        wanted.as_deref(),
    )?))
}

async fn own_usage(
    gateway: &Gateway,
    session: &Session,
    exchange: &Exchange,
    keys: &QueryKeys,
    entry: &mut Entry,
) -> Result<Reply, Refusal> {
    let (live, asker) = (&exchange.live, peer::client(session, &gateway.limits.trusted_proxies));
    gateway.pages.own_usage.admit(asker, clock::instant())?;
    let caller = caller::identify(gateway, session, live, exchange.shape, keys, entry).await?;
    let now_ms = gateway.billing.time().now_ms(clock::instant());
    let is_off = |provider: &str| gateway.switches.is_off(provider);
    let (head, usage) = (session.req_header(), &gateway.pages.own_usage);
    let entrance = (usage.tls, &*gateway.limits.trusted_proxies);
    let base = console::base(head, peer::address(session), entrance);
    let asked = (head.uri.query(), base.as_deref());
    usage.reply(&caller.key, &live.catalogue, is_off, asked, now_ms).await
}

fn list(
    gateway: &Gateway,
    session: &Session,
    exchange: &Exchange,
    caller: &caller::Caller,
    wanted: Option<&str>,
) -> Result<Reply, Refusal> {
    let query = session.req_header().uri.query();
    let is_off = |provider: &str| gateway.switches.is_off(provider);
    listing::reply(
        &exchange.live.catalogue,
        is_off,
        &caller.key,
        exchange.shape,
        wanted,
        query,
    )
}
