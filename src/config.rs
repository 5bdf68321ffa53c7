//! The configuration: reads `weir.toml` strictly, checks all of it, and turns it into values that cannot be wrong.
//!
//! [`Config::load`] is the only entry. Its result has all defaults filled in, all limits checked and all paths absolute;
//! secrets are still references (see [`secret_source`]). Each key is declared once, with its kind, its default, its bounds and
//! its comment in `conf/weir.toml`, which is generated from these declarations ([`crate::domain::settings`]).

mod admin;
pub(crate) mod bodies;
pub(crate) mod connections;
mod console;
mod gateway;
mod host_port;
mod journal;
mod key_cache;
mod kinds;
mod listeners;
mod load;
mod log;
pub(crate) mod log_bucket;
pub(crate) mod log_events;
pub(crate) mod log_home;
pub(crate) mod log_postgres;
pub(crate) mod money;
pub(crate) mod notices;
mod openid;
pub(crate) mod secret_source;
#[cfg(test)]
mod shipped;
mod sign_in;
mod stability;
mod store;
pub(crate) mod tls;
mod upstream;

use std::{collections::BTreeSet, path::PathBuf};

use thiserror::Error;

pub(crate) use self::{
    admin::AdminTcpConfig,
    gateway::GatewayConfig,
    journal::{JournalConfig, JournalSink},
    log::AccessTarget,
    store::{RedisConfig, RedisModeConfig, StoreConfig},
};
use self::{
    admin::{AdminConfig, OpsConfig},
    connections::{ConnectionsConfig, HeadsConfig, OwnUsageConfig},
    console::ConsoleConfig,
    key_cache::KeyCacheConfig,
    kinds::path,
    log::LogConfig,
    money::{LeasesConfig, MoneyConfig},
    notices::NoticesConfig,
    sign_in::SignInConfig,
    stability::StabilityConfig,
    upstream::{RetryConfig, UpstreamConfig},
};
use crate::domain::{
    catalogue::CatalogueSettings,
    settings::{Section, Settings, flag, flat, settings, table},
    strict_toml::FileError,
};

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
        /// Whether to use the provider files inside the binary (lua-free-rules/*.toml).
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
    connections::heads_fit(&read.connections, &read.heads(), from);
    sign_in::has_portal(&read.sign_in, &read.console, from);
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
    listeners::check_distinct(listeners, from);
    read.journal.sinks = read.log.set_backends(&read.store, from);
    read
}

/// Why a configuration cannot be used. Never contains a value from the place of a secret.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration {path}: {reason}; name another with --conf FILE")]
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

#[cfg(test)]
mod tests;
