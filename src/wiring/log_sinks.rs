//! The sinks of the consumption log, and what feeds them.

use std::sync::Arc;

use tokio::{
    runtime::Runtime,
    sync::{Mutex, watch},
};

use crate::{
    admin::{Former, LogHomes, OpenHome},
    config::{Config, StoreConfig, log_home},
    domain::ledger::NodeId,
    edges::clock,
    journal::Journal,
    sinks::{
        FedHome, Feeder, Sink, SinkFigures, Tails,
        own_journal::OpenLanes,
        trimmer::{TrimFigures, Trimmer, Trimming},
    },
    store::ledger::LedgerStore,
    telemetry::metrics::Metrics,
    wiring::{log_events, log_files, log_postgres, start_error::StartError},
};

/// All that the configuration names, each with what it has done.
#[derive(Clone, Default)]
pub(crate) struct LogSinks {
    sinks: Vec<(Arc<dyn Sink>, Arc<SinkFigures>)>,
    home: Option<At>,
    lanes: Arc<OpenLanes>,
}

/// Where the log is at home.
#[derive(Clone)]
struct At {
    home: Arc<dyn FedHome>,
    fed: Arc<SinkFigures>,
    /// The rows on their way there.
    tails: Tails,
    filling: Arc<Mutex<()>>,
    trimmed: Arc<TrimFigures>,
}

/// What a Redis without another home for the log costs. A row was measured to take 510 to 625 bytes of its memory.
const STAYS_IN_REDIS: &str = "the log has no home but Redis, where a million rows take 0.5 to 0.6 GB of memory and stay for 180 \
    days: a hundred thousand requests a day come to 10 GB. Name a home in `[log] home`: \"postgres\", \"files\" in a folder or bucket \
    that all nodes share, or \"store\" to leave it so; docs/log.md says more";

impl LogSinks {
    /// Opens what the configuration names; the second is where the log is besides the store.
    pub(super) fn open(
        config: &Config,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(Self, LogHomes), StartError> {
        let open = |home: &log_home::LogHome| -> Result<Option<Arc<dyn FedHome>>, StartError> {
            Ok(match home {
                log_home::LogHome::Store => None,
                log_home::LogHome::Files(config) => Some(Arc::new(log_files::open(config, background, stopped)?)),
                log_home::LogHome::Postgres(config) => Some(log_postgres::open(config, background, stopped)?),
            })
        };
        let home = open(&config.log.home)?;
        let former = match &config.log.former_home {
            None => Former::Nowhere,
            Some(former) => open(former)?.map_or(Former::Store, |former| Former::Elsewhere(former)),
        };
        if let Some(warning) = warning(config) {
            tracing::warn!("{warning}");
        }
        let mut sinks: Vec<(Arc<dyn Sink>, Arc<SinkFigures>)> = Vec::new();
        let home = home.map(|home| At {
            home,
            fed: Arc::default(),
            tails: Tails::default(),
            filling: Arc::default(),
            trimmed: Arc::default(),
        });
        let log_home = home.as_ref().map(|at| {
            sinks.push((Arc::clone(&at.home) as _, Arc::clone(&at.fed)));
            let fed = (Arc::clone(&at.fed), at.tails.clone());
            OpenHome::new(Arc::clone(&at.home), fed, Arc::clone(&at.filling))
        });
        if let Some(events) = &config.log.events {
            sinks.push((log_events::open(events, config)?, Arc::default()));
        }
        let lanes = Arc::<OpenLanes>::default();
        let homes = LogHomes::new(log_home, former, Arc::clone(&lanes));
        Ok((Self { sinks, home, lanes }, homes))
    }

    /// What takes rows out of the store that the log's home has, until `stopped` turns true. To be spawned when all lanes of the
    /// journal that this process has are fed. `None`: the store is the home.
    pub(super) fn trims(
        &self,
        config: &Config,
        ledger: &Arc<dyn LedgerStore>,
        node: &NodeId,
        stopped: &watch::Receiver<bool>,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        let at = self.home.as_ref()?;
        let of = Trimming {
            home: Arc::clone(&at.home),
            fed: Arc::clone(&at.fed),
            filling: Arc::clone(&at.filling),
            ledger: Arc::clone(ledger),
            node: node.clone(),
            keep: config.log.store_keep,
            fills: matches!(config.store, StoreConfig::Embedded(_)),
        };
        Some(Trimmer::new(of, Arc::clone(&at.trimmed)).run(stopped.clone()))
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
            if let Some(at) = self.home.as_ref().filter(|at| Arc::ptr_eq(&at.fed, figures)) {
                at.tails.add(feeder.tail());
            }
            feeder.run(stopped.clone())
        })
    }

    /// Has rows handed over to the log's home soon after they come: from now on another process is asked for them.
    pub(super) fn hurry(&self) {
        if let Some(at) = &self.home {
            at.tails.hurry();
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
        if let Some(at) = &self.home {
            metrics.log.trimmed.reach(at.trimmed.rows());
            metrics.log.differing_days.set(at.trimmed.differing());
            metrics.log.trim_failures.reach(at.trimmed.failures());
        }
    }
}

/// What is to be said of where the log is at home.
pub(super) fn warning(config: &Config) -> Option<&'static str> {
    let is_redis = matches!(config.store, StoreConfig::Redis(_));
    let stays = is_redis && config.log.home == log_home::LogHome::Store && config.log.named_home.is_none();
    stays.then_some(STAYS_IN_REDIS)
}
