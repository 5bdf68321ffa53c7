//! The bill of one running request, from its admission to the step that settles it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smol_str::SmolStr;

use crate::{
    domain::{
        catalogue::models::PricedRoute,
        faults::End,
        ledger::{
            AccountChange, AdmittedRequest, Checkpoint, ProviderState, QuotaUse, Settlement, TopUp, TopUpReply,
            consumption::{PriceModifiers, Row, RowTranslation, UsageSource},
        },
        money::{
            NanoUsd,
            price::{self, Charge, Price, PricedRun},
        },
        wire::usage::Usage,
    },
    journal::Reservation,
    money::billing::{
        engine::{BilledRequest, BillingEngine},
        growth::TopUpAnswer,
        tally::SettledCharge,
    },
};

/// The minimum interval between two computations of a running answer's cost, if the computations are triggered by events that
/// report usage.
const REPORT_SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of the model's own tokens in one estimated token ([`crate::domain::ledger::calibration`]).
const TEXT_FACTOR_MAX: u64 = 4;
/// The number of output tokens whose price is computed to find the price of one token.
const TEXT_PRICED: u64 = 1_000;

/// The consumption of a request so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consumption {
    /// The number of tokens used, by kind.
    pub usage: Usage,
    /// Whether the provider reported the usage, or weir estimated it.
    pub source: UsageSource,
    /// The properties that modify the price, such as the service tier.
    pub modifiers: PriceModifiers,
    /// The run of each model that worked on the request, with its price. The usages of the runs add up to `usage`. Empty if only
    /// the requested model ran.
    pub runs: Vec<PricedRun>,
}

/// The progress of a running request, or its state at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestProgress {
    /// The index of the current endpoint in the route.
    pub endpoint: usize,
    /// The answer's HTTP status; 0 before its head has arrived.
    pub status: u16,
    /// Milliseconds since the request's arrival.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` before any content.
    pub ttft_ms: Option<u64>,
    /// The number of attempts at providers, including the current one.
    pub attempts: u32,
}

/// The conditions under which a running answer's cost is computed next. One of them is enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextSample {
    /// The condition is met when the text has this estimated number of tokens. At that point, the cost approaches the hold.
    text: u64,
    /// The condition is met when the number of non-text events differs from this number, and `not_before` has passed.
    reports: u64,
    not_before: Instant,
    /// The condition is met at this time, because a checkpoint is due.
    checkpoint: Instant,
    /// Whether the answer must end (see [`Bill::must_stop`]).
    must_stop: bool,
}

impl NextSample {
    /// Returns conditions that are met at the first piece of the answer.
    pub(crate) fn first(now: Instant) -> Self {
        Self {
            text: 0,
            reports: 0,
            not_before: now,
            checkpoint: now,
            must_stop: false,
        }
    }

    /// Whether to compute the cost now. `text` is the estimate of the text so far, in tokens. `reports` is the number of non-text
    /// events so far.
    pub(crate) fn should_sample(&self, now: Instant, text: u64, reports: u64) -> bool {
        text >= self.text || now >= self.checkpoint || reports != self.reports && now >= self.not_before
    }

    /// Whether the answer must end, according to the last sample.
    pub(crate) fn must_stop(&self) -> bool {
        self.must_stop
    }
}

/// The bill of one running request. If it is dropped without [`Bill::close`], the request's hold ends without a charge.
pub(crate) struct Bill {
    pub(super) engine: Arc<BillingEngine>,
    pub(super) running: Arc<BilledRequest>,
    /// The admission as recorded in the journal; `None` after the request has been settled.
    pub(super) admitted: Option<Box<AdmittedRequest>>,
    pub(super) route: Arc<PricedRoute>,
    pub(super) reservation: Reservation,
}

