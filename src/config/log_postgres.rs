//! `[log.postgres]`: the database that the consumption log is at home in.

use std::{path::PathBuf, time::Duration};

use super::kinds::path;
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{Section, millis, one_of, seconds, settings},
};

/// What is demanded of a connection over TCP. One to a unix socket never has TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostgresTls {
    /// TLS, a certificate of a trusted authority, and the server's name in it.
    VerifyFull,
    /// TLS and a certificate of a trusted authority, for whatever name.
    VerifyCa,
    /// TLS, with whatever certificate: against listeners, not against whoever poses as the server.
    Require,
    /// No TLS.
    Disable,
}

const MODES: [(&str, PostgresTls); 4] = [
    ("verify-full", PostgresTls::VerifyFull),
    ("verify-ca", PostgresTls::VerifyCa),
    ("require", PostgresTls::Require),
    ("disable", PostgresTls::Disable),
];

settings! {
    /// `[log.postgres]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogPostgresConfig {
        /// Where the connection string is found: postgres://USER:PASSWORD@HOST:PORT/DATABASE, or host=... user=... dbname=... . Several
        /// hosts, separated by commas, are tried for the one that takes changes.
        url: SecretRef = secret().example("env:WEIR_LOG_POSTGRES"),
        /// What is demanded of a connection over TCP: "verify-full" (TLS, and a certificate for its name), "verify-ca" (for any name),
        /// "require" (TLS with whatever certificate) or "disable". A unix socket has no TLS.
        tls: PostgresTls = one_of("mode", MODES).or("verify-full"),
        /// Certificates trusted in place of the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("postgres-ca.pem"),
        /// Longest wait for a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // Below what a feeder waits for a sink.
        /// Longest wait for a batch of rows to be committed.
        write("write_seconds"): Duration = seconds(60, 1..=110),
        /// Longest wait for a page of rows.
        read("read_seconds"): Duration = seconds(30, 1..=600),
    } checked by authority_counts
}

fn authority_counts(read: LogPostgresConfig, from: &Section<'_>) -> LogPostgresConfig {
    if read.ca_file.is_some() && matches!(read.tls, PostgresTls::Require | PostgresTls::Disable) {
        let message = "without effect, set tls = \"verify-full\" or \"verify-ca\" beside it";
        from.wrong("ca_file", &["tls"], message);
    }
    read
}
