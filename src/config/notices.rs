//! `[notices]`: what is told before a quota or a balance is over, and where to.

use std::time::Duration;

use http::Uri;
use serde::Deserialize;

use super::raw_secret::RawSecret;
use super::values::Values;
use crate::domain::{
    catalogue::SecretRef,
    keys::thresholds::{PERCENTS, Thresholds},
};

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawNotices {
    quota_percent: Option<Vec<u8>>,
    url: Option<String>,
    secret: Option<RawSecret>,
    timeout_ms: Option<u64>,
    retry_ms: Option<u64>,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoticesConfig {
    /// The parts of a quota that are told where neither key nor account says it.
    pub quota_percent: Thresholds,
    /// Where they are sent; `None`: they are in the log alone.
    pub webhook: Option<WebhookConfig>,
    /// How long one attempt to send may take. Shorter than the first pause.
    pub timeout: Duration,
    /// The pause after the first attempt that fails; it doubles.
    pub retry: Duration,
}

/// A receiver of notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookConfig {
    /// `http` or `https`, with a host.
    pub url: Uri,
    /// What they are signed with.
    pub secret: SecretRef,
}

/// The parts of a quota that are told unless configured otherwise.
const PERCENTS_DEFAULT: [u8; 2] = [80, 100];

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawNotices) -> NoticesConfig {
    let quota_percent = raw.quota_percent.clone().unwrap_or_else(|| PERCENTS_DEFAULT.to_vec());
    if let Some(other) = quota_percent.iter().find(|percent| !PERCENTS.contains(percent)) {
        let message = format!("{other} is none of the parts that are counted: 50, 75, 80, 90, 95, 100");
        values.wrong(&["notices", "quota_percent"], message);
    }
    let quota_percent = Thresholds::from(quota_percent);
    let timeout = values.millis(&["notices", "timeout_ms"], raw.timeout_ms, 5_000, 100..=60_000);
    let retry = values.millis(&["notices", "retry_ms"], raw.retry_ms, 10_000, 200..=600_000);
    if retry <= timeout {
        let message = "has to be longer than timeout_ms, or another node sends what is being sent";
        values.wrong(&["notices", "retry_ms"], message);
    }
    NoticesConfig {
        quota_percent,
        webhook: webhook(values, raw),
        timeout,
        retry,
    }
}

fn webhook(values: &mut Values<'_>, raw: &RawNotices) -> Option<WebhookConfig> {
    let secret = values.secret(&["notices", "secret"], raw.secret.as_ref());
    let Some(text) = &raw.url else {
        if raw.secret.is_some() {
            values.wrong(&["notices", "secret"], "signs nothing without a url");
        }
        return None;
    };
    let at = ["notices", "url"];
    let url = text.parse::<Uri>().ok().filter(|url| {
        let is_web = matches!(url.scheme_str(), Some("http" | "https"));
        let is_plain = url
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@'));
        is_web && is_plain
    });
    // What was given may have a secret in it: it is not repeated.
    match (url, secret) {
        (None, _) => values.wrong(&at, "not an address, give https://HOST[:PORT]/PATH, without a user"),
        (Some(_), None) if raw.secret.is_none() => {
            values.wrong(
                &at,
                "needs a secret to sign with: set [notices] secret to a reference, such as env:NAME",
            );
        }
        (Some(url), Some(secret)) => return Some(WebhookConfig { url, secret }),
        (Some(_), None) => {}
    }
    None
}
