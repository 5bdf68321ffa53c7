//! `[money]` and `[leases]`: grace without the store, waiting for holds of running requests, and what a node admits by itself.

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
        /// What each key may spend on this node while the store is away, in USD; beyond it 503. The last known balance and quota bound
        /// it further, rate limits and concurrency hold, and a key that was refused when last seen, or was never seen, has none. What is
        /// spent is recorded and charged when the store is back: limits can be exceeded by at most this much per node that is cut off.
        grace("grace_usd"): NanoUsd = usd().or("0.10"),
        /// The same for all keys of an account together.
        grace_account("grace_account_usd"): NanoUsd = usd().or("1.00"),
        /// How long a request waits when running ones hold all that is left of its key's quota or its account's balance; then it is
        /// 429, to be sent again a second later. What is spent is refused at once.
        held_wait("held_wait_ms"): Duration = millis(1_000, 0..=60_000),
        /// How many requests may wait so.
        held_waiting_max: WaitingMax = flat(),
    }
}

settings! {
    /// How many requests may wait for what running ones hold.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct WaitingMax {
        /// How many may wait so, on this node; more are 429 at once.
        all("held_waiting_max"): usize = number(1_024, 1..=65_536),
        /// The same for one account.
        account("held_waiting_account_max"): usize = number(64, 1..=65_536),
    }
}

settings! {
    /// `[leases]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct LeasesConfig {
        /// Whether there are any.
        enabled: bool = flag(true),
        /// The requests per second from which on a key gets one. A lease takes about eight calls a second, however much is admitted out
        /// of it.
        requests_per_second: u64 = number(10, 1..=1_000_000),
        /// The most at one time on this node; keys beyond are admitted by Redis.
        max: usize = number(1_000, 1..=100_000),
    }
}
