//! One attempt to get an answer to a request from a provider.

pub(crate) mod attempts;
pub(crate) mod deadline;

use std::time::{Duration, Instant};

use crate::{
    domain::faults::refusal::Refusal,
    gateway::attempt::deadline::{Deadline, Fate},
};

/// The maximum age of an attempt at which a closed connection from the pool counts as a stale one. It allows for a few round
/// trips and the delay of a busy machine.
pub(crate) const STALE_WITHIN: Duration = Duration::from_secs(1);

/// The state of the current attempt. Each attempt has a state of its own. [`attempts::AttemptPlan`] chooses the endpoint.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    stage: AttemptStage,
    /// Enforces the time limits; `None` before the connection is established and after the answer has ended.
    deadline: Option<Deadline>,
    /// The number of bytes that Pingora replays from its buffer at the start of the next body piece.
    replay_bytes: usize,
    /// Whether the answer consists of its head only.
    is_bodiless: bool,
    /// The decision about what follows the attempt.
    pub verdict: Verdict,
}

/// The decision about what follows an attempt. It is made by `upstream::verdict` and the hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No other attempt follows: the answer continues, or the request ends as the attempt did.
    #[default]
    Proceed,
    /// Another attempt follows.
    Retry,
    /// The client gets this refusal instead of an answer.
    Refuse(Refusal),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AttemptStage {
    /// The connection is not established yet.
    #[default]
    Connecting,
    /// The request is being sent, or weir waits for the head of its answer.
    Asking,
    /// The final head of the answer has arrived.
    Answering,
}

impl Attempt {
    /// Records that the connection is established, and that the time limits run from now on.
    pub(crate) fn on_connected(&mut self, deadline: Option<Deadline>, replay_bytes: usize) {
        self.stage = AttemptStage::Asking;
        self.deadline = deadline;
        self.replay_bytes = replay_bytes;
    }

    /// Whether a connection was established.
    pub(crate) fn is_connected(&self) -> bool {
        self.stage != AttemptStage::Connecting
    }

    /// Returns how many bytes Pingora replays from its buffer at the start of the next body piece. Later calls return 0.
    pub(crate) fn take_replay_bytes(&mut self) -> usize {
        std::mem::take(&mut self.replay_bytes)
    }

    /// Records that bytes of the answer have arrived. Bytes of an interim head count as well.
    pub(crate) fn on_byte(&self, now: Instant) {
        if let Some(deadline) = &self.deadline {
            deadline.on_byte(now);
        }
    }

    /// Records whether the answer's final head, which is handled next, is also the answer's end.
    pub(crate) fn set_bodiless(&mut self, is_bodiless: bool) {
        self.is_bodiless = is_bodiless;
    }

    /// Whether the answer consists of its head only.
    pub(crate) fn is_bodiless(&self) -> bool {
        self.is_bodiless
    }

    /// Records that the answer's final head has arrived.
    pub(crate) fn on_head(&mut self) {
        self.stage = AttemptStage::Answering;
    }

    /// Records that the answer is an error, whose body has a time limit of its own.
    pub(crate) fn on_error_head(&self, now: Instant) {
        if let Some(deadline) = &self.deadline {
            deadline.on_error_head(now);
        }
    }

    /// Whether the answer's final head has arrived.
    pub(crate) fn has_head(&self) -> bool {
        self.stage == AttemptStage::Answering
    }

    /// Returns whether a time limit, or the end of the drain, has ended the attempt.
    pub(crate) fn fate(&self) -> Fate {
        self.deadline.as_ref().map_or(Fate::Running, Deadline::fate)
    }

    /// Whether the attempt is so young that a closed connection counts as stale. Later, the provider may have served the request
    /// and may bill it.
    pub(crate) fn is_prompt(&self, now: Instant) -> bool {
        let age = self.deadline.as_ref().map(|deadline| deadline.age(now));
        age.is_some_and(|age| age <= STALE_WITHIN)
    }

    /// Ends the time limits, because the answer has ended. Returns whether a limit ended the attempt. The caller needs this
    /// result if only the end of the connection delimits the answer. In that case, the end looks proper even if a deadline has
    /// shut the connection down.
    pub(crate) fn on_end(&mut self) -> Fate {
        self.deadline.take().map_or(Fate::Running, |deadline| deadline.fate())
    }
}
