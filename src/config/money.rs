//! `[money]` and `[leases]`: grace while the store is unreachable, queues for holds of running requests, and leases.

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

settings! {
    /// `[notices]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct NoticesConfig {
        /// The thresholds of a key's quota, in percent: any of 50, 75, 80, 90, 95 and 100. A key or an account may have its own
        /// list (--notify).
        quota_percent: Thresholds = list_of(within(0..=100_u64))
            .then(|percents| {
                Thresholds::of(percents)
                    .map_err(|other| format!("{other} is not a threshold: use any of 50, 75, 80, 90, 95, 100"))
            })
            .or(vec![80, 100]),
        /// A webhook that also gets each notice, with POST (docs/money.md, Notices), at least once: a notice without a 2xx
        /// response is sent again, after pauses that double.
        url: Option<Uri> = web_address("not an address, give https://HOST[:PORT]/PATH, without a user")
            .optional("https://hooks.example.com/weir"),
        /// The secret that signs each notice.
        secret: Option<SecretRef> = secret().optional("env:WEIR_NOTICES_SECRET"),
        /// Timeout of one attempt.
        timeout("timeout_ms"): Duration = millis(5_000, 100..=60_000),
        /// The first pause; must be longer than timeout_ms.
        retry("retry_ms"): Duration = millis(10_000, 200..=600_000),
    } checked by belongs_together
}

impl NoticesConfig {
    /// The receiver's URL and the signing secret; `None` if notices are only logged.
    pub(crate) fn webhook(&self) -> Option<(&Uri, &SecretRef)> {
        self.url.as_ref().zip(self.secret.as_ref())
    }
}

fn belongs_together(read: NoticesConfig, from: &Section<'_>) -> NoticesConfig {
    if read.retry <= read.timeout {
        let message = "must be longer than timeout_ms, or another node also sends a notice that is being sent";
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
