//! Acts on the meaning of an answer: for the credential, the place and the request.

use std::time::Duration;

use pingora::{ErrorType, Result};
use rand::RngExt;

use crate::{
    domain::faults::refusal::Refusal,
    edges::clock,
    gateway::attempt::{attempts::Answered, dispatch::Dispatch, interruption::Interruption},
    telemetry::metrics::Metrics,
};

/// Records what an answer says about credential and place, and decides whether another attempt follows. `refused` says
/// that it refuses the credential, `has_left` that the client is gone. An error return ends the attempt.
pub(crate) fn act(
    metrics: &Metrics,
    dispatch: &mut Dispatch,
    has_left: bool,
    status: u16,
    refused: bool,
    asked_pause: Option<Duration>,
) -> Result<()> {
    let answer = Answered {
        status,
        refused,
        asked_pause,
        // Without a client nobody waits for a better answer.
        can_resend: dispatch.can_resend() && !has_left,
        never_began: false,
    };
    act_on(metrics, dispatch, &answer)
}

/// The same for a success that never began: `status` stands for it.
pub(crate) fn act_on_failed_success(
    metrics: &Metrics,
    dispatch: &mut Dispatch,
    has_left: bool,
    status: u16,
    refused: bool,
) -> Result<()> {
    let answer = Answered {
        status,
        refused,
        asked_pause: None,
        can_resend: dispatch.can_resend() && !has_left,
        never_began: status >= 500,
    };
    act_on(metrics, dispatch, &answer)
}

fn act_on(metrics: &Metrics, dispatch: &mut Dispatch, answer: &Answered) -> Result<()> {
    if answer.refused {
        // The refusal concerns the operator's account. Logged now, because the next attempt may use another credential.
        credential_refused(metrics, dispatch, answer.status);
    }
    if answered(dispatch, answer) {
        let etype = ErrorType::Custom("to be tried again");
        return Err(Interruption::Repeat
            .error(etype, "after the provider's answer")
            .into_up());
    }
    if answer.refused {
        let refusal = Interruption::Refused(Refusal::ProviderCredentialRefused);
        return Err(refusal
            .error(ErrorType::Custom("credential refused"), "by the provider")
            .into_up());
    }
    Ok(())
}

/// Records what a success is worth that has reached the client, so that no other attempt can follow.
pub(crate) fn note(dispatch: &mut Dispatch, status: u16) {
    let answer = Answered {
        status,
        refused: false,
        asked_pause: None,
        can_resend: false,
        never_began: status >= 500,
    };
    answered(dispatch, &answer);
}

/// Records that a provider has broken a success off before it began. Returns whether another attempt follows; `may` allows
/// that.
pub(crate) fn broken_off(dispatch: &mut Dispatch, may: bool) -> bool {
    let answer = Answered {
        status: Refusal::ProviderBroken.status(),
        refused: false,
        asked_pause: None,
        can_resend: may && dispatch.can_resend(),
        never_began: true,
    };
    answered(dispatch, &answer)
}

fn answered(dispatch: &mut Dispatch, answer: &Answered) -> bool {
    dispatch
        .attempts
        .answered(answer, rand::rng().random(), clock::instant())
}

fn credential_refused(metrics: &Metrics, dispatch: &Dispatch, status: u16) {
    let provider = &dispatch.provider().name;
    tracing::error!(
        %provider,
        credential = %dispatch.attempts.credential().credential.name,
        status,
        "the provider refused the credential configured for it: check the secret and the account"
    );
    metrics.provider_credential_refused(provider);
}
