//! The settings of `[log]`: the access log, the messages of the process, and the backends and receivers of the consumption log.

use std::{net::Ipv4Addr, ops::RangeInclusive, path::PathBuf, time::Duration};

use http::Uri;
use tracing::level_filters::LevelFilter;

use crate::{
    config::{is_unencrypted, is_web_url, limits::JournalSink, names_user, path, store::StoreConfig, web_address},
    domain::{
        catalogue::{SecretRef, secret},
        settings::{
            Section, SettingKind, flag, millis, number, one_of, seconds, settings, table, table_with, text, within,
        },
    },
};

const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

settings! {
    /// The section `[log]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogConfig {
        /// The target of the access log: "stdout", "off", or a file. The access log has one JSON line per request. If the file is
        /// renamed, weir continues in a new file at the same path.
        access: AccessTarget = access_target().or("stdout"),
        /// The level of messages on stderr: error, warn, info, debug or trace. Messages that cannot be written in time are
        /// dropped and counted (weir_diagnostics_dropped_total); requests never wait for them.
        level: LevelFilter = one_of("level", LEVELS).or("info"),
        /// Maximum number of access log lines that wait to be written. Further ones are dropped and counted; requests never wait.
        access_queue_lines: usize = number(65_536, 1..=16_777_216),
        /// The log backend, which stores the consumption log: "files", "postgres" or (only with Redis) "store". "files" are
        /// Parquet files, which other programs can read too (docs/log.md). "postgres" is a table in Postgres (docs/postgres.md).
        /// "store" is Redis, where a million rows take about half a gigabyte of memory. If not set: "files" with an embedded
        /// store, and "store" with Redis. While the backend is unreachable, rows wait in the journal.
        named_home("home"): Option<LogBackendName> = one_of(
            "home",
            [("store", LogBackendName::Store), ("files", LogBackendName::Files), ("postgres", LogBackendName::Postgres)],
        )
        .optional("files"),
        /// The previous log backend: "files", "postgres" or (only with Redis) "store". "files" and "postgres" have their settings
        /// in sections below. weir still reads the rows of the previous backend. `weir log move --to` copies them to the new
        /// backend while weir serves requests. After `weir log verify` has found all of them there, remove this line.
        named_former_home("former_home"): Option<LogBackendName> = one_of(
            "home",
            [("store", LogBackendName::Store), ("files", LogBackendName::Files), ("postgres", LogBackendName::Postgres)],
        )
        .optional("postgres"),
        /// The log backend "files".
        files: LogFilesConfig = table(),
        /// The log backend "postgres".
        postgres: Option<LogPostgresConfig> = table_with("url"),
        /// A billing system that gets each row as a CloudEvent, at least once; see docs/events.md. Off if url is not set.
        events: Option<LogEventsConfig> = table_with("url"),
    } beside {
        /// The log backend.
        home: LogBackendConfig,
        /// The previous log backend, whose rows are still read; `None` if there was no other.
        former_home: Option<LogBackendConfig>,
    }
}

/// The target of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessTarget {
    /// A file, to which lines are appended.
    File(PathBuf),
    /// No target: access log lines are discarded.
    Off,
    /// Standard output.
    Stdout,
}

fn access_target() -> SettingKind<AccessTarget> {
    SettingKind::of(|given| match given.text()? {
        "stdout" => Ok(AccessTarget::Stdout),
        "off" => Ok(AccessTarget::Off),
        _ => given.path().map(AccessTarget::File),
    })
}

/// How long weir collects rows of the same hour before it writes them to a file: `SHARED_LONGEST` if other nodes read the files,
/// `OWN_LONGEST` otherwise.
const SHARED_LONGEST: Duration = Duration::from_secs(30);
const OWN_LONGEST: Duration = Duration::from_secs(3600);

