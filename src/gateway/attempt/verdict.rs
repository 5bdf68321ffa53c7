//! Acts on the meaning of an answer: for the credential, the place and the request.

use std::time::Duration;

use pingora::{ErrorType, Result};
use rand::RngExt;

use crate::{
    clock,
    domain::refusal::Refusal,
    gateway::{
        attempt::{attempts::Answered, interruption::Interruption},
        forward::Forward,
    },
    metrics::Metrics,
};

/// Records what an answer says about credential and place, and decides whether another attempt follows. `refused` says
/// that it refuses the credential. An error return ends the attempt.
pub fn pass(
    metrics: &Metrics,
    forward: &mut Forward,
    status: u16,
    refused: bool,
    asked_pause: Option<Duration>,
) -> Result<()> {
    if refused {
        // The refusal concerns the operator's account. Logged now, because the next attempt may use another credential.
        credential_refused(metrics, forward, status);
    }
    let answer = Answered {
        status,
        refused,
        asked_pause,
        // Without a client nobody waits for a better answer.
        can_resend: forward.can_resend() && !forward.recipient.has_left(),
    };
    let dice = rand::rng().random();
    if forward.attempts.answered(&answer, dice, clock::instant()) {
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

fn credential_refused(metrics: &Metrics, forward: &Forward, status: u16) {
    let provider = &forward.provider().name;
    tracing::error!(
        %provider,
        credential = %forward.attempts.credential().credential.name,
        status,
        "the provider refused the credential configured for it: check the secret and the account"
    );
    metrics.provider_credential_refused(provider);
}
