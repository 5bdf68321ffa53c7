//! Opens the store that the configuration asks for.

use std::sync::Arc;

use crate::{
    config::{Config, RedisConfig, RedisModeConfig, StoreConfig, log_home::LogHome, secret_source},
    domain::{catalogue::SecretRef, keys::secret::Secret},
    edges::{clock, limiter::Allowance},
    store::{
        KeyStore,
        archive::Archive,
        embedded::handover::{Carried, EmbeddedFiles},
        key_cache::{KeyCacheSettings, UnknownSettings},
        ledger::{LedgerStore, LogLists},
        redis::{RedisLedger, RedisMode, RedisSettings, RedisStore},
        sessions::SessionStore,
        sign_ins::SignInStore,
        stability::StabilityStore,
        web_sessions::WebSessionStore,
    },
    wiring::StartError,
};

/// The section that has Redis.
const REDIS: &str = "[store.redis]";

/// One engine, seen as what it keeps.
pub(crate) struct Opened {
    pub keys: Arc<dyn KeyStore>,
    /// Who served the sessions whose state lies at a provider.
    pub sessions: Arc<dyn SessionStore>,
    /// What is kept of agents that sign in.
    pub sign_ins: Arc<dyn SignInStore>,
    /// Accounts, quotas, holds and the log.
    pub ledger: Ledger,
    /// The hourly buckets.
    pub stability: Arc<dyn StabilityStore>,
    /// People's sessions in browsers.
    pub web_sessions: Arc<dyn WebSessionStore>,
    /// Everything, for backups; `None` where others can read the store besides this process.
    pub archive: Option<Arc<dyn Archive>>,
}

/// The ledger's engine.
pub(crate) enum Ledger {
    /// Beside the keys' file, written behind.
    Embedded(Arc<EmbeddedFiles>),
    /// In the keys' Redis.
    Redis(Arc<RedisLedger>),
}

impl Ledger {
    /// As what it does.
    pub(crate) fn store(&self) -> Arc<dyn LedgerStore> {
        match self {
            Self::Embedded(files) => Arc::clone(&files.ledger) as Arc<dyn LedgerStore>,
            Self::Redis(ledger) => Arc::clone(ledger) as Arc<dyn LedgerStore>,
        }
    }

    /// As the lists of rows that the log is read from where the store is its home, or was before; `None` for an engine that has none.
    pub(crate) fn lists(&self) -> Option<Arc<dyn LogLists>> {
        match self {
            Self::Embedded(_) => None,
            Self::Redis(ledger) => Some(Arc::clone(ledger) as Arc<dyn LogLists>),
        }
    }
}

/// Opens it, with what the process before had that no file keeps; keys and sessions are two views of one engine. A Redis that
/// does not answer is no error: weir starts, says 503, and recovers when it is there.
pub(crate) fn open(config: &Config, carried: Carried) -> Result<Opened, StartError> {
    match &config.store {
        StoreConfig::Embedded(embedded) => {
            let files = EmbeddedFiles::open(&embedded.path, Arc::new(clock::unix_millis), carried)
                .map_err(|error| StartError::failed("the embedded store", error))?;
            let files = Arc::new(files);
            Ok(Opened {
                keys: Arc::clone(&files.keys) as Arc<dyn KeyStore>,
                sessions: Arc::clone(&files.keys) as Arc<dyn SessionStore>,
                sign_ins: Arc::clone(&files.keys) as Arc<dyn SignInStore>,
                ledger: Ledger::Embedded(Arc::clone(&files)),
                stability: Arc::clone(&files.ledger) as Arc<dyn StabilityStore>,
                web_sessions: Arc::clone(&files.keys) as Arc<dyn WebSessionStore>,
                archive: Some(files),
            })
        }
        StoreConfig::Redis(redis) => {
            let store = RedisStore::open(&redis_settings(redis)?)
                .map_err(|error| StartError::failed("the Redis store", error))?;
            let store = Arc::new(store);
            let keeps_rows = config.log.home == LogHome::Store;
            Ok(Opened {
                keys: Arc::clone(&store) as Arc<dyn KeyStore>,
                sessions: Arc::clone(&store) as Arc<dyn SessionStore>,
                sign_ins: Arc::clone(&store) as Arc<dyn SignInStore>,
                stability: Arc::clone(&store) as Arc<dyn StabilityStore>,
                web_sessions: Arc::clone(&store) as Arc<dyn WebSessionStore>,
                ledger: Ledger::Redis(Arc::new(RedisLedger::new(store, keeps_rows))),
                archive: None,
            })
        }
    }
}

/// How to reach the Redis that the configuration names.
pub(crate) fn redis_settings(redis: &RedisConfig) -> Result<RedisSettings, StartError> {
    let mode = match &redis.mode {
        RedisModeConfig::Standalone => RedisMode::Standalone,
        RedisModeConfig::Cluster => RedisMode::Cluster,
        RedisModeConfig::Sentinel {
            master_name,
            username,
            password,
        } => RedisMode::Sentinel {
            master_name: master_name.clone(),
            username: username.clone(),
            password: required(REDIS, "sentinel_password", password.as_ref())?,
        },
    };
    Ok(RedisSettings {
        mode,
        nodes: redis.nodes.iter().map(ToString::to_string).collect(),
        username: redis.username.clone(),
        password: required(REDIS, "password", redis.password.as_ref())?,
        database: i64::from(redis.database),
        tls: redis.tls,
        ca_file: redis.ca_file.clone(),
        namespace: redis.namespace.clone(),
        budget: redis.budget,
        queue: redis.queue,
    })
}

/// The secret that a key refers to, which has to be there; `None` without a reference.
pub(super) fn required(section: &str, key: &str, reference: Option<&SecretRef>) -> Result<Option<Secret>, StartError> {
    let Some(reference) = reference else { return Ok(None) };
    match secret_source::read(reference) {
        Ok(Some(secret)) => Ok(Some(secret)),
        Ok(None) => Err(StartError::Configuration(format!(
            "{section} {key}: {reference} is not there"
        ))),
        Err(reason) => Err(StartError::Configuration(format!("{section} {key}: {reason}"))),
    }
}

/// The cache's settings.
pub(crate) fn cache_settings(config: &Config) -> KeyCacheSettings {
    let cache = &config.key_cache;
    let unknown = &cache.unknown;
    KeyCacheSettings {
        lifetime: cache.lifetime,
        offline_lifetime: cache.offline,
        negative_lifetime: cache.negative,
        entries_max: cache.entries_max,
        unknown: UnknownSettings {
            entries_max: unknown.entries_max,
            per_address: Allowance {
                per_minute: unknown.per_minute,
                burst: unknown.burst,
                clients_max: unknown.addresses_max,
            },
            in_all: Allowance {
                per_minute: unknown.total_per_minute,
                burst: unknown.total_burst,
                clients_max: 1,
            },
        },
        poll: cache.poll,
        flush_used: cache.flush_used,
    }
}
