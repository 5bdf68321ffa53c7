//! An attempt that fails after its connection was established: what has arrived of an error answer still counts, and a success
//! that has not begun can be repeated.

use pingora::{Error, ErrorSource};
use pingora_proxy::Session;

use crate::{
    gateway::{
        answer::{beginning, error},
        attempt::{
            deadline::Fate,
            failure::{self, HeldSuccess},
            interruption::Interruption,
        },
        forward::Forward,
        outlet::Outlet,
    },
    telemetry::metrics::Metrics,
};

/// Decides what follows: another attempt, the error answer as far as it came, or the end of the request.
pub(crate) fn decide(
    metrics: &Metrics,
    session: &mut Session,
    forward: &mut Forward,
    error: Box<Error>,
    reused: bool,
) -> Box<Error> {
    let error = beginning::catch_up(session, forward).err().unwrap_or(error);
    let error = match conclude_error(metrics, forward, &error) {
        None => error,
        Some(Err(verdict)) => verdict,
        Some(Ok(())) => {
            let mut concluded = error;
            concluded.set_retry(false);
            return concluded;
        }
    };
    let held = match (forward.unbegun.is_some(), forward.has_not_begun()) {
        (false, _) => HeldSuccess::None,
        (true, true) => HeldSuccess::Unsent,
        (true, false) => HeldSuccess::Sent,
    };
    let has_left = forward.recipient.has_left();
    let error = failure::decide(session, &mut forward.dispatch, has_left, held, error, reused);
    if error.retry() {
        forward.abandon_answer();
    }
    error
}

/// Ends a withheld error answer that its provider has broken off; `None` if there is none.
fn conclude_error(metrics: &Metrics, forward: &mut Forward, error: &Error) -> Option<pingora::Result<()>> {
    let is_providers = *error.esource() == ErrorSource::Upstream && Interruption::of(error).is_none();
    let is_withheld = matches!(forward.outlet, Outlet::Withheld(_));
    let is_stopped = forward.dispatch.attempt.fate() == Fate::Stopped;
    (is_providers && is_withheld && !is_stopped).then(|| error::conclude(metrics, forward))
}
