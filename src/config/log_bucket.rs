//! `[log.files.bucket]`: the S3-compatible bucket that the log's files are put into.

use std::{net::Ipv4Addr, ops::RangeInclusive, path::PathBuf, time::Duration};

use http::Uri;

use super::kinds::{is_open, is_web, names_user, path};
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{Section, flag, millis, seconds, settings, text},
};

/// What S3 itself takes for a bucket's name, in bytes.
const NAME_BYTES: RangeInclusive<usize> = 3..=63;
/// A key may have 1024 bytes: the prefix and the name of a file.
const PREFIX_BYTES_MAX: usize = 512;

settings! {
    /// `[log.files.bucket]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogBucketConfig {
        /// The bucket's name.
        name: String = text()
            .fits("no bucket's name, give 3 to 63 lower-case letters, digits, - and .", |name| is_name(name))
            .example("weir-log"),
        /// What the names of all objects begin with. Without it: nothing.
        prefix: String = text().then(|prefix| with_slash(&prefix)).unset(String::new()).example("production"),
        /// The region that requests are signed for.
        region: String = text()
            .fits(
                "no region, give one such as eu-central-1; what other servers than S3 want here their manual says",
                |region| !region.is_empty() && region.bytes().all(|byte| is_letter(byte) || byte == b'-'),
            )
            .or("us-east-1"),
        /// The server, if it is not Amazon's; https:// unless it is this machine, or allow_http says so.
        named_endpoint("endpoint"): Option<String> = text()
            .fits("not a server's address, give https://HOST or https://HOST:PORT", |endpoint| is_server(endpoint))
            .map(|endpoint| endpoint.trim_end_matches('/').to_owned())
            .optional("https://minio.example.com"),
        /// Whether what is put there may be read on its way.
        allow_http: bool = flag(false),
        /// Whether the bucket's name is in the path of addresses, and not in front of their host. Without it: true where an endpoint is
        /// named. What is no S3 of Amazon mostly knows its buckets by the path alone, and all know them by it.
        named_path_style("path_style"): Option<bool> = flag(false).optional(true),
        /// Where the id of the access key is found. It is read at the start.
        access_key_id: SecretRef = secret().example("env:AWS_ACCESS_KEY_ID"),
        /// Where its secret is found. It is read at the start.
        secret_access_key: SecretRef = secret().example("env:AWS_SECRET_ACCESS_KEY"),
        /// Certificates trusted in place of the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("minio-ca.pem"),
        /// Longest wait for a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // Below what a feeder waits for a sink, as the next one.
        /// Longest wait for an answer, all attempts together.
        answer("answer_seconds"): Duration = seconds(30, 1..=110),
        /// Longest wait for a file to be put there, and a second more for each MiB of it.
        write("write_seconds"): Duration = seconds(60, 1..=110),
    } checked by can_be_reached
}

impl LogBucketConfig {
    /// The server, `http://` or `https://`.
    pub(crate) fn endpoint(&self) -> String {
        let amazon = || format!("https://s3.{}.amazonaws.com", self.region);
        self.named_endpoint.clone().unwrap_or_else(amazon)
    }

    /// Whether the bucket's name is in the path of addresses, and not in their host.
    pub(crate) fn path_style(&self) -> bool {
        self.named_path_style.unwrap_or(self.named_endpoint.is_some())
    }
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_name(name: &str) -> bool {
    NAME_BYTES.contains(&name.len())
        && name.bytes().all(|byte| is_letter(byte) || matches!(byte, b'-' | b'.'))
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().last().is_some_and(is_letter)
        && !name.contains("..")
}

/// The prefix, with a `/` at its end.
fn with_slash(given: &str) -> Result<String, String> {
    let given = given.strip_suffix('/').unwrap_or(given);
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'=');
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain)
    };
    match given {
        "" => Ok(String::new()),
        given if given.len() <= PREFIX_BYTES_MAX && given.split('/').all(is_part) => Ok(format!("{given}/")),
        _ => Err(format!(
            "no prefix, give NAME/NAME of letters, digits, - _ . and =, {PREFIX_BYTES_MAX} bytes at most"
        )),
    }
}

fn is_server(text: &str) -> bool {
    text.parse::<Uri>()
        .is_ok_and(|url| is_web(&url) && matches!(url.path(), "" | "/") && url.query().is_none() && !names_user(&url))
}

/// What is put there names accounts and what they use, and not everybody on the way may read it.
fn can_be_reached(read: LogBucketConfig, from: &Section<'_>) -> LogBucketConfig {
    let url = read.endpoint().parse::<Uri>().unwrap_or_default();
    if is_open(&url) && !read.allow_http {
        let message = "whoever is on the way would read the log, give https://, or say allow_http = true";
        from.wrong("endpoint", &["allow_http"], message);
    }
    let host = url.host().unwrap_or_default();
    let is_number = host.parse::<Ipv4Addr>().is_ok() || host.starts_with('[');
    if !read.path_style() && (is_number || read.name.contains('.')) {
        let message = "the bucket's name cannot be in front of this address or has a dot that certificates do not cover, give true";
        from.wrong("path_style", &["endpoint"], message);
    }
    read
}
