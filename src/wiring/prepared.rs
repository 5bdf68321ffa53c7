//! Prepares everything that a start needs except the store. The store is opened last, because during an upgrade, requests wait
//! while no process has the store open.

use std::{path::Path, sync::Arc};

use tokio::{runtime::Runtime, sync::watch};

use crate::{
    config::{AccessTarget, Config},
    domain::catalogue::Catalogue,
    edges::{
        ProviderSwitches,
        resolver::{Resolver, ResolverSettings},
    },
    gateway::log_entry::RequestReporters,
    journal::handle::{ProcessJournals, StartRole},
    providers::{ConfigSnapshot, CurrentConfig, pools::Pools},
    telemetry::{
        access_log::{AccessLog, AccessLogTarget},
        metrics::Metrics,
    },
    wiring::{
        StartError, catalogue,
        process::ProcessOwner,
        reload::{self, ReloadTrigger, Reloader},
        tls,
    },
};

/// The parts that are built before the store is opened.
pub(crate) struct PreparedStart {
    pub(super) config: Arc<Config>,
    pub(super) tls: Arc<tls::TlsListeners>,
    pub(super) sinks: Arc<RequestReporters>,
    pub(super) switches: Arc<ProviderSwitches>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) live: Arc<CurrentConfig>,
    pub(super) reloader: Reloader,
    pub(super) reload: ReloadTrigger,
    pub(super) lanes: ProcessJournals,
    pub(super) stop: watch::Sender<bool>,
}

impl PreparedStart {
    /// Reads the files that the configuration names, opens the journal and resolves the host names of providers.
    pub(super) fn build(
        config: Config,
        conf: &Path,
        (process, place): (ProcessOwner, StartRole),
        background: &Runtime,
    ) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let contents = reload::contents(conf, &config);
        let catalogue = Arc::new(catalogue::build(&config)?);
        let tls = Arc::new(tls::build(&config)?);
        let sinks = Arc::new(sinks(&config, &catalogue)?);
        let switches = ProviderSwitches::open(&config.admin.audit.with_file_name("providers-off.json"))
            .map_err(|error| StartError::failed("cannot read the list of disabled providers", error))?;
        let lanes = ProcessJournals::open(&config.journal, place)
            .map_err(|error| StartError::failed("cannot open the journal", error))?;
        let (stop, stopped) = watch::channel(false);
        let resolver = Arc::new(Resolver::new(catalogue::hosts(&catalogue), resolver_settings(&config)));
        background.spawn(Arc::clone(&resolver).run(stopped.clone()));
        // The timeout of name lookups limits this wait. After it, the first requests find resolved addresses.
        background.block_on(resolver.first_pass());
        let pools = Arc::new(Pools::build(&catalogue, &resolver, None));
        background.block_on(pools.update());
        let pools_task = background.spawn(Arc::clone(&pools).run(stopped));
        let live = ConfigSnapshot::new(Arc::clone(&config), catalogue, pools);
        let live = Arc::new(CurrentConfig::new(live));
        let reload = ReloadTrigger::new(&sinks);
        let reloader = Reloader {
            conf: conf.to_owned(),
            started: Arc::clone(&config),
            live: Arc::clone(&live),
            resolver: Arc::clone(&resolver),
            tls: Arc::clone(&tls),
            metrics: Arc::clone(&sinks.metrics),
            pools_task,
            contents,
            trigger: reload.clone(),
            process,
        };
        Ok(Self {
            config,
            tls,
            sinks,
            switches: Arc::new(switches),
            resolver,
            live,
            reloader,
            reload,
            lanes,
            stop,
        })
    }
}

fn resolver_settings(config: &Config) -> ResolverSettings {
    ResolverSettings {
        refresh: config.upstream.resolve,
        timeout: config.upstream.resolve_timeout,
    }
}

fn sinks(config: &Config, catalogue: &Catalogue) -> Result<RequestReporters, StartError> {
    let models: Vec<&str> = catalogue.served_models().map(|model| model.name.as_str()).collect();
    let providers: Vec<&str> = catalogue.providers().map(|provider| provider.name.as_str()).collect();
    let metrics =
        Metrics::new(&models, &providers).map_err(|error| StartError::failed("cannot create the metrics", error))?;
    let target = match &config.log.access {
        AccessTarget::Stdout => AccessLogTarget::Stdout,
        AccessTarget::Off => AccessLogTarget::Off,
        AccessTarget::File(path) => AccessLogTarget::File(path.clone()),
    };
    let access_log = AccessLog::open(&target, config.log.access_queue_lines)
        .map_err(|error| StartError::failed("cannot open the access log", error))?;
    Ok(RequestReporters {
        access_log,
        metrics: Arc::new(metrics),
    })
}