impl LogConfig {
    /// Sets the log backends, and returns the sinks for which the journal keeps its files. With an embedded store, the default
    /// backend is a folder of files beside the store. With Redis, the default backend is the store, because folders on several
    /// nodes would each contain only a part of the rows.
    pub(super) fn set_backends(&mut self, store: &StoreConfig, from: &Section<'_>) -> Vec<JournalSink> {
        let (beside, longest, default, store) = match store {
            StoreConfig::Embedded(store) => {
                self.refuse_store(from);
                let beside = store.path.with_file_name("log");
                (
                    beside,
                    OWN_LONGEST,
                    LogBackendName::Files,
                    Some(JournalSink::EMBEDDED_STORE),
                )
            }
            StoreConfig::Redis(_) => (
                PathBuf::from("/var/lib/weir/log"),
                SHARED_LONGEST,
                LogBackendName::Store,
                None,
            ),
        };
        self.files.path = self.files.named_path.clone().unwrap_or(beside);
        self.files.longest = self.files.named_longest.unwrap_or(longest);
        let (home, former) = (self.named_home.unwrap_or(default), self.named_former_home);
        if former == Some(home) {
            let message = "is the same as log.home: name another log backend, or remove this line";
            from.report_fault("log.former_home", &["log.home"], message);
        }
        self.home = self.backend_named(home, "log.home", from);
        self.former_home = former.map(|former| self.backend_named(former, "log.former_home", from));
        let events = self.events.as_ref().map(|events| JournalSink {
            name: "events",
            required: events.required,
        });
        self.home.sink().into_iter().chain(events).chain(store).collect()
    }

    /// Reports an error for each setting that names the embedded store as a log backend, and clears this setting. An embedded
    /// store cannot store the log.
    fn refuse_store(&mut self, from: &Section<'_>) {
        let is_store = |name: &mut LogBackendName| *name == LogBackendName::Store;
        if self.named_home.take_if(is_store).is_some() {
            let message =
                "an embedded store cannot store rows: give \"files\", or \"postgres\" with [log.postgres] url";
            from.report_fault("log.home", &["store.engine"], message);
        }
        if self.named_former_home.take_if(is_store).is_some() {
            let message = "an embedded store has no rows to read: give \"files\" or \"postgres\", or remove this line";
            from.report_fault("log.former_home", &["store.engine"], message);
        }
    }

    /// Returns the log backend `name`, with the settings of its section. `key` is the setting that names the backend.
    fn backend_named(&self, name: LogBackendName, key: &str, from: &Section<'_>) -> LogBackendConfig {
        match (name, &self.postgres) {
            (LogBackendName::Store, _) => LogBackendConfig::Store,
            (LogBackendName::Files, _) => LogBackendConfig::Files(Box::new(self.files.clone())),
            (LogBackendName::Postgres, Some(postgres)) => LogBackendConfig::Postgres(Box::new(postgres.clone())),
            (LogBackendName::Postgres, None) => {
                let message = "missing, give the secret with the connection string, such as \"env:WEIR_LOG_POSTGRES\"";
                from.report_fault("log.postgres.url", &[key], message);
                LogBackendConfig::Store
            }
        }
    }
}

settings! {
    /// The section `[log.files]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogFilesConfig {
        /// The folder of the files; several nodes can share one. With a bucket, it is the folder in which files are built before
        /// their upload, and each node has its own. If not set: with an embedded store, the folder `log` beside the store's
        /// folder; otherwise the path shown here.
        named_path("path"): Option<PathBuf> = path().optional("/var/lib/weir/log"),
        /// How long weir collects rows of the same hour before it writes them to a file. If not set: 30 with Redis, because other
        /// nodes read the files too, and 3600 with an embedded store.
        named_longest("seconds"): Option<Duration> = within(1..=3600).map(Duration::from_secs).optional(30),
        /// Maximum number of rows in a new file. When a day is over, weir merges its files into one.
        rows_max: usize = number(32_768, 1..=1_000_000),
        /// The S3-compatible bucket that stores the files instead of the folder (docs/log.md). If `name` is not set, the files
        /// are in the folder.
        bucket: Option<LogBucketConfig> = table_with("name"),
    } beside {
        /// The folder of the files; with a bucket, the folder in which files are built before their upload.
        path: PathBuf,
        /// How long weir collects rows of the same hour before it writes them to a file.
        longest: Duration,
    }
}

