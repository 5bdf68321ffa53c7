//! The long-lived parts, built from the configuration in the order of their dependence.

use std::sync::Arc;

use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    access_log::{AccessLog, AccessLogTarget},
    body_budget::BodyBudget,
    config::{AccessTarget, Config},
    domain::catalogue::Catalogue,
    gateway::{Gateway, drain::Drain, entry::Sinks, key_slots::KeySlots},
    key_cache::KeyCache,
    metrics::{Health, Metrics},
    resolver::{Resolver, ResolverSettings},
    store::KeyStore,
    wiring::{StartError, catalogue, store},
};

/// What is shared between the gateway, the side services and the background.
pub struct Parts {
    /// The configuration.
    pub config: Arc<Config>,
    /// Models and providers.
    pub catalogue: Arc<Catalogue>,
    /// Where keys are kept.
    pub store: Arc<dyn KeyStore>,
    /// The cache in front of it.
    pub keys: Arc<KeyCache>,
    /// Providers' addresses.
    pub resolver: Arc<Resolver>,
    /// Metrics and access log.
    pub sinks: Arc<Sinks>,
    /// Counts running requests.
    pub drain: Drain,
    /// Memory for request bodies.
    pub budget: BodyBudget,
    /// Ends when the last keys' use has been noted after `stop`.
    pub cache_task: JoinHandle<()>,
    /// Tells the background to stop.
    pub stop: watch::Sender<bool>,
}

impl Parts {
    /// Builds them and starts their background tasks on `background`.
    pub fn build(config: Config, background: &Runtime) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let catalogue = Arc::new(catalogue::build(&config)?);
        let store = store::open(&config)?;
        let sinks = Arc::new(sinks(&config, &catalogue)?);
        let (stop, stopped) = watch::channel(false);
        let keys = KeyCache::new(Arc::clone(&store), store::cache_settings(&config));
        let cache_task = background.spawn(Arc::clone(&keys).run(stopped.clone()));
        let upstream = &config.upstream;
        let settings = ResolverSettings {
            refresh: upstream.resolve,
            timeout: upstream.resolve_timeout,
        };
        let resolver = Arc::new(Resolver::new(catalogue::hosts(&catalogue), settings));
        background.spawn(Arc::clone(&resolver).run(stopped));
        // Bounded by the lookups' own time limit; the first request then finds addresses.
        background.block_on(resolver.first_pass());
        let budget = BodyBudget::new(config.gateway.body_budget_bytes);
        let parts = Self {
            catalogue,
            store,
            keys,
            resolver,
            sinks,
            drain: Drain::default(),
            budget,
            cache_task,
            stop,
            config,
        };
        parts.observe();
        Ok(parts)
    }

    /// The gateway on these parts.
    pub fn gateway(&self) -> Gateway {
        Gateway {
            config: Arc::clone(&self.config),
            catalogue: Arc::clone(&self.catalogue),
            keys: Arc::clone(&self.keys),
            budget: self.budget.clone(),
            resolver: Arc::clone(&self.resolver),
            sinks: Arc::clone(&self.sinks),
            drain: self.drain.clone(),
            finishing: Arc::new(tokio::sync::Semaphore::new(self.config.upstream.client_gone_finish_max)),
            count_slots: KeySlots::default(),
        }
    }

    /// Figures that are read when somebody scrapes.
    fn observe(&self) {
        let metrics = &self.sinks.metrics;
        for provider in self.catalogue.providers() {
            metrics.provider_is(&provider.name, health(provider.is_on()));
        }
        let (keys, budget) = (Arc::clone(&self.keys), self.budget.clone());
        let (resolver, sinks) = (Arc::clone(&self.resolver), Arc::downgrade(&self.sinks));
        let drain = self.drain.clone();
        metrics.sample(move |metrics| {
            metrics.store_is(health(keys.store_is_reachable()));
            metrics.body_bytes_buffered_are(budget.in_use());
            metrics.requests_in_flight_are(drain.running());
            for (event, total) in keys.events() {
                metrics.key_cache_events_are(event, total);
            }
            for (host, total) in resolver.failures() {
                metrics.resolver_failures_are(&host, total);
            }
            if let Some(sinks) = sinks.upgrade() {
                metrics.access_log_dropped_are(sinks.access_log.dropped());
            }
        });
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

fn health(good: bool) -> Health {
    if good { Health::Up } else { Health::Down }
}
