//! The right to forward one request, and the duty to account for it.
//!
//! Nothing is forwarded without a [`Ticket`] (the code that talks to a provider takes one), and every ticket settles
//! exactly once: by [`Ticket::settle`], or when it is dropped, whatever the reason.

use std::{borrow::Cow, sync::OnceLock, time::Instant};

use crate::{
    billing::{Bill, Progress},
    clock,
    domain::{
        consumption::UsageSource,
        finish_reason,
        ledger::QuotaStanding,
        outcome::Outcome,
        protocol::{Framing, Made, MidStreamFailure, Observed, Observer, Protocol},
    },
    gateway::{
        beside::Beside,
        coding::Coded,
        entry::{Entry, millis_between},
        estimate::Basis,
    },
};

/// What has been seen of the answer so far.
#[derive(Debug, Default)]
pub struct Meter {
    observer: Option<Observer>,
    /// Between the bytes and the observer, where the answer has a content coding.
    beside: Option<Beside>,
    /// The bytes are compressed: nothing of weir's own can stand among them.
    is_coded: bool,
    /// Nothing follows the event that makes the answer whole: its usage is known then.
    ends_with_event: bool,
    framing: Option<Framing>,
    first_content: Option<Instant>,
    response_bytes: u64,
    status: u16,
    ended: bool,
    /// What the answer has said, once nothing can be added to that.
    last_word: OnceLock<Observed>,
}

impl Meter {
    /// The answer's head has come; `protocol` and `framing` choose what is observed in its body, `coded` how it is read.
    pub fn head_seen(&mut self, status: u16, protocol: Protocol, framing: Framing, coded: &Coded) {
        self.status = status;
        self.framing = Some(framing);
        self.is_coded = *coded != Coded::No;
        self.ends_with_event = framing == Framing::Sse && protocol != Protocol::Gemini;
        // An error answer is held, and decoded whole at its end.
        self.beside = match coded {
            Coded::By(coding) if status < 400 && framing != Framing::Opaque => Some(Beside::new(*coding)),
            Coded::No | Coded::By(_) | Coded::Otherwise(_) => None,
        };
        let observed = match (self.is_coded, &self.beside) {
            (true, None) => Framing::Opaque,
            (true, Some(_)) | (false, _) => framing,
        };
        self.observer = Some(Observer::new(protocol, observed));
    }

    /// A piece of the answer's body passes.
    pub fn body_seen(&mut self, piece: &[u8], now: Instant) {
        self.response_bytes += piece.len() as u64;
        if let Some(observer) = &mut self.observer {
            match &mut self.beside {
                Some(beside) => beside.push(piece, |text| observer.push(text)),
                None => observer.push(piece),
            }
            if self.first_content.is_none() && observer.first_content_seen() {
                self.first_content = Some(now);
            }
        }
    }

    /// The answer's body has ended as the provider meant it.
    pub fn body_ended(&mut self) {
        self.ended = true;
    }

    /// Whether the protocol says that the answer is whole. An error answer is whole whatever it holds, and so is one whose
    /// content coding cannot be read: nobody knows better.
    pub fn is_complete(&self) -> bool {
        let unreadable = self.beside.as_ref().is_some_and(|beside| !beside.is_readable());
        self.status >= 400 || unreadable || self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// Whether all that is ever known of the answer is known.
    pub fn is_final(&self) -> bool {
        self.ended || self.ends_with_event && self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// Whether the answer's bytes are compressed.
    pub fn is_coded(&self) -> bool {
        self.is_coded
    }

    /// The bytes that a complete stream still lacks (see [`Observer::closing`]); none among compressed ones.
    pub fn closing(&self) -> Option<Vec<u8>> {
        self.observer.as_ref().filter(|_| !self.is_coded)?.closing()
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
        self.observer.as_ref().filter(|_| !self.is_coded)?.failure_tail(failure)
    }

    /// What the text that has passed is estimated at, in tokens, uncalibrated.
    pub fn output_estimate(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::output_estimate)
    }

    /// Whether all is known that the answer names. A body in one piece is whole with its last brace, wherever the connection
    /// says that it ends.
    pub fn has_named_all(&self) -> bool {
        let is_whole_body =
            || self.framing == Some(Framing::Json) && self.observer.as_ref().is_some_and(Observer::is_complete);
        self.is_final() || is_whole_body()
    }

    /// How many names of state have passed (see [`Observer::names`]).
    pub fn names(&self) -> usize {
        self.observer.as_ref().map_or(0, Observer::names)
    }

    /// The identifier under which the provider may keep the answer.
    pub fn answer_id(&self) -> Option<Cow<'_, str>> {
        self.observer.as_ref()?.answer_id()
    }

    /// What the answer says that it has made at the provider's account.
    pub fn made(&self) -> Option<Cow<'_, Made>> {
        self.observer.as_ref().map(Observer::made)
    }

    /// What the answer has said so far.
    pub fn observed(&self) -> Option<Cow<'_, Observed>> {
        let observer = self.observer.as_ref()?;
        if !self.is_final() {
            return Some(Cow::Owned(observer.observed()));
        }
        // Asked for several times, and a body in one piece is parsed for it.
        Some(Cow::Borrowed(self.last_word.get_or_init(|| observer.observed())))
    }
}

