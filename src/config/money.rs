//! `[money]` and `[leases]`: grace while the store is unreachable, queues for holds of running requests, and leases.

use std::time::Duration;

use super::kinds::usd;
use crate::domain::{
    money::NanoUsd,
    settings::{flag, flat, millis, number, settings},
};

settings! {
    /// `[money]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct MoneyConfig {
        /// Grace: what each key may spend on this node while the store is unreachable, in USD; beyond it 503. It is also bounded
        /// by the last known balance and quota, rate and concurrency limits apply, and a key that was denied when last seen, or
        /// was never seen, has no grace. The amount is recorded and charged when the store is back: limits can be exceeded by
        /// at most this much per node that is cut off.
        grace("grace_usd"): NanoUsd = usd().or("0.10"),
        /// The same for all keys of an account together.
        grace_account("grace_account_usd"): NanoUsd = usd().or("1.00"),
        /// How long a request waits while running requests hold all that is left of its key's quota or its account's balance;
        /// then it gets 429, with a retry-after of one second. If the quota or balance is spent, it is refused at once.
        held_wait("held_wait_ms"): Duration = millis(1_000, 0..=60_000),
        /// Maximum numbers of waiting requests.
        held_waiting_max: QueueLimits = flat(),
    }
}

settings! {
    /// Maximum numbers of requests that wait for what running requests hold.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct QueueLimits {
        /// Maximum number of such waiting requests on this node; more are 429 at once.
        all("held_waiting_max"): usize = number(1_024, 1..=65_536),
        /// The same for one account.
        account("held_waiting_account_max"): usize = number(64, 1..=65_536),
    }
}

settings! {
    /// `[leases]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct LeasesConfig {
        /// Whether to use leases.
        enabled: bool = flag(true),
        /// The rate, in requests per second, from which a key gets a lease. A lease takes about eight calls per second, however
        /// many requests it admits.
        requests_per_second: u64 = number(10, 1..=1_000_000),
        /// Maximum number of leases at one time on this node; Redis admits the requests of further keys.
        max: usize = number(1_000, 1..=100_000),
    }
}
