//! The right to forward one request, and the duty to account for it.
//!
//! Nothing is forwarded without a [`Ticket`] (the code that talks to a provider takes one), and every ticket settles
//! exactly once: by [`Ticket::settle`], or when it is dropped, whatever the reason.

use std::time::Instant;

use crate::{
    domain::{
        outcome::Outcome,
        protocol::{Framing, MidStreamFailure, Observed, Observer, Protocol},
    },
    gateway::entry::{Entry, millis_between},
};

/// What has been seen of the answer so far.
#[derive(Debug, Default)]
pub struct Meter {
    observer: Option<Observer>,
    framing: Option<Framing>,
    first_content: Option<Instant>,
    response_bytes: u64,
    status: u16,
    ended: bool,
}

impl Meter {
    /// The answer's head has come; `protocol` and `framing` choose what is observed in its body.
    pub fn head_seen(&mut self, status: u16, protocol: Protocol, framing: Framing) {
        self.status = status;
        self.framing = Some(framing);
        self.observer = Some(Observer::new(protocol, framing));
    }

    /// A piece of the answer's body passes.
    pub fn body_seen(&mut self, piece: &[u8], now: Instant) {
        self.response_bytes += piece.len() as u64;
        if let Some(observer) = &mut self.observer {
            observer.push(piece);
            if self.first_content.is_none() && observer.first_content_seen() {
                self.first_content = Some(now);
            }
        }
    }

    /// The answer's body has ended as the provider meant it.
    pub fn body_ended(&mut self) {
        self.ended = true;
    }

    /// Whether the protocol says that the answer is whole. An error answer is whole whatever it holds.
    pub fn is_complete(&self) -> bool {
        self.status >= 400 || self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// How the body is framed, once its head has come.
    pub fn framing(&self) -> Option<Framing> {
        self.framing
    }

    /// The status of the answer; 0 before its head has come.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The bytes that tell the client of a failure in the middle of the answer; none where the protocol has no way.
    pub fn failure_tail(&self, failure: &MidStreamFailure) -> Option<Vec<u8>> {
        self.observer.as_ref()?.failure_tail(failure)
    }

    /// The identifier under which the provider may keep the answer.
    pub fn answer_id(&self) -> Option<String> {
        self.observed()?.answer_id
    }

    fn observed(&self) -> Option<Observed> {
        self.observer.as_ref().map(Observer::observed)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Ticket {
    /// What has been seen of the answer.
    pub meter: Meter,
    entry: Entry,
    failure: Option<Outcome>,
    settled: bool,
}

impl Ticket {
    /// Issued by admission only.
    pub(super) fn issue(entry: Entry) -> Self {
        Self {
            meter: Meter::default(),
            entry,
            failure: None,
            settled: false,
        }
    }

    /// weir's identifier of the request.
    pub fn request_id(&self) -> &str {
        &self.entry.record.request_id
    }

    /// An attempt at a provider begins; what was seen of an earlier one does not count.
    pub fn attempt(&mut self, provider: &str) {
        self.entry.record.attempts += 1;
        if self.entry.record.provider.as_deref() != Some(provider) {
            self.entry.record.provider = Some(provider.to_owned());
        }
        self.meter = Meter::default();
    }

    /// Why the request failed; the first cause stands.
    pub fn fail(&mut self, outcome: Outcome) {
        self.failure.get_or_insert(outcome);
    }

    /// weir answered with a refusal instead of a provider's answer.
    pub fn answered_with(&mut self, status: u16, reason: &'static str) {
        self.meter.status = status;
        self.entry.record.refusal = Some(reason);
    }

    /// Accounts for the request. Later calls do nothing.
    pub fn settle(&mut self) {
        if self.settled {
            return;
        }
        self.settled = true;
        let observed = self.meter.observed();
        let outcome = self.failure.unwrap_or_else(|| self.outcome(observed.as_ref()));
        let record = &mut self.entry.record;
        record.status = self.meter.status;
        record.response_bytes = self.meter.response_bytes;
        record.ttft_ms = self
            .meter
            .first_content
            .map(|seen| millis_between(self.entry.started, seen));
        if let Some(observed) = observed {
            record.usage = observed.usage;
            record.finish_reason = observed.finish_reason;
        }
        self.entry.close(outcome);
    }

    fn outcome(&self, observed: Option<&Observed>) -> Outcome {
        if self.meter.status >= 400 {
            Outcome::ProviderError
        } else if observed.is_some_and(|observed| observed.in_band_error.is_some()) {
            Outcome::InBandError
        } else if self.meter.ended && self.meter.is_complete() {
            Outcome::Ok
        } else if self.meter.ended {
            Outcome::ProviderCut
        } else {
            Outcome::ClientGone
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle();
    }
}
