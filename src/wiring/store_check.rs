//! `weir check` for the store: checks the files and secrets in its settings, and on request its servers.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    config::{Config, RedisConfig, RedisModeConfig, StoreConfig, secret_source},
    domain::{catalogue::SecretRef, strict_toml::FileError},
    store::{KeyStore, StoreWarning, redis::RedisStore},
    wiring::{runtimes::client_runtime, start_error::StartError, store},
};

/// The timeout for connecting to the servers.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The interval at which the connection is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Errors in the files and secrets that the store's settings refer to.
pub(super) fn store_faults(config: &Config) -> Vec<FileError> {
    let StoreConfig::Redis(redis) = &config.store else {
        return Vec::new();
    };
    let mut secrets = vec![("password", redis.password.as_ref())];
    if let RedisModeConfig::Sentinel { password, .. } = &redis.mode {
        secrets.push(("sentinel_password", password.as_ref()));
    }
    let fault = |key: &str, why: &str| {
        let key = format!("store.redis.{key}");
        config.catalogue.places.fault(&key, format!("key `{key}`: {why}"))
    };
    let mut faults: Vec<FileError> = secrets
        .into_iter()
        .filter_map(|(key, reference)| Some(fault(key, &secret_fault(reference?)?)))
        .collect();
    if let Some(why) = redis.ca_file.as_deref().and_then(ca_file_fault) {
        faults.push(fault("ca_file", &why));
    }
    if faults.is_empty()
        && let Err(StartError::Configuration(why)) = open_redis(redis)
    {
        faults.push(fault("tls", &why));
    }
    faults
}

/// Why a secret cannot be read, and what to do; `None` if it can.
pub(super) fn secret_fault(reference: &SecretRef) -> Option<String> {
    match secret_source::read(reference) {
        Ok(Some(_)) => None,
        Ok(None) => Some(format!(
            "{reference} is missing, {}",
            match reference {
                SecretRef::Env(_) => "set the variable in the environment of weir",
                SecretRef::File(_) => "write the secret into that file",
                SecretRef::Credential(_) => "add it to the unit with LoadCredential=",
            }
        )),
        Err(why) => Some(why),
    }
}

fn ca_file_fault(path: &Path) -> Option<String> {
    match fs::read(path) {
        Err(error) => Some(format!("{}: {error}, name a readable PEM file", path.display())),
        Ok(bytes) if !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----") => {
            Some(format!("{}: contains no PEM certificate", path.display()))
        }
        Ok(_) => None,
    }
}

fn open_redis(redis: &RedisConfig) -> Result<RedisStore, StartError> {
    let settings = store::redis_settings(redis)?;
    RedisStore::open(&settings).map_err(|error| StartError::Configuration(error.to_string()))
}

/// Connects to the store and returns advice for the operator.
///
/// # Errors
/// The store is unreachable, or its servers are not used because of their settings.
pub(super) fn store_advice(config: &Config) -> Result<Vec<String>, StartError> {
    let StoreConfig::Redis(redis) = &config.store else {
        return Ok(Vec::new());
    };
    let store = Arc::new(open_redis(redis)?);
    client_runtime()?.block_on(async {
        let (_go_on, stop) = watch::channel(false);
        tokio::select! {
            () = store.run(stop) => Err(StartError::failed("the store", "it was closed")),
            said = read_advice(&store) => said,
        }
    })
}

async fn read_advice(store: &RedisStore) -> Result<Vec<String>, StartError> {
    let settled = async {
        while !store.is_connected() && !store.trouble().refused {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let in_time = tokio::time::timeout(CONNECT_WAIT, settled).await.is_ok();
    let trouble = store.trouble();
    if trouble.refused || !in_time {
        return Err(StartError::failed("the store", trouble.details.join("; ")));
    }
    let mut said = trouble.details;
    // The details already have the missing rights and the evictions in full.
    let warnings = store.warnings().into_iter();
    let general = warnings.filter(|warning| !matches!(warning, StoreWarning::MissingRights | StoreWarning::Evicted));
    said.extend(general.map(|warning| warning.advice().to_owned()));
    if let Err(error) = store.known_generation().await {
        said.push(error.to_string());
    }
    said.extend(store.advice().await.into_iter().map(str::to_owned));
    Ok(said)
}
