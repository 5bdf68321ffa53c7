//! The configuration: `weir.toml` read strictly, checked whole, and turned into values that cannot be wrong.
//!
//! [`Config::load`] is the only way in. What it returns is settled: defaults filled, limits held, paths absolute,
//! secrets still references (see [`secret_source`]). Each key is declared once, with its kind, default, bounds and the comment that
//! `conf/weir.toml` has on it, which is made of these declarations ([`crate::domain::settings`]).

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

/// Where the configuration is looked for when no `--conf` is given.
pub(crate) const DEFAULT_PATH: &str = "/etc/weir/weir.toml";

settings! {
    /// Everything `weir serve` needs to know, checked.
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) struct Config {
        /// The listener for clients and its limits.
        gateway: GatewayConfig = table(),
        /// What clients' connections may take, at the gateway and at the public stability service. A connection that exceeds a limit is
        /// closed and counted (weir_connections_closed_total).
        connections: ConnectionsConfig = table(),
        /// How often one address may ask at /web/v1/me what a key has used.
        own_usage: OwnUsageConfig = table().restart(),
        /// How providers are reached.
        upstream: UpstreamConfig = table(),
        /// What is tried again, and how often, stands in each provider's file ([retry]); a status that is tried again, 429, a refused
        /// credential and a connection that does not stand let a request go on to the next of its model's `providers`. What has failed
        /// three times in a row (an address; a model at a provider) is passed over by later requests at once, for 5 seconds, twice as
        /// long each time, at most 5 minutes; then one request at a time finds out whether it works again.
        retry: RetryConfig = table(),
        /// Where keys and accounts are kept.
        store: StoreConfig = table().restart(),
        /// The local cache of keys in front of the store.
        key_cache: KeyCacheConfig = table().restart(),
        /// Grace while the store is away, and waiting for what running requests hold.
        money: MoneyConfig = table(),
        /// With a Redis store a key that asks often gets a lease: budget that Redis holds for this node, out of which the node admits the
        /// key's requests by itself, with its part of the rates and places of key and account. Near a limit Redis is asked each time
        /// (docs/money.md, Leases). Of no effect with the embedded store.
        leases: LeasesConfig = table().restart(),
        /// Warnings before the money is gone: that a key has spent a part of its quota, once in a period, over all nodes; and that a charge
        /// has brought an account to its low balance. Each has a line in the log.
        notices: NoticesConfig = table().restart(),
        /// This node's record of requests and charges.
        journal: JournalConfig = table().restart(),
        /// The listener for metrics and health.
        ops: OpsConfig = table().restart(),
        /// The public record of how the models behave.
        stability: StabilityConfig = table().restart(),
        /// The admin API.
        admin: AdminConfig = table(),
        /// The operators' console and the owners' portal.
        console: ConsoleConfig = table().restart(),
        /// Agents sign in, and people approve it.
        sign_in: SignInConfig = table().restart(),
        /// Access log, messages, and where the consumption log goes.
        log: LogConfig = table().restart(),
        /// Which files of providers are read.
        rules: RulesConfig = table(),
        /// Which price lists are read.
        prices: PricesConfig = table(),
        /// `[provider.NAME]` and `[[model]]`.
        catalogue: CatalogueSettings = flat(),
    } checked by settled
}

settings! {
    /// `[rules]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct RulesConfig {
        /// Whether the provider files inside the binary (lua-free-rules/*.toml) are used.
        shipped: bool = flag(true),
        /// A folder of further *.toml; a file with the name of a shipped one replaces it.
        folder: Option<PathBuf> = path().optional("rules"),
    }
}

settings! {
    /// `[prices]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct PricesConfig {
        /// Whether the price list inside the binary (conf/prices.toml, which explains the format) is used.
        shipped: bool = flag(true),
        /// A further list; its entries take the place of those with the same name and provider. Loaded anew when it changes.
        file: Option<PathBuf> = path().optional("prices.toml"),
    }
}

impl Config {
    /// What heads of requests may hold that have not come to their end.
    pub(crate) fn heads(&self) -> HeadsConfig {
        HeadsConfig::of(&self.connections, self.gateway.header_bytes_max)
    }

    /// The settings that differ from `started` in what is read only at the start, by their names in the file.
    pub(crate) fn needs_restart(&self, started: &Self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        self.differing(started, "", false, &mut keys);
        keys
    }
}

/// What sections say together.
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
    listeners::alone(listeners, from);
    read.journal.sinks = read.log.settle(&read.store, from);
    read
}

/// Why a configuration cannot be used. Never contains a value that stood where a secret belongs.
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
