//! Decides whether another attempt follows a failed connect, an answer, or an attempt that broke off. No other module decides
//! that.

use std::time::Duration;

use pingora::{Error, ErrorSource, ErrorType, Result};
use rand::RngExt;

use crate::{
    domain::faults::refusal::Refusal,
    edges::clock,
    gateway::{
        attempt::{Verdict, attempts::AnswerOutcome, deadline::Fate},
        forward::Forward,
    },
    telemetry::metrics::Metrics,
};

/// An event of the current attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AttemptEvent<'a> {
    /// No connection to the endpoint could be established.
    ConnectFailed,
    /// The attempt ended with an error.
    Failed {
        /// Pingora's error.
        error: &'a Error,
        /// Whether the connection came from the pool.
        reused: bool,
        /// Whether the request was sent over a WebSocket and the provider has not read it.
        is_unread: bool,
    },
    /// The provider has answered with this status.
    Answered {
        /// The provider's HTTP status.
        status: u16,
        /// Whether the provider refuses the credential.
        credential_refused: bool,
        /// The pause that the provider requests; `None` if it requests none.
        pause: Option<Duration>,
    },
    /// The provider has answered with the status of a success, but the body contains no answer.
    NeverBegan {
        /// The HTTP status that corresponds to the failure.
        status: u16,
        /// Whether the provider refuses the credential.
        credential_refused: bool,
    },
    /// A success has begun: the client gets the first part of it.
    Begun {
        /// The provider's HTTP status. If the first part of the answer is an error, this is the status that corresponds to the
        /// error. The
        /// status determines the effect on circuits and credentials.
        status: u16,
    },
}

/// Reports the event to the credential, backend and provider, and decides what follows. The attempt stores the verdict.
/// `has_begun` says whether the client has a part of the answer, so that no other attempt can follow.
pub(crate) fn decide<'f>(
    metrics: &Metrics,
    forward: &'f mut Forward,
    has_begun: bool,
    event: AttemptEvent<'_>,
) -> &'f Verdict {
    let is_stopped = forward.attempt.fate() == Fate::Stopped;
    // A detached answer is not requested again, because no client waits for a better one.
    let may_repeat = !is_stopped && !has_begun && !forward.client.has_left();
    let verdict = match event {
        AttemptEvent::ConnectFailed => {
            let retries_max = forward.request.live.config.upstream.connect_retries;
            let again = forward
                .attempts
                .on_connect_failed(retries_max, dice(), clock::instant());
            repeat_if(again && may_repeat)
        }
        // weir has stopped the attempt, so the failure is not the provider's.
        AttemptEvent::Failed { .. } if is_stopped => Verdict::Proceed,
        AttemptEvent::Failed { error, .. }
            if forward.unbegun.is_some() && *error.esource() == ErrorSource::Upstream =>
        {
            repeat_if(on_broken_off(forward, may_repeat && forward.has_not_begun()))
        }
        AttemptEvent::Failed {
            error,
            reused,
            is_unread,
        } => repeat_if(may_repeat && is_repeated(forward, error, (reused, is_unread))),
        AttemptEvent::Answered {
            status,
            credential_refused,
            pause,
        } => {
            let answer = AnswerOutcome {
                status,
                refused: credential_refused,
                asked_pause: pause,
                can_resend: may_repeat && forward.can_resend(),
                never_began: false,
            };
            on_answer(metrics, forward, &answer)
        }
        AttemptEvent::NeverBegan {
            status,
            credential_refused,
        } => {
            let answer = AnswerOutcome {
                status,
                refused: credential_refused,
                asked_pause: None,
                can_resend: may_repeat && forward.can_resend(),
                never_began: status >= 500,
            };
            on_answer(metrics, forward, &answer)
        }
        AttemptEvent::Begun { status } => {
            let answer = AnswerOutcome {
                status,
                refused: false,
                asked_pause: None,
                can_resend: false,
                never_began: status >= 500,
            };
            on_answer(metrics, forward, &answer)
        }
    };
    forward.attempt.verdict = verdict;
    &forward.attempt.verdict
}

/// Does the same as [`decide`], for an answer of which the client has received nothing. An `Err` result ends the attempt.
pub(crate) fn decide_after_answer(metrics: &Metrics, forward: &mut Forward, event: AttemptEvent<'_>) -> Result<()> {
    let (etype, context) = match decide(metrics, forward, false, event) {
        Verdict::Proceed => return Ok(()),
        Verdict::Retry => ("to be tried again", "after the provider's answer"),
        Verdict::Refuse(_) => ("credential refused", "by the provider"),
    };
    Err(Error::explain(ErrorType::Custom(etype), context).into_up())
}

