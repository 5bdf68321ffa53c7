//! What agents that are signed in ask of the gateway itself; nobody else finds it there.

use pingora_proxy::Session;

use crate::{
    domain::{
        faults::refusal::{Refusal, Reply},
        keys::key::KeyRecord,
        ledger::spend_report,
        wire::operation::Target,
    },
    edges::clock,
    gateway::{
        admission::caller, exchange::Exchange, parts::Gateway, peer, reply::agent_settings, request::head::QueryKeys,
    },
};

/// The answer to one of their questions.
///
/// # Errors
/// Agents cannot sign in here, or this one is nobody's.
pub(crate) async fn reply(
    gateway: &Gateway,
    session: &Session,
    exchange: &mut Exchange,
    keys: &QueryKeys,
    target: &Target,
) -> Result<Reply, Refusal> {
    let agents = gateway.pages.agents.as_ref().ok_or(Refusal::UnknownPath)?;
    let asker = peer::client(session, &gateway.limits.trusted_proxies);
    gateway.pages.own_usage.admit(asker, clock::instant())?;
    let caller = caller::identify(gateway, session, exchange, keys).await?;
    exchange.log.name_key(&caller.key);
    let now = gateway.billing.time().now_seconds(clock::instant());
    if let Target::Spend = target {
        caller.check_but_expiry(now)?;
        return spend(gateway, &caller.key).await;
    }
    caller.check(now)?;
    gateway.keys.touch(&caller.key.id, now);
    let settings = agents.settings.as_ref().ok_or(Refusal::UnknownPath)?;
    Ok(agent_settings::reply(settings, &session.req_header().headers))
}

async fn spend(gateway: &Gateway, key: &KeyRecord) -> Result<Reply, Refusal> {
    let spend = gateway.pages.own_usage.spend(key).await?;
    let now_ms = gateway.billing.time().now_ms(clock::instant());
    Ok(Reply {
        status: 200,
        headers: vec![
            ("content-type", "application/json".to_owned()),
            ("cache-control", "no-store".to_owned()),
        ],
        body: spend_report::report(&key.terms, &spend, now_ms)
            .to_string()
            .into_bytes(),
    })
}
