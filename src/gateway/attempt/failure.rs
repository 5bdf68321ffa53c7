//! What follows when an attempt fails after its connection was established.

use pingora::{Error, ErrorSource, ErrorType};
use pingora_proxy::Session;
use rand::RngExt;

use crate::{
    edges::clock,
    gateway::{
        attempt::{deadline::Fate, dispatch::Dispatch, interruption::Interruption, verdict},
        reply,
    },
};

/// Decides whether another attempt follows. One does if the answer asked for that (see [`super::verdict::act`]), if a
/// success was broken off before anything of it reached the client (`held` says whether the current answer is such a
/// success), if a pooled connection turns out to have been closed before the provider read the request, or if the operator has
/// requests repeated that got no answer. None does once the client has left: weir itself cuts off an answer that nobody
/// waits for.
pub(crate) fn decide(
    session: &Session,
    dispatch: &mut Dispatch,
    has_left: bool,
    held: HeldSuccess,
    mut error: Box<Error>,
    reused: bool,
) -> Box<Error> {
    let fate = dispatch.attempt.fate();
    let again = match Interruption::of(&error) {
        // The provider has not failed.
        _ if fate == Fate::Stopped => false,
        Some(Interruption::Repeat) => !reply::has_begun(session),
        Some(Interruption::Refused(_)) => false,
        None if held != HeldSuccess::None && *error.esource() == ErrorSource::Upstream => {
            let may = held == HeldSuccess::Unsent && !has_left;
            match fate {
                Fate::Expired => may && goes_on(session, dispatch),
                Fate::Running | Fate::Stopped => verdict::broken_off(dispatch, may),
            }
        }
        None => {
            !has_left
                && is_unanswered(dispatch, &error)
                && (reused && is_stale(session, dispatch, &error)
                    || is_downgraded(session, dispatch, &error)
                    || goes_on(session, dispatch))
        }
    };
    error.set_retry(again);
    error
}

/// Whether the current answer is a success that has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldSuccess {
    /// It is none.
    None,
    /// It is one, and the client has nothing of it.
    Unsent,
    /// It is one, and the client has its head.
    Sent,
}

/// Whether the provider ended the attempt before it had answered.
fn is_unanswered(dispatch: &Dispatch, error: &Error) -> bool {
    !dispatch.attempt.has_head() && *error.esource() == ErrorSource::Upstream
}

/// Whether a pooled connection was closed before the provider read the request. If so, the next attempt opens a new one.
fn is_stale(session: &Session, dispatch: &mut Dispatch, error: &Error) -> bool {
    let is_closed = match error.etype() {
        // The request was not even sent completely.
        ErrorType::WriteError => true,
        ErrorType::ConnectionClosed | ErrorType::ReadError => dispatch.attempt.is_prompt(clock::instant()),
        ErrorType::H2Error => was_not_begun(error),
        _ => false,
    };
    is_closed && may_send_again(session, dispatch) && dispatch.attempts.connection_was_stale()
}

/// Whether the provider refuses HTTP/2 for this request (RFC 9113 section 7, HTTP_1_1_REQUIRED). If so, the next attempt uses
/// HTTP/1.1.
fn is_downgraded(session: &Session, dispatch: &mut Dispatch, error: &Error) -> bool {
    *error.etype() == ErrorType::H2Downgrade && may_send_again(session, dispatch) && dispatch.attempts.wants_http1()
}

/// Whether a provider says over HTTP/2 that it has not begun to work on the request: it ends the connection in order, or
/// refuses the stream (RFC 9113 section 8.7), or the request could not be written.
fn was_not_begun(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    cause.is_some_and(|cause| {
        let says = |reason| cause.is_remote() && cause.reason() == Some(reason);
        cause.is_io()
            || cause.is_go_away() && says(h2::Reason::NO_ERROR)
            || cause.is_reset() && says(h2::Reason::REFUSED_STREAM)
    })
}

fn may_send_again(session: &Session, dispatch: &Dispatch) -> bool {
    dispatch.attempt.fate() != Fate::Expired && !reply::has_begun(session) && dispatch.can_resend()
}

/// Handles a provider that did not answer in time or closed the connection. Returns whether another provider is asked;
/// the operator decides that by `[retry] after_timeout`, because the first may have served the request and bill for it.
fn goes_on(session: &Session, dispatch: &mut Dispatch) -> bool {
    let may = dispatch.request.live.config.retry.after_timeout && !reply::has_begun(session) && dispatch.can_resend();
    dispatch
        .attempts
        .unanswered(may, rand::rng().random(), clock::instant())
}
