//! The configuration: `weir.toml` read strictly, checked whole, and turned into values that cannot be wrong.
//!
//! [`Config::load`] is the only way in. What it returns is settled: defaults filled, limits held, paths absolute,
//! secrets still references (see [`secret_source`]). `conf/weir.toml` describes every key.

pub(crate) mod bodies;
pub(crate) mod connections;
pub(crate) mod console;
mod host_port;
pub(crate) mod leases;
mod listeners;
mod load;
mod log;
pub(crate) mod log_bucket;
pub(crate) mod log_events;
pub(crate) mod log_home;
pub(crate) mod log_postgres;
pub(crate) mod money;
pub(crate) mod notices;
pub(crate) mod openid;
pub(crate) mod own_usage;
mod raw;
mod raw_secret;
mod resolve;
mod restart;
pub(crate) mod retry;
pub(crate) mod secret_source;
pub(crate) mod sign_in;
mod source;
pub(crate) mod stability;
pub(crate) mod tls;
pub(crate) mod unknown_keys;
mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use thiserror::Error;

pub(crate) use self::host_port::HostPort;
pub(crate) use self::log::{AccessTarget, LogConfig};
pub(crate) use self::log_home::JournalSink;
use crate::domain::catalogue::{CatalogueSettings, SecretRef};
use crate::domain::faults::pace::PaceLimit;
use crate::domain::keys::secret::KeyPrefix;
use crate::domain::strict_toml::FileError;

/// Where the configuration is looked for when no `--conf` is given.
pub(crate) const DEFAULT_PATH: &str = "/etc/weir/weir.toml";

/// Everything `weir serve` needs to know, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// `[gateway]`: the listener for clients.
    pub gateway: GatewayConfig,
    /// `[connections]`: limits of clients' connections.
    pub connections: connections::ConnectionsConfig,
    /// `[own_usage]`: how often an address may ask what its keys have used.
    pub own_usage: own_usage::OwnUsageConfig,
    /// `[upstream]`: connections to providers.
    pub upstream: UpstreamConfig,
    /// `[retry]`: whether an unanswered request goes to another provider.
    pub retry: retry::RetryConfig,
    /// `[store]`: where keys and accounts are kept.
    pub store: StoreConfig,
    /// `[key_cache]`: the local cache in front of the store.
    pub key_cache: KeyCacheConfig,
    /// `[money]`: grace without the store, and waiting for holds.
    pub money: money::MoneyConfig,
    /// `[leases]`: which keys the node admits by itself.
    pub leases: leases::LeasesConfig,
    /// `[notices]`: what is told before it is over, and where to.
    pub notices: notices::NoticesConfig,
    /// `[journal]`: this node's record of requests and charges.
    pub journal: JournalConfig,
    /// `[ops]`: the listener for metrics and health.
    pub ops: OpsConfig,
    /// `[stability]`: the public record of how the models behave.
    pub stability: stability::StabilityConfig,
    /// `[admin]`: the admin API.
    pub admin: AdminConfig,
    /// `[console]`: the operators' console and the owners' portal.
    pub console: console::ConsoleConfig,
    /// `[sign_in]`: agents sign in, and people approve it.
    pub sign_in: sign_in::SignInConfig,
    /// `[log]`: access log and messages.
    pub log: LogConfig,
    /// `[rules]`: which rule files are read.
    pub rules: RulesConfig,
    /// `[prices]`: which price lists are read.
    pub prices: PricesConfig,
    /// `[provider.NAME]` and `[[model]]`, for the catalogue.
    pub catalogue: CatalogueSettings,
    /// What all of it was read from.
    source: source::Source,
}

/// `[gateway]`: the listener for clients and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayConfig {
    /// Where clients connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Worker threads, at least 1 (0 in the file means one per core and is settled here).
    pub threads: usize,
    /// What every service key begins with.
    pub key_prefix: KeyPrefix,
    /// Deepest nesting of a request body.
    pub json_depth_max: usize,
    /// How much state at a provider a request may name.
    pub references_max: usize,
    /// The session that an agent names is a tag of its requests.
    pub session_tag: bool,
    /// What request bodies may take.
    pub bodies: bodies::BodiesConfig,
    /// Largest request header block, in bytes.
    pub header_bytes_max: usize,
    /// Most header fields in a request.
    pub header_count_max: usize,
    /// How long an idle client connection stays open.
    pub keepalive: Duration,
    /// Longest wait for a client to take bytes.
    pub write: Duration,
    /// The least bytes per second of a body, and of an answer that waits to be taken; 0 for no rate.
    pub bytes_per_second_min: u64,
    /// How long running requests may take to end after SIGTERM; may be zero.
    pub drain: Duration,
    /// How many requests that count tokens one key may have under way.
    pub count_tokens_concurrency: usize,
    /// Peers whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol_from: Vec<IpNet>,
    /// `[gateway.tls]`
    pub tls: tls::GatewayTlsConfig,
}

impl GatewayConfig {
    /// The least speed at which a client takes its answer.
    pub(crate) fn answer_pace(&self) -> PaceLimit {
        PaceLimit {
            wait_max: self.write,
            bytes_per_second_min: self.bytes_per_second_min,
        }
    }
}

