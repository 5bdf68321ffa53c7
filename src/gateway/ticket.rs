//! The right to forward one request, and the duty to account for it.
//!
//! Nothing is forwarded without a [`Ticket`]; the code that talks to a provider takes one. Every ticket settles exactly
//! once: by [`Ticket::settle`], or when it is dropped.

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
        coding::Coded,
        coding::answer_decoder::AnswerDecoder,
        entry::{Entry, millis_between},
        estimate::Basis,
    },
};

/// What has been observed of the answer so far.
#[derive(Debug, Default)]
pub struct Meter {
    observer: Option<Observer>,
    /// Decodes for the observer, if the answer has a content coding.
    decoder: Option<AnswerDecoder>,
    /// The answer's bytes are compressed, so weir cannot add any of its own.
    is_coded: bool,
    /// The event that completes the answer is also its last, so the usage is final then.
    ends_with_event: bool,
    framing: Option<Framing>,
    first_content: Option<Instant>,
    response_bytes: u64,
    status: u16,
    ended: bool,
    /// The observation, once it is final.
    last_word: OnceLock<Observed>,
}

impl Meter {
    /// The answer's head has arrived. `protocol` and `framing` choose the observer of its body, `coded` the decoder.
    pub fn head_seen(&mut self, status: u16, protocol: Protocol, framing: Framing, coded: &Coded) {
        self.status = status;
        self.framing = Some(framing);
        self.is_coded = *coded != Coded::No;
        self.ends_with_event = framing == Framing::Sse && protocol != Protocol::Gemini;
        // An error answer is buffered, and decoded at its end.
        self.decoder = match coded {
            Coded::By(coding) if status < 400 && framing != Framing::Opaque => Some(AnswerDecoder::new(*coding)),
            Coded::No | Coded::By(_) | Coded::Otherwise(_) => None,
        };
        let observed = match (self.is_coded, &self.decoder) {
            (true, None) => Framing::Opaque,
            (true, Some(_)) | (false, _) => framing,
        };
        self.observer = Some(Observer::new(protocol, observed));
    }

    /// Observes a piece of the answer's body.
    pub fn body_seen(&mut self, piece: &[u8], now: Instant) {
        self.response_bytes += piece.len() as u64;
        if let Some(observer) = &mut self.observer {
            match &mut self.decoder {
                Some(decoder) => decoder.push(piece, |text| observer.push(text)),
                None => observer.push(piece),
            }
            if self.first_content.is_none() && observer.first_content_seen() {
                self.first_content = Some(now);
            }
        }
    }

    /// The provider has ended the body properly.
    pub fn body_ended(&mut self) {
        self.ended = true;
    }

    /// Whether the answer is complete by its protocol. An error answer always is, and so is one that cannot be decoded,
    /// because nothing better is known.
    pub fn is_complete(&self) -> bool {
        let unreadable = self.decoder.as_ref().is_some_and(|decoder| !decoder.is_readable());
        self.status >= 400 || unreadable || self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// Whether nothing more can be learnt about the answer.
    pub fn is_final(&self) -> bool {
        self.ended || self.ends_with_event && self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// Whether the answer's bytes are compressed.
    pub fn is_coded(&self) -> bool {
        self.is_coded
    }

    /// The bytes that a complete stream still lacks (see [`Observer::closing`]). `None` for a compressed one.
    pub fn closing(&self) -> Option<Vec<u8>> {
        self.observer.as_ref().filter(|_| !self.is_coded)?.closing()
    }

    /// How the body is framed; `None` before the head.
    pub fn framing(&self) -> Option<Framing> {
        self.framing
    }

    /// The answer's status; 0 before its head.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The in-band error that tells the client of a failure in the middle of the answer. `None` if the protocol has
    /// none.
    pub fn failure_tail(&self, failure: &MidStreamFailure) -> Option<Vec<u8>> {
        self.observer.as_ref().filter(|_| !self.is_coded)?.failure_tail(failure)
    }

    /// The estimated tokens of the text so far, before calibration.
    pub fn output_estimate(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::output_estimate)
    }

    /// Whether the answer can name no further state. A body in one piece is complete with its last brace, even before
    /// the end of its framing.
    pub fn has_named_all(&self) -> bool {
        let is_whole_body =
            || self.framing == Some(Framing::Json) && self.observer.as_ref().is_some_and(Observer::is_complete);
        self.is_final() || is_whole_body()
    }

    /// How many names of state have been seen (see [`Observer::names`]).
    pub fn names(&self) -> usize {
        self.observer.as_ref().map_or(0, Observer::names)
    }

    /// The identifier under which the provider may keep the answer.
    pub fn answer_id(&self) -> Option<Cow<'_, str>> {
        self.observer.as_ref()?.answer_id()
    }

