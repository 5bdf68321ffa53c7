//! `[log.events]`: the billing system that gets rows of the consumption log as events.

use std::{path::PathBuf, time::Duration};

use http::Uri;

use super::kinds::{is_open, path, web_address};
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{Section, flag, millis, number, seconds, settings, text},
};

settings! {
    /// `[log.events]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogEventsConfig {
        /// Where events are posted to.
        url: Uri = web_address(
            "not an address, give https://HOST/PATH; what the receiver wants to know of the sender goes into authorization",
        )
        .example("https://meter.example.com/api/v1/events"),
        /// What requests are signed with (header webhook-signature).
        secret: SecretRef = secret().example("env:WEIR_EVENTS_SECRET"),
        /// The value of the header authorization, where the receiver wants one, such as "Bearer ...".
        authorization: Option<SecretRef> = secret().optional("env:WEIR_EVENTS_AUTHORIZATION"),
        /// The events' `source`.
        source: String = text()
            .fits("not a reference to this weir, give a name or an address without spaces", |source| {
                !source.is_empty() && source.parse::<Uri>().is_ok()
            })
            .or("weir"),
        /// Whether the journal keeps what the receiver lacks however full the disk is. Otherwise it is given up, and counted, when less
        /// than 5 percent are free.
        required: bool = flag(false),
        /// Certificates trusted in place of the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("meter-ca.pem"),
        /// Most events of one request.
        batch_rows: usize = number(100, 1..=10_000),
        /// Longest wait for a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // Below what a feeder waits for a sink.
        /// Longest wait for an answer.
        answer("answer_seconds"): Duration = seconds(30, 1..=110),
    } checked by authorization_stays_secret
}

fn authorization_stays_secret(read: LogEventsConfig, from: &Section<'_>) -> LogEventsConfig {
    if read.authorization.is_some() && is_open(&read.url) {
        let message = "would be read by whoever is on the way, give an https:// url";
        from.wrong("authorization", &["url"], message);
    }
    read
}
