//! `[log.postgres]`: the database that the consumption log is at home in.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{raw_secret::RawSecret, values::Values};
use crate::domain::catalogue::SecretRef;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLogPostgres {
    url: Option<RawSecret>,
    tls: Option<String>,
    ca_file: Option<String>,
    connect_ms: Option<u64>,
    write_seconds: Option<u64>,
    read_seconds: Option<u64>,
}

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

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogPostgresConfig {
    /// Where the connection string is found.
    pub url: SecretRef,
    /// What is demanded of a connection over TCP.
    pub tls: PostgresTls,
    /// Certificates trusted in place of the platform's, PEM.
    pub ca_file: Option<PathBuf>,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for a batch of rows to be committed.
    pub write: Duration,
    /// Longest wait for a page of rows.
    pub read: Duration,
}

/// `None`: what is wrong has been said.
pub(super) fn resolve(values: &mut Values<'_>, raw: &RawLogPostgres) -> Option<LogPostgresConfig> {
    let tls = match raw.tls.as_deref() {
        None | Some("verify-full") => PostgresTls::VerifyFull,
        Some("verify-ca") => PostgresTls::VerifyCa,
        Some("require") => PostgresTls::Require,
        Some("disable") => PostgresTls::Disable,
        Some(_) => {
            values.wrong(
                &["log", "postgres", "tls"],
                "no such mode, give verify-full, verify-ca, require or disable",
            );
            PostgresTls::VerifyFull
        }
    };
    if raw.ca_file.is_some() && matches!(tls, PostgresTls::Require | PostgresTls::Disable) {
        values.wrong(
            &["log", "postgres", "ca_file"],
            "without effect, set tls = \"verify-full\" or \"verify-ca\" beside it",
        );
    }
    let ca_file = values.optional_path(&["log", "postgres", "ca_file"], raw.ca_file.as_deref());
    let connect = values.millis(&["log", "postgres", "connect_ms"], raw.connect_ms, 5_000, 1..=60_000);
    // Below what a feeder waits for a sink.
    let write = values.seconds(&["log", "postgres", "write_seconds"], raw.write_seconds, 60, 1..=110);
    let read = values.seconds(&["log", "postgres", "read_seconds"], raw.read_seconds, 30, 1..=600);
    if raw.url.is_none() {
        values.wrong_combination(
            &[&["log", "home"]],
            &["log", "postgres", "url"],
            "missing, name the secret with the connection string, such as \"env:WEIR_LOG_POSTGRES\"",
        );
    }
    let url = values.secret(&["log", "postgres", "url"], raw.url.as_ref())?;
    Some(LogPostgresConfig {
        url,
        tls,
        ca_file,
        connect,
        write,
        read,
    })
}