impl std::fmt::Debug for Bill {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Bill")
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl Bill {
    /// The provider state that the account may refer to, as of the admission.
    pub(crate) fn provider_state(&self) -> ProviderState {
        self.running.granted.provider_state
    }

    /// The use of the key's quota at the admission; `None` if the key has no quota or the store was unreachable.
    pub(crate) fn quota(&self) -> Option<QuotaUse> {
        self.running.granted.quota
    }

    /// Whether the answer must end, because its hold cannot grow and its cost has reached the maximum that the key's terms allow.
    pub(crate) fn must_stop(&self) -> bool {
        self.running.must_stop()
    }

    /// Records the consumption of the running answer, and requests a top-up early enough. `text` is the estimated number of
    /// tokens of the answer's text so far. `reports` is the number of the answer's non-text events so far. Returns the conditions
    /// under which this method must be called again.
    pub(crate) fn sample(
        &self,
        now: Instant,
        progress: RequestProgress,
        consumed: Consumption,
        (text, reports): (u64, u64),
    ) -> NextSample {
        let endpoint = self.route.endpoint(progress.endpoint);
        let Charge { cost, parts } = self.charge(&endpoint.price, &consumed);
        let (more, at_cost) = self.running.on_cost(cost, now);
        if let Some(more) = more {
            self.request_top_up(more, now);
        }
        let again = at_cost.map(|at| text.saturating_add(tokens_until(at, cost, &endpoint.price, &consumed)));
        let checkpoint = Checkpoint {
            request: self.running.request.clone(),
            status: progress.status,
            usage: consumed.usage,
            source: consumed.source,
            modifiers: consumed.modifiers,
            parts,
            cost,
            provider: endpoint.provider.clone(),
            latency_ms: progress.latency_ms,
            ttft_ms: progress.ttft_ms,
            attempts: progress.attempts,
        };
        self.engine.running.record(&self.running, checkpoint);
        NextSample {
            text: again.unwrap_or(u64::MAX),
            reports,
            not_before: now + REPORT_SAMPLE_INTERVAL,
            checkpoint: self.engine.running.next_sample(now),
            must_stop: self.must_stop(),
        }
    }

    fn request_top_up(&self, more: NanoUsd, now: Instant) {
        let engine = Arc::clone(&self.engine);
        let part = self.running.granted.allocation;
        let (mut node, mut request) = (engine.node.clone(), self.running.request.clone());
        if let Some(part) = part {
            let got = engine.leases.enlarge(part, more, now);
            if got > NanoUsd::ZERO {
                return self.running.on_top_up(TopUpAnswer::Granted(got));
            }
            let lease = engine.leases.lease_id(part);
            (request, node) = (lease.hold_name(), lease.holder);
        }
        let ask = TopUp {
            node,
            request,
            account: self.running.account.clone(),
            key: self.running.key.clone(),
            at_ms: self.running.granted.at_ms,
            more,
        };
        let running = Arc::clone(&self.running);
        tokio::spawn(async move {
            let answer = engine.ledger.top_up(&ask).await;
            if let Some(part) = part {
                let got = match answer {
                    Ok(TopUpReply::Granted(got)) => got,
                    _ => NanoUsd::ZERO,
                };
                engine.leases.on_top_up(part, ask.more, got);
            }
            running.on_top_up(match answer {
                Ok(TopUpReply::Granted(more)) => TopUpAnswer::Granted(more),
                Ok(TopUpReply::Refused) => TopUpAnswer::Refused,
                // The part in other nodes' leases soon becomes free or turns out to be spent.
                Ok(TopUpReply::Recalling) => TopUpAnswer::Unknown,
                // The request was admitted while the store was unreachable, or has been settled.
                Ok(TopUpReply::NoHold) => TopUpAnswer::Uncounted(ask.more),
                Err(_) => TopUpAnswer::Unknown,
            });
        });
    }

    /// Records the translation of the request in its row.
    pub(crate) fn set_translation(&mut self, translation: RowTranslation) {
        if let Some(admitted) = &mut self.admitted {
            let row = Arc::make_mut(&mut admitted.row);
            row.translated = translation.translated;
            row.losses = translation.losses;
        }
    }

    /// Charges the request at its end, if it is billed, and ends its hold.
    pub(crate) fn close(mut self, end: &End, progress: RequestProgress, consumed: Consumption, now: Instant) {
        let Some(admitted) = self.admitted.take() else { return };
        let settlement = if end.is_billed(progress.status) {
            let AdmittedRequest {
                mut row,
                tokens_estimated,
                lease,
            } = *admitted;
            self.complete_row(Arc::make_mut(&mut row), end, progress, consumed, now);
            Settlement::of(row, tokens_estimated).with_lease(lease)
        } else {
            admitted.without_charge()
        };
        self.settle(settlement);
    }

    /// Completes the row of the admission with the data of the request's end.
    fn complete_row(&self, row: &mut Row, end: &End, progress: RequestProgress, consumed: Consumption, now: Instant) {
        let endpoint = self.route.endpoint(progress.endpoint);
        let Charge { cost, parts } = self.charge(&endpoint.price, &consumed);
        row.time_ms = self.time_ms(now);
        row.provider.clone_from(&endpoint.provider);
        row.status = end.recorded_status(progress.status);
        row.outcome = SmolStr::new_static(end.label());
        row.usage = consumed.usage;
        row.usage_source = consumed.source;
        row.parts = parts;
        row.modifiers = consumed.modifiers;
        row.price_version = endpoint.price.version().into();
        row.cost_nano_usd = cost;
        row.latency_ms = progress.latency_ms;
        row.ttft_ms = progress.ttft_ms;
        row.attempts = Some(progress.attempts);
    }

    /// Settles the request, which ends its hold.
    fn settle(&mut self, settlement: Settlement) {
        self.engine.running.remove(&settlement.request);
        if let Some(row) = &settlement.row {
            self.engine.counters.record_charge(row, self.running.hold());
        }
        let mut settled = SettledCharge {
            step: None,
            cost: settlement.cost,
            tokens_estimated: settlement.tokens_estimated,
            tokens_used: settlement.tokens_used,
        };
        let (account, key) = (&self.running.account, &self.running.key);
        let change = AccountChange::Settle(Box::new(settlement));
        let journal = &self.engine.journal;
        match journal.append_step(account, change, self.running.granted.watermark, &mut self.reservation) {
            Ok((step, _)) => settled.step = Some(step),
            Err(error) => {
                // The next start of the process finds the admission unsettled, and charges the request's last checkpoint.
                tracing::error!(%error, request = %self.running.request, "cannot record a settlement in the journal; at its next start, weir charges the usage in the request's last checkpoint");
                self.engine.counters.record_failure();
            }
        }
        if let Some(part) = self.running.granted.allocation {
            self.engine.leases.on_end(part, settled.cost, settled.step);
        }
        self.engine
            .grace
            .on_end(account, key, self.running.granted.seat, &settled);
    }

    /// Converts `now` to a time of the store's clock, in milliseconds since the Unix epoch. The result is the time of the
    /// admission, plus the monotonic time that has passed since the admission.
    fn time_ms(&self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.running.granted.at).as_millis();
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        self.running.granted.at_ms.saturating_add(since)
    }

