//! The only place that decides whether another attempt follows: after a failed connection, an answer, or an attempt that broke
//! off.

use std::time::Duration;

use pingora::{Error, ErrorSource, ErrorType, Result};
use rand::RngExt;

use crate::{
    domain::faults::refusal::Refusal,
    edges::clock,
    gateway::{
        attempt::{Verdict, attempts::Answered, deadline::Fate},
        forward::Forward,
    },
    telemetry::metrics::Metrics,
};

/// What has happened to the current attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// No connection to the endpoint could be made.
    ConnectFailed,
    /// The attempt ended with this error, over a connection that was `reused` or not.
    Failed {
        /// Pingora's error.
        error: &'a Error,
        /// The connection came from the pool.
        reused: bool,
    },
    /// The provider has answered with this status.
    Answered {
        /// The provider's HTTP status.
        status: u16,
        /// The answer refuses weir's credential.
        credential_refused: bool,
        /// The pause that the provider asks for.
        pause: Option<Duration>,
    },
    /// The provider has answered with a success that is none: `status` stands for it.
    NeverBegan {
        /// The status that stands for the failure.
        status: u16,
        /// The answer refuses weir's credential.
        credential_refused: bool,
    },
    /// A success has begun: the client has a part of it. `status` is the provider's, or stands for a failure that it reports.
    Begun {
        /// The status that counts for the provider's circuits and credentials.
        status: u16,
    },
}

/// Records what the event says of credential, backend and provider, and decides what follows. The verdict stays in the attempt.
/// `has_begun`: the client has a part of the answer, so that no other attempt can follow.
pub(crate) fn next<'f>(metrics: &Metrics, forward: &'f mut Forward, has_begun: bool, event: Event<'_>) -> &'f Verdict {
    let is_stopped = forward.attempt.fate() == Fate::Stopped;
    // Without a client nobody waits for a better answer.
    let may_repeat = !is_stopped && !has_begun && !forward.client.has_left();
    let verdict = match event {
        Event::ConnectFailed => {
            let retries_max = forward.request.live.config.upstream.connect_retries;
            let again = forward.attempts.connect_failed(retries_max, dice(), clock::instant());
            repeat_if(again && may_repeat)
        }
        // The provider has not failed.
        Event::Failed { .. } if is_stopped => Verdict::Proceed,
        Event::Failed { error, .. } if forward.unbegun.is_some() && *error.esource() == ErrorSource::Upstream => {
            repeat_if(broken_off(forward, may_repeat && forward.has_not_begun()))
        }
        Event::Failed { error, reused } => repeat_if(may_repeat && is_repeated(forward, error, reused)),
        Event::Answered {
            status,
            credential_refused,
            pause,
        } => {
            let answer = Answered {
                status,
                refused: credential_refused,
                asked_pause: pause,
                can_resend: may_repeat && forward.can_resend(),
                never_began: false,
            };
            answered(metrics, forward, &answer)
        }
        Event::NeverBegan {
            status,
            credential_refused,
        } => {
            let answer = Answered {
                status,
                refused: credential_refused,
                asked_pause: None,
                can_resend: may_repeat && forward.can_resend(),
                never_began: status >= 500,
            };
            answered(metrics, forward, &answer)
        }
        Event::Begun { status } => {
            let answer = Answered {
                status,
                refused: false,
                asked_pause: None,
                can_resend: false,
                never_began: status >= 500,
            };
            answered(metrics, forward, &answer)
        }
    };
    forward.attempt.verdict = verdict;
    &forward.attempt.verdict
}

/// The same for an answer of which the client has nothing. An error return ends the attempt.
pub(crate) fn after_answer(metrics: &Metrics, forward: &mut Forward, event: Event<'_>) -> Result<()> {
    let (etype, context) = match next(metrics, forward, false, event) {
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

fn answered(metrics: &Metrics, forward: &mut Forward, answer: &Answered) -> Verdict {
    if answer.refused {
        // The refusal concerns the operator's account. Logged now, because the next attempt may use another credential.
        log_credential_refused(metrics, forward, answer.status);
    }
    if forward.attempts.answered(answer, dice(), clock::instant()) {
        return Verdict::Retry;
    }
    match answer.refused {
        true => Verdict::Refuse(Refusal::ProviderCredentialRefused),
        false => Verdict::Proceed,
    }
}

/// A success was broken off before it began; `may` allows another attempt.
fn broken_off(forward: &mut Forward, may: bool) -> bool {
    if forward.attempt.fate() == Fate::Expired {
        return may && goes_on(forward);
    }
    let answer = Answered {
        status: Refusal::ProviderBroken.status(),
        refused: false,
        asked_pause: None,
        can_resend: may && forward.can_resend(),
        never_began: true,
    };
    forward.attempts.answered(&answer, dice(), clock::instant())
}

/// Whether a request that got no answer is sent again: its pooled connection was closed before the provider read it, the provider
/// wants it over HTTP/1.1, or the operator has such requests repeated.
fn is_repeated(forward: &mut Forward, error: &Error, reused: bool) -> bool {
    let is_unanswered = !forward.attempt.has_head() && *error.esource() == ErrorSource::Upstream;
    is_unanswered && (reused && is_stale(forward, error) || is_downgraded(forward, error) || goes_on(forward))
}

/// Whether a pooled connection was closed before the provider read the request. If so, the next attempt opens a new one.
fn is_stale(forward: &mut Forward, error: &Error) -> bool {
    let is_closed = match error.etype() {
        // The request was not even sent completely.
        ErrorType::WriteError => true,
        ErrorType::ConnectionClosed | ErrorType::ReadError => forward.attempt.is_prompt(clock::instant()),
        ErrorType::H2Error => was_not_begun(error),
        _ => false,
    };
    is_closed && may_send_again(forward) && forward.attempts.connection_was_stale()
}

/// Whether the provider refuses HTTP/2 for this request (RFC 9113 section 7, HTTP_1_1_REQUIRED). If so, the next attempt uses
/// HTTP/1.1.
fn is_downgraded(forward: &mut Forward, error: &Error) -> bool {
    *error.etype() == ErrorType::H2Downgrade && may_send_again(forward) && forward.attempts.wants_http1()
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

fn may_send_again(forward: &Forward) -> bool {
    forward.attempt.fate() != Fate::Expired && forward.can_resend()
}

/// Handles a provider that did not answer in time or closed the connection. Returns whether another provider is asked;
/// the operator decides that by `[retry] after_timeout`, because the first may have served the request and bill for it.
fn goes_on(forward: &mut Forward) -> bool {
    let may = forward.request.live.config.retry.after_timeout && forward.can_resend();
    forward.attempts.unanswered(may, dice(), clock::instant())
}

fn log_credential_refused(metrics: &Metrics, forward: &Forward, status: u16) {
    let provider = &forward.provider().name;
    tracing::error!(
        %provider,
        credential = %forward.attempts.credential().credential.name,
        status,
        "the provider refused the credential configured for it: check the secret and the account"
    );
    metrics
        .providers
        .credential_refused
        .of([metrics.provider(provider)])
        .inc();
}
