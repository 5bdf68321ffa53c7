//! Records which account owns the state that an answer creates at its provider: while the answer passes, and written
//! before the client has its end.

use std::{sync::Arc, time::Duration};

use crate::{
    domain::{
        keys::key::KeyRecord,
        wire::{
            provider_state::{StateId, StateKey},
            session_hint::ServedBy,
        },
    },
    gateway::{attempt::attempts::Attempts, gate::Gate, meter::Meter},
    providers::sessions::{OnTheWay, Sessions},
};

/// How long an answer's end waits at most for that record: as long as an unresponsive store is waited for. After that
/// the store counts as failing and nobody waits.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Collects and records the state that one answer creates.
#[derive(Debug)]
pub(crate) struct Owner {
    /// The key of the request; its account owns the state.
    key: Arc<KeyRecord>,
    /// The provider keeps the answer, so a later request can name it.
    is_kept: bool,
    /// How many names the answer had when it was last looked at.
    names: usize,
    /// The names being written, if any.
    on_the_way: Option<OnTheWay>,
}

impl Owner {
    /// For an answer that has not begun.
    pub(crate) fn new(key: Arc<KeyRecord>, is_kept: bool) -> Self {
        Self {
            key,
            is_kept,
            names: 0,
            on_the_way: None,
        }
    }

    /// Called with each piece of the answer: records new names.
    pub(crate) fn look(&mut self, sessions: &Sessions, attempts: &Attempts, meter: &Meter) {
        let names = meter.names();
        if names != self.names {
            self.names = names;
            self.remember(sessions, attempts, meter);
        }
    }

    /// Records all that the answer has created so far, with the account that owns it and the provider and credential
    /// that serve it.
    pub(crate) fn remember(&mut self, sessions: &Sessions, attempts: &Attempts, meter: &Meter) {
        if !(200..300).contains(&meter.status()) {
            return;
        }
        let made = meter.made().unwrap_or_default();
        let answer = self.is_kept.then(|| meter.answer_id()).flatten();
        let answer = answer.map(|id| StateId::new(&id));
        let kept = made.kept.iter().filter(|_| self.is_kept);
        let made = answer.iter().chain(kept).chain(&made.always);
        let made = made.map(|id| StateKey::new(&self.key.account, *id));
        let mut states = attempts.state().into_iter().chain(made).peekable();
        if states.peek().is_none() {
            return;
        }
        let served_by = ServedBy {
            provider: attempts.leg().provider.name.clone(),
            credential: attempts.credential().credential.name.clone(),
        };
        let on_the_way = self.on_the_way.get_or_insert_default();
        states.for_each(|state| sessions.remember(state, &served_by, on_the_way));
    }

    /// Shuts the gate before the last bytes of the answer until the record is written. `write_limit` is the client's
    /// write timeout; the wait stays well below it.
    pub(crate) fn keep_back(self, sessions: &Sessions, gate: &Gate, write_limit: Duration) {
        let patience = WRITE_WAIT_MAX.min(write_limit / 2);
        if let Some(written) = self.on_the_way.and_then(|names| sessions.written(names, patience)) {
            gate.shut(written);
        }
    }
}