/// `[upstream]`: how providers are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamConfig {
    /// Longest wait for a connection, TLS included.
    pub connect: Duration,
    /// Longest wait for the first byte of a streamed answer.
    pub first_byte: Duration,
    /// Longest wait for the first byte of a unary answer.
    pub first_byte_unary: Duration,
    /// Longest wait of a success's head for the beginning of its body.
    pub head_wait: Duration,
    /// Longest wait for the rest of an error answer.
    pub error_body: Duration,
    /// Longest silence within an answer.
    pub idle: Duration,
    /// Longest duration of one request at the provider.
    pub total: Duration,
    /// How long an unused provider connection is kept.
    pub pool_idle: Duration,
    /// Most unused provider connections kept.
    pub pool_size: usize,
    /// How often a failed connect is tried again; may be 0.
    pub connect_retries: usize,
    /// Whether HTTP/2 is spoken with a provider that chooses it in the TLS handshake.
    pub http2: bool,
    /// Certificates trusted beside the platform's, PEM.
    pub ca_file: Option<PathBuf>,
    /// How often provider names are resolved anew.
    pub resolve: Duration,
    /// Longest wait for a name to resolve.
    pub resolve_timeout: Duration,
    /// How many answers may run on after their clients have left; may be 0.
    pub client_gone_finish_max: usize,
    /// How long an answer may run on after its client has left.
    pub client_gone_finish: Duration,
}

/// `[store]`: the engine chosen, with its own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreConfig {
    /// Files of this node; for a single node only.
    Embedded(EmbeddedConfig),
    /// A Redis shared between nodes.
    Redis(Box<RedisConfig>),
}

/// `[store.embedded]`: the store in files of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EmbeddedConfig {
    /// The folder of the store's files.
    pub path: PathBuf,
}

/// `[store.redis]`: the store in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisConfig {
    /// How the servers in `nodes` belong together.
    pub mode: RedisModeConfig,
    /// Where Redis, or its sentinels, listen; never empty, one in standalone mode.
    pub nodes: Vec<HostPort>,
    /// The ACL user; none means the default user.
    pub username: Option<String>,
    /// Where the password is found.
    pub password: Option<SecretRef>,
    /// The Redis database number.
    pub database: u16,
    /// Whether connections are TLS.
    pub tls: bool,
    /// Certificates trusted for Redis beside the platform's, PEM.
    pub ca_file: Option<PathBuf>,
    /// What every Redis key of this service begins with.
    pub namespace: String,
    /// How long Redis may leave a store call without any answer.
    pub budget: Duration,
    /// Time for one store call in all, its turn behind others included.
    pub queue: Duration,
}

/// How the servers of a Redis belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedisModeConfig {
    /// A single server.
    Standalone,
    /// A master and its replicas, watched by the nodes.
    Sentinel {
        /// What the sentinels call the master; never empty.
        master_name: String,
        /// The ACL user at the sentinels; none means the default user.
        username: Option<String>,
        /// Where that user's password is found.
        password: Option<SecretRef>,
    },
    /// Masters that share the slots; the nodes are some of them.
    Cluster,
}

/// `[key_cache]`: the local cache in front of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyCacheConfig {
    /// Longest use of a cached key record without asking the store.
    pub lifetime: Duration,
    /// Longest use of a cached key record while the store is away.
    pub offline: Duration,
    /// How long an unknown key is remembered as unknown.
    pub negative: Duration,
    /// The most cached records.
    pub entries_max: usize,
    /// What keys that do not exist may cost.
    pub unknown: unknown_keys::UnknownKeysConfig,
    /// How often the store is asked whether anything changed.
    pub poll: Duration,
    /// How often last-used times are written to the store.
    pub flush_used: Duration,
}

/// `[journal]`: this node's record of requests and charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalConfig {
    /// The folder, of this process alone.
    pub path: PathBuf,
    /// The size of one segment file, in bytes.
    pub segment_bytes: u64,
    /// How long files are kept after the store has taken over what is in them.
    pub keep: Duration,
    /// Longest time from a record to its being on disk.
    pub sync: Duration,
    /// The sinks that read rows from it, for which files are kept longer.
    pub sinks: Vec<JournalSink>,
}

/// `[ops]`: the listener for metrics and health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpsConfig {
    /// Where `/metrics`, `/livez` and `/readyz` answer; port 0 takes a free one.
    pub listen: SocketAddr,
}

/// `[admin]`: the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminConfig {
    /// The unix socket of the admin API; short enough for the kernel.
    pub socket: PathBuf,
    /// The append-only record of every change.
    pub audit: PathBuf,
    /// The same API over TCP; `None`: off.
    pub tcp: Option<tls::AdminTcpConfig>,
}

impl AdminConfig {
    /// What is read only at the start: all but the certificates and authorities.
    fn at_start(&self) -> (&Path, &Path, Option<SocketAddr>) {
        (&self.socket, &self.audit, self.tcp.as_ref().map(|tcp| tcp.listen))
    }
}

/// `[rules]`: which rule files are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RulesConfig {
    /// Whether the rule files inside the binary are used.
    pub shipped: bool,
    /// A folder of further `*.toml`; one with a shipped file's name replaces it.
    pub folder: Option<PathBuf>,
}

/// `[prices]`: which price lists are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PricesConfig {
    /// Whether the price list inside the binary is used.
    pub shipped: bool,
    /// A further list; its entries replace those with the same name and provider.
    pub file: Option<PathBuf>,
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
    /// Values are wrong; one error each, in the order of the sections.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<FileError>),
}

#[cfg(test)]
mod tests;
