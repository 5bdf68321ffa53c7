//! Metrics of billing: charges, holds, and what is not settled yet.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::maker::{Maker, raise};

/// The figures at one moment; totals since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MoneyFigures {
    /// What was charged, in nano-USD.
    pub charged: u64,
    /// Billed requests by where their figures come from.
    pub rows: Vec<(&'static str, u64)>,
    /// Requests admitted while the store was away.
    pub offline: u64,
    /// Requests admitted out of leases.
    pub leased: u64,
    /// Leases that the node has.
    pub leases: usize,
    /// What the store holds for them, in nano-USD.
    pub leases_amount: i64,
    /// Records that could not be written to the journal.
    pub failures: u64,
    /// What each key may commit while the store is away, in nano-USD.
    pub grace: i64,
    /// The same for all keys of an account together.
    pub grace_account: i64,
    /// What keys have committed so and the store does not know yet, in nano-USD.
    pub grace_committed: i64,
    /// What this node holds for its running requests, in nano-USD.
    pub held: i64,
    /// Requests that wait for what running ones hold.
    pub held_waiting: usize,
    /// By how much a charge has exceeded its hold at most, in nano-USD.
    pub excess_max: i64,
    /// Accounts whose balance was low when they were last asked for.
    pub accounts_low: usize,
    /// Steps that the store has not acknowledged.
    pub unacknowledged: u64,
    /// The age of the oldest of them, in milliseconds; 0 if there is none.
    pub oldest_ms: u64,
    /// What the journal's segments take on disk, in bytes.
    pub journal_bytes: u64,
    /// What is free on the journal's disk, in bytes; 0 if that cannot be told.
    pub journal_disk_free: u64,
    /// Whether the journal takes what is to be recorded.
    pub journal_up: bool,
    /// Damaged parts of the journal that were found and put aside.
    pub journal_damaged: u64,
    /// Steps that the journal has lost.
    pub journal_lost: u64,
}

pub(super) struct MoneyMetrics {
    charged: IntCounter,
    rows: IntCounterVec,
    offline: IntCounter,
    leased: IntCounter,
    leases: IntGauge,
    failures: IntCounter,
    bound: IntGaugeVec,
    grace_committed: IntGauge,
    held: IntGauge,
    held_waiting: IntGauge,
    accounts_low: IntGauge,
    unacknowledged: IntGauge,
    oldest: IntGauge,
    bytes: IntGauge,
    disk_free: IntGauge,
    up: IntGauge,
    damaged: IntGauge,
    lost: IntCounter,
}

impl MoneyMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            charged: make.counter("weir_charged_nano_usd_total", "What requests have cost, in nano-USD.")?,
            rows: make.counters(
                "weir_billed_requests_total",
                "Billed requests, by where their usage comes from.",
                &["usage_source"],
            )?,
            offline: make.counter(
                "weir_admitted_offline_total",
                "Requests admitted on grace while the store was away.",
            )?,
            leased: make.counter(
                "weir_admitted_leased_total",
                "Requests admitted out of leases, without a call to the store.",
            )?,
            leases: make.gauge("weir_leases", "Keys of which this node holds leased budget.")?,
            failures: make.counter(
                "weir_journal_write_failures_total",
                "Records that the journal could not take; each is an alarm.",
            )?,
            bound: make.gauges(
                "weir_overspend_bound_nano_usd",
                "What a key can exceed its limits by: per running request (the most seen), per node that is cut off \
                 from the store (grace; grace_account for all keys of an account together), and where the store forgets \
                 what it has lent to this node (lease).",
                &["part"],
            )?,
            grace_committed: make.gauge(
                "weir_grace_committed_nano_usd",
                "What keys have committed while the store was away and has not been charged yet.",
            )?,
            held: make.gauge("weir_held_nano_usd", "What this node holds for its running requests.")?,
            held_waiting: make.gauge(
                "weir_held_waiting",
                "Requests that wait because running ones hold all that is left of a quota or a balance.",
            )?,
            accounts_low: make.gauge(
                "weir_accounts_low",
                "Accounts whose balance was at or below their warning level when last used.",
            )?,
            unacknowledged: make.gauge(
                "weir_settlements_unacknowledged",
                "Steps in the journal that the store has not acknowledged.",
            )?,
            oldest: make.gauge(
                "weir_settlement_oldest_milliseconds",
                "Age of the oldest step that the store has not acknowledged.",
            )?,
            bytes: make.gauge("weir_journal_bytes", "What the journal takes on disk.")?,
            disk_free: make.gauge("weir_journal_disk_free_bytes", "What is free on the journal's disk.")?,
            up: make.gauge(
                "weir_journal_up",
                "1 while the journal takes records; 0 where it has no room, its disk has failed, or its folder is gone.",
            )?,
            damaged: make.gauge(
                "weir_journal_damaged_parts",
                "Damaged parts of the journal that were found since the start, and put into quarantine.",
            )?,
            lost: make.counter(
                "weir_journal_lost_steps_total",
                "Charges and changes that the journal has lost before the store had them; each is an alarm.",
            )?,
        })
    }

    pub(super) fn are(&self, figures: &MoneyFigures) {
        raise(&self.charged, figures.charged);
        for (source, total) in &figures.rows {
            raise(&self.rows.with_label_values(&[source]), *total);
        }
        raise(&self.offline, figures.offline);
        raise(&self.leased, figures.leased);
        self.leases.set(gauge(figures.leases as u64));
        self.bound.with_label_values(&["lease"]).set(figures.leases_amount);
        raise(&self.failures, figures.failures);
        self.bound.with_label_values(&["request"]).set(figures.excess_max);
        self.bound.with_label_values(&["grace"]).set(figures.grace);
        self.bound
            .with_label_values(&["grace_account"])
            .set(figures.grace_account);
        self.grace_committed.set(figures.grace_committed);
        self.held.set(figures.held);
        self.held_waiting.set(gauge(figures.held_waiting as u64));
        self.accounts_low.set(gauge(figures.accounts_low as u64));
        self.unacknowledged.set(gauge(figures.unacknowledged));
        self.oldest.set(gauge(figures.oldest_ms));
        self.bytes.set(gauge(figures.journal_bytes));
        self.disk_free.set(gauge(figures.journal_disk_free));
        self.up.set(i64::from(figures.journal_up));
        self.damaged.set(gauge(figures.journal_damaged));
        raise(&self.lost, figures.journal_lost);
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
