//! The right to forward a request, and the duty to charge it.

use std::time::Instant;

use smol_str::SmolStr;

use crate::{
    domain::{
        faults::end::End,
        ledger::{QuotaUse, consumption::UsageSource},
    },
    edges::clock,
    gateway::{
        estimate::Basis,
        log_entry::{LogEntry, millis_between},
        meter::Meter,
    },
    money::billing::{Bill, NextLook, Progress},
};

/// The right to forward one request, and the duty to charge it. Only admission issues one; `forward::Forward` holds it and
/// charges it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ticket {
    /// When its bill is to be looked at again; `None` without one. At the front, because each piece of the answer asks.
    next_look: Option<NextLook>,
    /// weir's request id.
    pub request_id: SmolStr,
    /// The charge; `None` for a free request, and once it is charged.
    bill: Option<Bill>,
    /// Estimates the usage that nobody reports.
    basis: Basis,
    /// The index in the route of the endpoint that the current attempt is made at.
    endpoint: usize,
    /// Attempts at providers, the current one included.
    attempts: u32,
    /// When the request's head arrived.
    started: Instant,
    /// The end, once it is decided by anything but the answer itself.
    decided: Option<End>,
}

impl Ticket {
    /// The end of what each piece of the answer reads here.
    #[cfg(test)]
    pub(super) const NEXT_LOOK_END: usize = std::mem::offset_of!(Self, request_id);

    /// Issues a ticket; for admission only.
    pub(super) fn issue(log: &LogEntry, bill: Option<Bill>, basis: Basis) -> Self {
        Self {
            next_look: bill.is_some().then(|| NextLook::first(log.started)),
            request_id: log.record.request_id.clone(),
            bill,
            basis,
            endpoint: 0,
            attempts: 0,
            started: log.started,
            decided: None,
        }
    }

    /// An attempt begins, at the endpoint with this index in the route.
    pub(crate) fn begin_attempt(&mut self, endpoint: usize) {
        self.attempts += 1;
        self.endpoint = endpoint;
    }

    /// The index in the route of the endpoint of the last attempt; `None` before the first.
    pub(crate) fn endpoint(&self) -> Option<usize> {
        (self.attempts > 0).then_some(self.endpoint)
    }

    /// Decides how the request ends. The first call wins. Returns whether this is it.
    pub(crate) fn decide(&mut self, end: End) -> bool {
        let is_first = self.decided.is_none();
        self.decided.get_or_insert(end);
        is_first
    }

    /// The end: as decided, else as the answer reports it, else as far as it came.
    pub(crate) fn end(&self, meter: &Meter) -> End {
        self.known_end(meter).unwrap_or_else(|| meter.observed_end())
    }

    fn known_end(&self, meter: &Meter) -> Option<End> {
        self.decided.clone().or_else(|| meter.reported_failure())
    }

    /// Called with each piece of the answer: when a checkpoint is due, or the answer's cost nears what is held for it, notes what
    /// has been consumed for the journal, and has the hold grow.
    pub(crate) fn look(&mut self, meter: &Meter, now: Instant) {
        let Some(next) = &self.next_look else { return };
        let (text, reports) = (meter.output_estimate(), meter.reports());
        if !next.is_due(now, text, reports) {
            return;
        }
        if let Some(bill) = &self.bill {
            let consumed = self.basis.consumed(meter, self.endpoint, None);
            self.next_look = Some(bill.look(now, self.progress(meter, now), consumed, (text, reports)));
        }
    }

    /// Whether the answer must end because nothing is left to pay for it.
    pub(crate) fn is_cut(&self) -> bool {
        self.next_look.as_ref().is_some_and(NextLook::is_cut)
    }

    /// The key's quota at admission; `None` if it has none.
    pub(crate) fn quota(&self) -> Option<QuotaUse> {
        self.bill.as_ref().and_then(Bill::quota)
    }

    /// Charges the request. Later calls do nothing. A request that was never sent to a provider costs nothing and has no
    /// row: the bill ends its hold when it is dropped.
    pub(crate) fn settle(&mut self, meter: &Meter) {
        let Some(bill) = self.bill.take() else { return };
        self.next_look = None;
        if self.attempts == 0 {
            return;
        }
        let end = match meter.is_whole() {
            // Even if the provider has not ended the body yet.
            true => self.known_end(meter).unwrap_or(End::Complete),
            false => self.end(meter),
        };
        let consumed = self.basis.consumed(meter, self.endpoint, Some(&end));
        if end == End::Complete && consumed.source == UsageSource::Reported {
            self.basis.learn(meter);
        }
        let now = clock::instant();
        bill.close(&end, self.progress(meter, now), consumed, now);
    }

    /// How far the request has come.
    pub(crate) fn progress(&self, meter: &Meter, now: Instant) -> Progress {
        let millis = |seen| millis_between(self.started, seen);
        Progress {
            endpoint: self.endpoint,
            status: meter.status(),
            latency_ms: millis(now),
            ttft_ms: meter.first_content.map(millis),
            attempts: self.attempts,
        }
    }
}
