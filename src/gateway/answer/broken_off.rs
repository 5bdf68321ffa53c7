//! The outcome and the message to the client when an answer ends before it is complete.

use crate::{
    domain::{
        faults::outcome::Outcome,
        wire::protocol::{FailureKind, MidStreamFailure},
    },
    gateway::{attempt::deadline::Fate, forward::Forward},
};

/// Outcome and message for an answer that its watch has ended; `None` if the watch has not.
pub(crate) fn ended_by(fate: Fate) -> Option<(Outcome, FailureKind, &'static str)> {
    match fate {
        Fate::Running => None,
        Fate::Expired => Some((
            Outcome::ProviderTimeout,
            FailureKind::ProviderTimeout,
            "the provider was silent for too long; send the request again",
        )),
        Fate::Stopped => Some((
            Outcome::Stopped,
            FailureKind::Stopped,
            "the service is being restarted and the answer took too long to wait for; send the request again",
        )),
    }
}

/// Outcome and in-band error for an answer that breaks off. `panicked` says that a hook panicked.
pub(crate) fn failure_of(forward: &Forward, panicked: bool) -> (Outcome, MidStreamFailure) {
    let (outcome, kind, message) = if panicked {
        (
            Outcome::Internal,
            FailureKind::Internal,
            "the gateway failed while passing the answer on; send the request again",
        )
    } else if forward.ticket.is_cut() {
        (
            Outcome::LimitReached,
            FailureKind::LimitReached,
            "the quota of this API key or the balance of its account is used up; the answer ends here",
        )
    } else if let Some(ended) = ended_by(forward.dispatch.attempt.fate()) {
        ended
    } else {
        (
            Outcome::ProviderCut,
            FailureKind::ProviderCut,
            "the provider broke the answer off; send the request again",
        )
    };
    (
        outcome,
        MidStreamFailure {
            kind,
            message: message.to_owned(),
        },
    )
}
