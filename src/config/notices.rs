//! `[notices]`: what is told before a quota or a balance is over, and where to.

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
        /// At which parts of a key's quota, in percent: any of 50, 75, 80, 90, 95 and 100. A key and an account may have their own list
        /// (--notify).
        quota_percent: Thresholds = list_of(within(0..=100_u64))
            .then(|percents| {
                Thresholds::of(percents)
                    .map_err(|other| format!("{other} is none of the parts that are counted: 50, 75, 80, 90, 95, 100"))
            })
            .or(vec![80, 100]),
        /// Where each is sent as well, with POST (docs/money.md, Notices). At least once: what is not answered with 2xx is sent again,
        /// after pauses that double.
        url: Option<Uri> = web_address("not an address, give https://HOST[:PORT]/PATH, without a user")
            .optional("https://hooks.example.com/weir"),
        /// What it is signed with.
        secret: Option<SecretRef> = secret().optional("env:WEIR_NOTICES_SECRET"),
        /// How long one attempt may take.
        timeout("timeout_ms"): Duration = millis(5_000, 100..=60_000),
        /// The first pause; longer than an attempt may take.
        retry("retry_ms"): Duration = millis(10_000, 200..=600_000),
    } checked by belongs_together
}

impl NoticesConfig {
    /// Where they are sent and what they are signed with; `None`: they are in the log alone.
    pub(crate) fn webhook(&self) -> Option<(&Uri, &SecretRef)> {
        self.url.as_ref().zip(self.secret.as_ref())
    }
}

fn belongs_together(read: NoticesConfig, from: &Section<'_>) -> NoticesConfig {
    if read.retry <= read.timeout {
        let message = "has to be longer than timeout_ms, or another node sends what is being sent";
        from.wrong("retry_ms", &["timeout_ms"], message);
    }
    match (&read.url, &read.secret) {
        (None, Some(_)) => from.wrong("secret", &["url"], "signs nothing without a url"),
        (Some(_), None) => {
            let message = "needs a secret to sign with: set [notices] secret to a reference, such as env:NAME";
            from.wrong("url", &["secret"], message);
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    read
}
