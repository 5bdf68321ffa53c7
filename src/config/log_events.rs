//! `[log.events]`: the billing system that gets rows of the consumption log as events.

use std::{path::PathBuf, time::Duration};

use http::Uri;

use super::kinds::{is_unencrypted, path, web_address};
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{Section, flag, millis, number, seconds, settings, text},
};

settings! {
    /// `[log.events]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogEventsConfig {
        /// The receiver's URL, to which events are posted.
        url: Uri = web_address(
            "not an address, give https://HOST/PATH without a user; put credentials into authorization",
        )
        .example("https://meter.example.com/api/v1/events"),
        /// The secret that signs requests (header webhook-signature).
        secret: SecretRef = secret().example("env:WEIR_EVENTS_SECRET"),
        /// The value of the header authorization, such as "Bearer ...", if the receiver needs one.
        authorization: Option<SecretRef> = secret().optional("env:WEIR_EVENTS_AUTHORIZATION"),
        /// The events' `source`.
        source: String = text()
            .fits("not a URI reference, give a name or an address without spaces", |source| {
                !source.is_empty() && source.parse::<Uri>().is_ok()
            })
            .or("weir"),
        /// Whether the journal keeps rows that the receiver lacks however full the disk is. Otherwise they are dropped, and
        /// counted, when less than 5 percent of the disk are free.
        required: bool = flag(false),
        /// Certificates trusted in place of the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("meter-ca.pem"),
        /// Maximum number of events in one request.
        batch_rows: usize = number(100, 1..=10_000),
        /// Timeout for a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // Less than a feeder waits for a sink.
        /// Timeout for a response.
        answer("answer_seconds"): Duration = seconds(30, 1..=110),
    } checked by authorization_stays_secret
}

fn authorization_stays_secret(read: LogEventsConfig, from: &Section<'_>) -> LogEventsConfig {
    if read.authorization.is_some() && is_unencrypted(&read.url) {
        let message = "could be read on the network: give an https:// url";
        from.report_fault("authorization", &["url"], message);
    }
    read
}
