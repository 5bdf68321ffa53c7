//! `[log.events]`: the billing system that gets rows of the consumption log as events.

use std::{path::PathBuf, time::Duration};

use http::Uri;
use serde::Deserialize;

use super::{JournalSink, raw_secret::RawSecret, values::Values};
use crate::domain::catalogue::SecretRef;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLogEvents {
    url: Option<String>,
    secret: Option<RawSecret>,
    authorization: Option<RawSecret>,
    source: Option<String>,
    required: Option<bool>,
    ca_file: Option<String>,
    batch_rows: Option<u64>,
    connect_ms: Option<u64>,
    answer_seconds: Option<u64>,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEventsConfig {
    /// Where events are posted to.
    pub url: Uri,
    /// What they are signed with.
    pub secret: SecretRef,
    /// The value of the `authorization` header.
    pub authorization: Option<SecretRef>,
    /// The events' `source`.
    pub source: String,
    /// Whether the journal keeps what the receiver lacks, however full the disk is.
    pub required: bool,
    /// Certificates trusted in place of the platform's, PEM.
    pub ca_file: Option<PathBuf>,
    /// The most events of one request.
    pub batch_rows: usize,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for an answer.
    pub answer: Duration,
}

impl LogEventsConfig {
    /// The sink for which the journal keeps rows.
    pub(super) fn sink(&self) -> JournalSink {
        JournalSink {
            name: "events",
            required: self.required,
        }
    }
}

/// `None`: there is no receiver, or what is wrong has been said.
pub(super) fn resolve(values: &mut Values<'_>, raw: &RawLogEvents) -> Option<LogEventsConfig> {
    let url = raw.url.as_deref()?;
    let parsed = url.parse::<Uri>().ok().filter(|url| {
        let is_web = matches!(url.scheme_str(), Some("http" | "https"));
        is_web
            && url
                .authority()
                .is_some_and(|authority| !authority.as_str().contains('@'))
    });
    if parsed.is_none() {
        values.wrong(
            &["log", "events", "url"],
            "not an address, give https://HOST/PATH; what the receiver wants to know of the sender goes into authorization",
        );
    }
    if raw.secret.is_none() {
        values.wrong_combination(
            &[],
            &["log", "events", "secret"],
            "missing, name the secret that events are signed with, such as \"env:WEIR_EVENTS_SECRET\"",
        );
    }
    let secret = values.secret(&["log", "events", "secret"], raw.secret.as_ref());
    let authorization = values.secret(&["log", "events", "authorization"], raw.authorization.as_ref());
    if let Some(url) = &parsed
        && authorization.is_some()
        && url.scheme_str() == Some("http")
        && !matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
    {
        values.wrong(
            &["log", "events", "authorization"],
            "would be read by whoever is on the way, give an https:// url",
        );
    }
    let source = raw.source.clone().unwrap_or_else(|| "weir".to_owned());
    if source.is_empty() || source.parse::<Uri>().is_err() {
        values.wrong(
            &["log", "events", "source"],
            "not a reference to this weir, give a name or an address without spaces",
        );
    }
    let ca_file = values.optional_path(&["log", "events", "ca_file"], raw.ca_file.as_deref());
    let batch_rows = values.count(&["log", "events", "batch_rows"], raw.batch_rows, 100, 1..=10_000);
    let connect = values.millis(&["log", "events", "connect_ms"], raw.connect_ms, 5_000, 1..=60_000);
    // Below what a feeder waits for a sink.
    let answer = values.seconds(&["log", "events", "answer_seconds"], raw.answer_seconds, 30, 1..=110);
    Some(LogEventsConfig {
        url: parsed?,
        secret: secret?,
        authorization,
        source,
        required: raw.required.unwrap_or(false),
        ca_file,
        batch_rows,
        connect,
        answer,
    })
}
