//! The sinks of the consumption log, and what feeds them.

use std::sync::Arc;

use tokio::{runtime::Runtime, sync::watch};

use crate::{
    config::{Config, log_home::LogHome},
    journal::Journal,
    sinks::{Feeder, Sink, SinkFigures},
    telemetry::metrics::{LogSinkFigures, Metrics},
    wiring::{StartError, log_events, log_postgres},
};

/// All that the configuration names, each with what it has done.
#[derive(Clone, Default)]
pub(crate) struct LogSinks(Vec<(Arc<dyn Sink>, Arc<SinkFigures>)>);

impl LogSinks {
    /// Opens what the configuration names.
    pub(super) fn open(
        config: &Config,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Self, StartError> {
        let mut sinks: Vec<Arc<dyn Sink>> = Vec::new();
        if let LogHome::Postgres(postgres) = &config.log.home {
            sinks.push(log_postgres::open(postgres, background, stopped)?);
        }
        if let Some(events) = &config.log.events {
            sinks.push(log_events::open(events, config)?);
        }
        Ok(Self(sinks.into_iter().map(|sink| (sink, Arc::default())).collect()))
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
                behind_bytes: lanes.iter().map(|lane| lane.sink_behind_bytes(name)).sum(),
                dropped: lanes.iter().map(|lane| lane.sink_dropped(name)).sum(),
            };
            metrics.log_sink_is(name, told);
        }
    }
}