/// A log backend, by its name in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogBackendName {
    /// The store, if it is Redis.
    Store,
    /// Parquet files.
    Files,
    /// A table in Postgres.
    Postgres,
}

/// The log backend: where the rows of the consumption log are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogBackendConfig {
    /// In lists in Redis, which is also the store.
    #[default]
    Store,
    /// In Parquet files, in a folder or a bucket.
    Files(Box<LogFilesConfig>),
    /// In a table in Postgres.
    Postgres(Box<LogPostgresConfig>),
}

impl LogBackendConfig {
    /// Returns the sink for which the journal keeps rows; `None` for the store.
    pub(super) fn sink(&self) -> Option<JournalSink> {
        let name = match self {
            Self::Store => return None,
            Self::Files(_) => "files",
            Self::Postgres(_) => "postgres",
        };
        Some(JournalSink { name, required: true })
    }
}

/// The required security of a TCP connection to Postgres. A connection to a unix socket never uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostgresTls {
    /// TLS with a certificate for the server's name, from a trusted CA.
    VerifyFull,
    /// TLS with a certificate for any name, from a trusted CA.
    VerifyCa,
    /// TLS with any certificate. It protects against eavesdropping, but not against an impersonated server.
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
    /// The section `[log.postgres]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogPostgresConfig {
        /// The connection string: postgres://USER:PASSWORD@HOST:PORT/DATABASE, or host=... user=... dbname=... . If it has
        /// several hosts, separated by commas, weir uses the one that accepts writes.
        url: SecretRef = secret().example("env:WEIR_LOG_POSTGRES"),
        /// The required security of a connection over TCP: "verify-full" (TLS with a certificate for the server's name),
        /// "verify-ca" (TLS with a certificate for any name), "require" (TLS with any certificate) or "disable" (no TLS). A unix
        /// socket never uses TLS.
        tls: PostgresTls = one_of("mode", MODES).or("verify-full"),
        /// A PEM file of CA certificates that are trusted in place of those of the platform.
        ca_file: Option<PathBuf> = path().optional("postgres-ca.pem"),
        /// Timeout for opening a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // The maximum is less than the time that a feeder waits for a sink.
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

settings! {
    /// The section `[log.events]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogEventsConfig {
        /// The receiver's URL, to which events are sent with POST.
        url: Uri = web_address(
            "not an address, give https://HOST/PATH without a user; put credentials into authorization",
        )
        .example("https://meter.example.com/api/v1/events"),
        /// The secret with which requests are signed (header webhook-signature).
        secret: SecretRef = secret().example("env:WEIR_EVENTS_SECRET"),
        /// The value of the authorization header, such as "Bearer ...", if the receiver needs one.
        authorization: Option<SecretRef> = secret().optional("env:WEIR_EVENTS_AUTHORIZATION"),
        /// The attribute `source` of all events.
        source: String = text()
            .fits("not a URI reference, give a name or an address without spaces", |source| {
                !source.is_empty() && source.parse::<Uri>().is_ok()
            })
            .or("weir"),
        /// Whether the journal keeps rows that the receiver has not received yet, even if the disk is nearly full. If false, weir
        /// drops and counts these rows when less than 5 percent of the disk is free.
        required: bool = flag(false),
        /// A PEM file of CA certificates that are trusted in place of those of the platform.
        ca_file: Option<PathBuf> = path().optional("meter-ca.pem"),
        /// Maximum number of events in one request.
        batch_rows: usize = number(100, 1..=10_000),
        /// Timeout for opening a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // The maximum is less than the time that a feeder waits for a sink.
        /// Timeout for a response.
        answer("answer_seconds"): Duration = seconds(30, 1..=110),
    } checked by authorization_stays_secret
}

fn authorization_stays_secret(read: LogEventsConfig, from: &Section<'_>) -> LogEventsConfig {
    if read.authorization.is_some() && is_unencrypted(&read.url) {
        let message = "others on the network could read this value: give an https:// url";
        from.report_fault("authorization", &["url"], message);
    }
    read
}