    /// The state that the answer has created at the provider.
    pub fn made(&self) -> Option<Cow<'_, Made>> {
        self.observer.as_ref().map(Observer::made)
    }

    /// All that has been observed so far: usage, finish reason, in-band error and more.
    pub fn observed(&self) -> Option<Cow<'_, Observed>> {
        let observer = self.observer.as_ref()?;
        if !self.is_final() {
            return Some(Cow::Owned(observer.observed()));
        }
        // Cached: it is read several times, and computing it parses a body in one piece.
        Some(Cow::Borrowed(self.last_word.get_or_init(|| observer.observed())))
    }
}

/// The right to forward one request, and the duty to account for it. Issued by admission; `exchange::Forward` holds it.
#[derive(Debug)]
pub struct Ticket {
    /// What has been observed of the current attempt's answer.
    pub meter: Meter,
    entry: Entry,
    /// The charge; `None` for a free request, and once it is charged.
    bill: Option<Bill>,
    /// Estimates the usage that nobody reports.
    basis: Basis,
    failure: Option<Outcome>,
    settled: bool,
}

impl Ticket {
    /// Issues a ticket; for admission only.
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

    /// weir's request id.
    pub fn request_id(&self) -> &str {
        &self.entry.record.request_id
    }

    /// An attempt at a provider begins. The observations of an earlier one are discarded.
    pub fn attempt(&mut self, provider: &str) {
        self.entry.record.attempts += 1;
        if self.entry.record.provider.as_deref() != Some(provider) {
            self.entry.record.provider = Some(provider.to_owned());
        }
        self.meter = Meter::default();
    }

    /// Sets why the request failed. The first cause stands.
    pub fn fail(&mut self, outcome: Outcome) {
        self.failure.get_or_insert(outcome);
    }

    /// Sets the name, out of a closed set, under which the log reports the failure.
    pub fn because(&mut self, cause: &'static str) {
        self.entry.cause = Some(cause);
    }

    /// weir has answered with a refusal instead of a provider's answer.
    pub fn answered_with(&mut self, status: u16, reason: &'static str) {
        self.meter.status = status;
        self.entry.record.refusal = Some(reason);
    }

    /// Called with each piece of the answer: from time to time, notes what has been consumed for the journal, and has
    /// the hold grow.
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

    /// Charges the request as soon as its answer is complete. That happens before the client has the end, so that its
    /// next request finds neither the hold nor the concurrency slot still in use.
    pub fn charge_whole(&mut self) {
        if self.bill.is_none() || self.failure.is_some() || !self.meter.is_final() || !self.meter.is_complete() {
            return;
        }
        // It is complete, so only its own content can make it a failure.
        self.charge(self.answered().unwrap_or(Outcome::Ok));
    }

    /// Whether the answer must end because nothing is left to pay for it.
    pub fn is_cut(&self) -> bool {
        self.bill.as_ref().is_some_and(Bill::is_cut)
    }

    /// The key's quota at admission; `None` if it has none.
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

    /// Charges the request and closes its log record. Later calls do nothing.
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

    /// Charges the request, however it ended, before the client gets the last bytes and can send its next request.
    /// Later calls do nothing.
    pub fn charge_now(&mut self) {
        if self.bill.is_some() {
            self.charge(self.failure.unwrap_or_else(|| self.outcome()));
        }
    }

    /// Charges the request once. A request that was never sent to a provider costs nothing and has no row.
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

    /// The failure that the answer itself reports, by status or in band.
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
    /// Settles. An unsettled ticket is only dropped when the process drops a request at its end.
    fn drop(&mut self) {
        if !self.settled {
            self.fail(Outcome::Stopped);
        }
        self.settle();
    }
}
