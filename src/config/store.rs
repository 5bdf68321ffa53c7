//! The settings of `[store]`: which engine keeps keys and accounts, and each engine's own settings.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use crate::config::{HostPort, host_port, path};
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{
        KeyDescription, Section, SettingKind, Settings, flag, list_of, millis, number, one_of, settings, table, text,
    },
};

/// The settings of the chosen engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreConfig {
    /// An embedded store in files of this node; for a single node only.
    Embedded(EmbeddedConfig),
    /// A Redis that several nodes can share.
    Redis(Box<RedisConfig>),
}

/// The engines, by the names that they have in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreEngine {
    Embedded,
    Redis,
}

settings! {
    /// The section `[store]` as in the file. Both engines' settings are checked, so that mistakes are found before the engine is
    /// changed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct StoreSection {
        /// "embedded": the store is in files of this node. "redis": nodes share a store in Redis.
        engine: StoreEngine = one_of("engine", [("embedded", StoreEngine::Embedded), ("redis", StoreEngine::Redis)]).or("embedded"),
        /// The embedded store, in files of this node.
        embedded: EmbeddedConfig = table(),
        /// The store in Redis 6 or later. weir warns of Redis settings that can lose data. weir treats a Redis as unreachable as
        /// soon as its maxmemory-policy is other than noeviction, or its user lacks a right that weir's scripts need
        /// (docs/redis.md lists these rights). Until this is corrected, keys in use continue within their grace, and all others
        /// are refused. In Redis, set list-compress-depth 1, which reduces the memory for the rows of the consumption log to a
        /// third. In a cluster, also set cluster-require-full-coverage no; otherwise the whole cluster stops when one master is
        /// down.
        redis: RedisConfig = table(),
    }
}

settings! {
    /// The section `[store.embedded]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct EmbeddedConfig {
        /// The folder of the store's files.
        path: PathBuf = path().or("/var/lib/weir/store").trying_out("./weir-data/store"),
    }
}

settings! {
    /// The section `[store.redis]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct RedisConfig {
        /// "standalone": one server. "sentinel": a master and its replicas, found through sentinels. "cluster": masters that
        /// share the hash slots.
        mode_name("mode"): RedisModeName = one_of(
            "mode",
            [("standalone", RedisModeName::Standalone), ("sentinel", RedisModeName::Sentinel), ("cluster", RedisModeName::Cluster)],
        )
        .or("standalone"),
        /// HOST:PORT of the server, of the sentinels (default for them: "127.0.0.1:26379"), or of some nodes of the cluster.
        nodes: Vec<HostPort> = list_of(host_port())
            .fits("empty, give at least one HOST:PORT", |nodes| !nodes.is_empty())
            .or(vec!["127.0.0.1:6379"]),
        /// The sentinels' name for the master. Only with mode "sentinel", like the next two settings.
        master_name: Option<String> =
            text().fits("empty, give the sentinels' name for the master", |name| !name.is_empty()).optional("main"),
        /// The ACL user for the sentinels, if they require one.
        sentinel_username: Option<String> = user().optional("weir"),
        /// The password of the ACL user for the sentinels.
        sentinel_password: Option<SecretRef> = secret().optional("env:SENTINEL_PASSWORD"),
        /// The ACL user for the Redis servers. If not set: the default user.
        username: Option<String> = user().optional("weir"),
        /// The password of the ACL user for the Redis servers. If not set: no password.
        password: Option<SecretRef> = secret().optional("env:REDIS_PASSWORD"),
        /// The number of the Redis database; always 0 in a cluster.
        database: u16 = number(0, 0..=u16::MAX),
        /// Whether connections to Redis and to the sentinels use TLS.
        tls: bool = flag(false),
        /// A PEM file of CA certificates that are trusted in addition to those of the platform.
        ca_file: Option<PathBuf> = path().optional("redis-ca.pem"),
        /// The prefix of all Redis keys: 1 to 64 characters of A-Z, a-z, 0-9, _, . and -.
        namespace: String = text()
            .fits("not a namespace, give 1 to 64 characters of A-Z, a-z, 0-9, _, . and -", |name| {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
                (1..=64).contains(&name.len()) && name.bytes().all(plain)
            })
            .or("weir"),
        /// Maximum time for which Redis may be silent during a call, including retries. After this time, the call fails, and the
        /// request is admitted under grace or gets 503.
        budget("budget_ms"): Duration = millis(100, 1..=10_000),
        /// Maximum time for which a call waits while Redis answers earlier calls.
        queue("queue_ms"): Duration = millis(5_000, 1..=60_000),
    } beside {
        /// The arrangement of the servers, with the settings that apply only to this arrangement.
        mode: RedisModeConfig,
    } checked by belongs_together
}

