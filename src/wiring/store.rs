//! Which key store the configuration asks for.

use std::sync::Arc;

use crate::{
    config::{Config, RedisConfig, StoreConfig, secret_source},
    key_cache::KeyCacheSettings,
    store::{
        KeyStore,
        archive::Archive,
        embedded::EmbeddedStore,
        redis::{RedisSettings, RedisStore},
        sessions::SessionStore,
    },
    wiring::StartError,
};

/// One engine, seen as what it keeps.
pub struct Opened {
    /// The keys.
    pub keys: Arc<dyn KeyStore>,
    /// Who served the sessions whose state lies at a provider.
    pub sessions: Arc<dyn SessionStore>,
    /// Everything, for backups; `None` where others can read the store besides this process.
    pub archive: Option<Arc<dyn Archive>>,
}

/// Opens it; keys and sessions are two views of one engine. A Redis that does not answer is no error: weir starts, says 503, and recovers when it is there.
pub fn open(config: &Config) -> Result<Opened, StartError> {
    match &config.store {
        StoreConfig::Embedded(embedded) => {
            let store =
                EmbeddedStore::open(&embedded.path).map_err(|error| StartError::failed("the embedded store", error))?;
            let store = Arc::new(store);
            Ok(Opened {
                keys: Arc::clone(&store) as Arc<dyn KeyStore>,
                sessions: Arc::clone(&store) as Arc<dyn SessionStore>,
                archive: Some(store),
            })
        }
        StoreConfig::Redis(redis) => {
            let store = RedisStore::open(&redis_settings(redis)?)
                .map_err(|error| StartError::failed("the Redis store", error))?;
            let store = Arc::new(store);
            Ok(Opened {
                keys: Arc::clone(&store) as Arc<dyn KeyStore>,
                sessions: store,
                archive: None,
            })
        }
    }
}

/// How to reach the Redis that the configuration names.
pub fn redis_settings(redis: &RedisConfig) -> Result<RedisSettings, StartError> {
    let password = match &redis.password {
        None => None,
        Some(reference) => Some(required(reference)?),
    };
    Ok(RedisSettings {
        nodes: redis.nodes.iter().map(ToString::to_string).collect(),
        username: redis.username.clone(),
        password,
        database: i64::from(redis.database),
        tls: redis.tls,
        ca_file: redis.ca_file.clone(),
        namespace: redis.namespace.clone(),
        budget: redis.budget,
    })
}

fn required(reference: &crate::domain::catalogue::SecretRef) -> Result<crate::domain::secret::Secret, StartError> {
    match secret_source::read(reference) {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) => Err(StartError::Configuration(format!(
            "[store.redis] password: {reference} is not there"
        ))),
        Err(reason) => Err(StartError::Configuration(format!("[store.redis] password: {reason}"))),
    }
}

/// The cache's settings.
pub fn cache_settings(config: &Config) -> KeyCacheSettings {
    let cache = &config.key_cache;
    KeyCacheSettings {
        lifetime: cache.lifetime,
        negative_lifetime: cache.negative,
        entries_max: cache.entries_max,
        poll: cache.poll,
        flush_used: cache.flush_used,
    }
}
