//! `[log.files.bucket]`: the S3-compatible bucket that keeps the log's files.

use std::{net::Ipv4Addr, ops::RangeInclusive, path::PathBuf, time::Duration};

use http::Uri;

use super::kinds::{is_unencrypted, is_web_url, names_user, path};
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{Section, flag, millis, seconds, settings, text},
};

/// S3's own limits for the length of a bucket's name, in bytes.
const NAME_BYTES: RangeInclusive<usize> = 3..=63;
/// Maximum length of the prefix. An object key has at most 1024 bytes: the prefix and the name of a file.
const PREFIX_BYTES_MAX: usize = 512;

settings! {
    /// `[log.files.bucket]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogBucketConfig {
        /// The bucket's name.
        name: String = text()
            .fits("not a bucket's name, give 3 to 63 lower-case letters, digits, - and .", |name| is_name(name))
            .example("weir-log"),
        /// The prefix of all object keys. Without it: no prefix.
        prefix: String = text().then(|prefix| with_slash(&prefix)).unset(String::new()).example("production"),
        /// The region that requests are signed for.
        region: String = text()
            .fits(
                "not a region, give one such as eu-central-1; for servers other than S3, see their manual",
                |region| !region.is_empty() && region.bytes().all(|byte| is_letter(byte) || byte == b'-'),
            )
            .or("us-east-1"),
        /// The server, if it is not Amazon's; https:// unless it is this machine or allow_http is set.
        named_endpoint("endpoint"): Option<String> = text()
            .fits("not a server's address, give https://HOST or https://HOST:PORT", |endpoint| is_server(endpoint))
            .map(|endpoint| endpoint.trim_end_matches('/').to_owned())
            .optional("https://minio.example.com"),
        /// Whether to allow http://, where the log can be read on the network.
        allow_http: bool = flag(false),
        /// Whether the bucket's name is in the path of a URL rather than in its host. Without it: true if an endpoint is set.
        /// Servers other than Amazon's mostly support only the path, and all of them support it.
        named_path_style("path_style"): Option<bool> = flag(false).optional(true),
        /// The id of the access key. It is read at the start.
        access_key_id: SecretRef = secret().example("env:AWS_ACCESS_KEY_ID"),
        /// The secret of the access key. It is read at the start.
        secret_access_key: SecretRef = secret().example("env:AWS_SECRET_ACCESS_KEY"),
        /// Certificates trusted in place of the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("minio-ca.pem"),
        /// Timeout for a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // Less than a feeder waits for a sink, like the next one.
        /// Timeout for a response, all attempts together.
        answer("answer_seconds"): Duration = seconds(30, 1..=110),
        /// Timeout for the upload of a file, plus one second for each MiB of it.
        write("write_seconds"): Duration = seconds(60, 1..=110),
    } checked by can_be_reached
}

impl LogBucketConfig {
    /// The server's `http://` or `https://` URL.
    pub(crate) fn endpoint(&self) -> String {
        let amazon = || format!("https://s3.{}.amazonaws.com", self.region);
        self.named_endpoint.clone().unwrap_or_else(amazon)
    }

    /// Whether the bucket's name is in the path of a URL rather than in its host.
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

/// The prefix, with a `/` at its end unless it is empty.
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
            "not a prefix, give NAME/NAME of letters, digits, - _ . and =, at most {PREFIX_BYTES_MAX} bytes"
        )),
    }
}

fn is_server(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|url| {
        is_web_url(&url) && matches!(url.path(), "" | "/") && url.query().is_none() && !names_user(&url)
    })
}

/// Checks that the URL and the bucket's name fit, and that http:// is allowed: the log names accounts and their usage.
fn can_be_reached(read: LogBucketConfig, from: &Section<'_>) -> LogBucketConfig {
    let url = read.endpoint().parse::<Uri>().unwrap_or_default();
    if is_unencrypted(&url) && !read.allow_http {
        let message = "the log could be read on the network: give https://, or set allow_http = true";
        from.report_fault("endpoint", &["allow_http"], message);
    }
    let host = url.host().unwrap_or_default();
    let is_number = host.parse::<Ipv4Addr>().is_ok() || host.starts_with('[');
    if !read.path_style() && (is_number || read.name.contains('.')) {
        let message =
            "the bucket's name cannot be in this host, or has a dot that certificates do not cover: give true";
        from.report_fault("path_style", &["endpoint"], message);
    }
    read
}
