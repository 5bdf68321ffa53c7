//! `[notices]`: notices before a quota or a balance runs out, and their receiver.

use std::time::Duration;

use http::Uri;

use super::kinds::web_address;
use crate::domain::{
    catalogue::{SecretRef, secret},
    keys::thresholds::Thresholds,
    settings::{Section, list_of, millis, settings, within},
};

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
