//! The sinks of the consumption log, and what feeds them.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Runtime, sync::watch, time::timeout};

use crate::{
    config::{Config, log_home},
    domain::ledger::consumption::RETENTION_DAYS,
    edges::clock,
    journal::Journal,
    side::admin::LogHome,
    sinks::{Feeder, Home, Sink, SinkFigures, files::LogFiles},
    telemetry::metrics::{LogSinkFigures, Metrics},
    wiring::{log_events, log_postgres, start_error::StartError},
};

/// All that the configuration names, each with what it has done.
#[derive(Clone, Default)]
pub(crate) struct LogSinks(Vec<(Arc<dyn Sink>, Arc<SinkFigures>)>);

/// How often days that are over are merged, and old ones removed.
const UPKEEP_EVERY: Duration = Duration::from_secs(600);

impl LogSinks {
    /// Opens what the configuration names; the second is the log's home, if it is one of them.
    pub(super) fn open(
        config: &Config,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(Self, Option<LogHome>), StartError> {
        let home: Option<Arc<dyn Home>> = match &config.log.home {
            log_home::LogHome::Store => None,
            log_home::LogHome::Files(config) => {
                let files = LogFiles::open(&config.path, config.longest, config.rows_max).map_err(|error| {
                    let what = format!("{}: {error}", config.path.display());
                    StartError::failed("the folder of the log (log.files.path)", what)
                })?;
                background.spawn(keep_house(files.clone(), stopped.clone()));
                Some(Arc::new(files))
            }
            log_home::LogHome::Postgres(config) => Some(log_postgres::open(config, background, stopped)?),
        };
        let mut sinks: Vec<(Arc<dyn Sink>, Arc<SinkFigures>)> = Vec::new();
        let home = home.map(|home| {
            let figures = Arc::new(SinkFigures::default());
            sinks.push((Arc::clone(&home) as _, Arc::clone(&figures)));
            LogHome::new(home, figures)
        });
        if let Some(events) = &config.log.events {
            sinks.push((log_events::open(events, config)?, Arc::default()));
        }
        Ok((Self(sinks), home))
    }

    /// What feeds each of them from a lane of the journal, until `stopped` turns true. To be spawned.
    pub(super) fn feeds(
        &self,
        journal: &Arc<Journal>,
        stopped: &watch::Receiver<bool>,
    ) -> impl Iterator<Item = impl Future<Output = ()> + Send + 'static> {
        self.0.iter().map(|(sink, figures)| {
            let feeder = Feeder::new(Arc::clone(journal), Arc::clone(sink), Arc::clone(figures));
            feeder.run(stopped.clone())
        })
    }

    /// Copies their figures, which are those of these lanes together.
    pub(super) fn tell(&self, metrics: &Metrics, lanes: &[Arc<Journal>]) {
        for (sink, figures) in &self.0 {
            let name = sink.name();
            let told = LogSinkFigures {
                rows: figures.rows(),
                failures: figures.failures(),
                behind_ms: figures.behind_ms(clock::unix_millis()),
                behind_bytes: lanes.iter().map(|lane| lane.sink_behind_bytes(name)).sum(),
                dropped: lanes.iter().map(|lane| lane.sink_dropped(name)).sum(),
            };
            metrics.log_sink_is(name, told);
        }
    }
}

/// Looks after the log's files until `stopped` turns true.
async fn keep_house(files: LogFiles, mut stopped: watch::Receiver<bool>) {
    loop {
        let files = files.clone();
        let done =
            tokio::task::spawn_blocking(move || files.keep_house(clock::unix_millis(), i64::from(RETENTION_DAYS)));
        if let Ok(Err(error)) = done.await {
            tracing::warn!(%error, "the log's files cannot be merged or removed, it is tried again");
        }
        if timeout(UPKEEP_EVERY, stopped.wait_for(|stopped| *stopped))
            .await
            .is_ok()
        {
            return;
        }
    }
}
