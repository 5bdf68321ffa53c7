//! A request on its way to a provider, attempt after attempt.

use crate::{
    domain::{protocol::ErrorForm, rules::Provider},
    gateway::{
        attempt::{Attempt, attempts::Attempts},
        request::{Request, body::RequestBody},
    },
};

/// What the attempts of an admitted request need.
#[derive(Debug)]
pub struct Dispatch {
    /// What the client asks.
    pub request: Request,
    /// Chooses provider, credential and place of each attempt.
    pub attempts: Attempts,
    /// The current attempt.
    pub attempt: Attempt,
    /// The body. `None` once no attempt can follow.
    pub body: Option<RequestBody>,
}

impl Dispatch {
    /// The current provider.
    pub fn provider(&self) -> &Provider {
        &self.attempts.leg().provider
    }

    /// The current credential's secret.
    pub fn secret(&self) -> &str {
        self.attempts.credential().credential.secret.expose()
    }

    /// The form in which the client gets errors of the current provider.
    pub fn error_form(&self) -> ErrorForm {
        self.provider().error_form(self.request.operation.protocol())
    }

    /// Whether a further attempt can send the body again.
    pub fn can_resend(&self) -> bool {
        self.body.as_ref().is_some_and(RequestBody::can_resend)
    }
}
