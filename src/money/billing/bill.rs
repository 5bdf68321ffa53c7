//! The bill of one running request, from its admission to the step that settles it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smol_str::SmolStr;

use crate::{
    domain::{
        catalogue::route::PricedRoute,
        faults::end::End,
        ledger::{
            Admitted, Change, Checkpoint, ProviderState, QuotaUse, Settlement, TopUp, ToppedUp,
            consumption::{Modifiers, Row, UsageSource},
        },
        money::{
            NanoUsd,
            price::{self, Charge, Price, PricedRun},
        },
        wire::usage::Usage,
    },
    journal::Reservation,
    money::billing::{engine::BillingEngine, growth::TopUpAnswer, running::Running, tally::Settled},
};

/// How often a running answer's cost is computed at most because an event may have reported a usage.
const LOOK_AT_REPORTS_EVERY: Duration = Duration::from_millis(100);
/// How many of a model's own tokens one estimated token may be at most ([`crate::domain::ledger::calibration`]).
const TEXT_FACTOR_MAX: u64 = 4;
/// The tokens of output that are priced to find the price of one.
const TEXT_PRICED: u64 = 1_000;

/// What a request has consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consumed {
    /// The tokens used.
    pub usage: Usage,
    /// Whether the usage was reported or estimated.
    pub source: UsageSource,
    /// What modifies the price, such as the service tier.
    pub modifiers: Modifiers,
    /// The runs of several models that add up to `usage`, each with its price. Empty if the requested model ran alone.
    pub runs: Vec<PricedRun>,
}

/// How far a request has come, or how it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The index of the current endpoint in the route.
    pub endpoint: usize,
    /// The answer's status; 0 before its head.
    pub status: u16,
    /// Milliseconds since the request's arrival.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` before it.
    pub ttft_ms: Option<u64>,
    /// How many attempts at providers were made, this one included.
    pub attempts: u32,
}

/// When a running answer's cost is computed next: when one of these has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextLook {
    /// So many tokens of text, by the estimate: the cost nears what is held.
    text: u64,
    /// Another number of events that have said more than text, and this time.
    reports: u64,
    not_before: Instant,
    /// This time: a checkpoint is due.
    checkpoint: Instant,
    /// The answer must end (see [`Bill::is_cut`]).
    is_cut: bool,
}

impl NextLook {
    /// At the first piece of the answer.
    pub(crate) fn first(now: Instant) -> Self {
        Self {
            text: 0,
            reports: 0,
            not_before: now,
            checkpoint: now,
            is_cut: false,
        }
    }

    /// Whether it is now. `text` is the estimate of the text so far, in tokens; `reports` is how many events have said more.
    pub(crate) fn is_due(&self, now: Instant, text: u64, reports: u64) -> bool {
        text >= self.text || now >= self.checkpoint || reports != self.reports && now >= self.not_before
    }

    /// Whether the answer must end, as of the last look.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// The bill of one running request. If it is dropped without [`Bill::close`], its hold ends without a charge.
pub(crate) struct Bill {
    pub(super) engine: Arc<BillingEngine>,
    pub(super) running: Arc<Running>,
    /// What its admission knows, as recorded in the journal; `None` once it is settled.
    pub(super) admitted: Option<Box<Admitted>>,
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
    /// Which state at providers the account may name, as of the admission.
    pub(crate) fn provider_state(&self) -> ProviderState {
        self.running.granted.provider_state
    }

    /// The key's quota at admission; `None` if it has none, or the store was unreachable.
    pub(crate) fn quota(&self) -> Option<QuotaUse> {
        self.running.granted.quota
    }

    /// Whether the answer must end: its hold cannot grow, and the key's terms allow no more.
    pub(crate) fn is_cut(&self) -> bool {
        self.running.is_over()
    }

    /// Records what the running answer has consumed, and asks for a larger hold in time. `text` is the estimate of its
    /// text so far, in tokens, and `reports` is how many of its events have said more. Returns when to look again.
    pub(crate) fn look(
        &self,
        now: Instant,
        progress: Progress,
        consumed: Consumed,
        (text, reports): (u64, u64),
    ) -> NextLook {
        let endpoint = self.route.endpoint(progress.endpoint);
        let Charge { cost, parts } = self.charge(&endpoint.price, &consumed);
        let (more, at_cost) = self.running.costs(cost, now);
        if let Some(more) = more {
            self.ask_for_more(more, now);
        }
        let again = at_cost.map(|at| text.saturating_add(text_until(at, cost, &endpoint.price, &consumed)));
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
        self.engine.running.note(&self.running, checkpoint);
        NextLook {
            text: again.unwrap_or(u64::MAX),
            reports,
            not_before: now + LOOK_AT_REPORTS_EVERY,
            checkpoint: self.engine.running.next_look(now),
            is_cut: self.is_cut(),
        }
    }

