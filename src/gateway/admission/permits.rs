//! Permits that a request needs besides its ticket: to count tokens, and to outlive its client.

use std::sync::Arc;

use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::refusal::Refusal,
        keys::key::KeyRecord,
        rules::{ClientGoneAction, Provider},
        wire::operation::Operation,
    },
    front::client_times::ClientTimes,
    gateway::{
        client_h2::ClientH2,
        client_stream::ClientStream,
        gate::Gate,
        key_slots::KeySlot,
        parts::Gateway,
        presence::{Presence, Terms},
        request::Request,
    },
    providers::live::Live,
};

/// A place among those that the key has for counting tokens. Agents count in bursts (25 at once were seen) and pay
/// nothing for it, so this limit is apart from those on generation (docs/interface.md, Token counts).
pub(crate) fn count_slot(
    gateway: &Gateway,
    live: &Live,
    key: &KeyRecord,
    operation: Operation,
) -> Result<Option<KeySlot>, Refusal> {
    if !operation.counts_tokens() {
        return Ok(None);
    }
    let concurrency = live.config.gateway.count_tokens_concurrency;
    let slot = gateway.limits.count_slots.enter(key.id.as_str(), concurrency);
    slot.map(Some).ok_or(Refusal::CountTokensBusy { concurrency })
}

/// Lets the request outlive its client, if the provider's file says so or the model requires it. Counting tokens is free
/// and creates no state, so an answer that nobody reads has no use.
pub(crate) fn presence(gateway: &Gateway, request: &Request, provider: &Provider) -> Option<Arc<Presence>> {
    let action = provider
        .on_client_gone
        .action(request.stream, request.model.hidden_reasoning);
    if request.operation.counts_tokens() || action == ClientGoneAction::Abort {
        return None;
    }
    let terms = Terms {
        stream: request.stream,
        finish: request.live.config.upstream.client_gone_finish,
    };
    let (places, metrics) = (
        Arc::clone(&gateway.limits.finishing),
        Arc::clone(&gateway.sinks.metrics),
    );
    Some(Presence::new(terms, places, metrics))
}

/// Connects the client's connection to `presence`, if there is one, and to the gate, which is returned.
pub(crate) fn connection(session: &mut Session, request: &Request, presence: Option<&Arc<Presence>>) -> Arc<Gate> {
    if let Some(stream) = session.downstream_session.stream() {
        let Some(stream) = (**stream).as_any().downcast_ref::<ClientStream>() else {
            return Arc::default();
        };
        let gate = Arc::clone(stream.gate());
        if let Some(presence) = presence {
            stream.watch(presence);
            // The stream enforces this limit itself; Pingora's would fire first.
            session.set_write_timeout(None);
        }
        return gate;
    }
    let gate = Arc::<Gate>::default();
    let nobody = ServerSession::new_custom(Box::new(()));
    *session.downstream_session = match std::mem::replace(&mut *session.downstream_session, nobody) {
        ServerSession::H2(h2) => {
            let h2 = ClientH2::new(
                h2,
                presence.cloned(),
                Arc::clone(&gate),
                ClientTimes::new(&request.live.config.gateway),
            );
            ServerSession::new_custom(Box::new(h2))
        }
        other => other,
    };
    gate
}
