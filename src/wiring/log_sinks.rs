//! The sinks of the consumption log: opens the log backends and the billing events, and feeds them from the journals.

use std::sync::Arc;

use tokio::{runtime::Runtime, sync::watch};

use crate::{
    admin::AdminLogBackends,
    config::{Config, StoreConfig, log_home},
    edges::clock,
    journal::Journal,
    sinks::{
        FedLog, FedLogBackend, Feeder, FormerLogBackend, OpenLogBackend, Sink, SinkStats, own_journal::OpenLanes,
        store_log::StoreLog,
    },
    store::ledger::{LedgerStore, LogLists},
    telemetry::metrics::Metrics,
    wiring::{log_events, log_files, log_postgres, start_error::StartError},
};

/// The configured sinks, each with its figures.
#[derive(Clone, Default)]
pub(crate) struct LogSinks {
    sinks: Vec<(Arc<dyn Sink>, Arc<SinkStats>)>,
    /// The log backend; `None` if it is the store, which is not a sink.
    home: Option<FedLog>,
    lanes: Arc<OpenLanes>,
}

/// A log backend of the configuration.
enum AnyLogBackend {
    Fed(Arc<dyn FedLogBackend>),
    Store(Arc<StoreLog>),
}

/// Warns of the cost of keeping the log in Redis. A row was measured to take 510 to 625 bytes of its memory.
const STAYS_IN_REDIS: &str = "the log is kept in Redis, where a million rows take 0.5 to 0.6 GB of memory and stay for 180 days: a \
    hundred thousand requests a day come to 10 GB. Set `[log] home` to \"postgres\", to \"files\" in a folder or bucket that all nodes \
    share, or to \"store\" to keep it there; see docs/log.md";

/// The error for an embedded store as log backend, or as the previous one.
const NO_LISTS: &str = "the embedded store keeps no rows of the log: set `[log] home` to \"files\" or \"postgres\", and do not name \
    \"store\" in `[log] former_home`";

impl LogSinks {
    /// Opens the configured sinks and the log backends. `lists` are the lists of rows of a store that can be a log backend.
    pub(super) fn open(
        config: &Config,
        (ledger, lists): (Arc<dyn LedgerStore>, Option<Arc<dyn LogLists>>),
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(Self, AdminLogBackends), StartError> {
        let open = |home: &log_home::LogBackendConfig| -> Result<AnyLogBackend, StartError> {
            Ok(match home {
                log_home::LogBackendConfig::Store => {
                    let no_lists = || StartError::Configuration(NO_LISTS.to_owned());
                    let lists = lists.clone().ok_or_else(no_lists)?;
                    AnyLogBackend::Store(Arc::new(StoreLog::new(lists, Arc::clone(&ledger))))
                }
                log_home::LogBackendConfig::Files(config) => {
                    AnyLogBackend::Fed(Arc::new(log_files::open_files(config, background, stopped)?))
                }
                log_home::LogBackendConfig::Postgres(config) => {
                    AnyLogBackend::Fed(log_postgres::open_postgres(config, background, stopped)?)
                }
            })
        };
        let home = match open(&config.log.home)? {
            AnyLogBackend::Fed(home) => OpenLogBackend::Fed(FedLog::new(home)),
            AnyLogBackend::Store(store) => OpenLogBackend::Store(store),
        };
        let former = config.log.former_home.as_ref().map(open).transpose()?;
        let former = former.map(|former| match former {
            AnyLogBackend::Fed(home) => FormerLogBackend::Elsewhere(home),
            AnyLogBackend::Store(store) => FormerLogBackend::Store(store),
        });
        if let Some(warning) = warning(config) {
            tracing::warn!("{warning}");
        }
        let mut opened = Self::default();
        if let OpenLogBackend::Fed(fed) = &home {
            let sink = Arc::clone(&fed.home) as Arc<dyn Sink>;
            opened.sinks.push((sink, Arc::clone(&fed.stats)));
            opened.home = Some(fed.clone());
        }
        if let Some(events) = &config.log.events {
            opened
                .sinks
                .push((log_events::open_events(events, config)?, Arc::default()));
        }
        let homes = AdminLogBackends::new(home, former, Arc::clone(&opened.lanes));
        Ok((opened, homes))
    }

    /// Futures that feed each sink from a journal until `stopped` turns true; the caller spawns them.
    pub(super) fn feeds(
        &self,
        journal: &Arc<Journal>,
        stopped: &watch::Receiver<bool>,
    ) -> impl Iterator<Item = impl Future<Output = ()> + Send + 'static> {
        self.lanes.add(journal);
        self.sinks.iter().map(|(sink, figures)| {
            let feeder = Feeder::new(Arc::clone(journal), Arc::clone(sink), Arc::clone(figures));
            if let Some(home) = self.home.as_ref().filter(|home| Arc::ptr_eq(&home.stats, figures)) {
                home.tails.add(feeder.tail());
            }
            feeder.run(stopped.clone())
        })
    }

    /// Has rows passed to the log backend soon after they come: from now on, readers ask another process.
    pub(super) fn hurry(&self) {
        if let Some(home) = &self.home {
            home.tails.hurry();
        }
    }

    /// Copies the sinks' figures to the metrics, summed over these journals.
    pub(super) fn copy_figures(&self, metrics: &Metrics, lanes: &[Arc<Journal>]) {
        for (sink, figures) in &self.sinks {
            let name = sink.name();
            let (log, labels) = (&metrics.log, [name.into()]);
            log.rows.with_labels(labels).raise_to(figures.rows());
            log.failures.with_labels(labels).raise_to(figures.failures());
            let behind = figures.behind_ms(clock::unix_millis()) / 1000;
            log.behind_seconds.with_labels(labels).set(behind);
            let behind: u64 = lanes.iter().map(|lane| lane.sink_lag_bytes(name)).sum();
            log.behind_bytes.with_labels(labels).set(behind);
            let dropped = lanes.iter().map(|lane| lane.sink_dropped_rows(name)).sum();
            log.dropped.with_labels(labels).raise_to(dropped);
        }
    }
}

/// A warning about the choice of the log backend.
pub(super) fn warning(config: &Config) -> Option<&'static str> {
    let is_redis = matches!(config.store, StoreConfig::Redis(_));
    let stays = is_redis && config.log.home == log_home::LogBackendConfig::Store && config.log.named_home.is_none();
    stays.then_some(STAYS_IN_REDIS)
}
