//! What a request may do while it runs, beside its ticket: count tokens, outlive its client.

use std::sync::Arc;

use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;

use crate::{
    domain::{
        catalogue::Model,
        key::KeyRecord,
        operation::Operation,
        refusal::Refusal,
        rules::{ClientGoneAction, Provider},
    },
    gateway::{
        Gateway,
        client_h2::ClientH2,
        client_stream::ClientStream,
        key_slots::KeySlot,
        presence::{Presence, Terms},
    },
    live::Live,
};

/// A place among those that the key has for counting tokens. Agents count in bursts (25 at once were seen) and pay
/// nothing for it, so this limit is apart from those on generation (protocols.md 1.6).
pub fn count_slot(
    gateway: &Gateway,
    live: &Live,
    key: &KeyRecord,
    operation: Operation,
) -> Result<Option<KeySlot>, Refusal> {
    if !operation.counts_tokens() {
        return Ok(None);
    }
    let concurrency = live.config.gateway.count_tokens_concurrency;
    let slot = gateway.count_slots.enter(key.id.as_str(), concurrency);
    slot.map(Some).ok_or(Refusal::CountTokensBusy { concurrency })
}

/// Lets the request outlive its client where its answer is to be read to its end all the same: as the file of the provider
/// in turn says, or as its model needs it.
pub fn presence(
    gateway: &Gateway,
    session: &mut Session,
    live: &Live,
    provider: &Provider,
    model: &Model,
    stream: bool,
) -> Option<Arc<Presence>> {
    if provider.on_client_gone.action(stream, model.hidden_reasoning) == ClientGoneAction::Abort {
        return None;
    }
    let terms = Terms {
        stream,
        finish: live.config.upstream.client_gone_finish,
        write: live.config.gateway.write,
    };
    let (places, metrics) = (Arc::clone(&gateway.finishing), Arc::clone(&gateway.sinks.metrics));
    let presence = Presence::new(terms, places, metrics);
    watch(session, &presence);
    Some(presence)
}

/// Has the client's connection tell `presence` of the client, and nobody else.
fn watch(session: &mut Session, presence: &Arc<Presence>) {
    if let Some(stream) = session.downstream_session.stream() {
        if let Some(stream) = (**stream).as_any().downcast_ref::<ClientStream>() {
            stream.watch(presence);
            // The stream has a limit of its own, which Pingora's would anticipate.
            session.set_write_timeout(None);
        }
        return;
    }
    let nobody = ServerSession::new_custom(Box::new(()));
    *session.downstream_session = match std::mem::replace(&mut *session.downstream_session, nobody) {
        ServerSession::H2(h2) => ServerSession::new_custom(Box::new(ClientH2::new(h2, Arc::clone(presence)))),
        other => other,
    };
}