/// S3's own minimum and maximum length of a bucket's name, in bytes.
const NAME_BYTES: RangeInclusive<usize> = 3..=63;
/// Maximum length of the prefix of object keys, in bytes. An object key (the prefix and a file's name) has at most 1024 bytes.
const PREFIX_BYTES_MAX: usize = 512;

settings! {
    /// The section `[log.files.bucket]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogBucketConfig {
        /// The bucket's name.
        name: String = text()
            .fits("not a bucket's name, give 3 to 63 lower-case letters, digits, - and .", |name| is_name(name))
            .example("weir-log"),
        /// The prefix of all object keys. If not set: no prefix.
        prefix: String = text().then(|prefix| with_slash(&prefix)).unset(String::new()).example("production"),
        /// The region for which requests are signed.
        region: String = text()
            .fits(
                "not a region, give one such as eu-central-1; for servers other than S3, see their manual",
                |region| !region.is_empty() && region.bytes().all(|byte| is_letter(byte) || byte == b'-'),
            )
            .or("us-east-1"),
        /// The server's URL, if it is not Amazon's. It must begin with https:// unless the server is this machine or allow_http
        /// is set.
        named_endpoint("endpoint"): Option<String> = text()
            .fits("not a server's address, give https://HOST or https://HOST:PORT", |endpoint| is_server(endpoint))
            .map(|endpoint| endpoint.trim_end_matches('/').to_owned())
            .optional("https://minio.example.com"),
        /// Whether to allow an http:// URL. With such a URL, others on the network can read the log.
        allow_http: bool = flag(false),
        /// Whether the bucket's name is in the path of a URL rather than in its host. If not set: true if an endpoint is set. All
        /// servers other than Amazon's accept the name in the path, and most of them accept it only there.
        named_path_style("path_style"): Option<bool> = flag(false).optional(true),
        /// The id of the access key. It is read once, when weir starts.
        access_key_id: SecretRef = secret().example("env:AWS_ACCESS_KEY_ID"),
        /// The secret of the access key. It is read once, when weir starts.
        secret_access_key: SecretRef = secret().example("env:AWS_SECRET_ACCESS_KEY"),
        /// A PEM file of CA certificates that are trusted in place of those of the platform.
        ca_file: Option<PathBuf> = path().optional("minio-ca.pem"),
        /// Timeout for opening a connection.
        connect("connect_ms"): Duration = millis(5_000, 1..=60_000),
        // This maximum and the next are less than the time that a feeder waits for a sink.
        /// Timeout for a response, including all attempts.
        answer("answer_seconds"): Duration = seconds(30, 1..=110),
        /// Timeout for the upload of a file; one second is added for each MiB of the file.
        write("write_seconds"): Duration = seconds(60, 1..=110),
    } checked by can_be_reached
}

impl LogBucketConfig {
    /// Returns the server's `http://` or `https://` URL.
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

/// Returns the prefix with a `/` at its end; an empty prefix stays empty.
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

/// Checks that the bucket's name can be used with the URL. Also checks that an unencrypted URL is allowed by `allow_http`,
/// because the log contains accounts and their usage.
fn can_be_reached(read: LogBucketConfig, from: &Section<'_>) -> LogBucketConfig {
    let url = read.endpoint().parse::<Uri>().unwrap_or_default();
    if is_unencrypted(&url) && !read.allow_http {
        let message = "others on the network could read the log: give https://, or set allow_http = true";
        from.report_fault("endpoint", &["allow_http"], message);
    }
    let host = url.host().unwrap_or_default();
    let is_number = host.parse::<Ipv4Addr>().is_ok() || host.starts_with('[');
    if !read.path_style() && (is_number || read.name.contains('.')) {
        let message =
            "the endpoint is an IP address, or the bucket's name has a dot that certificates do not cover: give true";
        from.report_fault("path_style", &["endpoint"], message);
    }
    read
}
