//! The configuration: reads `weir.toml` strictly, checks all of it, and turns it into values that cannot be invalid.
//!
//! [`Config::load`] reads a configuration file. Its result has all defaults filled in, all limits checked and all paths absolute;
//! secrets are still references (see [`secret_source`]). Each setting is declared once, with its type, its default, its bounds
//! and its comment. `conf/weir.toml` is generated from these declarations ([`crate::domain::settings`]).

mod console;
pub(crate) mod gateway;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod money;
pub(crate) mod secret_source;

mod store;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use http::Uri;
use ipnet::IpNet;
use thiserror::Error;

use crate::{
    config::{
        console::{ConsoleConfig, SignInConfig},
        gateway::{AdminConfig, OpsConfig, RetryConfig, SocketsConfig, UpstreamConfig},
        limits::{ConnectionsConfig, HeadsConfig, KeyCacheConfig, OwnUsageConfig},
        log::LogConfig,
        money::{LeasesConfig, MoneyConfig, NoticesConfig},
    },
    domain::{
        catalogue::CatalogueSettings,
        money::NanoUsd,
        settings::{Section, SettingKind, Settings, flag, flat, list_of, parse_settings, settings, table, text},
        strict_toml::FileError,
    },
};

pub(crate) use self::{
    gateway::{GatewayConfig, StabilityConfig},
    log::AccessTarget,
    store::{RedisConfig, RedisModeConfig, StoreConfig},
};
pub(crate) use crate::config::gateway::AdminTcpConfig;
pub(crate) use crate::config::limits::{JournalConfig, JournalSink};

/// The path of the configuration file if `--conf` is not given.
pub(crate) const DEFAULT_PATH: &str = "/etc/weir/weir.toml";

settings! {
    /// The complete, checked configuration.
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) struct Config {
        /// The listener for clients and its limits.
        gateway: GatewayConfig = table(),
        /// Limits of clients' connections, at the gateway and at the public stability service. A connection that exceeds a
        /// limit is closed and counted (weir_connections_closed_total).
        connections: ConnectionsConfig = table(),
        /// Responses over WebSocket. Each request on a socket is authenticated, billed and recorded like a POST.
        sockets: SocketsConfig = table(),
        /// The rate limit per IP address for reading the usage of keys at /web/v1/me.
        own_usage: OwnUsageConfig = table().restart(),
        /// Connections to providers, and their timeouts.
        upstream: UpstreamConfig = table(),
        /// Retries and failover. Each provider's file says which failures are retried, and how often ([retry]). If a provider
        /// answers with 429 or a retryable status, if it rejects weir's credential, or if weir cannot connect to it, weir can
        /// send the request to the next provider in the model's `providers`. If a backend, or a model at a provider, has failed
        /// three times in a row, requests avoid it for 5 seconds. After this time, one request at a time tests whether it works
        /// again. If a test fails, requests avoid it again, for twice as long as before, but at most 5 minutes.
        retry: RetryConfig = table(),
        /// The store of keys and accounts.
        store: StoreConfig = table().restart(),
        /// The local cache of keys in front of the store.
        key_cache: KeyCacheConfig = table().restart(),
        /// Grace while the store is unreachable, and the queue of requests that wait for money held by running requests.
        money: MoneyConfig = table(),
        /// With a Redis store, a key with many requests gets a lease: budget that Redis reserves for this node, and a share of
        /// the rate and concurrency limits of the key and its account. Within the lease, the node admits the key's requests
        /// without a call to Redis. Near a limit, the node calls Redis for each request (docs/money.md, Leases). With the
        /// embedded store, this section has no effect.
        leases: LeasesConfig = table().restart(),
        /// Notices before money runs out. weir creates a notice when a key has spent a certain percentage of its quota, or when a
        /// charge has brought an account down to its low balance. For each key and percentage, all nodes together create only one
        /// notice per period. Each notice is logged.
        notices: NoticesConfig = table().restart(),
        /// This node's journal of requests and charges.
        journal: JournalConfig = table().restart(),
        /// The listener for metrics and health checks.
        ops: OpsConfig = table().restart(),
        /// The public service that shows the models' stability.
        stability: StabilityConfig = table().restart(),
        /// The admin API.
        admin: AdminConfig = table(),
        /// The operators' console, and the portal of keys' owners.
        console: ConsoleConfig = table().restart(),
        /// The sign-in of agents. Users approve each sign-in in the portal.
        sign_in: SignInConfig = table().restart(),
        /// The access log, the messages of the process, and the log backend of the consumption log.
        log: LogConfig = table().restart(),
        /// The provider files that are read.
        rules: RulesConfig = table(),
        /// The price lists that are read.
        prices: PricesConfig = table(),
        /// The changes to providers (`[provider.NAME]`) and the additional models (`[[model]]`).
        catalogue: CatalogueSettings = flat(),
    } checked by settled
}

