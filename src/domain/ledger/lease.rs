//! Leases of budget: an amount that a store holds for one node and one of an account's keys, so that the node can admit requests
//! from it by itself. [`super::account`] is the store's side, [`node`] the node's. `places` are slots of a concurrency limit.

pub(crate) mod node;

use std::{
    fmt,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::{
    keys::key::KeyId,
    ledger::{admission::Grant, ids::NodeId, lease::node::LeaseTarget},
    money::NanoUsd,
};

/// A single lease gets at most 1/16 of what remains.
pub(crate) const PART_OF_LEFT: i64 = 16;
/// All leases together get at most 1/4 of what remains. So a limit is far away as long as there are leases, and they are recalled
/// in time when it becomes near.
pub(crate) const ALL_PART_OF_LEFT: i64 = 4;
/// A lease that could grow by less than 1/4 of the wanted amount does not grow: the limit is near.
pub(crate) const PART_OF_WANTED: i64 = 4;
/// How long nodes may take to return recalled leases, in milliseconds. Until then no top-up of a running request is refused for
/// lack of money.
pub(crate) const RECALL_MS: i64 = 2_000;

/// The day (UTC) of a time in milliseconds since the Unix epoch, counted from there.
pub(crate) fn day_of(ms: i64) -> i64 {
    ms.div_euclid(24 * 3600 * 1000)
}

/// The name of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// The holder: a random name that each process draws when it starts, so that its successor does not keep its leases alive.
    pub holder: NodeId,
    /// The lease's number for this holder: 1 for the first, rising by one.
    pub number: u64,
}

impl LeaseId {
    /// The name of its hold among the holder's holds. No request id has this form.
    pub(crate) fn hold_name(&self) -> SmolStr {
        format_smolstr!("lease-{}", self.number)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.hold_name(), self.holder)
    }
}

/// Requests and tokens, as limits per minute count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateUse {
    /// Requests.
    pub requests: u64,
    /// Input and output tokens, as estimated.
    pub tokens: u64,
}

impl RateUse {
    /// The difference of each, zero at least.
    pub(crate) const fn saturating_sub(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    /// The sum of each.
    pub(crate) const fn saturating_add(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// The maximum of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            requests: self.requests.max(other.requests),
            tokens: self.tokens.max(other.tokens),
        }
    }
}

/// A node's question about a lease: what it reports, and what it wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseCall {
    /// The lease.
    pub lease: LeaseId,
    /// The node whose steps settle the requests admitted from it.
    pub node: NodeId,
    /// The account that pays.
    pub account: SmolStr,
    /// The key whose requests are admitted from it.
    pub key: KeyId,
    /// The key's revision at this node.
    pub revision: u64,
    /// The number of requests that run in it. The account counts them as running.
    pub running: u64,
    /// Requests and tokens admitted from this lease since it began.
    #[serde(default)]
    pub used: RateUse,
    /// The part that should be free for further requests, where rates are limited: the rest is given back, and
    /// [`LeaseChange::Grow`] adds what is lacking.
    #[serde(default)]
    pub free: RateUse,
    /// The wanted slots, where concurrency is limited: a lower number takes effect at once, a higher one with
    /// [`LeaseChange::Grow`].
    #[serde(default)]
    pub places: u64,
    /// The sequence number of the question, from 1 for each lease. A question that arrives after a later one changes nothing.
    pub turn: u64,
    /// The requested change.
    pub change: LeaseChange,
}

/// The requested change of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseChange {
    /// It grows by up to this amount, and by the wanted rates and slots; it begins if it does not exist.
    Grow(NanoUsd),
    /// It gives back this amount, which may be zero.
    Return(NanoUsd),
    /// It ends. No request runs in it, and all that ran in it are settled.
    End,
}

/// The answer to [`LeaseCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseReply {
    /// It exists, whether or not it has grown.
    Held(LeaseGrant),
    /// It did not begin: a limit is near, or the key or its account may not have leases now.
    Refused,
    /// It does not exist: it has ended, or the holder's node lease has lapsed.
    Gone,
}