    fn ask_for_more(&self, more: NanoUsd, now: Instant) {
        let engine = Arc::clone(&self.engine);
        let part = self.running.granted.part;
        let (mut node, mut request) = (engine.node.clone(), self.running.request.clone());
        if let Some(part) = part {
            let got = engine.leases.enlarge(part, more, now);
            if got > NanoUsd::ZERO {
                return self.running.answered(TopUpAnswer::Granted(got));
            }
            let lease = engine.leases.id(part);
            (request, node) = (lease.hold(), lease.holder);
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
                    Ok(ToppedUp::Granted(got)) => got,
                    _ => NanoUsd::ZERO,
                };
                engine.leases.got(part, ask.more, got);
            }
            running.answered(match answer {
                Ok(ToppedUp::Granted(more)) => TopUpAnswer::Granted(more),
                Ok(ToppedUp::Refused) => TopUpAnswer::Refused,
                // What others have of it comes back in a moment, or is spent then.
                Ok(ToppedUp::Recalling) => TopUpAnswer::Unknown,
                // Admitted while the store was unreachable, or settled meanwhile.
                Ok(ToppedUp::NoHold) => TopUpAnswer::Uncounted(ask.more),
                Err(_) => TopUpAnswer::Unknown,
            });
        });
    }

    /// Charges the request.
    pub(crate) fn close(mut self, end: &End, progress: Progress, consumed: Consumed, now: Instant) {
        let Some(admitted) = self.admitted.take() else { return };
        let settlement = if end.is_billed(progress.status) {
            let Admitted {
                mut row,
                tokens_estimated,
                lease,
            } = *admitted;
            self.complete(Arc::make_mut(&mut row), end, progress, consumed, now);
            Settlement::of(row, tokens_estimated).in_lease(lease)
        } else {
            admitted.without_charge()
        };
        self.settle(settlement);
    }

    /// Completes the row of the admission by the request's end.
    fn complete(&self, row: &mut Row, end: &End, progress: Progress, consumed: Consumed, now: Instant) {
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

    /// Ends the hold with this settlement of the request.
    fn settle(&mut self, settlement: Settlement) {
        self.engine.running.remove(&settlement.request);
        if let Some(row) = &settlement.row {
            self.engine.counters.charged(row, self.running.hold());
        }
        let mut settled = Settled {
            step: None,
            cost: settlement.cost,
            tokens_estimated: settlement.tokens_estimated,
            tokens_used: settlement.tokens_used,
        };
        let (account, key) = (&self.running.account, &self.running.key);
        let change = Change::Settle(Box::new(settlement));
        let journal = &self.engine.journal;
        match journal.append_step(account, change, self.running.granted.watermark, &mut self.reservation) {
            Ok((step, _)) => settled.step = Some(step),
            Err(error) => {
                // The next start of the process finds the admission unsettled and charges its last checkpoint.
                tracing::error!(%error, request = %self.running.request, "a settlement could not be recorded");
                self.engine.counters.failed();
            }
        }
        if let Some(part) = self.running.granted.part {
            self.engine.leases.ended(part, settled.cost, settled.step);
        }
        self.engine
            .grace
            .ended(account, key, self.running.granted.seat, &settled);
    }

    /// A time by the store's clock: the admission's, plus the monotonic time since.
    fn time_ms(&self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.running.granted.at).as_millis();
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        self.running.granted.at_ms.saturating_add(since)
    }

    fn charge(&self, price: &Price, consumed: &Consumed) -> Charge {
        let Consumed {
            usage, modifiers, runs, ..
        } = consumed;
        price::charge(&self.route.model, price, usage, modifiers, runs)
    }
}

/// How much more text an answer may have before its cost approaches `at`: in estimated tokens, at least 1, and
/// [`u64::MAX`] if text is free. One estimated token may be up to [`TEXT_FACTOR_MAX`] of the model's, so the last
/// computations come closer and closer together.
fn text_until(at: NanoUsd, cost: NanoUsd, price: &Price, consumed: &Consumed) -> u64 {
    // If several models ran, the text is taken to be the requested model's.
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
