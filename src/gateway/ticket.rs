//! The right to forward one request, and the duty to account for it.
//!
//! Nothing is forwarded without a [`Ticket`]; the code that talks to a provider takes one. Every ticket has one end,
//! [`Ticket::end`], which is also reached when it is dropped. The end has two halves: the charge, which may come early,
//! and the report in the access log.

use std::time::Instant;

use crate::{
    domain::{
        catalogue::route::Leg,
        faults::{outcome::Outcome, refusal::Refusal},
        ledger::{QuotaUse, consumption::UsageSource},
        wire::finish_reason,
    },
    edges::clock,
    gateway::{
        entry::{Entry, millis_between},
        estimate::Basis,
        meter::Meter,
    },
    money::billing::{Bill, Progress},
};

/// Why a request ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'a> {
    /// The answer is complete by its protocol: only its own content can make it a failure.
    Complete,
    /// No more of the answer comes: how far it came decides.
    Over,
    /// The answer cannot be completed.
    Failed(Outcome),
    /// weir answers with this refusal instead of a provider's answer.
    Refused(&'a Refusal),
}

/// The right to forward one request, and the duty to account for it. Issued by admission; `forward::Forward` holds it.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// What has been observed of the current attempt's answer.
    pub meter: Meter,
    entry: Entry,
    /// The charge; `None` for a free request, and once it is charged.
    bill: Option<Bill>,
    /// Estimates the usage that nobody reports.
    basis: Basis,
    /// The index of the route's leg that the current attempt is made at.
    leg: usize,
    /// The first failure, apart from what the answer itself reports.
    failure: Option<Outcome>,
}

impl Ticket {
    /// Issues a ticket; for admission only.
    pub(super) fn issue(entry: Entry, bill: Option<Bill>, basis: Basis) -> Self {
        Self {
            meter: Meter::default(),
            entry,
            bill,
            basis,
            leg: 0,
            failure: None,
        }
    }

    /// weir's request id.
    pub(crate) fn request_id(&self) -> &str {
        &self.entry.record.request_id
    }

    /// An attempt at a provider begins. The observations of an earlier one are discarded.
    pub(crate) fn attempt(&mut self, leg: &Leg) {
        let record = &mut self.entry.record;
        record.attempts += 1;
        if record.provider.as_ref() != Some(&leg.provider.name) {
            record.provider = Some(leg.provider.name.clone());
        }
        self.leg = leg.index;
        self.meter = Meter::default();
    }

    /// Sets the name, out of a closed set, under which the log reports the failure.
    pub(crate) fn because(&mut self, cause: &'static str) {
        self.entry.cause = Some(cause);
    }

    /// The client has left. The request ends later: its answer may be read without the client. A failure that the provider
    /// has reported by now stays the provider's.
    pub(crate) fn client_left(&mut self) {
        if self.failure.is_none() {
            self.failure = Some(self.meter.reported_failure().unwrap_or(Outcome::ClientGone));
        }
    }

    /// Called with each piece of the answer: from time to time, notes what has been consumed for the journal, and has
    /// the hold grow.
    pub(crate) fn look(&mut self, now: Instant) {
        let Some(bill) = &mut self.bill else { return };
        let text = self.meter.output_estimate();
        if bill.is_due(now, text, self.meter.reports()) {
            let consumed = self.basis.consumed(&self.meter, self.leg, None);
            let progress = self.progress(now);
            if let Some(bill) = &self.bill {
                bill.look(now, progress, consumed, text);
            }
        }
    }

    /// Whether the answer must end because nothing is left to pay for it.
    pub(crate) fn is_cut(&self) -> bool {
        self.bill.as_ref().is_some_and(Bill::is_cut)
    }

    /// The key's quota at admission; `None` if it has none.
    pub(crate) fn quota(&self) -> Option<QuotaUse> {
        self.bill.as_ref().and_then(Bill::quota)
    }

    /// Ends the request: charges it, unless that is done, and writes its line in the access log. Later calls do nothing.
    pub(crate) fn end(&mut self, cause: Cause<'_>) {
        self.charge(cause);
        self.report();
    }

    /// The first half of the end: the charge. It comes before the client has the last bytes, so that its next request
    /// finds neither the hold nor the concurrency slot still in use. The first cause is charged; of a later one only the
    /// log tells.
    pub(crate) fn charge(&mut self, cause: Cause<'_>) {
        match cause {
            Cause::Complete | Cause::Over => {}
            Cause::Failed(outcome) => {
                self.failure.get_or_insert(outcome);
            }
            Cause::Refused(refusal) => {
                self.failure.get_or_insert(outcome_of(refusal));
                self.meter.replaced_by(refusal.status());
                self.entry.record.refusal = Some(refusal.reason());
            }
        }
        let Some(bill) = self.bill.take() else { return };
        // What was never sent to a provider costs nothing and has no row: the bill ends its hold when it is dropped.
        if self.entry.record.attempts == 0 {
            return;
        }
        let outcome = self.outcome(cause);
        let consumed = self.basis.consumed(&self.meter, self.leg, Some(outcome));
        if outcome == Outcome::Ok && consumed.source == UsageSource::Reported {
            self.basis.learn(&self.meter);
        }
        let now = clock::instant();
        bill.close(outcome, self.progress(now), consumed, now);
    }

    /// The second half of the end: the line in the access log.
    fn report(&mut self) {
        if self.entry.is_closed() {
            return;
        }
        let outcome = self.outcome(Cause::Over);
        let Progress { status, ttft_ms, .. } = self.progress(self.entry.started);
        let record = &mut self.entry.record;
        record.status = status;
        record.response_bytes = self.meter.response_bytes;
        record.ttft_ms = ttft_ms;
        if let Some(observed) = self.meter.observed() {
            record.usage = observed.usage;
            record.finish_reason = observed.finish_reason.as_deref().map(finish_reason::word);
        }
        self.entry.close(outcome);
    }

    fn progress(&self, now: Instant) -> Progress {
        let millis = |seen| millis_between(self.entry.started, seen);
        Progress {
            leg: self.leg,
            status: self.meter.status(),
            latency_ms: millis(now),
            ttft_ms: self.meter.first_content.map(millis),
            attempts: self.entry.record.attempts,
        }
    }

    fn outcome(&self, cause: Cause<'_>) -> Outcome {
        let known = self.failure.or_else(|| self.meter.reported_failure());
        known.unwrap_or_else(|| match cause {
            Cause::Complete => Outcome::Ok,
            _ if !self.meter.has_ended() => Outcome::ClientGone,
            _ if self.meter.is_complete() => Outcome::Ok,
            _ => Outcome::ProviderCut,
        })
    }
}

/// The outcome of a request that weir answers with this refusal after its admission.
fn outcome_of(refusal: &Refusal) -> Outcome {
    match refusal {
        Refusal::ProviderTimeout => Outcome::ProviderTimeout,
        Refusal::ProviderUnreachable => Outcome::ProviderUnreachable,
        Refusal::ProviderCredentialRefused => Outcome::CredentialRefused,
        Refusal::ProviderRedirected { .. } => Outcome::ProviderError,
        Refusal::ProviderBroken => Outcome::ProviderCut,
        Refusal::Stopping => Outcome::Stopped,
        Refusal::Internal => Outcome::Internal,
        _ => Outcome::Refused,
    }
}

impl Drop for Ticket {
    /// Ends the request. One that has not ended is only dropped when the process drops it at its own end.
    fn drop(&mut self) {
        self.end(Cause::Failed(Outcome::Stopped));
    }
}