/// See the module.
#[derive(Debug)]
pub struct Ticket {
    /// What has been seen of the answer.
    pub meter: Meter,
    entry: Entry,
    /// What is charged; `None` for what costs nothing.
    bill: Option<Bill>,
    /// What is estimated where nobody reports it.
    basis: Basis,
    failure: Option<Outcome>,
    settled: bool,
}

impl Ticket {
    /// Issued by admission only.
    pub(super) fn issue(entry: Entry, bill: Option<Bill>, basis: Basis) -> Self {
        Self {
            meter: Meter::default(),
            entry,
            bill,
            basis,
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

    /// The name of what went wrong, out of a closed set, for the log.
    pub fn because(&mut self, cause: &'static str) {
        self.entry.cause = Some(cause);
    }

    /// weir answered with a refusal instead of a provider's answer.
    pub fn answered_with(&mut self, status: u16, reason: &'static str) {
        self.meter.status = status;
        self.entry.record.refusal = Some(reason);
    }

    /// A piece of the answer has passed: now and then what has been consumed is noted for the journal and the hold.
    pub fn look(&mut self, now: Instant) {
        let Some(bill) = &mut self.bill else { return };
        let text = self.meter.output_estimate();
        if bill.is_due(now, text) {
            let progress = self.progress(now);
            let consumed = self.basis.consumed(&self.meter, progress.provider, None);
            if let Some(bill) = &self.bill {
                bill.look(now, progress, &consumed, text);
            }
        }
    }

    /// All is known of the answer: it is charged before the client has its end, because the client's next request may come
    /// at once, and is to find neither its place taken nor its hold.
    pub fn charge_whole(&mut self) {
        if self.bill.is_none() || self.failure.is_some() || !self.meter.is_final() || !self.meter.is_complete() {
            return;
        }
        // It is whole, so nothing but its own words can make it a failure.
        self.charge(self.answered().unwrap_or(Outcome::Ok));
    }

    /// Whether nothing is left to pay for the rest of the answer, and it is to be ended therefore.
    pub fn is_cut(&self) -> bool {
        self.bill.as_ref().is_some_and(Bill::is_cut)
    }

    /// How the key stood with its quota when the request was admitted; `None`: it has none.
    pub fn quota(&self) -> Option<QuotaStanding> {
        self.bill.as_ref().and_then(Bill::quota)
    }

    fn progress(&self, now: Instant) -> Progress<'_> {
        let millis = |seen| millis_between(self.entry.started, seen);
        Progress {
            provider: self.entry.record.provider.as_deref().unwrap_or_default(),
            status: self.meter.status,
            latency_ms: millis(now),
            ttft_ms: self.meter.first_content.map(millis),
        }
    }

    /// Accounts for the request. Later calls do nothing.
    pub fn settle(&mut self) {
        if self.settled {
            return;
        }
        self.settled = true;
        self.charge_now();
        let outcome = self.failure.unwrap_or_else(|| self.outcome());
        let observed = self.meter.observed().map(Cow::into_owned);
        let record = &mut self.entry.record;
        record.status = self.meter.status;
        record.response_bytes = self.meter.response_bytes;
        record.ttft_ms = self
            .meter
            .first_content
            .map(|seen| millis_between(self.entry.started, seen));
        if let Some(observed) = observed {
            record.usage = observed.usage;
            record.finish_reason = observed.finish_reason.as_deref().map(finish_reason::word);
        }
        self.entry.close(outcome);
    }

    /// The answer is over, in whatever way, but for the last bytes that are about to go to the client: it is charged before
    /// them, because the client's next request may come as soon as it has them. Later calls do nothing.
    pub fn charge_now(&mut self) {
        if self.bill.is_some() {
            self.charge(self.failure.unwrap_or_else(|| self.outcome()));
        }
    }

    /// What was never sent to a provider costs nothing, and has no row.
    fn charge(&mut self, outcome: Outcome) {
        let Some(mut bill) = self.bill.take() else {
            return;
        };
        if self.entry.record.attempts > 0 {
            let now = clock::instant();
            let progress = self.progress(now);
            let consumed = self.basis.consumed(&self.meter, progress.provider, Some(outcome));
            if outcome == Outcome::Ok && consumed.source == Some(UsageSource::Reported) {
                self.basis.learn(&self.meter);
            }
            bill.close(outcome, progress, &consumed, now);
        }
    }

    /// The failure that the answer itself tells of, by its status or in its text.
    fn answered(&self) -> Option<Outcome> {
        if self.meter.status >= 400 {
            Some(Outcome::ProviderError)
        } else {
            let observed = self.meter.observed()?;
            observed.in_band_error.as_ref().map(|_| Outcome::InBandError)
        }
    }

    fn outcome(&self) -> Outcome {
        if let Some(failure) = self.answered() {
            failure
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
    /// Reached unsettled only when the process drops what it has no more time for.
    fn drop(&mut self) {
        if !self.settled {
            self.fail(Outcome::Stopped);
        }
        self.settle();
    }
}