/// The state of a lease in its account at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGrant {
    /// When it began, in milliseconds since the Unix epoch. Only requests of the same day (UTC) are admitted from it.
    pub since_ms: i64,
    /// Rises whenever all leases of the account are recalled.
    pub recall: u64,
    /// The requests and tokens that its holder may admit from it. In JSON `given`.
    #[serde(default, rename = "given")]
    pub allowance: LeaseAllowance,
    /// `hold` is the lease's amount: everything granted, less everything returned and charged. `at_ms` is the present time. The
    /// other fields are as for a request of the key.
    pub grant: Grant,
}

/// The limits of admission from a lease besides its amount. `None` where neither key nor account has a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseAllowance {
    /// The total of requests since it began.
    pub requests: Option<u64>,
    /// The total of tokens since it began.
    pub tokens: Option<u64>,
    /// Slots: requests that run at once.
    pub places: Option<u64>,
}

/// The length of a window of demand.
const WINDOW: Duration = Duration::from_secs(1);
/// How many windows a lease should last.
const WINDOWS_AHEAD: u32 = 2;

/// The demand of a key at its node in this window and in the one before: decides whether a lease is worthwhile, and its size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    began: Option<Instant>,
    now: DemandSample,
    before: DemandSample,
}

/// The requests of one window.
#[derive(Clone, Copy, Debug, Default)]
struct DemandSample {
    rated: RateUse,
    estimates: NanoUsd,
}

impl Demand {
    /// Records a request.
    pub(crate) fn record(&mut self, estimate: NanoUsd, tokens: u64, now: Instant) {
        self.roll_window(now);
        self.now.rated = self.now.rated.saturating_add(RateUse { requests: 1, tokens });
        self.now.estimates = self.now.estimates.saturating_add(estimate.max(NanoUsd::ZERO));
    }

    /// The number of requests in this window or the last, whichever had more.
    pub(crate) fn requests(&mut self, now: Instant) -> u64 {
        self.roll_window(now);
        self.now.rated.max(self.before.rated).requests
    }

    /// The part of a lease that should be free.
    pub(crate) fn target(&mut self, now: Instant) -> LeaseTarget {
        self.roll_window(now);
        let estimates = self.now.estimates.max(self.before.estimates);
        let rated = self.now.rated.max(self.before.rated);
        LeaseTarget {
            amount: NanoUsd::from_nanos(estimates.nanos().saturating_mul(i64::from(WINDOWS_AHEAD))),
            rated: RateUse {
                requests: rated.requests.saturating_mul(u64::from(WINDOWS_AHEAD)),
                tokens: rated.tokens.saturating_mul(u64::from(WINDOWS_AHEAD)),
            },
        }
    }

    fn roll_window(&mut self, now: Instant) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        let since = now.saturating_duration_since(began);
        if since >= WINDOW {
            let is_next = since < WINDOW * 2;
            self.before = if is_next { self.now } else { DemandSample::default() };
            self.now = DemandSample::default();
            self.began = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    #[test]
    fn demand_is_what_came_in_this_second_or_the_last() {
        let (mut demand, began) = (Demand::default(), clock::instant());
        let after = |ms| began + Duration::from_millis(ms);
        let wants = |demand: &mut Demand, ms| {
            let target = demand.target(after(ms));
            (
                demand.requests(after(ms)),
                target.amount.nanos(),
                target.rated.requests,
                target.rated.tokens,
            )
        };
        for at in [0, 100, 900] {
            demand.record(NanoUsd::from_nanos(10), 5, after(at));
        }
        assert_eq!(wants(&mut demand, 999), (3, 60, 6, 30));
        demand.record(NanoUsd::from_nanos(70), 1, after(1_000));
        assert_eq!(wants(&mut demand, 1_999), (3, 140, 6, 30));
        assert_eq!(demand.requests(after(2_500)), 1);
        assert_eq!(wants(&mut demand, 9_000), (0, 0, 0, 0));
    }
}