    fn charge(&self, price: &Price, consumed: &Consumption) -> Charge {
        let Consumption {
            usage, modifiers, runs, ..
        } = consumed;
        price::charge(&self.route.model, price, usage, modifiers, runs)
    }
}

/// Returns a number of estimated text tokens. After this number of further tokens, the answer's cost must be computed again, so
/// that the cost does not exceed `at` unnoticed. The number is at least 1. It is [`u64::MAX`] if text is free. In the worst case,
/// one estimated token corresponds to [`TEXT_FACTOR_MAX`] of the model's own tokens, and this function assumes the worst case.
/// Usually, an estimated token corresponds to fewer tokens. The cost is then below `at` at the next computation, and that
/// computation results in a smaller number.
fn tokens_until(at: NanoUsd, cost: NanoUsd, price: &Price, consumed: &Consumption) -> u64 {
    // If several models ran, all text is priced like that of the requested model.
    let cost_of = |usage| price.cost(usage, &consumed.modifiers);
    let longer = Usage {
        output_text: consumed.usage.output_text.saturating_add(TEXT_PRICED),
        ..consumed.usage
    };
    let more = cost_of(&longer).saturating_sub(cost_of(&consumed.usage)).nanos();
    if more <= 0 {
        return u64::MAX;
    }
    let left = at.saturating_sub(cost).nanos().max(0).unsigned_abs();
    let tokens = left.saturating_mul(TEXT_PRICED) / more.unsigned_abs() / TEXT_FACTOR_MAX;
    tokens.max(1)
}

impl Drop for Bill {
    fn drop(&mut self) {
        if let Some(admitted) = self.admitted.take() {
            self.settle(admitted.without_charge());
        }
    }
}
