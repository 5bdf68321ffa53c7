//! The configuration: reads `weir.toml` strictly, checks all of it, and turns it into values that cannot be wrong.
//!
//! [`Config::load`] is the only entry. Its result has all defaults filled in, all limits checked and all paths absolute;
//! secrets are still references (see [`secret_source`]). Each key is declared once, with its kind, its default, its bounds and
//! its comment in `conf/weir.toml`, which is generated from these declarations ([`crate::domain::settings`]).

mod admin;
mod console;
pub(crate) mod gateway;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod money;
pub(crate) mod secret_source;
#[cfg(test)]
mod shipped;
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
        admin::{AdminConfig, OpsConfig},
        console::{ConsoleConfig, SignInConfig},
        gateway::{RetryConfig, UpstreamConfig},
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
    admin::AdminTcpConfig,
    gateway::{GatewayConfig, StabilityConfig},
    log::AccessTarget,
    store::{RedisConfig, RedisModeConfig, StoreConfig},
};
pub(crate) use crate::config::limits::{JournalConfig, JournalSink};

/// The configuration file if no `--conf` is given.
pub(crate) const DEFAULT_PATH: &str = "/etc/weir/weir.toml";

settings! {
    /// The whole configuration, checked.
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) struct Config {
        /// The listener for clients and its limits.
        gateway: GatewayConfig = table(),
        /// Limits of clients' connections, at the gateway and at the public stability service. A connection that exceeds a
        /// limit is closed and counted (weir_connections_closed_total).
        connections: ConnectionsConfig = table(),
        /// How often one address may read the usage of keys at /web/v1/me.
        own_usage: OwnUsageConfig = table().restart(),
        /// How providers are reached.
        upstream: UpstreamConfig = table(),
        /// Retries and failover. Each provider's file says what is retried and how often ([retry]). After a status that is
        /// retried, 429, a refused credential or a failed connection, a request may go on to the next of its model's
        /// `providers`. A backend, or a model at a provider, that has failed three times in a row is skipped by later requests
        /// for 5 seconds, then for twice as long each time, up to 5 minutes; after that, one request at a time tries whether
        /// it works again.
        retry: RetryConfig = table(),
        /// The store of keys and accounts.
        store: StoreConfig = table().restart(),
        /// The local cache of keys in front of the store.
        key_cache: KeyCacheConfig = table().restart(),
        /// Grace while the store is unreachable, and the queue for what running requests hold.
        money: MoneyConfig = table(),
        /// With a Redis store, a key with many requests gets a lease: budget that Redis reserves for this node, from which the
        /// node admits the key's requests by itself, with a share of the rates and slots of key and account. Near a limit,
        /// Redis is asked for each request (docs/money.md, Leases). Without effect with the embedded store.
        leases: LeasesConfig = table().restart(),
        /// Notices before the money runs out: that a key has spent a part of its quota, once per period over all nodes, and
        /// that a charge has brought an account to its low balance. Each notice is logged.
        notices: NoticesConfig = table().restart(),
        /// This node's record of requests and charges.
        journal: JournalConfig = table().restart(),
        /// The listener for metrics and health.
        ops: OpsConfig = table().restart(),
        /// The public record of the models' stability.
        stability: StabilityConfig = table().restart(),
        /// The admin API.
        admin: AdminConfig = table(),
        /// The operators' console and the owners' portal.
        console: ConsoleConfig = table().restart(),
        /// Sign-in of agents, which people approve.
        sign_in: SignInConfig = table().restart(),
        /// The access log, messages, and where the consumption log is kept.
        log: LogConfig = table().restart(),
        /// The provider files to read.
        rules: RulesConfig = table(),
        /// The price lists to read.
        prices: PricesConfig = table(),
        /// `[provider.NAME]` and `[[model]]`.
        catalogue: CatalogueSettings = flat(),
    } checked by settled
}

settings! {
    /// `[rules]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct RulesConfig {
        /// Whether to use the provider files inside the binary (lua-free-rules/*.toml). If you use none of them, `false` also
        /// ends the warning about those without a secret.
        shipped: bool = flag(true),
        /// A folder with further *.toml files; a file with the name of a shipped one replaces it.
        folder: Option<PathBuf> = path().optional("rules"),
    }
}

settings! {
    /// `[prices]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct PricesConfig {
        /// Whether to use the price list inside the binary (conf/prices.toml, which explains the format).
        shipped: bool = flag(true),
        /// A further list; its entries replace those with the same name and provider. Reloaded when it changes.
        file: Option<PathBuf> = path().optional("prices.toml"),
    }
}

