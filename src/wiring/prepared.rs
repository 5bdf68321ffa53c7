//! What a start needs besides the store: read, opened and warmed up before the store is asked for, so that a process that
//! takes another one's place keeps it for as short a time as can be.

use std::{path::Path, sync::Arc};

use tokio::{runtime::Runtime, sync::watch};

use crate::{
    config::{AccessTarget, Config},
    domain::catalogue::Catalogue,
    edges::{
        resolver::{Resolver, ResolverSettings},
        switches::Switches,
    },
    gateway::log_entry::Sinks,
    journal::lanes::{Lanes, Place},
    providers::{
        live::{Live, LiveCell},
        pools::Pools,
    },
    telemetry::{
        access_log::{AccessLog, AccessLogTarget},
        metrics::Metrics,
    },
    wiring::{
        StartError, catalogue,
        process::Process,
        reload::{self, ReloadTrigger, Reloader},
        tls,
    },
};

/// All that is there before the store is.
pub(crate) struct Prepared {
    pub(super) config: Arc<Config>,
    pub(super) tls: Arc<tls::Listeners>,
    pub(super) sinks: Arc<Sinks>,
    pub(super) switches: Arc<Switches>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) live: Arc<LiveCell>,
    pub(super) reloader: Reloader,
    pub(super) reload: ReloadTrigger,
    pub(super) lanes: Lanes,
    pub(super) stop: watch::Sender<bool>,
}

impl Prepared {
    /// Reads what the configuration names, opens the journal and resolves the providers' names.
    pub(super) fn build(
        config: Config,
        conf: &Path,
        (process, place): (Process, Place),
        background: &Runtime,
    ) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let contents = reload::contents(conf, &config);
        let catalogue = Arc::new(catalogue::build(&config)?);
        let tls = Arc::new(tls::build(&config)?);
        let sinks = Arc::new(sinks(&config, &catalogue)?);
        let switches = Switches::open(&config.admin.audit.with_file_name("providers-off.json"))
            .map_err(|error| StartError::failed("the providers that are switched off", error))?;
        let lanes = Lanes::open(&config.journal, place).map_err(|error| StartError::failed("the journal", error))?;
        let (stop, stopped) = watch::channel(false);
        let resolver = Arc::new(Resolver::new(catalogue::hosts(&catalogue), resolver_settings(&config)));
        background.spawn(Arc::clone(&resolver).run(stopped.clone()));
        // Bounded by the lookups' own time limit; the first request then finds addresses.
        background.block_on(resolver.first_pass());
        let pools = Arc::new(Pools::build(&catalogue, &resolver, None));
        background.block_on(pools.update());
        let pools_task = background.spawn(Arc::clone(&pools).run(stopped));
        let live = Live::new(Arc::clone(&config), catalogue, pools);
        let live = Arc::new(LiveCell::new(live));
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

fn sinks(config: &Config, catalogue: &Catalogue) -> Result<Sinks, StartError> {
    let models: Vec<&str> = catalogue.models().map(|model| model.name.as_str()).collect();
    let providers: Vec<&str> = catalogue.providers().map(|provider| provider.name.as_str()).collect();
    let metrics = Metrics::new(&models, &providers).map_err(|error| StartError::failed("the metrics", error))?;
    let target = match &config.log.access {
        AccessTarget::Stdout => AccessLogTarget::Stdout,
        AccessTarget::Off => AccessLogTarget::Off,
        AccessTarget::File(path) => AccessLogTarget::File(path.clone()),
    };
    let access_log = AccessLog::open(&target, config.log.access_queue_lines)
        .map_err(|error| StartError::failed("the access log", error))?;
    Ok(Sinks {
        access_log,
        metrics: Arc::new(metrics),
    })
}
