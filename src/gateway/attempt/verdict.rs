//! Acts on the meaning of an answer: for the credential, the place and the request.

use std::time::Duration;

use pingora::{Error, ErrorType, Result};
use rand::RngExt;

use crate::{
    clock,
    domain::refusal::Refusal,
    gateway::{admission, attempt::attempts::Answered, exchange::Forward},
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
        can_resend: admission::can_resend(forward) && !forward.is_unattended(),
    };
    let dice = rand::rng().random();
    if forward.attempts.answered(&answer, dice, clock::instant()) {
        forward.again = true;
        return Err(Error::explain(ErrorType::Custom("to be tried again"), "after the provider's answer").into_up());
    }
    if refused {
        forward.refusal = Some(Refusal::ProviderCredentialRefused);
        return Err(Error::explain(ErrorType::Custom("credential refused"), "by the provider").into_up());
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
