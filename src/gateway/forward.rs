//! An admitted request on its way to a provider, and its answer on the way back.

use crate::{
    gateway::{
        attempt::dispatch::Dispatch,
        outlet::{Outlet, masking::Masking, unbegun::Unbegun},
        recipient::Recipient,
        ticket::{Cause, Ticket},
    },
    providers::sessions::Sessions,
};

/// An admitted request.
#[derive(Debug)]
pub(crate) struct Forward {
    /// The request and its attempts.
    pub dispatch: Dispatch,
    /// The right to forward and the duty to account, with what has been observed of the answer.
    pub ticket: Ticket,
    /// The current answer, while it is a success that has not begun.
    pub unbegun: Option<Unbegun>,
    /// Masks the credential in errors within the answer's body.
    pub masking: Masking,
    /// How the answer's body leaves for the client.
    pub outlet: Outlet,
    /// Whoever gets the answer.
    pub recipient: Recipient,
}

impl Forward {
    /// Marks the request as abandoned if its client disconnected before the answer was complete.
    pub(crate) fn note_client(&mut self) {
        if self.recipient.has_left() && !self.ticket.meter.is_complete() {
            self.ticket.client_left();
        }
    }

    /// Whether the current answer is a success of which the client has nothing yet.
    pub(crate) fn has_not_begun(&self) -> bool {
        self.unbegun.is_some() && self.recipient.gate.head.is_waiting()
    }

    /// The client gets nothing of the current answer.
    pub(crate) fn abandon_answer(&mut self) {
        self.unbegun = None;
        self.masking = Masking::default();
        self.outlet = Outlet::default();
        self.recipient.gate.head.take();
        self.ticket.meter.discard();
    }

    /// What an answer that breaks off still has in hand.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let masked = self.masking.rest(self.dispatch.secret());
        self.outlet.rest(masked)
    }

    /// Called before a piece of the answer, or its end, goes to the client: records the state that it has created.
    pub(crate) fn remember(&mut self, sessions: &Sessions, end: bool) {
        let write_limit = self.dispatch.request.live.config.gateway.write;
        let (attempts, meter) = (&self.dispatch.attempts, &self.ticket.meter);
        self.recipient.remember(sessions, attempts, meter, end, write_limit);
    }

    /// Settles the request, and records what it has created, however it has ended.
    pub(crate) fn settle(mut self: Box<Self>, sessions: &Sessions) {
        let (attempts, meter) = (&self.dispatch.attempts, &self.ticket.meter);
        self.recipient.remember_rest(sessions, attempts, meter);
        self.ticket.end(Cause::Over);
        self.recipient.close(self.ticket.meter.is_complete());
    }
}
