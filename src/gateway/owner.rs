//! Whose is what an answer makes at its provider: remembered while the answer passes, and written before the client has its end.

use std::{sync::Arc, time::Duration};

use crate::{
    domain::{
        key::KeyRecord,
        provider_state::{StateId, StateKey},
        session_hint::ServedBy,
    },
    gateway::{attempts::Attempts, gate::Gate, ticket::Meter},
    sessions::{OnTheWay, Sessions},
};

/// How long an answer's end waits at most until what the answer has made is written: as long as a store is waited for that
/// answers nothing. Then it takes nothing, and nobody waits for it.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Whose answer it is.
#[derive(Debug)]
pub struct Owner {
    /// The key that asked; what it makes is its account's.
    key: Arc<KeyRecord>,
    /// Whether the provider keeps the answer, so that a later request can name it.
    is_kept: bool,
    /// The names that the answer had when it was looked at last.
    names: usize,
    /// What is being written, once there is something.
    on_the_way: Option<OnTheWay>,
}

impl Owner {
    /// The answer has not begun.
    pub fn new(key: Arc<KeyRecord>, is_kept: bool) -> Self {
        Self {
            key,
            is_kept,
            names: 0,
            on_the_way: None,
        }
    }

    /// A piece of the answer has come: if it names something new, that is remembered.
    pub fn look(&mut self, sessions: &Sessions, attempts: &Attempts, meter: &Meter) {
        let names = meter.names();
        if names != self.names {
            self.names = names;
            self.remember(sessions, attempts, meter);
        }
    }

    /// Remembers what the answer has made so far, whose it is, and who served it: what comes next has to go to the same.
    pub fn remember(&mut self, sessions: &Sessions, attempts: &Attempts, meter: &Meter) {
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

    /// The answer's last bytes are about to go to the client: they wait at the gate for what is still being written.
    /// `write_limit` is how long the client may take no bytes, which the wait must not look like.
    pub fn keep_back(self, sessions: &Sessions, gate: &Gate, write_limit: Duration) {
        let patience = WRITE_WAIT_MAX.min(write_limit / 2);
        if let Some(written) = self.on_the_way.and_then(|names| sessions.written(names, patience)) {
            gate.shut(written);
        }
    }
}