impl Config {
    /// The memory limits for incomplete heads of requests.
    pub(crate) fn heads(&self) -> HeadsConfig {
        HeadsConfig::from_connections(&self.connections, self.gateway.header_bytes_max)
    }

    /// The settings that differ from `started` and take effect only at a start, by their names in the file.
    pub(crate) fn needs_restart(&self, started: &Self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        self.differing(started, "", false, &mut keys);
        keys
    }
}

/// Checks the sections against each other, and derives what depends on several of them.
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

/// Why a configuration cannot be used. Never contains a value from the place of a secret.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration {path}: {reason}; name a readable file with --conf FILE")]
    Unreadable {
        /// The configuration file.
        path: String,
        /// The operating system's error.
        reason: String,
    },
    /// Values are wrong; one error each, in the order of the file.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<FileError>),
}

/// Maximum size of a configuration file; a larger one is not read.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Config {
    /// Reads and checks a configuration file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// The file is unreadable, not TOML, has unknown keys, or has values out of their limits; all of these are reported.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&file_name(path), &read_file(path)?, file_folder(path))
    }

    /// Reads a configuration file and returns everything that is wrong with it; wrong values have their defaults. `None` if it is
    /// not TOML.
    ///
    /// # Errors
    /// The file is unreadable.
    pub(crate) fn examine(path: &Path) -> Result<(Option<Self>, Vec<FileError>), ConfigError> {
        Ok(parse_file(&file_name(path), &read_file(path)?, file_folder(path)))
    }

    /// Checks a configuration given as text. `file` names it in errors; relative paths are relative to `folder`.
    /// An empty text gives the defaults.
    fn parse(file: &str, text: &str, folder: &Path) -> Result<Self, ConfigError> {
        match parse_file(file, text, folder) {
            (Some(config), errors) if errors.is_empty() => Ok(config),
            (_, errors) => Err(ConfigError::Invalid(errors)),
        }
    }
}

/// The file's name in errors: its absolute path, as for all files that it names.
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
        return Err(unreadable(format!("it has {bytes} bytes, more than {FILE_BYTES_MAX}")));
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

/// Reports each listener with the address of an earlier one. A listener is given by its name, its key and its address; port 0
/// never conflicts.
fn check_distinct<const N: usize>(all: [(&str, &str, Option<SocketAddr>); N], from: &Section<'_>) {
    for (count, (_, key, address)) in all.iter().enumerate() {
        let fixed = address.filter(|address| address.port() != 0);
        let mut before = all.iter().take(count);
        let there = fixed.and_then(|_| before.find(|(_, _, taken)| taken == address));
        if let (Some(address), Some((who, theirs, _))) = (fixed, there) {
            let message = format_args!("{who} already listens at {address}: give this one another port");
            from.report_fault(key, &[theirs], message);
        }
    }
}

/// `IP:PORT` to listen on.
fn address() -> SettingKind<SocketAddr> {
    const HINT: &str = "not an address to listen on, give IP:PORT, such as 127.0.0.1:8080 or [::]:8080";
    text().then(|text| text.parse().map_err(|_| HINT.to_owned()))
}

/// A path, made absolute by the file's folder.
fn path() -> SettingKind<PathBuf> {
    SettingKind::of(|given| given.path())
}

/// A list of networks, each `ADDRESS/BITS` or a single address; empty by default.
fn networks() -> SettingKind<Vec<IpNet>> {
    const HINT: &str = "not a network, give ADDRESS/BITS or an address, such as 10.0.0.0/8 or ::1";
    let network = text().then(|text| {
        let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse::<IpNet>().ok().or_else(alone);
        network.map(|network| network.trunc()).ok_or_else(|| HINT.to_owned())
    });
    list_of(network).or(Vec::<String>::new())
}

/// An amount in USD that is not negative.
fn usd() -> SettingKind<NanoUsd> {
    text().then(|text| match NanoUsd::parse_usd(&text) {
        Ok(amount) if amount >= NanoUsd::ZERO => Ok(amount),
        Ok(_) => Err("give an amount of zero or more".to_owned()),
        Err(error) => Err(error.to_string()),
    })
}

/// An `http` or `https` URL without a user.
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

/// Whether the URL contains a user, and maybe a password.
fn names_user(url: &Uri) -> bool {
    url.authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
}

/// Whether requests to this URL go to another machine without encryption.
fn is_unencrypted(url: &Uri) -> bool {
    url.scheme_str() == Some("http") && !matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// `HOST:PORT`, with an IPv6 address in brackets.
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
    /// Parses `HOST:PORT`, with an IPv6 address in brackets.
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
