//! The bill of one running request, from its admission to the step that settles it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    billing::{
        Shared,
        growth::Answer,
        running::Running,
        tally::{End, Seat},
    },
    domain::{
        consumption::{Modifiers, Row, UsageSource},
        ledger::{Change, Checkpoint, ProviderState, QuotaStanding, Settlement, TopUp, ToppedUp},
        money::NanoUsd,
        outcome::Outcome,
        price::{self, Charge, Price, PricedRun},
        usage::Usage,
    },
    journal::Reservation,
};

/// How often a running answer's cost is computed. A crash loses at most this and the time between two checkpoints.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many of a model's own tokens one estimated token may be at most ([`crate::domain::calibration`]).
const TEXT_FACTOR_MAX: u64 = 4;
/// The tokens of output that are priced to find the price of one.
const TEXT_PRICED: u64 = 1_000;

/// What a request has consumed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// The tokens used.
    pub usage: Usage,
    /// Whether the usage was reported or estimated; `None` if nothing was consumed or nothing can be known.
    pub source: Option<UsageSource>,
    /// What modifies the price, such as the service tier.
    pub modifiers: Modifiers,
    /// The runs of several models that add up to `usage`, each with its price. Empty if the requested model ran alone.
    pub runs: Vec<PricedRun>,
}

/// How far a request has come, or how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The current provider's name.
    pub provider: &'a str,
    /// The answer's status; 0 before its head.
    pub status: u16,
    /// Milliseconds since the request's arrival.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` before it.
    pub ttft_ms: Option<u64>,
}

/// What an admitted request was granted, by the store or by its key's grace.
pub(super) struct Held {
    /// Its entry in this node's own counts.
    pub(super) seat: Seat,
    /// When it was admitted by the store's clock, in milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
    /// The same time by this node's monotonic clock.
    pub(super) at: Instant,
    /// The last step of this node that the store had applied then.
    pub(super) watermark: u64,
    /// The account's balance then; `None` if the store could not be asked.
    pub(super) balance: Option<NanoUsd>,
    /// The key's quota then; `None` if it has none or the store could not be asked.
    pub(super) quota: Option<QuotaStanding>,
    /// Which state at providers the request may name.
    pub(super) provider_state: ProviderState,
}

/// The bill of one running request. If it is dropped without [`Bill::close`], its hold ends without a charge.
pub struct Bill {
    pub(super) shared: Arc<Shared>,
    pub(super) running: Arc<Running>,
    /// The request as recorded in the journal at admission.
    pub(super) row: Row,
    /// What it was granted at admission.
    pub(super) held: Held,
    /// Its price at each provider that may serve it.
    pub(super) prices: Vec<(String, Arc<Price>)>,
    pub(super) reservation: Reservation,
    pub(super) tokens_estimated: u64,
    pub(super) next_look: Option<Instant>,
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
    /// Which state at providers the account may name, as of the admission.
    pub fn provider_state(&self) -> ProviderState {
        self.held.provider_state
    }

    /// Whether the running answer's cost is to be computed now. `text` is the estimate of its text so far, in tokens.
    pub fn is_due(&mut self, now: Instant, text: u64) -> bool {
        let due = self.next_look.is_none_or(|at| now >= at) || text >= self.running.look_at_text();
        if due {
            self.next_look = Some(now + LOOK_EVERY);
        }
        due
    }

    /// The key's quota at admission; `None` if it has none, or the store was unreachable.
    pub fn quota(&self) -> Option<QuotaStanding> {
        self.held.quota
    }

    /// Whether the answer must end: its hold cannot grow, and the key's terms allow no more.
    pub fn is_cut(&self) -> bool {
        self.running.is_over()
    }

    /// Records what the running answer has consumed, and asks for a larger hold in time. `text` is the estimate of its
    /// text so far, in tokens.
    pub fn look(&self, now: Instant, progress: Progress<'_>, consumed: &Consumed, text: u64) {
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
        let (more, at_cost) = self.running.costs(cost, now);
        if let Some(more) = more {
            self.ask_for_more(more);
        }
        let again = at_cost.map(|at| text.saturating_add(self.text_until(at, cost, progress.provider, consumed)));
        self.running.look_again_at_text(again.unwrap_or(u64::MAX));
    }

    /// How much more text an answer may have before its cost approaches `at`: in estimated tokens, at least 1, and
    /// [`u64::MAX`] if text is free. One estimated token may be up to [`TEXT_FACTOR_MAX`] of the model's, so the last
    /// computations come closer and closer together.
    fn text_until(&self, at: NanoUsd, cost: NanoUsd, provider: &str, consumed: &Consumed) -> u64 {
        // If several models ran, the text is taken to be the requested model's.
        let cost_of = |usage| self.price(provider).cost(usage, &consumed.modifiers);
        let longer = Usage {
            output_text: consumed.usage.output_text.saturating_add(TEXT_PRICED),
            ..consumed.usage
        };
        let more = cost_of(&longer).saturating_sub(cost_of(&consumed.usage)).nanos();
        if more <= 0 {
            return u64::MAX;
        }
        let left = i128::from(at.saturating_sub(cost).nanos().max(0));
        let tokens = left * i128::from(TEXT_PRICED) / i128::from(more) / i128::from(TEXT_FACTOR_MAX);
        u64::try_from(tokens).unwrap_or(u64::MAX).max(1)
    }

    fn ask_for_more(&self, more: NanoUsd) {
        let ask = TopUp {
            node: self.shared.node.clone(),
            request: self.running.request.clone(),
            account: self.running.account.clone(),
            key: self.running.key.clone(),
            at_ms: self.running.at_ms,
            more,
        };
        let (ledger, running) = (Arc::clone(&self.shared.ledger), Arc::clone(&self.running));
        tokio::spawn(async move {
            running.answered(match ledger.top_up(&ask).await {
                Ok(ToppedUp::Granted(more)) => Answer::Granted(more),
                Ok(ToppedUp::Refused) => Answer::Refused,
                // Admitted while the store was unreachable, or settled meanwhile.
                Ok(ToppedUp::NoHold) => Answer::Uncounted(ask.more),
                Err(_) => Answer::Unknown,
            });
        });
    }

    /// Charges the request. Later calls do nothing.
    pub fn close(&mut self, outcome: Outcome, progress: Progress<'_>, consumed: &Consumed, now: Instant) {
        let billed = outcome.is_billed(progress.status);
        let Charge { cost, parts } = self.charge(progress.provider, consumed);
        let row = billed.then(|| Row {
            time_ms: self.time_ms(now),
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
        let mut end = End {
            step: None,
            cost: settlement.cost,
            tokens_estimated: self.tokens_estimated,
            tokens_used,
        };
        let (account, key) = (&self.running.account, &self.running.key);
        let change = Change::Settle(Box::new(settlement));
        let journal = &self.shared.journal;
        match journal.append_step(account, change, self.held.watermark, &mut self.reservation) {
            Ok((step, _)) => end.step = Some(step),
            Err(error) => {
                // The next start of the process finds the admission unsettled and charges its last checkpoint.
                tracing::error!(%error, request = %self.running.request, "a settlement could not be recorded");
                self.shared.failed();
            }
        }
        self.shared.grace.ended(account, key, self.held.seat, &end);
    }

    /// A time by the store's clock: the admission's, plus the monotonic time since.
    fn time_ms(&self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.held.at).as_millis();
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        self.row.admitted_ms.saturating_add(since)
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
