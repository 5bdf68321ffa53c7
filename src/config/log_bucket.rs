//! `[log.files.bucket]`: the S3-compatible bucket that the log's files are put into.

use std::{net::Ipv4Addr, path::PathBuf, time::Duration};

use http::Uri;
use serde::Deserialize;

use super::{raw_secret::RawSecret, values::Values};
use crate::domain::catalogue::SecretRef;

/// What S3 itself takes for a bucket's name, in bytes.
const NAME_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// A key may have 1024 bytes: the prefix and the name of a file.
const PREFIX_BYTES_MAX: usize = 512;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLogBucket {
    name: Option<String>,
    prefix: Option<String>,
    region: Option<String>,
    endpoint: Option<String>,
    path_style: Option<bool>,
    allow_http: Option<bool>,
    access_key_id: Option<RawSecret>,
    secret_access_key: Option<RawSecret>,
    ca_file: Option<String>,
    connect_ms: Option<u64>,
    answer_seconds: Option<u64>,
    write_seconds: Option<u64>,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogBucketConfig {
    /// The bucket's name.
    pub name: String,
    /// What the names of all objects begin with; empty, or it ends with `/`.
    pub prefix: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The server, `http://` or `https://`.
    pub endpoint: String,
    /// Whether the bucket's name is in the path of addresses, and not in their host.
    pub path_style: bool,
    /// Where the id of the access key is found.
    pub access_key_id: SecretRef,
    /// Where its secret is found.
    pub secret_access_key: SecretRef,
    /// Certificates trusted in place of the platform's, PEM.
    pub ca_file: Option<PathBuf>,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for an answer, all attempts together.
    pub answer: Duration,
    /// Longest wait for a file to be put there, and a second more for each MiB of it.
    pub write: Duration,
}

/// `None`: there is no bucket, or what is wrong has been said.
pub(super) fn resolve(values: &mut Values<'_>, raw: &RawLogBucket) -> Option<LogBucketConfig> {
    let name = raw.name.as_deref()?;
    check_name(values, name);
    let prefix = prefix(values, raw.prefix.as_deref().unwrap_or_default());
    let region = region(values, raw.region.as_deref().unwrap_or("us-east-1"));
    let endpoint = endpoint(values, raw, &region);
    let path_style = path_style(values, raw, name, endpoint.as_deref());
    for (given, key) in [
        (&raw.access_key_id, "access_key_id"),
        (&raw.secret_access_key, "secret_access_key"),
    ] {
        if given.is_none() {
            values.wrong_combination(
                &[&["log", "files", "bucket", "name"]],
                &["log", "files", "bucket", key],
                "missing, name the secret, such as \"env:AWS_ACCESS_KEY_ID\" and \"env:AWS_SECRET_ACCESS_KEY\"",
            );
        }
    }
    let access_key_id = values.secret(&["log", "files", "bucket", "access_key_id"], raw.access_key_id.as_ref());
    let secret_access_key = values.secret(
        &["log", "files", "bucket", "secret_access_key"],
        raw.secret_access_key.as_ref(),
    );
    let ca_file = values.optional_path(&["log", "files", "bucket", "ca_file"], raw.ca_file.as_deref());
    let connect = values.millis(
        &["log", "files", "bucket", "connect_ms"],
        raw.connect_ms,
        5_000,
        1..=60_000,
    );
    let answer = values.seconds(
        &["log", "files", "bucket", "answer_seconds"],
        raw.answer_seconds,
        30,
        1..=110,
    );
    // Below what a feeder waits for a sink, like the one before.
    let write = values.seconds(
        &["log", "files", "bucket", "write_seconds"],
        raw.write_seconds,
        60,
        1..=110,
    );
    Some(LogBucketConfig {
        name: name.to_owned(),
        prefix,
        region,
        endpoint: endpoint?,
        path_style,
        access_key_id: access_key_id?,
        secret_access_key: secret_access_key?,
        ca_file,
        connect,
        answer,
        write,
    })
}

fn check_name(values: &mut Values<'_>, name: &str) {
    let is_name = NAME_BYTES.contains(&name.len())
        && name.bytes().all(|byte| is_letter(byte) || matches!(byte, b'-' | b'.'))
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().last().is_some_and(is_letter)
        && !name.contains("..");
    if !is_name {
        values.wrong(
            &["log", "files", "bucket", "name"],
            "no bucket's name, give 3 to 63 lower-case letters, digits, - and .",
        );
    }
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn region(values: &mut Values<'_>, given: &str) -> String {
    if given.is_empty() || !given.bytes().all(|byte| is_letter(byte) || byte == b'-') {
        values.wrong(
            &["log", "files", "bucket", "region"],
            "no region, give one such as eu-central-1; what other servers than S3 want here their manual says",
        );
    }
    given.to_owned()
}

/// Whether the bucket's name is in the path. What is no S3 of Amazon mostly knows its buckets by the path alone, and all know
/// them by it.
fn path_style(values: &mut Values<'_>, raw: &RawLogBucket, name: &str, endpoint: Option<&str>) -> bool {
    let path_style = raw.path_style.unwrap_or(raw.endpoint.is_some());
    let uri = endpoint.and_then(|endpoint| endpoint.parse::<Uri>().ok());
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let is_number = host.parse::<Ipv4Addr>().is_ok() || host.starts_with('[');
    if !path_style && (is_number || name.contains('.')) {
        values.wrong_combination(
            &[&["log", "files", "bucket", "endpoint"]],
            &["log", "files", "bucket", "path_style"],
            "the bucket's name cannot be in front of this address or has a dot that certificates do not cover, give true",
        );
    }
    path_style
}

/// The prefix, with a `/` at its end.
fn prefix(values: &mut Values<'_>, given: &str) -> String {
    let given = given.strip_suffix('/').unwrap_or(given);
    if given.is_empty() {
        return String::new();
    }
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'=');
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain)
    };
    if given.len() > PREFIX_BYTES_MAX || !given.split('/').all(is_part) {
        values.wrong(
            &["log", "files", "bucket", "prefix"],
            format_args!("no prefix, give NAME/NAME of letters, digits, - _ . and =, {PREFIX_BYTES_MAX} bytes at most"),
        );
    }
    format!("{given}/")
}

/// The server's address: what is put there names accounts and what they use, and not everybody on the way may read it.
fn endpoint(values: &mut Values<'_>, raw: &RawLogBucket, region: &str) -> Option<String> {
    let Some(given) = raw.endpoint.as_deref() else {
        return Some(format!("https://s3.{region}.amazonaws.com"));
    };
    let at = &["log", "files", "bucket", "endpoint"];
    let parsed = given.parse::<Uri>().ok().filter(|uri| {
        let is_alone = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let is_open = uri
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@'));
        matches!(uri.scheme_str(), Some("http" | "https")) && is_alone && is_open
    });
    let Some(uri) = parsed else {
        values.wrong(at, "not a server's address, give https://HOST or https://HOST:PORT");
        return None;
    };
    let is_near = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    if uri.scheme_str() == Some("http") && !is_near && raw.allow_http != Some(true) {
        values.wrong(
            at,
            "whoever is on the way would read the log, give https://, or say allow_http = true",
        );
    }
    Some(given.trim_end_matches('/').to_owned())
}
