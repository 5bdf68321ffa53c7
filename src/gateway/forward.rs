//! An admitted request on its way to a provider and back.

use crate::{
    domain::{outcome::Outcome, protocol::ErrorForm, rules::Provider},
    gateway::{
        answer::outlet::Outlet,
        attempt::{Attempt, attempts::Attempts},
        recipient::Recipient,
        request::{Request, body::RequestBody},
        ticket::Ticket,
    },
    sessions::Sessions,
};

/// An admitted request. Each part has one owner of its changes: `attempt/` and `answer/` say what becomes of it.
#[derive(Debug)]
pub struct Forward {
    /// What the client asks.
    pub request: Request,
    /// The right to forward and the duty to account, with what has been observed of the answer.
    pub ticket: Ticket,
    /// Chooses provider, credential and place of each attempt.
    pub attempts: Attempts,
    /// The current attempt.
    pub attempt: Attempt,
    /// The body. `None` once no attempt can follow.
    pub body: Option<RequestBody>,
    /// How the answer's body leaves for the client.
    pub outlet: Outlet,
    /// Whoever gets the answer.
    pub recipient: Recipient,
}

impl Forward {
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

    /// Marks the request as abandoned if its client disconnected before the answer was complete.
    pub fn note_client(&mut self) {
        if self.recipient.has_left() && !self.ticket.meter.is_complete() {
            self.ticket.fail(Outcome::ClientGone);
        }
    }

    /// Called before a piece of the answer, or its end, goes to the client: records the state that it has created.
    pub fn remember(&mut self, sessions: &Sessions, end: bool) {
        let write_limit = self.request.live.config.gateway.write;
        let recipient = &mut self.recipient;
        recipient.remember(sessions, &self.attempts, &self.ticket.meter, end, write_limit);
    }
}
