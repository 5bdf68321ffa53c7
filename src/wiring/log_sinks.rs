//! Opens the sinks of the consumption log (the log backend and the billing events), and feeds them from the journals. Also finds
//! nodes that share a store but have different log backends.

use std::{io::Write, path::Path, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{
    runtime::Runtime,
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    admin::AdminLogBackends,
    cli::log::LogInitArgs,
    config::{
        Config, StoreConfig,
        log::{LogBackendConfig, LogBucketConfig, LogEventsConfig, LogFilesConfig, LogPostgresConfig},
        secret_source,
    },
    domain::{
        catalogue::SecretRef,
        keys::secret::Secret,
        ledger::{
            NodeId,
            consumption::RETENTION_DAYS,
            log_query::{LogHomeMark, NodeLogHomes},
        },
    },
    edges::{clock, low_priority::LowPriorityThreads},
    journal::Journal,
    sinks::{
        FedLog, FedLogBackend, Feeder, FormerLogBackend, OpenLogBackend, Sink, SinkStats,
        events::{BillingEvents, EventsSettings},
        files::{BucketSettings, LogFiles},
        own_journal::OpenLanes,
        postgres::{Grants, PostgresLog, PostgresRetention, PostgresSettings, set_up},
        store_log::StoreLog,
    },
    store::{
        ledger::{LedgerStore, LogLists},
        redis::RedisStore,
    },
    telemetry::metrics::Metrics,
    wiring::{StartError, client_runtime, load, print_result, store::LedgerEngine},
};

/// The sinks of the consumption log that are configured, each with its statistics.
#[derive(Clone, Default)]
pub(crate) struct LogSinks {
    sinks: Vec<(Arc<dyn Sink>, Arc<SinkStats>)>,
    /// The log backend. `None` if the store is the log backend, because the store is not a sink.
    home: Option<FedLog>,
    lanes: Arc<OpenLanes>,
}

/// A log backend, either the current or the former one.
enum AnyLogBackend {
    Fed(Arc<dyn FedLogBackend>),
    Store(Arc<StoreLog>),
}

/// The warning about the memory that the log takes in Redis. In measurements, a row took 510 to 625 bytes.
const STAYS_IN_REDIS: &str = "the log is kept in Redis, where a million rows take 0.5 to 0.6 GB of memory and stay for 180 days, so \
    100,000 requests a day take 10 GB. Set `[log] home` to \"postgres\", to \"files\" in a folder or bucket that all nodes \
    share, or to \"store\" to keep the log in Redis; see docs/log.md";

/// The error if the embedded store is configured as the current or the previous log backend.
const NO_LISTS: &str = "the embedded store cannot store rows of the log: set `[log] home` to \"files\" or \"postgres\", and do not name \
    \"store\" in `[log] former_home`";

impl LogSinks {
    /// Opens the configured sinks and log backends. `lists` are the store's lists of rows; `None` if the store has none.
    pub(super) fn open(
        config: &Config,
        (ledger, lists): (Arc<dyn LedgerStore>, Option<Arc<dyn LogLists>>),
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(Self, AdminLogBackends), StartError> {
        let open = |home: &LogBackendConfig| -> Result<AnyLogBackend, StartError> {
            Ok(match home {
                LogBackendConfig::Store => {
                    let no_lists = || StartError::Configuration(NO_LISTS.to_owned());
                    let lists = lists.clone().ok_or_else(no_lists)?;
                    AnyLogBackend::Store(Arc::new(StoreLog::new(lists, Arc::clone(&ledger))))
                }
                LogBackendConfig::Files(config) => {
                    AnyLogBackend::Fed(Arc::new(open_files(config, background, stopped)?))
                }
                LogBackendConfig::Postgres(config) => AnyLogBackend::Fed(open_postgres(config, background, stopped)?),
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
            opened.sinks.push((open_events(events, config)?, Arc::default()));
        }
        let homes = AdminLogBackends::new(home, former, Arc::clone(&opened.lanes));
        Ok((opened, homes))
    }

    /// Returns one future for each sink. The future feeds its sink with the rows of a journal until `stopped` turns true. The
    /// caller must spawn the futures.
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

    /// From now on, passes rows to the log backend without delay. Called when another process serves, because readers of the log
    /// in that process do not see the rows that this process has not yet passed on.
    pub(super) fn hurry(&self) {
        if let Some(home) = &self.home {
            home.tails.hurry();
        }
    }

    /// Copies the statistics of the sinks to the metrics. A figure that each journal has is summed over all journals in `lanes`.
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

/// Returns a warning about the choice of the log backend. `None` if the choice needs no warning.
pub(super) fn warning(config: &Config) -> Option<&'static str> {
    let is_redis = matches!(config.store, StoreConfig::Redis(_));
    let stays = is_redis && config.log.home == LogBackendConfig::Store && config.log.named_home.is_none();
    stays.then_some(STAYS_IN_REDIS)
}

/// The name of the folder in which the sink for billing events stores its watermarks. It is in the journal's folder.
const EVENTS_FOLDER: &str = "events";

/// Creates the sink that posts billing events, without connecting.
pub(super) fn open_events(events: &LogEventsConfig, config: &Config) -> Result<Arc<BillingEvents>, StartError> {
    let authorization = events.authorization.as_ref();
    let settings = EventsSettings {
        url: events.url.clone(),
        secret: secret("[log.events] secret", &events.secret)?,
        authorization: authorization
            .map(|one| secret("[log.events] authorization", one))
            .transpose()?,
        source: events.source.clone(),
        ca: events
            .ca_file
            .as_deref()
            .map(|path| pem("[log.events] ca_file", path))
            .transpose()?,
        batch_rows: events.batch_rows,
        connect: events.connect,
        answer: events.answer,
        folder: config.journal.path.join(EVENTS_FOLDER),
    };
    let events = BillingEvents::new(settings).map_err(|error| StartError::Configuration(error.to_string()))?;
    Ok(Arc::new(events))
}

/// The interval at which files of past days are merged and old files are removed. Files of the current day are also merged as
/// soon as there are many.
const UPKEEP_EVERY: Duration = Duration::from_secs(600);

/// Opens the log files in a folder or a bucket, without connecting to the bucket.
pub(super) fn open_files(
    config: &LogFilesConfig,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) -> Result<LogFiles, StartError> {
    let mut files = LogFiles::open(&config.path, config.longest, config.rows_max).map_err(|error| {
        let what = format!("{}: {error}; configure another folder", config.path.display());
        StartError::failed("cannot use the folder of the log ([log.files] path)", what)
    })?;
    if let Some(bucket) = &config.bucket {
        let in_bucket = files.in_bucket(&bucket_settings(bucket)?, background.handle().clone());
        files = in_bucket.map_err(|error| StartError::Configuration(error.to_string()))?;
    }
    background.spawn(run_upkeep(files.clone(), stopped.clone()));
    Ok(files)
}

fn bucket_settings(bucket: &LogBucketConfig) -> Result<BucketSettings, StartError> {
    Ok(BucketSettings {
        name: bucket.name.clone(),
        prefix: bucket.prefix.clone(),
        region: bucket.region.clone(),
        endpoint: bucket.endpoint(),
        path_style: bucket.path_style(),
        access_key_id: secret("[log.files.bucket] access_key_id", &bucket.access_key_id)?,
        secret_access_key: secret("[log.files.bucket] secret_access_key", &bucket.secret_access_key)?,
        ca: bucket
            .ca_file
            .as_deref()
            .map(|path| pem("[log.files.bucket] ca_file", path))
            .transpose()?,
        connect: bucket.connect,
        answer: bucket.answer,
        write: bucket.write,
    })
}

/// Merges and removes log files until `stopped` turns true.
async fn run_upkeep(files: LogFiles, mut stopped: watch::Receiver<bool>) {
    let upkeep = LowPriorityThreads::new(1);
    loop {
        let kept = files.clone();
        let done = upkeep.run(move || kept.housekeep(clock::unix_millis(), i64::from(RETENTION_DAYS)));
        if let Ok(Err(error)) = done.await {
            tracing::warn!(%error, "cannot merge or remove log files; weir tries again within ten minutes");
        }
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            _ = timeout(UPKEEP_EVERY, files.wait_for_many_files()) => {}
        }
    }
}

/// Runs `weir log init`: sets up the database of the log.
pub(super) fn run_log_init(args: &LogInitArgs, out: &mut impl Write) -> Result<(), StartError> {
    let config = load(&args.conf)?;
    let LogBackendConfig::Postgres(postgres) = &config.log.home else {
        let value = json!({ "home": "other", "applied": [] });
        return print_init(
            args,
            out,
            "the log backend is not Postgres, so there is nothing to set up",
            &value,
        );
    };
    let owner = args.owner.as_ref().unwrap_or(&postgres.url);
    let settings = postgres_settings(postgres, owner)?;
    let grants = Grants {
        writers: args.grant_writer.clone(),
        readers: args.grant_reader.clone(),
    };
    let applied = client_runtime()?.block_on(set_up(&settings, &grants));
    let applied = applied.map_err(|error| StartError::failed("cannot set up the log's database", error))?;
    let text = if applied.is_empty() {
        "the database is already set up".to_owned()
    } else {
        let numbers: Vec<String> = applied.iter().map(ToString::to_string).collect();
        format!("the database is set up, migrations applied: {}", numbers.join(", "))
    };
    print_init(args, out, &text, &json!({ "home": "postgres", "applied": applied }))
}

fn print_init(
    args: &LogInitArgs,
    out: &mut impl Write,
    text: &str,
    value: &serde_json::Value,
) -> Result<(), StartError> {
    let written = if args.json {
        writeln!(out, "{value}")
    } else {
        writeln!(out, "{text}")
    };
    print_result(written)
}

/// Creates the log backend in Postgres. Does not connect, so weir can start while the database is unreachable.
pub(super) fn open_postgres(
    config: &LogPostgresConfig,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) -> Result<Arc<PostgresLog>, StartError> {
    let wrong = |error: &dyn std::fmt::Display| StartError::Configuration(error.to_string());
    let settings = postgres_settings(config, &config.url)?;
    let retention = PostgresRetention::new(settings.clone()).map_err(|error| wrong(&error))?;
    let log = PostgresLog::new(settings).map_err(|error| wrong(&error))?;
    background.spawn(retention.run(stopped.clone()));
    Ok(Arc::new(log))
}

/// Returns the settings of Postgres, with the connection string that the secret `url` contains.
pub(super) fn postgres_settings(config: &LogPostgresConfig, url: &SecretRef) -> Result<PostgresSettings, StartError> {
    Ok(PostgresSettings {
        url: secret("[log.postgres] url", url)?,
        tls: config.tls,
        ca: config
            .ca_file
            .as_deref()
            .map(|path| pem("[log.postgres] ca_file", path))
            .transpose()?,
        connect: config.connect,
        write: config.write,
        read: config.read,
        keep_days: RETENTION_DAYS,
    })
}

/// Reads a secret that must exist. `key` is the name of the setting in error messages.
pub(super) fn secret(key: &str, reference: &SecretRef) -> Result<Secret, StartError> {
    match secret_source::read(reference) {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) => Err(StartError::Configuration(format!(
            "{key}: {}",
            secret_source::missing(reference)
        ))),
        Err(reason) => Err(StartError::Configuration(format!("{key}: {reason}"))),
    }
}

/// Reads a PEM file with certificates. `key` is the name of the setting in error messages.
pub(super) fn pem(key: &str, path: &Path) -> Result<Vec<u8>, StartError> {
    std::fs::read(path)
        .map_err(|error| StartError::Configuration(format!("{key}: cannot read {}: {error}", path.display())))
}

/// The interval at which a node records its log backend in the store. It is a third of the time for which the record is valid.
const RECORD_EVERY: Duration = Duration::from_secs(10);
/// The pause after a failed attempt to record the log backend.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the task that records this node's log backend in Redis, and that warns of nodes with another log backend. Does nothing
/// with an embedded store, because only one node uses such a store.
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

/// Returns the marks that identify the configured log backends: the current one and, if configured, the former one.
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
        // All nodes that use the same Redis have this mark.
        LogBackendConfig::Store => LogHomeMark::new("store", ""),
        LogBackendConfig::Files(files) => match &files.bucket {
            Some(bucket) => {
                let address = format!("{} {} {}", bucket.endpoint(), bucket.name, bucket.prefix);
                LogHomeMark::new("files (bucket)", &address)
            }
            None => LogHomeMark::new("files (folder)", &files.path.to_string_lossy()),
        },
        LogBackendConfig::Postgres(postgres) => {
            let settings = postgres_settings(postgres, &postgres.url)?;
            LogHomeMark::new("postgres", &settings.address())
        }
    })
}

/// Records this node's log backend until `stopped` turns true. Logs a warning whenever the set of nodes with another log backend
/// changes.
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
