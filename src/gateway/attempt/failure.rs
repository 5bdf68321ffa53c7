//! What follows when an attempt fails after its connection was established.

use pingora::{Error, ErrorSource, ErrorType};
use pingora_proxy::Session;
use rand::RngExt;

use crate::{
    clock,
    gateway::{
        attempt::{deadline::Fate, interruption::Interruption},
        forward::Forward,
        reply,
    },
};

/// Decides whether another attempt follows. One does if the answer asked for that (see [`super::verdict::pass`]), if a
/// pooled connection turns out to have been closed before the provider read the request, or if the operator has
/// requests repeated that got no answer.
pub fn decide(session: &Session, forward: &mut Forward, mut error: Box<Error>, reused: bool) -> Box<Error> {
    let again = match Interruption::of(&error) {
        // The provider has not failed.
        _ if forward.attempt.fate() == Fate::Stopped => false,
        Some(Interruption::Repeat) => !reply::has_begun(session),
        Some(Interruption::Refused(_)) => false,
        None => {
            is_unanswered(forward, &error)
                && (reused && is_stale(session, forward, &error) || goes_on(session, forward))
        }
    };
    error.set_retry(again);
    error
}

/// Whether the provider ended the attempt before it had answered, while somebody waits for the answer. weir itself cuts
/// off an answer that nobody waits for.
fn is_unanswered(forward: &Forward, error: &Error) -> bool {
    !forward.attempt.has_head() && *error.esource() == ErrorSource::Upstream && !forward.recipient.has_left()
}

/// Whether a pooled connection was closed before the provider read the request. If so, the next attempt opens a new one.
fn is_stale(session: &Session, forward: &mut Forward, error: &Error) -> bool {
    let is_closed = match error.etype() {
        // The request was not even sent completely.
        ErrorType::WriteError => true,
        ErrorType::ConnectionClosed | ErrorType::ReadError => forward.attempt.is_prompt(clock::instant()),
        _ => false,
    };
    is_closed
        && forward.attempt.fate() != Fate::Expired
        && !reply::has_begun(session)
        && forward.can_resend()
        && forward.attempts.connection_was_stale()
}

/// Handles a provider that did not answer in time or closed the connection. Returns whether another provider is asked;
/// the operator decides that by `[retry] after_timeout`, because the first may have served the request and bill for it.
fn goes_on(session: &Session, forward: &mut Forward) -> bool {
    let may = forward.request.live.config.retry.after_timeout && !reply::has_begun(session) && forward.can_resend();
    forward.attempts.unanswered(may, rand::rng().random(), clock::instant())
}
