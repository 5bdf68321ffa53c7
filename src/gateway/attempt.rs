//! One attempt of a request at a provider.

pub(crate) mod attempts;
pub(crate) mod deadline;

use std::time::{Duration, Instant};

use crate::{
    domain::faults::refusal::Refusal,
    gateway::attempt::deadline::{Deadline, Fate},
};

/// The age up to which an attempt over a pooled connection that is closed counts as made over a stale one: a few round trips, and
/// the delay of a busy machine.
pub(crate) const STALE_WITHIN: Duration = Duration::from_secs(1);

/// The state of the current attempt, one for each attempt. [`attempts::AttemptPlan`] decides where it goes.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    stage: AttemptStage,
    /// The time limits, from the connection to the answer's end.
    deadline: Option<Deadline>,
    /// How many bytes of the next body piece are a replay from Pingora's buffer.
    replay_bytes: usize,
    /// The answer's head was also its end.
    is_bodiless: bool,
    /// What follows the attempt.
    pub verdict: Verdict,
}

/// What follows an attempt. `upstream::verdict` and the hooks decide it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing else: the answer goes on, or the request ends as the attempt did.
    #[default]
    Proceed,
    /// Another attempt.
    Retry,
    /// The client gets this refusal in place of an answer.
    Refuse(Refusal),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AttemptStage {
    /// There is no connection yet.
    #[default]
    Connecting,
    /// The request is being sent, or the head of its answer is awaited.
    Asking,
    /// The answer has a head.
    Answering,
}

impl Attempt {
    /// The connection is established, and the time limits have begun.
    pub(crate) fn on_connected(&mut self, deadline: Option<Deadline>, replay_bytes: usize) {
        self.stage = AttemptStage::Asking;
        self.deadline = deadline;
        self.replay_bytes = replay_bytes;
    }

    /// Whether a connection was established.
    pub(crate) fn is_connected(&self) -> bool {
        self.stage != AttemptStage::Connecting
    }

    /// How much of the next body piece is a replay. Zero for the pieces after it.
    pub(crate) fn take_replay_bytes(&mut self) -> usize {
        std::mem::take(&mut self.replay_bytes)
    }

    /// Bytes of the answer have arrived, possibly only an interim head.
    pub(crate) fn on_byte(&self, now: Instant) {
        if let Some(deadline) = &self.deadline {
            deadline.on_byte(now);
        }
    }

    /// The answer's final head is about to be handled. `is_bodiless` says whether it is also the answer's end.
    pub(crate) fn set_bodiless(&mut self, is_bodiless: bool) {
        self.is_bodiless = is_bodiless;
    }

    /// Whether the answer's head was also its end.
    pub(crate) fn is_bodiless(&self) -> bool {
        self.is_bodiless
    }

    /// The answer's final head has arrived.
    pub(crate) fn on_head(&mut self) {
        self.stage = AttemptStage::Answering;
    }

    /// The answer is an error: its body has a time limit of its own.
    pub(crate) fn on_error_head(&self, now: Instant) {
        if let Some(deadline) = &self.deadline {
            deadline.on_error_head(now);
        }
    }

    /// Whether the answer has a final head.
    pub(crate) fn has_head(&self) -> bool {
        self.stage == AttemptStage::Answering
    }

    /// Whether a time limit, or the end of the process, has ended the attempt.
    pub(crate) fn fate(&self) -> Fate {
        self.deadline.as_ref().map_or(Fate::Running, Deadline::fate)
    }

    /// Whether the attempt is so young that a closed connection counts as stale. A provider that has worked for longer may have
    /// served the request, and bill it.
    pub(crate) fn is_prompt(&self, now: Instant) -> bool {
        let age = self.deadline.as_ref().map(|deadline| deadline.age(now));
        age.is_some_and(|age| age <= STALE_WITHIN)
    }

    /// The answer has ended: ends the time limits, and returns whether they ended the attempt. If only the connection's end
    /// delimits the answer, a deadline that shut down the connection looks like a proper end.
    pub(crate) fn on_end(&mut self) -> Fate {
        self.deadline.take().map_or(Fate::Running, |deadline| deadline.fate())
    }
}
