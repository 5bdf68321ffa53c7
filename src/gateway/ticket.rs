//! The ticket of a request: the right to forward the request, and the duty to charge it.

use std::time::Instant;

use smol_str::SmolStr;

use crate::{
    domain::{
        faults::End,
        ledger::{
            QuotaUse,
            consumption::{RowTranslation, UsageSource},
        },
        wire::usage::Usage,
    },
    edges::clock,
    gateway::{
        log_entry::{LogEntry, millis_between},
        meter::AnswerMeter,
        usage_estimate::UsageEstimator,
    },
    money::billing::{Bill, NextSample, RequestProgress},
};

/// The right to forward one request, and the duty to charge it. Only admission issues one; `forward::Forward` owns it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ticket {
    /// When the bill is updated next; `None` without a bill. This is the first field, because it is read for each piece of the
    /// answer.
    next_look: Option<NextSample>,
    /// weir's request id.
    pub request_id: SmolStr,
    /// The open charge; `None` for a free request, and for a request that has been charged.
    bill: Option<Bill>,
    /// Estimates the usage that the provider does not report.
    estimator: UsageEstimator,
    /// The route index of the current attempt's endpoint.
    endpoint: usize,
    /// The number of attempts so far, including the current one.
    attempts: u32,
    /// When the request's head arrived.
    started: Instant,
    /// The request's end, if something other than the answer has decided it; `None` otherwise.
    decided: Option<End>,
}

impl Ticket {
    /// The offset at which the field `next_look` ends. The field is read for each piece of the answer.
    #[cfg(test)]
    pub(super) const NEXT_LOOK_END: usize = std::mem::offset_of!(Self, request_id);

    /// Issues a ticket. Only admission may call this function.
    pub(super) fn issue(log: &LogEntry, bill: Option<Bill>, estimator: UsageEstimator) -> Self {
        Self {
            next_look: bill.is_some().then(|| NextSample::first(log.started)),
            request_id: log.record.request_id.clone(),
            bill,
            estimator,
            endpoint: 0,
            attempts: 0,
            started: log.started,
            decided: None,
        }
    }

    /// Records that an attempt begins at the endpoint with this route index.
    pub(crate) fn begin_attempt(&mut self, endpoint: usize) {
        self.attempts += 1;
        self.endpoint = endpoint;
    }

    /// The route index of the most recent attempt's endpoint; `None` before the first attempt.
    pub(crate) fn endpoint(&self) -> Option<usize> {
        (self.attempts > 0).then_some(self.endpoint)
    }

    /// Decides how the request ends. Only the first call has an effect. Returns whether this call is the first.
    pub(crate) fn decide(&mut self, end: End) -> bool {
        let is_first = self.decided.is_none();
        self.decided.get_or_insert(end);
        is_first
    }

    /// Returns how the request ends. If the end has been decided, returns that end. Otherwise, returns the failure that the
    /// answer reports. If the answer reports no failure, returns the end that the meter has observed.
    pub(crate) fn end(&self, meter: &AnswerMeter) -> End {
        self.known_end(meter).unwrap_or_else(|| meter.observed_end())
    }

    fn known_end(&self, meter: &AnswerMeter) -> Option<End> {
        self.decided.clone().or_else(|| meter.reported_failure())
    }

    /// Called with each piece of the answer. If a checkpoint is due or the cost nears the hold, records the consumption so far in
    /// the journal and requests a top-up.
    pub(crate) fn sample(&mut self, meter: &AnswerMeter, now: Instant) {
        let Some(next) = &self.next_look else { return };
        let (text, reports) = (meter.output_estimate(), meter.reports());
        if !next.should_sample(now, text, reports) {
            return;
        }
        if let Some(bill) = &self.bill {
            let consumed = self.estimator.consumed(meter, self.endpoint, None);
            self.next_look = Some(bill.sample(now, self.progress(meter, now), consumed, (text, reports)));
        }
    }

    /// Whether the answer must end because no funds are left for it.
    pub(crate) fn must_stop(&self) -> bool {
        self.next_look.as_ref().is_some_and(NextSample::must_stop)
    }

    /// The use of the key's quota at admission; `None` if the key has no quota.
    pub(crate) fn quota(&self) -> Option<QuotaUse> {
        self.bill.as_ref().and_then(Bill::quota)
    }

    /// Returns the usage that is billed for a complete answer.
    pub(crate) fn billed_usage(&self, meter: &AnswerMeter) -> Usage {
        self.estimator
            .consumed(meter, self.endpoint, Some(&End::Complete))
            .usage
    }

    /// Whether the request has a bill that is not settled.
    pub(crate) fn has_open_bill(&self) -> bool {
        self.bill.is_some()
    }

    /// Charges the request. Later calls do nothing. A request without an attempt costs nothing and has no row; its bill releases
    /// the hold when the bill is dropped. `translation` is `None` for a request that was not translated.
    pub(crate) fn settle(&mut self, meter: &AnswerMeter, translation: Option<RowTranslation>) {
        let Some(mut bill) = self.bill.take() else { return };
        self.next_look = None;
        if self.attempts == 0 {
            return;
        }
        let end = match meter.is_finished() {
            // The answer is complete even if the provider has not ended the body.
            true => self.known_end(meter).unwrap_or(End::Complete),
            false => self.end(meter),
        };
        let consumed = self.estimator.consumed(meter, self.endpoint, Some(&end));
        if end == End::Complete && consumed.source == UsageSource::Reported {
            self.estimator.learn(meter);
        }
        if let Some(translation) = translation {
            bill.set_translation(translation);
        }
        let now = clock::instant();
        bill.close(&end, self.progress(meter, now), consumed, now);
    }

    /// Returns the request's progress: endpoint, status, times and number of attempts.
    pub(crate) fn progress(&self, meter: &AnswerMeter, now: Instant) -> RequestProgress {
        let millis = |seen| millis_between(self.started, seen);
        RequestProgress {
            endpoint: self.endpoint,
            status: meter.status(),
            latency_ms: millis(now),
            ttft_ms: meter.first_content.map(millis),
            attempts: self.attempts,
        }
    }
}
