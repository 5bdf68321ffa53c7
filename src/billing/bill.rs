//! The bill of one running request: from its admission to the one step that settles it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    billing::{Shared, running::Running},
    domain::{
        consumption::{Modifiers, Row, UsageSource},
        ledger::{Change, Checkpoint, Settlement, TopUp, ToppedUp},
        money::NanoUsd,
        outcome::Outcome,
        price::{self, Charge, Price, PricedRun},
        usage::Usage,
    },
    journal::Reservation,
};

/// How often a running answer is looked at: what is not in the journal when the process dies is this and the time between
/// two checkpoints.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a request has consumed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// How much.
    pub usage: Usage,
    /// Where those figures come from; `None`: nothing was consumed or can be known.
    pub source: Option<UsageSource>,
    /// What changes the price.
    pub modifiers: Modifiers,
    /// The runs of several models that make it, each with its price; none where the model asked for ran alone.
    pub runs: Vec<PricedRun>,
}

/// How far a request has come, or how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The provider that serves.
    pub provider: &'a str,
    /// The status of the answer; 0 before its head.
    pub status: u16,
    /// From the request's arrival until now, in milliseconds.
    pub latency_ms: u64,
    /// From the request's arrival to the first content, in milliseconds.
    pub ttft_ms: Option<u64>,
}

/// See the module. Dropped without [`Bill::close`], it ends the hold without a charge.
pub struct Bill {
    pub(super) shared: Arc<Shared>,
    pub(super) running: Arc<Running>,
    /// The request as the journal has it.
    pub(super) row: Row,
    /// What it costs, by provider.
    pub(super) prices: Vec<(String, Arc<Price>)>,
    pub(super) reservation: Reservation,
    pub(super) tokens_estimated: u64,
    /// What the store had applied of this node when the request was admitted.
    pub(super) watermark: u64,
    pub(super) next_look: Option<Instant>,
    /// The answer is ended when its hold cannot grow. Asked for each chunk, so it is kept here.
    pub(super) may_be_cut: bool,
    pub(super) closed: bool,
}

impl std::fmt::Debug for Bill {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Bill")
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl Bill {
    /// Whether a running answer is to be looked at now.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next_look.is_none_or(|at| now >= at);
        if due {
            self.next_look = Some(now + LOOK_EVERY);
        }
        due
    }

    /// Whether the answer is to be ended: its hold cannot grow, and the key wants it so.
    pub fn is_cut(&self) -> bool {
        self.may_be_cut && self.running.is_cut()
    }

    /// Notes what the running answer has consumed, and asks for a larger hold in time.
    pub fn look(&self, progress: Progress<'_>, consumed: &Consumed) {
        let Charge { cost, parts } = self.charge(progress.provider, consumed);
        self.running.note(Checkpoint {
            request: self.running.request.clone(),
            status: progress.status,
            usage: consumed.usage,
            source: consumed.source.unwrap_or(UsageSource::Estimated),
            modifiers: consumed.modifiers.clone(),
            parts,
            cost,
            provider: progress.provider.to_owned(),
            latency_ms: progress.latency_ms,
            ttft_ms: progress.ttft_ms,
        });
        let hold = self.running.hold();
        let nearly_used = cost.nanos() / 3 >= hold.nanos() / 4;
        if cost > NanoUsd::ZERO && nearly_used && self.running.begin_asking() {
            self.ask_for_more(cost);
        }
    }

    /// As much again as is used: few questions for a long answer, little held for nothing at its end.
    fn ask_for_more(&self, cost: NanoUsd) {
        let ask = TopUp {
            node: self.shared.node.clone(),
            request: self.running.request.clone(),
            account: self.running.account.clone(),
            key: self.running.key.clone(),
            at_ms: self.running.at_ms,
            more: cost,
        };
        let (ledger, running) = (Arc::clone(&self.shared.ledger), Arc::clone(&self.running));
        tokio::spawn(async move {
            match ledger.top_up(&ask).await {
                Ok(ToppedUp::Granted(more)) => running.held_more(more),
                Ok(ToppedUp::Refused) => running.nothing_left(),
                // Admitted while the store was away, or settled meanwhile.
                Ok(ToppedUp::NoHold) => running.held_more(ask.more),
                Err(_) => running.held_more(NanoUsd::ZERO),
            }
        });
    }

    /// Charges the request. Later calls do nothing.
    pub fn close(&mut self, outcome: Outcome, progress: Progress<'_>, consumed: &Consumed, now_ms: i64) {
        let billed = outcome.is_billed(progress.status);
        let Charge { cost, parts } = self.charge(progress.provider, consumed);
        let row = billed.then(|| Row {
            time_ms: now_ms,
            provider: progress.provider.to_owned(),
            status: outcome.recorded_status(progress.status),
            outcome: outcome.as_str().to_owned(),
            usage: consumed.usage,
            usage_source: consumed.source.unwrap_or(UsageSource::Estimated),
            modifiers: consumed.modifiers.clone(),
            price_version: self.price(progress.provider).version().to_owned(),
            parts,
            cost_nano_usd: cost,
            latency_ms: progress.latency_ms,
            ttft_ms: progress.ttft_ms,
            ..self.row.clone()
        });
        let used = consumed
            .usage
            .input_total()
            .saturating_add(consumed.usage.output_total());
        self.settle(row, if billed { used } else { 0 });
    }

    fn settle(&mut self, row: Option<Row>, tokens_used: u64) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.shared.running.remove(&self.running.request);
        if let Some(row) = &row {
            self.shared.charged(row, self.running.hold());
        }
        let settlement = Settlement {
            request: self.running.request.clone(),
            key: self.running.key.clone(),
            at_ms: self.running.at_ms,
            tokens_estimated: self.tokens_estimated,
            tokens_used,
            cost: row.as_ref().map_or(NanoUsd::ZERO, |row| row.cost_nano_usd),
            row,
        };
        let change = Change::Settle(Box::new(settlement));
        let journal = &self.shared.journal;
        if let Err(error) = journal.append_step(&self.running.account, change, self.watermark, &mut self.reservation) {
            // The next start finds the admission without its settlement and charges what was checkpointed last.
            tracing::error!(%error, request = %self.running.request, "a settlement could not be recorded");
            self.shared.failed();
        }
    }

    fn price(&self, provider: &str) -> &Price {
        let served = self.prices.iter().find(|(name, _)| name == provider);
        served
            .or(self.prices.first())
            .map_or(&self.shared.free, |(_, price)| price)
    }

    fn charge(&self, provider: &str, consumed: &Consumed) -> Charge {
        let Consumed {
            usage, modifiers, runs, ..
        } = consumed;
        price::charge(&self.row.model, self.price(provider), usage, modifiers, runs)
    }
}

impl Drop for Bill {
    fn drop(&mut self) {
        self.settle(None, 0);
    }
}
