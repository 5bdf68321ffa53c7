//! A request on its way to a provider, attempt after attempt.

use std::sync::Arc;

use http::HeaderMap;
use rand::RngExt;

use crate::{
    domain::{
        catalogue::route::Leg,
        faults::refusal::Refusal,
        rules::Provider,
        wire::{protocol::ErrorForm, session_hint::SessionHint},
    },
    edges::clock,
    gateway::{
        attempt::{Attempt, attempts::Attempts},
        request::{Request, body::RequestBody},
    },
};

/// What the attempts of an admitted request need.
#[derive(Debug)]
pub(crate) struct Dispatch {
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
    /// Chooses the first provider and credential of an admitted request, and edits its body for them. `headers` are the
    /// client's.
    ///
    /// # Errors
    /// The refusal of a body that the provider cannot take.
    pub(crate) fn begin(
        request: Request,
        legs: Vec<Leg>,
        hint: Option<SessionHint>,
        mut body: RequestBody,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        if legs.len() > 1 {
            // Only a further provider needs the body as the client sent it.
            body.keep_original();
        }
        let (pools, probing) = (Arc::clone(&request.live.pools), body.probing());
        let (dice, now) = (rand::rng().random(), clock::instant());
        let attempts = Attempts::begin(request.operation, legs, pools, hint, probing, dice, now);
        let mut dispatch = Self {
            attempts: attempts.ok_or(Refusal::Internal)?,
            request,
            attempt: Attempt::default(),
            body: Some(body),
        };
        dispatch.edit_body(headers)?;
        Ok(dispatch)
    }

    /// Edits the body for the current provider, unless that is done.
    pub(crate) fn edit_body(&mut self, headers: &HeaderMap) -> Result<(), Refusal> {
        let body = self.body.as_mut().ok_or(Refusal::Internal)?;
        let leg = self.attempts.leg();
        let facts = self.request.facts(headers, leg);
        body.edit_for(leg, &facts, &self.request.scan)
    }

    /// The current provider.
    pub(crate) fn provider(&self) -> &Provider {
        &self.attempts.leg().provider
    }

    /// The current credential's secret.
    pub(crate) fn secret(&self) -> &str {
        self.attempts.credential().credential.secret.expose()
    }

    /// The form in which the client gets errors of the current provider.
    pub(crate) fn error_form(&self) -> ErrorForm {
        self.provider().error_form(self.request.operation.protocol())
    }

    /// Whether a further attempt can send the body again.
    pub(crate) fn can_resend(&self) -> bool {
        self.body.as_ref().is_some_and(RequestBody::can_resend)
    }
}