settings! {
    /// The section `[rules]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct RulesConfig {
        /// Whether to use the provider files that are built into the binary (lua-free-rules/*.toml). If you use none of them,
        /// `false` also stops the warning about providers without a secret.
        shipped: bool = flag(true),
        /// A folder with additional *.toml files. A file with the name of a built-in one replaces it.
        folder: Option<PathBuf> = path().optional("rules"),
    }
}

settings! {
    /// The section `[prices]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct PricesConfig {
        /// Whether to use the price list that is built into the binary. conf/prices.toml is its source, and explains the format.
        shipped: bool = flag(true),
        /// The file of an additional price list. Its entries replace those with the same name and provider. Reloaded when it
        /// changes.
        file: Option<PathBuf> = path().optional("prices.toml"),
    }
}

impl Config {
    /// Returns the memory limits for incomplete heads of requests.
    pub(crate) fn heads(&self) -> HeadsConfig {
        HeadsConfig::from_connections(&self.connections, self.gateway.header_bytes_max)
    }

    /// Returns all settings that differ from `started` and take effect only after a restart, by their names in the file.
    pub(crate) fn needs_restart(&self, started: &Self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        self.differing(started, "", false, &mut keys);
        keys
    }
}

/// Checks the sections against each other, and sets the values that depend on several of them.
fn settled(mut read: Config, from: &Section<'_>) -> Config {
    limits::heads_fit(&read.connections, &read.heads(), from);
    console::has_portal(&read.sign_in, &read.console, from);
    let listeners = [
        ("the gateway", "gateway.listen", Some(read.gateway.listen)),
        ("[ops]", "ops.listen", Some(read.ops.listen)),
        ("[stability]", "stability.listen", Some(read.stability.listen)),
        (
            "the redirect",
            "gateway.tls.redirect_listen",
            read.gateway.tls.redirect_listen,
        ),
        ("[admin]", "admin.listen", read.admin.listen),
        ("[console]", "console.listen", read.console.listen),
    ];
    check_distinct(listeners, from);
    read.journal.sinks = read.log.set_backends(&read.store, from);
    read
}

/// Why a configuration cannot be used. The message never contains the value of a setting for a secret.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration file {path}: {reason}; give another file with --conf FILE")]
    Unreadable {
        /// The path of the configuration file.
        path: String,
        /// Why the file cannot be read.
        reason: String,
    },
    /// The file has invalid values. Contains one error for each of them, in the order of the file.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<FileError>),
}

/// Maximum size of a configuration file, in bytes; a larger one is not read.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Config {
    /// Reads and checks a configuration file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// The file is unreadable, is not TOML, or has unknown settings or values outside their bounds. The error lists every such setting and value.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&file_name(path), &read_file(path)?, file_folder(path))
    }

    /// Reads a configuration file. Returns the configuration, and a list of all errors in the file. Invalid values are replaced
    /// by their defaults. The configuration is `None` if the file is not TOML.
    ///
    /// # Errors
    /// The file is unreadable.
    pub(crate) fn examine(path: &Path) -> Result<(Option<Self>, Vec<FileError>), ConfigError> {
        Ok(parse_file(&file_name(path), &read_file(path)?, file_folder(path)))
    }

    /// Checks a configuration given as text. `file` is the file name for error messages; relative paths are relative to `folder`.
    /// An empty text gives the defaults.
    fn parse(file: &str, text: &str, folder: &Path) -> Result<Self, ConfigError> {
        match parse_file(file, text, folder) {
            (Some(config), errors) if errors.is_empty() => Ok(config),
            (_, errors) => Err(ConfigError::Invalid(errors)),
        }
    }
}

/// Returns the configuration file's name for error messages, which is its absolute path. Messages also name the files in its
/// settings by absolute paths.
fn file_name(path: &Path) -> String {
    let whole = std::path::absolute(path);
    whole.as_deref().unwrap_or(path).display().to_string()
}

