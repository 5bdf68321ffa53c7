//! The client's side of a forwarded request: who gets the answer, and what is kept for it while the request runs.

pub(crate) mod owner;

use std::{sync::Arc, time::Duration};

use crate::{
    gateway::{
        attempt::attempts::Attempts, gate::Gate, key_slots::KeySlot, meter::Meter, presence::Presence,
        recipient::owner::Owner,
    },
    providers::sessions::Sessions,
    telemetry::metrics::GaugeGuard,
};

/// Whoever gets the answer of one request.
#[derive(Debug)]
pub(crate) struct Recipient {
    /// Set if the answer may outlive its client; knows whether the client has disconnected.
    pub presence: Option<Arc<Presence>>,
    /// Delays the answer's last bytes until what it has created is recorded.
    pub gate: Arc<Gate>,
    /// Records which account owns the state that the answer creates; taken once all of it is recorded.
    pub owner: Option<Owner>,
    /// Counts an open stream, until dropped.
    #[expect(dead_code, reason = "held until the request ends")]
    pub stream_gauge: Option<GaugeGuard>,
    /// The key's slot for counting tokens.
    #[expect(dead_code, reason = "held until the request ends")]
    pub count_slot: Option<KeySlot>,
}

impl Recipient {
    /// Whether the client has disconnected and the answer is read without it.
    pub(crate) fn has_left(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.has_left())
    }

    /// Ends the request; `whole` says whether its answer was read to its end.
    pub(crate) fn close(&self, whole: bool) {
        if let Some(presence) = &self.presence {
            presence.close(whole);
        }
    }

    /// Called before a piece of the answer, or its end, goes to the client. Records the state that the answer has
    /// created, and shuts the gate before the last bytes until that is written, because the client's next request may
    /// come as soon as it has them. Never waits itself.
    pub(crate) fn remember(
        &mut self,
        sessions: &Sessions,
        attempts: &Attempts,
        meter: &Meter,
        end: bool,
        write_limit: Duration,
    ) {
        if !end && !meter.has_named_all() {
            if let Some(owner) = &mut self.owner {
                owner.look(sessions, attempts, meter);
            }
        } else if let Some(mut owner) = self.owner.take() {
            owner.remember(sessions, attempts, meter);
            owner.keep_back(sessions, &self.gate, write_limit);
        }
    }

    /// Records the rest when the exchange ends before the answer was read to its end.
    pub(crate) fn remember_rest(&mut self, sessions: &Sessions, attempts: &Attempts, meter: &Meter) {
        if let Some(mut owner) = self.owner.take() {
            owner.remember(sessions, attempts, meter);
        }
    }
}
