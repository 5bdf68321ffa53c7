//! The paths for agents that are signed in: managed settings and spending.

use pingora_proxy::Session;

use crate::{
    domain::{
        faults::refusal::{Refusal, RefusalReply},
        keys::key::KeyRecord,
        ledger::spend_report,
        wire::operation::RequestTarget,
    },
    edges::clock,
    gateway::{
        admission::caller, exchange::Exchange, parts::Gateway, peer, reply::agent_settings, request::head::QueryKeys,
    },
};

/// Answers a request of an agent that is signed in.
///
/// # Errors
/// The refusal if agents cannot sign in here, the address asks too often, the key is invalid or the store does not answer.
pub(crate) async fn agent_reply(
    gateway: &Gateway,
    session: &Session,
    exchange: &mut Exchange,
    keys: &QueryKeys,
    target: &RequestTarget,
) -> Result<RefusalReply, Refusal> {
    let agents = gateway.pages.agents.as_ref().ok_or(Refusal::UnknownPath)?;
    let asker = peer::client(session, &gateway.limits.trusted_proxies);
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
    Ok(agent_settings::managed_settings_reply(
        settings,
        &session.req_header().headers,
    ))
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
        body: spend_report::quota_report(&key.terms, &spend, now_ms)
            .to_string()
            .into_bytes(),
    })
}