fn repeat_if(again: bool) -> Verdict {
    match again {
        true => Verdict::Retry,
        false => Verdict::Proceed,
    }
}

fn dice() -> f64 {
    rand::rng().random()
}

fn on_answer(metrics: &Metrics, forward: &mut Forward, answer: &AnswerOutcome) -> Verdict {
    if answer.refused {
        // Logged for the operator, whose account at the provider is affected. Logged here, because the next attempt may use
        // another credential.
        log_credential_refused(metrics, forward, answer.status);
    }
    if forward.attempts.on_answer(answer, dice(), clock::instant()) {
        return Verdict::Retry;
    }
    match answer.refused {
        true => Verdict::Refuse(Refusal::ProviderCredentialRefused),
        false => Verdict::Proceed,
    }
}

/// Handles a success that broke off before the client received any part of it. Returns whether another attempt follows. `may`
/// says whether another attempt is allowed.
fn on_broken_off(forward: &mut Forward, may: bool) -> bool {
    if forward.attempt.fate() == Fate::Expired {
        return may && try_next_provider(forward);
    }
    let answer = AnswerOutcome {
        status: Refusal::ProviderBroken.status(),
        refused: false,
        asked_pause: None,
        can_resend: may && forward.can_resend(),
        never_began: true,
    };
    forward.attempts.on_answer(&answer, dice(), clock::instant())
}

/// Whether a request without an answer is sent again. One of four reasons suffices: the request was sent over a WebSocket and the
/// provider has not read it, the provider closed the pooled connection before it read the request, the provider demands HTTP/1.1,
/// or the operator's configuration allows another attempt.
fn is_repeated(forward: &mut Forward, error: &Error, (reused, is_unread): (bool, bool)) -> bool {
    let is_unanswered = !forward.attempt.has_head() && *error.esource() == ErrorSource::Upstream;
    is_unanswered
        && (is_unread && may_send_again(forward) && forward.attempts.on_stale_connection()
            || reused && is_stale(forward, error)
            || is_downgraded(forward, error)
            || try_next_provider(forward))
}

/// Whether the provider closed a pooled connection before it read the request. If so, the next attempt opens a new connection.
fn is_stale(forward: &mut Forward, error: &Error) -> bool {
    let is_closed = match error.etype() {
        // The request was not even sent completely.
        ErrorType::WriteError => true,
        ErrorType::ConnectionClosed | ErrorType::ReadError => forward.attempt.is_prompt(clock::instant()),
        ErrorType::H2Error => was_not_begun(error),
        _ => false,
    };
    is_closed && may_send_again(forward) && forward.attempts.on_stale_connection()
}

/// Whether the provider refuses HTTP/2 for this request (RFC 9113 section 7, HTTP_1_1_REQUIRED). If so, the next attempt uses
/// HTTP/1.1.
fn is_downgraded(forward: &mut Forward, error: &Error) -> bool {
    *error.etype() == ErrorType::H2Downgrade && may_send_again(forward) && forward.attempts.on_http1_required()
}

/// Whether an HTTP/2 error means that the provider has not begun to work on the request: it closed the connection properly, it
/// refused the stream (RFC 9113 section 8.7), or the request could not be written.
fn was_not_begun(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    cause.is_some_and(|cause| {
        let says = |reason| cause.is_remote() && cause.reason() == Some(reason);
        cause.is_io()
            || cause.is_go_away() && says(h2::Reason::NO_ERROR)
            || cause.is_reset() && says(h2::Reason::REFUSED_STREAM)
    })
}

fn may_send_again(forward: &Forward) -> bool {
    forward.attempt.fate() != Fate::Expired && forward.can_resend()
}

/// Handles a provider that did not answer in time or closed the connection. Returns whether another provider is tried. That
/// requires the setting `[retry] after_timeout`, because the first provider may have served the request and may bill it.
fn try_next_provider(forward: &mut Forward) -> bool {
    let may = forward.request.live.config.retry.after_timeout && forward.can_resend();
    forward.attempts.on_no_answer(may, dice(), clock::instant())
}

fn log_credential_refused(metrics: &Metrics, forward: &Forward, status: u16) {
    let provider = &forward.provider().name;
    tracing::error!(
        %provider,
        credential = %forward.attempts.credential().credential.name,
        status,
        "the provider rejected the configured credential; check the credential's secret and the operator's account at the provider"
    );
    metrics
        .providers
        .credential_refused
        .with_labels([metrics.provider_label(provider)])
        .inc();
}
