//! The settings of `[money]` (grace, and the queue of requests that wait for money held by running requests), `[leases]` and
//! `[notices]`.

use std::time::Duration;

use http::Uri;

use crate::{
    config::{usd, web_address},
    domain::{
        catalogue::{SecretRef, secret},
        keys::terms::Thresholds,
        money::NanoUsd,
        settings::{Section, flag, flat, list_of, millis, number, settings, within},
    },
};

settings! {
    /// The section `[money]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct MoneyConfig {
        /// Grace: the amount in USD that each key may spend on this node while the store is unreachable; beyond it, requests get
        /// 503. The last known balance and quota also limit the amount, and rate and concurrency limits still apply. A key has no
        /// grace if it was denied when it was last used, or was never used on this node. weir records the spent amount, and
        /// charges it when the store is reachable again. So each node that is cut off from the store can exceed a limit by at
        /// most this amount.
        grace("grace_usd"): NanoUsd = usd().or("0.10"),
        /// Grace for all keys of an account together, in USD.
        grace_account("grace_account_usd"): NanoUsd = usd().or("1.00"),
        /// How long a request waits while running requests hold all that is left of its key's quota or its account's balance.
        /// After this time, the request gets 429, with a retry-after of one second. If the quota or balance is spent, the request
        /// is refused at once.
        held_wait("held_wait_ms"): Duration = millis(1_000, 0..=60_000),
        /// Maximum numbers of requests that wait for money held by running requests.
        held_waiting_max: QueueLimits = flat(),
    }
}

settings! {
    /// Maximum numbers of requests that wait for money held by running requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct QueueLimits {
        /// Maximum number of requests on this node that wait for money held by running requests; further ones get 429 at once.
        all("held_waiting_max"): usize = number(1_024, 1..=65_536),
        /// Maximum number of requests of one account on this node that wait for money held by running requests; further ones get
        /// 429 at once.
        account("held_waiting_account_max"): usize = number(64, 1..=65_536),
    }
}

settings! {
    /// The section `[leases]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct LeasesConfig {
        /// Whether to use leases.
        enabled: bool = flag(true),
        /// The minimum rate at which a key gets a lease, in requests per second. A lease costs about eight calls to Redis per
        /// second, no matter how many requests it admits.
        requests_per_second: u64 = number(10, 1..=1_000_000),
        /// Maximum number of leases at one time on this node. Requests of further keys are admitted by Redis.
        max: usize = number(1_000, 1..=100_000),
    }
}

settings! {
    /// The section `[notices]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct NoticesConfig {
        /// The percentages of a key's quota at which a notice is created: any of 50, 75, 80, 90, 95 and 100. A key or an account
        /// can have its own list (--notify).
        quota_percent: Thresholds = list_of(within(0..=100_u64))
            .then(|percents| {
                Thresholds::of(percents)
                    .map_err(|other| format!("{other} is not a threshold: use any of 50, 75, 80, 90, 95, 100"))
            })
            .or(vec![80, 100]),
        /// The URL of a webhook to which weir also sends each notice with POST, at least once (docs/money.md, Notices). If weir
        /// gets no 2xx response, it sends the notice again, after pauses that double each time.
        url: Option<Uri> = web_address("not an address, give https://HOST[:PORT]/PATH, without a user")
            .optional("https://hooks.example.com/weir"),
        /// The secret with which each notice is signed.
        secret: Option<SecretRef> = secret().optional("env:WEIR_NOTICES_SECRET"),
        /// Timeout for one attempt to send a notice.
        timeout("timeout_ms"): Duration = millis(5_000, 100..=60_000),
        /// The first pause before a notice is sent again; must be longer than timeout_ms.
        retry("retry_ms"): Duration = millis(10_000, 200..=600_000),
    } checked by belongs_together
}

impl NoticesConfig {
    /// Returns the receiver's URL and the signing secret; `None` if notices are only logged.
    pub(crate) fn webhook(&self) -> Option<(&Uri, &SecretRef)> {
        self.url.as_ref().zip(self.secret.as_ref())
    }
}

fn belongs_together(read: NoticesConfig, from: &Section<'_>) -> NoticesConfig {
    if read.retry <= read.timeout {
        let message = "must be longer than timeout_ms: otherwise another node could send a notice while this node is still sending it";
        from.report_fault("retry_ms", &["timeout_ms"], message);
    }
    match (&read.url, &read.secret) {
        (None, Some(_)) => from.report_fault("secret", &["url"], "has no effect without [notices] url"),
        (Some(_), None) => {
            let message = "needs a secret to sign with: set [notices] secret to a reference, such as env:NAME";
            from.report_fault("url", &["secret"], message);
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    read
}
