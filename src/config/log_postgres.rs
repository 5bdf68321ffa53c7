//! `[log.postgres]`: the database that keeps the consumption log.

use std::{path::PathBuf, time::Duration};

use super::kinds::path;
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{Section, millis, one_of, seconds, settings},
};

/// The required security of a connection over TCP. A connection to a unix socket never uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostgresTls {
    /// TLS with a certificate of a trusted authority for the server's name.
    VerifyFull,
    /// TLS with a certificate of a trusted authority for any name.
    VerifyCa,
    /// TLS with any certificate: protects against listeners, not against an impersonated server.
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
        /// The connection string: postgres://USER:PASSWORD@HOST:PORT/DATABASE, or host=... user=... dbname=... . Of several
        /// hosts, separated by commas, the one that accepts writes is used.
        url: SecretRef = secret().example("env:WEIR_LOG_POSTGRES"),
        /// The required security of a connection over TCP: "verify-full" (TLS with a certificate for the server's name),
        /// "verify-ca" (for any name), "require" (TLS with any certificate) or "disable". A unix socket does not use TLS.
        tls: PostgresTls = one_of("mode", MODES).or("verify-full"),
        /// Certificates trusted in place of the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("postgres-ca.pem"),
        /// Timeout for a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // Less than a feeder waits for a sink.
        /// Timeout for committing a batch of rows.
        write("write_seconds"): Duration = seconds(60, 1..=110),
        /// Timeout for reading a page of rows.
        read("read_seconds"): Duration = seconds(30, 1..=600),
    } checked by authority_counts
}

fn authority_counts(read: LogPostgresConfig, from: &Section<'_>) -> LogPostgresConfig {
    if read.ca_file.is_some() && matches!(read.tls, PostgresTls::Require | PostgresTls::Disable) {
        let message = "has no effect without tls = \"verify-full\" or \"verify-ca\"";
        from.report_fault("ca_file", &["tls"], message);
    }
    read
}
