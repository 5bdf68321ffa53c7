//! The sinks of the consumption log, and what feeds them.

use std::sync::Arc;

use tokio::{runtime::Runtime, sync::watch};

use crate::{
    admin::LogHomes,
    config::{Config, StoreConfig, log_home},
    edges::clock,
    journal::Journal,
    sinks::{
        FedHome, FedLog, Feeder, FormerHome, OpenHome, Sink, SinkFigures, own_journal::OpenLanes, store_log::StoreLog,
    },
    store::ledger::{LedgerStore, LogLists},
    telemetry::metrics::Metrics,
    wiring::{log_events, log_files, log_postgres, start_error::StartError},
};

/// All that the configuration names, each with what it has done.
#[derive(Clone, Default)]
pub(crate) struct LogSinks {
    sinks: Vec<(Arc<dyn Sink>, Arc<SinkFigures>)>,
    /// The log's home; `None`: the store, which is no sink.
    home: Option<FedLog>,
    lanes: Arc<OpenLanes>,
}

/// A home that the configuration names.
enum AnyHome {
    Fed(Arc<dyn FedHome>),
    Store(Arc<StoreLog>),
}

/// What a Redis without another home for the log costs. A row was measured to take 510 to 625 bytes of its memory.
const STAYS_IN_REDIS: &str = "the log has no home but Redis, where a million rows take 0.5 to 0.6 GB of memory and stay for 180 \
    days: a hundred thousand requests a day come to 10 GB. Name a home in `[log] home`: \"postgres\", \"files\" in a folder or bucket \
    that all nodes share, or \"store\" to leave it so; docs/log.md says more";

/// Why a store cannot be the log's home, or the one before it.
const NO_LISTS: &str = "the embedded store keeps no rows of the log: name \"files\" or \"postgres\" in `[log] home`, and no \
    \"store\" in `[log] former_home`";

impl LogSinks {
    /// Opens what the configuration names; the second is where the log is. `lists` are the rows of a store that can be its home.
    pub(super) fn open(
        config: &Config,
        (ledger, lists): (Arc<dyn LedgerStore>, Option<Arc<dyn LogLists>>),
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(Self, LogHomes), StartError> {
        let open = |home: &log_home::LogHome| -> Result<AnyHome, StartError> {
            Ok(match home {
                log_home::LogHome::Store => {
                    let no_lists = || StartError::Configuration(NO_LISTS.to_owned());
                    let lists = lists.clone().ok_or_else(no_lists)?;
                    AnyHome::Store(Arc::new(StoreLog::new(lists, Arc::clone(&ledger))))
                }
                log_home::LogHome::Files(config) => {
                    AnyHome::Fed(Arc::new(log_files::open(config, background, stopped)?))
                }
                log_home::LogHome::Postgres(config) => AnyHome::Fed(log_postgres::open(config, background, stopped)?),
            })
        };
        let home = match open(&config.log.home)? {
            AnyHome::Fed(home) => OpenHome::Fed(FedLog::new(home)),
            AnyHome::Store(store) => OpenHome::Store(store),
        };
        let former = config.log.former_home.as_ref().map(open).transpose()?;
        let former = former.map(|former| match former {
            AnyHome::Fed(home) => FormerHome::Elsewhere(home),
            AnyHome::Store(store) => FormerHome::Store(store),
        });
        if let Some(warning) = warning(config) {
            tracing::warn!("{warning}");
        }
        let mut opened = Self::default();
        if let OpenHome::Fed(fed) = &home {
            let sink = Arc::clone(&fed.home) as Arc<dyn Sink>;
            opened.sinks.push((sink, Arc::clone(&fed.figures)));
            opened.home = Some(fed.clone());
        }
        if let Some(events) = &config.log.events {
            opened.sinks.push((log_events::open(events, config)?, Arc::default()));
        }
        let homes = LogHomes::new(home, former, Arc::clone(&opened.lanes));
        Ok((opened, homes))
    }

    /// What feeds each of them from a lane of the journal, until `stopped` turns true. To be spawned.
    pub(super) fn feeds(
        &self,
        journal: &Arc<Journal>,
        stopped: &watch::Receiver<bool>,
    ) -> impl Iterator<Item = impl Future<Output = ()> + Send + 'static> {
        self.lanes.add(journal);
        self.sinks.iter().map(|(sink, figures)| {
            let feeder = Feeder::new(Arc::clone(journal), Arc::clone(sink), Arc::clone(figures));
            if let Some(home) = self.home.as_ref().filter(|home| Arc::ptr_eq(&home.figures, figures)) {
                home.tails.add(feeder.tail());
            }
            feeder.run(stopped.clone())
        })
    }

    /// Has rows handed over to the log's home soon after they come: from now on another process is asked for them.
    pub(super) fn hurry(&self) {
        if let Some(home) = &self.home {
            home.tails.hurry();
        }
    }

    /// Copies their figures, which are those of these lanes together.
    pub(super) fn tell(&self, metrics: &Metrics, lanes: &[Arc<Journal>]) {
        for (sink, figures) in &self.sinks {
            let name = sink.name();
            let (log, labels) = (&metrics.log, [name.into()]);
            log.rows.of(labels).reach(figures.rows());
            log.failures.of(labels).reach(figures.failures());
            let behind = figures.behind_ms(clock::unix_millis()) / 1000;
            log.behind_seconds.of(labels).set(behind);
            let behind: u64 = lanes.iter().map(|lane| lane.sink_behind_bytes(name)).sum();
            log.behind_bytes.of(labels).set(behind);
            let dropped = lanes.iter().map(|lane| lane.sink_dropped(name)).sum();
            log.dropped.of(labels).reach(dropped);
        }
    }
}

/// What is to be said of where the log is at home.
pub(super) fn warning(config: &Config) -> Option<&'static str> {
    let is_redis = matches!(config.store, StoreConfig::Redis(_));
    let stays = is_redis && config.log.home == log_home::LogHome::Store && config.log.named_home.is_none();
    stays.then_some(STAYS_IN_REDIS)
}