fn file_folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |reason: String| ConfigError::Unreadable {
        path: file_name(path),
        reason,
    };
    let bytes = std::fs::metadata(path)
        .map_err(|error| unreadable(error.to_string()))?
        .len();
    if bytes > FILE_BYTES_MAX {
        return Err(unreadable(format!(
            "the file has {bytes} bytes, but at most {FILE_BYTES_MAX} are allowed"
        )));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}

fn parse_file(file: &str, text: &str, folder: &Path) -> (Option<Config>, Vec<FileError>) {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let mut understood = parse_settings::<Config>(file, text, &folder);
    if let Some(config) = &mut understood.value {
        config.catalogue.places = understood.places;
    }
    (understood.value, understood.errors)
}

/// Reports each listener that has the same address as an earlier one. Each entry of `all` is a listener's name, its setting and
/// its address. Port 0 never conflicts.
fn check_distinct<const N: usize>(all: [(&str, &str, Option<SocketAddr>); N], from: &Section<'_>) {
    for (count, (_, key, address)) in all.iter().enumerate() {
        let fixed = address.filter(|address| address.port() != 0);
        let mut before = all.iter().take(count);
        let there = fixed.and_then(|_| before.find(|(_, _, taken)| taken == address));
        if let (Some(address), Some((who, theirs, _))) = (fixed, there) {
            let message = format_args!("{who} already listens at {address}: give this listener another port");
            from.report_fault(key, &[theirs], message);
        }
    }
}

/// A setting with an address to listen on, `IP:PORT`.
fn address() -> SettingKind<SocketAddr> {
    const HINT: &str = "not an address to listen on, give IP:PORT, such as 127.0.0.1:8080 or [::]:8080";
    text().then(|text| text.parse().map_err(|_| HINT.to_owned()))
}

/// A setting with a path. A relative path is resolved against the folder of the configuration file.
fn path() -> SettingKind<PathBuf> {
    SettingKind::of(|given| given.path())
}

/// A setting with a list of networks, each `ADDRESS/BITS` or a single address. Empty by default.
fn networks() -> SettingKind<Vec<IpNet>> {
    const HINT: &str = "not a network, give ADDRESS/BITS or an address, such as 10.0.0.0/8 or ::1";
    let network = text().then(|text| {
        let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse::<IpNet>().ok().or_else(alone);
        network.map(|network| network.trunc()).ok_or_else(|| HINT.to_owned())
    });
    list_of(network).or(Vec::<String>::new())
}

/// A setting with an amount of 0 USD or more.
fn usd() -> SettingKind<NanoUsd> {
    text().then(|text| match NanoUsd::parse_usd(&text) {
        Ok(amount) if amount >= NanoUsd::ZERO => Ok(amount),
        Ok(_) => Err("give an amount of zero or more".to_owned()),
        Err(error) => Err(error.to_string()),
    })
}

/// A setting with an `http` or `https` URL without a user. `refusal` is the error message for any other value.
fn web_address(refusal: &'static str) -> SettingKind<Uri> {
    text().then(move |text| {
        let url = text
            .parse::<Uri>()
            .ok()
            .filter(|url| is_web_url(url) && !names_user(url));
        url.ok_or_else(|| refusal.to_owned())
    })
}

/// Whether this is an `http` or `https` URL with a host.
fn is_web_url(url: &Uri) -> bool {
    matches!(url.scheme_str(), Some("http" | "https")) && url.authority().is_some()
}

/// Whether the URL contains a user name, with or without a password.
fn names_user(url: &Uri) -> bool {
    url.authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
}

/// Whether requests to this URL are sent to another machine without encryption.
fn is_unencrypted(url: &Uri) -> bool {
    url.scheme_str() == Some("http") && !matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// A setting with a server's `HOST:PORT`; an IPv6 address is in brackets.
fn host_port() -> SettingKind<HostPort> {
    const HINT: &str = "not a server's address, give HOST:PORT, such as 127.0.0.1:6379 or redis.example:6379";
    text().then(|text| HostPort::parse(&text).ok_or_else(|| HINT.to_owned()))
}

/// A host name or address with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    /// A DNS name or an IP address (IPv6 without brackets); never empty.
    pub host: String,
    /// The TCP port, never 0.
    pub port: u16,
}

impl HostPort {
    /// Parses `HOST:PORT`; an IPv6 address is in brackets. Returns `None` for any other text.
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|host| host.parse::<Ipv6Addr>().is_ok())?,
            None => Some(host).filter(|host| {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                !host.is_empty() && host.len() <= 253 && host.bytes().all(plain)
            })?,
        };
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
