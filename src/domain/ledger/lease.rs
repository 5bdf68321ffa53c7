//! Leases of budget. A lease is an amount that a store sets aside for one node and one key of an account, so that the node can
//! admit the key's requests without calling the store. [`super::account`] is the store's part, and [`node`] is the node's part.
//! Fields with the name `places` contain slots of a concurrency limit.

pub(crate) mod node;

use std::{
    fmt,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::{
    keys::KeyId,
    ledger::{Grant, ids::NodeId, lease::node::LeaseTarget},
    money::NanoUsd,
};

/// A single lease gets at most 1/16 of the remaining money, rate or slots.
pub(crate) const PART_OF_LEFT: i64 = 16;
/// All leases together get at most 1/4 of the remaining money, rate or slots. The rest is a reserve, which leaves time to recall
/// the leases when a limit becomes near.
pub(crate) const ALL_PART_OF_LEFT: i64 = 4;
/// A lease does not grow if it could grow by less than 1/4 of the wanted amount, because this means that the limit is near.
pub(crate) const PART_OF_WANTED: i64 = 4;
/// The time in which nodes return recalled leases, in milliseconds. During this time, no top-up of a running request is refused
/// for lack of money.
pub(crate) const RECALL_MS: i64 = 2_000;

/// Returns the day (UTC) that contains a time, in days since the Unix epoch. `ms` is the time in milliseconds since the Unix
/// epoch.
pub(crate) fn day_of(ms: i64) -> i64 {
    ms.div_euclid(24 * 3600 * 1000)
}

/// The identity of a lease: its holder and its number among the holder's leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// The holder: a random name that each process draws when it starts. A new process has another name, and so cannot keep the
    /// leases of its predecessor alive.
    pub holder: NodeId,
    /// The number of the lease among the leases of its holder. The first lease has number 1.
    pub number: u64,
}

impl LeaseId {
    /// Returns the name of the lease among the holds of its holder. No request id has the form of this name.
    pub(crate) fn hold_name(&self) -> SmolStr {
        format_smolstr!("lease-{}", self.number)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.hold_name(), self.holder)
    }
}

/// Numbers of requests and tokens, for limits per minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateUse {
    /// The number of requests.
    pub requests: u64,
    /// The estimated number of input and output tokens.
    pub tokens: u64,
}

impl RateUse {
    /// Returns the differences of the requests and of the tokens; a negative difference becomes zero.
    pub(crate) const fn saturating_sub(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    /// Returns the sums of the requests and of the tokens.
    pub(crate) const fn saturating_add(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// Returns the higher number of requests and the higher number of tokens.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            requests: self.requests.max(other.requests),
            tokens: self.tokens.max(other.tokens),
        }
    }
}

/// A node's call to the store about a lease: it reports the use of the lease and requests a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseCall {
    /// The lease.
    pub lease: LeaseId,
    /// The node whose steps settle requests that were admitted from the lease.
    pub node: NodeId,
    /// The account that pays.
    pub account: SmolStr,
    /// The key whose requests are admitted from the lease.
    pub key: KeyId,
    /// The revision of the node's record of the key.
    pub revision: u64,
    /// The number of requests that are running in the lease. They count as running requests of the account.
    pub running: u64,
    /// The requests and tokens that were admitted from the lease since the lease began.
    #[serde(default)]
    pub used: RateUse,
    /// The requests and tokens that the lease should have for further requests, if rates are limited. In every call, the store
    /// takes back any excess. In a call with [`LeaseChange::Grow`], it also adds the missing requests and tokens.
    #[serde(default)]
    pub free: RateUse,
    /// The number of wanted slots, if concurrency is limited. A lower number takes effect with any call, and a higher number only
    /// with [`LeaseChange::Grow`].
    #[serde(default)]
    pub places: u64,
    /// The sequence number of the call, starting from 1 for each lease. A call has no effect if a call with a higher number
    /// arrived before it.
    pub turn: u64,
    /// The requested change.
    pub change: LeaseChange,
}

/// The change of a lease that a node requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseChange {
    /// The lease grows by up to this amount, and by the missing rates and slots. If the lease does not exist, it begins.
    Grow(NanoUsd),
    /// The node returns this amount of the lease, which may be zero.
    Return(NanoUsd),
    /// The lease ends. No request is running in it, and all requests that ran in it are settled.
    End,
}

/// The reply to a [`LeaseCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseReply {
    /// The lease exists. The call may or may not have made it grow.
    Held(LeaseGrant),
    /// The lease did not begin, because a limit is near or because the key or its account is not allowed to have leases now.
    Refused,
    /// The lease does not exist, because it has ended or its holder's node lease has lapsed.
    Gone,
}

/// The state of a lease at the store at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGrant {
    /// The time at which the lease began, in milliseconds since the Unix epoch. Requests are admitted from the lease only on the
    /// same day (UTC).
    pub since_ms: i64,
    /// The account's recall mark, which rises whenever all leases of the account are recalled.
    pub recall: u64,
    /// The requests and tokens that the holder is allowed to admit from the lease. The name of this field in JSON is `given`.
    #[serde(default, rename = "given")]
    pub allowance: LeaseAllowance,
    /// The state of the key and the account, as in the reply to an admission call. `hold` is the lease's amount: everything
    /// granted, minus everything returned and charged. `at_ms` is the current time.
    pub grant: Grant,
}

/// The limits of admission from a lease, in addition to the lease's amount. A field is `None` if neither the key nor the account
/// has a limit of this kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseAllowance {
    /// The maximum number of requests, counted from the lease's beginning.
    pub requests: Option<u64>,
    /// The maximum number of tokens, counted from the lease's beginning.
    pub tokens: Option<u64>,
    /// The slots of the lease: the maximum number of concurrent requests.
    pub places: Option<u64>,
}

/// The length of a time window in which demand is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// The number of time windows for which a lease should suffice.
const WINDOWS_AHEAD: u32 = 2;

/// The demand for a key at one node, in the current time window and the previous one. It determines whether a lease is
/// worthwhile, and how large the lease should be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    began: Option<Instant>,
    now: DemandSample,
    before: DemandSample,
}

/// The demand in one time window.
#[derive(Clone, Copy, Debug, Default)]
struct DemandSample {
    rated: RateUse,
    estimates: NanoUsd,
}

impl Demand {
    /// Records the demand of a request.
    pub(crate) fn record(&mut self, estimate: NanoUsd, tokens: u64, now: Instant) {
        self.roll_window(now);
        self.now.rated = self.now.rated.saturating_add(RateUse { requests: 1, tokens });
        self.now.estimates = self.now.estimates.saturating_add(estimate.max(NanoUsd::ZERO));
    }

    /// Returns the number of requests in the current time window or in the previous one, whichever is higher.
    pub(crate) fn requests(&mut self, now: Instant) -> u64 {
        self.roll_window(now);
        self.now.rated.max(self.before.rated).requests
    }

    /// Returns the part of a lease that should be free, computed from the demand.
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
