//! What a request holds while it runs, beside its ticket: a place to count tokens, the permit to read an answer to its end.

use std::sync::Arc;

use pingora_proxy::Session;

use crate::{
    domain::{
        key::KeyRecord,
        operation::Operation,
        refusal::Refusal,
        rules::{self, Provider},
    },
    gateway::{Gateway, key_slots::KeySlot},
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

/// Whether the answer is read to its end although the client has left (design.md section 5, `on_client_gone`).
/// Bounded in number by the permits, in time by the limits of every answer.
pub fn finish_permit(
    gateway: &Gateway,
    session: &mut Session,
    provider: &Provider,
    stream: bool,
) -> Option<tokio::sync::OwnedSemaphorePermit> {
    let policy = &provider.on_client_gone;
    let action = if stream { policy.stream } else { policy.unary };
    if action == rules::ClientGoneAction::Abort {
        return None;
    }
    let permit = Arc::clone(&gateway.finishing).try_acquire_owned().ok()?;
    session.set_abort_on_close(false);
    Some(permit)
}