/// The arrangement of the Redis servers, by its name in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisModeName {
    /// A single server.
    Standalone,
    /// A master and its replicas, watched by sentinels.
    Sentinel,
    /// A cluster: masters that share the hash slots.
    Cluster,
}

/// The arrangement of the Redis servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RedisModeConfig {
    /// A single server.
    #[default]
    Standalone,
    /// A master and its replicas, watched by sentinels; `nodes` are the sentinels.
    Sentinel {
        /// The sentinels' name for the master; never empty.
        master_name: String,
        /// The ACL user for the sentinels; `None` for the default user.
        username: Option<String>,
        /// The password of the ACL user for the sentinels; `None` if it needs none.
        password: Option<SecretRef>,
    },
    /// A cluster: masters that share the hash slots; `nodes` are some of the cluster's nodes.
    Cluster,
}

fn user() -> SettingKind<String> {
    text().fits("empty, remove this line for the default user", |name| !name.is_empty())
}

fn belongs_together(mut read: RedisConfig, from: &Section<'_>) -> RedisConfig {
    read.mode = match read.mode_name {
        RedisModeName::Standalone => RedisModeConfig::Standalone,
        RedisModeName::Cluster => RedisModeConfig::Cluster,
        RedisModeName::Sentinel => {
            if read.master_name.is_none() {
                let message = "missing, give the sentinels' name for the master";
                from.report_fault("master_name", &["mode"], message);
            }
            if !from.contains_key("nodes") {
                read.nodes = HostPort::parse("127.0.0.1:26379").into_iter().collect();
            }
            RedisModeConfig::Sentinel {
                master_name: read.master_name.clone().unwrap_or_default(),
                username: read.sentinel_username.clone(),
                password: read.sentinel_password.clone(),
            }
        }
    };
    for key in ["master_name", "sentinel_username", "sentinel_password"] {
        if read.mode_name != RedisModeName::Sentinel && from.contains_key(key) {
            from.report_fault(key, &["mode"], "has no effect without mode = \"sentinel\"");
        }
    }
    if read.mode_name == RedisModeName::Standalone && read.nodes.len() > 1 {
        let message = "mode \"standalone\" allows only one server: set mode = \"sentinel\" or \"cluster\" for more";
        from.report_fault("nodes", &["mode"], message);
    }
    if read.mode_name == RedisModeName::Cluster && read.database != 0 {
        from.report_fault("database", &["mode"], "a cluster has only database 0: remove this line");
    }
    if read.ca_file.is_some() && !read.tls {
        from.report_fault("ca_file", &["tls"], "has no effect without tls = true");
    }
    read
}

impl Settings for StoreConfig {
    fn describe_keys() -> Vec<KeyDescription> {
        StoreSection::describe_keys()
    }

    fn read_keys(from: &Section<'_>) -> Option<Self> {
        let section = StoreSection::read_keys(from)?;
        Some(match section.engine {
            StoreEngine::Embedded => Self::Embedded(section.embedded),
            StoreEngine::Redis => Self::Redis(Box::new(section.redis)),
        })
    }

    fn differing(&self, before: &Self, at: &str, all: bool, keys: &mut BTreeSet<String>) {
        match (self, before) {
            (Self::Embedded(now), Self::Embedded(before)) => {
                now.differing(before, &format!("{at}.embedded"), all, keys)
            }
            (Self::Redis(now), Self::Redis(before)) => now.differing(before, &format!("{at}.redis"), all, keys),
            (Self::Embedded(_), Self::Redis(_)) | (Self::Redis(_), Self::Embedded(_)) => {
                keys.insert(format!("{at}.engine"));
            }
        }
    }
}
