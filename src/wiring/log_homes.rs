//! Finds nodes that share a store and keep the consumption log in different places.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Runtime, sync::watch, time::sleep};

use crate::{
    config::{Config, log::LogBackendConfig},
    domain::ledger::{
        NodeId,
        log_query::{LogHomeMark, NodeLogHomes},
    },
    store::redis::RedisStore,
    wiring::{StartError, log_sinks, store::LedgerEngine},
};

/// How often a node records its log backend in the store: a third of the time for which the record is valid.
const RECORD_EVERY: Duration = Duration::from_secs(10);
/// The pause after a failed attempt to record the log backend.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the task that records this node's log backend in Redis and warns of nodes with another one. Does nothing with an
/// embedded store, which has one node.
pub(super) fn compare_log_homes(
    config: &Config,
    engine: &LedgerEngine,
    node: &NodeId,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) -> Result<(), StartError> {
    if let LedgerEngine::Redis(ledger) = engine {
        let (store, homes) = (Arc::clone(ledger.store()), configured_homes(config)?);
        background.spawn(record_and_compare(store, node.clone(), homes, stopped.clone()));
    }
    Ok(())
}

/// Returns the marks of the configured log backends.
///
/// # Errors
/// A secret of Postgres cannot be read.
pub(super) fn configured_homes(config: &Config) -> Result<NodeLogHomes, StartError> {
    Ok(NodeLogHomes {
        home: mark(&config.log.home)?,
        former: config.log.former_home.as_ref().map(mark).transpose()?,
    })
}

fn mark(home: &LogBackendConfig) -> Result<LogHomeMark, StartError> {
    Ok(match home {
        // All nodes of a Redis have the same.
        LogBackendConfig::Store => LogHomeMark::new("store", ""),
        LogBackendConfig::Files(files) => match &files.bucket {
            Some(bucket) => {
                let address = format!("{} {} {}", bucket.endpoint(), bucket.name, bucket.prefix);
                LogHomeMark::new("files (bucket)", &address)
            }
            None => LogHomeMark::new("files (folder)", &files.path.to_string_lossy()),
        },
        LogBackendConfig::Postgres(postgres) => {
            let settings = log_sinks::postgres_settings(postgres, &postgres.url)?;
            LogHomeMark::new("postgres", &settings.address())
        }
    })
}

/// Records this node's log backend, and warns once of each change in the set of nodes with another one, until `stopped` turns true.
async fn record_and_compare(
    store: Arc<RedisStore>,
    node: NodeId,
    homes: NodeLogHomes,
    mut stopped: watch::Receiver<bool>,
) {
    let mut last = None;
    loop {
        let pause = match store.record_log_home(&node, &homes.home).await {
            Ok(nodes) => {
                let warning = homes.warning("this node", &nodes);
                if let Some(text) = warning.as_ref().filter(|_| warning != last) {
                    tracing::warn!("{text}");
                }
                last = warning;
                RECORD_EVERY
            }
            Err(_) => RETRY,
        };
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = sleep(pause) => {}
        }
    }
}
