//! One attempt of a request at a provider.

pub(crate) mod attempts;
pub(crate) mod deadline;

use std::time::{Duration, Instant};

use crate::{
    domain::faults::refusal::Refusal,
    gateway::attempt::deadline::{Deadline, Fate},
};

/// How soon after a request was written to a pooled connection its end counts as a stale connection: a few round trips,
/// and what a busy machine takes to notice.
pub(crate) const STALE_WITHIN: Duration = Duration::from_secs(1);

/// How far the current attempt has come. Made afresh for each; where it goes is said by [`attempts::Attempts`].
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    progress: Progress,
    /// The time limits, from the connection to the answer's end.
    deadline: Option<Deadline>,
    /// How many bytes of the next body piece are a replay from Pingora's buffer.
    replay_bytes: usize,
    /// The answer's head was also its end.
    is_bodiless: bool,
    /// What follows the attempt.
    pub verdict: Verdict,
}

/// What follows an attempt: `upstream::verdict` and the hooks decide it.
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
enum Progress {
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
    pub(crate) fn connected(&mut self, deadline: Option<Deadline>, replay_bytes: usize) {
        self.progress = Progress::Asking;
        self.deadline = deadline;
        self.replay_bytes = replay_bytes;
    }

    /// Whether a connection was established.
    pub(crate) fn is_connected(&self) -> bool {
        self.progress != Progress::Connecting
    }

    /// How much of the next body piece is a replay. Zero for the pieces after it.
    pub(crate) fn take_replay_bytes(&mut self) -> usize {
        std::mem::take(&mut self.replay_bytes)
    }

    /// Something of the answer has arrived, if only an interim head.
    pub(crate) fn byte_seen(&self, now: Instant) {
        if let Some(deadline) = &self.deadline {
            deadline.byte_seen(now);
        }
    }

    /// The answer's final head is about to be looked at; `is_bodiless`: it is also the answer's end.
    pub(crate) fn framing_seen(&mut self, is_bodiless: bool) {
        self.is_bodiless = is_bodiless;
    }

    /// Whether the answer's head was also its end.
    pub(crate) fn is_bodiless(&self) -> bool {
        self.is_bodiless
    }

    /// The answer's final head has arrived.
    pub(crate) fn head_seen(&mut self) {
        self.progress = Progress::Answering;
    }

    /// The answer is an error: its rest has a time limit of its own.
    pub(crate) fn error_seen(&self, now: Instant) {
        if let Some(deadline) = &self.deadline {
            deadline.error_seen(now);
        }
    }

    /// Whether the answer has a final head.
    pub(crate) fn has_head(&self) -> bool {
        self.progress == Progress::Answering
    }

    /// Whether a time limit, or the end of the process, has ended the attempt.
    pub(crate) fn fate(&self) -> Fate {
        self.deadline.as_ref().map_or(Fate::Running, Deadline::fate)
    }

    /// Whether the connection is so young that its end is that of a stale one. A provider that has worked for longer may
    /// have served the request, and bill it.
    pub(crate) fn is_prompt(&self, now: Instant) -> bool {
        let age = self.deadline.as_ref().map(|deadline| deadline.age(now));
        age.is_some_and(|age| age <= STALE_WITHIN)
    }

    /// The answer has ended: ends the time limits, and returns what they have done. If only the connection's end
    /// delimits an answer, a deadline that shut it down looks like a proper end.
    pub(crate) fn ended(&mut self) -> Fate {
        self.deadline.take().map_or(Fate::Running, |deadline| deadline.fate())
    }
}
