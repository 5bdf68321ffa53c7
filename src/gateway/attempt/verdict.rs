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
    if refused {
        // The refusal concerns the operator's account. Logged now, because the next attempt may use another credential.
        credential_refused(metrics, dispatch, status);
    }
    let answer = Answered {
        status,
        refused,
        asked_pause,
        // Without a client nobody waits for a better answer.
        can_resend: dispatch.can_resend() && !has_left,
    };
    let dice = rand::rng().random();
    if dispatch.attempts.answered(&answer, dice, clock::instant()) {
        let etype = ErrorType::Custom("to be tried again");
        return Err(Interruption::Repeat
            .error(etype, "after the provider's answer")
            .into_up());
    }
    if refused {
        let refusal = Interruption::Refused(Refusal::ProviderCredentialRefused);
        return Err(refusal
            .error(ErrorType::Custom("credential refused"), "by the provider")
            .into_up());
    }
    Ok(())
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
