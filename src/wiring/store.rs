//! Opens the store that the configuration names.

use std::sync::Arc;

use crate::{
    config::{Config, RedisConfig, RedisModeConfig, StoreConfig, log::LogBackendConfig, secret_source},
    domain::{catalogue::SecretRef, keys::secret::Secret},
    edges::{clock, limiter::RateAllowance},
    store::{
        KeyStore,
        archive::Archive,
        embedded::handover::{EmbeddedFiles, HandoverState},
        key_cache::{KeyCacheSettings, UnknownKeySettings},
        ledger::{LedgerStore, LogLists, StabilityStore},
        redis::{RedisLedger, RedisMode, RedisSettings, RedisStore},
        sessions::{SessionStore, SignInStore, WebSessionStore},
    },
    wiring::StartError,
};

/// The section of the configuration about Redis.
const REDIS: &str = "[store.redis]";

/// An open store, with an interface for each kind of data.
pub(crate) struct OpenStore {
    pub keys: Arc<dyn KeyStore>,
    /// The records of provider state. The record of a state contains its provider and its credential.
    pub sessions: Arc<dyn SessionStore>,
    /// The sign-ins of agents.
    pub sign_ins: Arc<dyn SignInStore>,
    /// The ledger, with accounts, quotas and holds.
    pub ledger: LedgerEngine,
    /// The hourly counts of the public record.
    pub stability: Arc<dyn StabilityStore>,
    /// The sessions of users of the console and the portal.
    pub web_sessions: Arc<dyn WebSessionStore>,
    /// The complete store, for backups. `None` if other processes can read the store directly.
    pub archive: Option<Arc<dyn Archive>>,
}

/// The ledger, with its engine.
pub(crate) enum LedgerEngine {
    /// A ledger in a file next to the file with the keys. Changes are written to the file with a delay.
    Embedded(Arc<EmbeddedFiles>),
    /// A ledger in the Redis that also has the keys.
    Redis(Arc<RedisLedger>),
}

impl LedgerEngine {
    /// Returns the interface of the ledger, whatever its engine.
    pub(crate) fn store(&self) -> Arc<dyn LedgerStore> {
        match self {
            Self::Embedded(files) => Arc::clone(&files.ledger) as Arc<dyn LedgerStore>,
            Self::Redis(ledger) => Arc::clone(ledger) as Arc<dyn LedgerStore>,
        }
    }

    /// Returns the store's lists of rows. They contain rows if the store is or was the log backend. `None` if the engine cannot
    /// store rows.
    pub(crate) fn lists(&self) -> Option<Arc<dyn LogLists>> {
        match self {
            Self::Embedded(_) => None,
            Self::Redis(ledger) => Some(Arc::clone(ledger) as Arc<dyn LogLists>),
        }
    }
}

/// Opens the store. `carried` is the part of the predecessor's state that is in no file. An unreachable Redis is not an error:
/// weir starts, answers with status 503, and recovers when Redis is reachable.
pub(crate) fn open(config: &Config, carried: HandoverState) -> Result<OpenStore, StartError> {
    match &config.store {
        StoreConfig::Embedded(embedded) => {
            let files = EmbeddedFiles::open(&embedded.path, Arc::new(clock::unix_millis), carried)
                .map_err(|error| StartError::failed("cannot open the embedded store", error))?;
            let files = Arc::new(files);
            Ok(OpenStore {
                keys: Arc::clone(&files.keys) as Arc<dyn KeyStore>,
                sessions: Arc::clone(&files.keys) as Arc<dyn SessionStore>,
                sign_ins: Arc::clone(&files.keys) as Arc<dyn SignInStore>,
                ledger: LedgerEngine::Embedded(Arc::clone(&files)),
                stability: Arc::clone(&files.ledger) as Arc<dyn StabilityStore>,
                web_sessions: Arc::clone(&files.keys) as Arc<dyn WebSessionStore>,
                archive: Some(files),
            })
        }
        StoreConfig::Redis(redis) => {
            let store = RedisStore::open(&redis_settings(redis)?)
                .map_err(|error| StartError::failed("cannot open the Redis store", error))?;
            let store = Arc::new(store);
            let keeps_rows = config.log.home == LogBackendConfig::Store;
            Ok(OpenStore {
                keys: Arc::clone(&store) as Arc<dyn KeyStore>,
                sessions: Arc::clone(&store) as Arc<dyn SessionStore>,
                sign_ins: Arc::clone(&store) as Arc<dyn SignInStore>,
                stability: Arc::clone(&store) as Arc<dyn StabilityStore>,
                web_sessions: Arc::clone(&store) as Arc<dyn WebSessionStore>,
                ledger: LedgerEngine::Redis(Arc::new(RedisLedger::new(store, keeps_rows))),
                archive: None,
            })
        }
    }
}

/// Returns the settings of the configured Redis, with its secrets read.
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
            password: required_secret(REDIS, "sentinel_password", password.as_ref())?,
        },
    };
    Ok(RedisSettings {
        mode,
        nodes: redis.nodes.iter().map(ToString::to_string).collect(),
        username: redis.username.clone(),
        password: required_secret(REDIS, "password", redis.password.as_ref())?,
        database: i64::from(redis.database),
        tls: redis.tls,
        ca_file: redis.ca_file.clone(),
        namespace: redis.namespace.clone(),
        budget: redis.budget,
        queue: redis.queue,
    })
}

/// Reads the secret that a setting refers to. `None` if the setting has no value. If it has one, the secret must exist. `section`
/// and `key` name the setting in error messages.
pub(super) fn required_secret(
    section: &str,
    key: &str,
    reference: Option<&SecretRef>,
) -> Result<Option<Secret>, StartError> {
    let Some(reference) = reference else { return Ok(None) };
    match secret_source::read(reference) {
        Ok(Some(secret)) => Ok(Some(secret)),
        Ok(None) => Err(StartError::Configuration(format!(
            "{section} {key}: {}",
            secret_source::missing(reference)
        ))),
        Err(reason) => Err(StartError::Configuration(format!("{section} {key}: {reason}"))),
    }
}

/// Returns the settings of the key cache.
pub(crate) fn cache_settings(config: &Config) -> KeyCacheSettings {
    let cache = &config.key_cache;
    let unknown = &cache.unknown;
    KeyCacheSettings {
        lifetime: cache.lifetime,
        offline_lifetime: cache.offline,
        negative_lifetime: cache.negative,
        entries_max: cache.entries_max,
        unknown: UnknownKeySettings {
            entries_max: unknown.entries_max,
            per_address: RateAllowance {
                per_minute: unknown.per_minute,
                burst: unknown.burst,
                clients_max: unknown.addresses_max,
            },
            in_all: RateAllowance {
                per_minute: unknown.total_per_minute,
                burst: unknown.total_burst,
                clients_max: 1,
            },
        },
        poll: cache.poll,
        flush_used: cache.flush_used,
    }
}
