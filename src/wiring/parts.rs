//! Builds the long-lived parts from the configuration, in the order of their dependencies, with the sign-in of agents.

use std::sync::Arc;

use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    admin::AdminLogBackends,
    config::Config,
    console::{Site, portal::Portal},
    edges::{clock, limiter::RateAllowance, resolver::Resolver, switches::ProviderSwitches},
    front::head_budget::HeadBudget,
    gateway::{
        Gateway, GatewayLimits, LocalServices,
        attempt::deadline::Deadlines,
        drain::Drain,
        key_slots::KeySlots,
        log_entry::RequestReporters,
        reply::{
            agent_settings::SignedInAgents,
            own_usage::{LastRows, OwnUsage},
        },
        request::bodies::BodyResources,
    },
    providers::{learnt_usage::LearnedUsage, live::CurrentConfig, sessions::StateRegistry},
    sign_in::AgentSignIns,
    stability::public::PublicService,
    store::{
        KeyStore, StoreWarning, archive::Archive, embedded::handover::HandoverState, key_cache::KeyCache,
        web_sessions::WebSessionStore,
    },
    telemetry::{attention::AttentionMonitor, metrics::Label},
    wiring::{
        StartError, catalogue,
        descriptors::Descriptors,
        log_sinks::LogSinks,
        money::{MoneyParts, MoneyStores},
        prepared::PreparedStart,
        public,
        reload::ReloadTrigger,
        sign_in,
        stability::StabilityParts,
        store, tls,
    },
};

/// The parts that the gateway, the side services and the background share.
pub(crate) struct NodeParts {
    /// The configuration at the start.
    pub config: Arc<Config>,
    /// The current version of everything that can be reloaded.
    pub live: Arc<CurrentConfig>,
    /// The providers that an operator has disabled.
    pub switches: Arc<ProviderSwitches>,
    pub store: Arc<dyn KeyStore>,
    /// People's sessions in browsers.
    pub web_sessions: Arc<dyn WebSessionStore>,
    /// Everything in the store, for backups; `None` if this process does not own the store.
    pub archive: Option<Arc<dyn Archive>>,
    /// The log backends.
    pub log_homes: AdminLogBackends,
    /// The provider and credential of each provider state.
    pub sessions: Arc<StateRegistry>,
    /// Ends when the sessions are written, after `stop` has turned true.
    pub session_task: JoinHandle<()>,
    /// Signs agents in; `None` if that is off.
    pub sign_ins: Option<Arc<AgentSignIns>>,
    /// The settings for signed-in agents.
    agents: Option<SignedInAgents>,
    /// The cache in front of the store's keys.
    pub keys: Arc<KeyCache>,
    /// Resolves the providers' names in the background.
    pub resolver: Arc<Resolver>,
    pub tls: Arc<tls::TlsListeners>,
    /// Metrics and access log.
    pub sinks: Arc<RequestReporters>,
    /// The facts of this node that need attention, for the console.
    pub attention: Option<Arc<AttentionMonitor>>,
    /// Counts running requests, for the shutdown.
    pub drain: Drain,
    /// The time limits of running attempts.
    deadlines: Deadlines,
    /// Memory for request bodies, and time to work on them.
    pub bodies: BodyResources,
    /// Memory for the incomplete heads of requests, of all listeners.
    pub heads: HeadBudget,
    /// Billing, journal and settlement.
    pub money: MoneyParts,
    /// The stability record: this node's counts, and the published record.
    pub stability: StabilityParts,
    /// The public stability service.
    pub public: Arc<PublicService>,
    /// Ends when the last uses of keys are written, after `stop` has turned true.
    pub cache_task: JoinHandle<()>,
    /// Triggers a reload.
    pub reload: ReloadTrigger,
    /// Turned true to stop the background.
    pub stop: watch::Sender<bool>,
}

impl NodeParts {
    /// Opens the store, with the predecessor's state that is in no file (`carried`), builds the parts on it and starts their
    /// background tasks.
    pub(crate) fn open(
        prepared: PreparedStart,
        carried: HandoverState,
        background: &Runtime,
    ) -> Result<Self, StartError> {
        let PreparedStart {
            config,
            tls,
            sinks,
            switches,
            resolver,
            live,
            reloader,
            reload,
            lanes,
            stop,
        } = prepared;
        let store::OpenStore {
            keys: store,
            sessions: session_store,
            sign_ins,
            ledger,
            stability,
            web_sessions,
            archive,
        } = store::open(&config, carried)?;
        let stopped = stop.subscribe();
        let keys = KeyCache::new(Arc::clone(&store), store::cache_settings(&config));
        let (sessions, session_writer) = StateRegistry::new(session_store);
        let session_task = background.spawn(session_writer.run(stopped.clone()));
        let cache_task = background.spawn(Arc::clone(&keys).run(stopped.clone()));
        let rows = (ledger.store(), ledger.lists());
        let (log_sinks, log_homes) = LogSinks::open(&config, rows, background, &stopped)?;
        let stores = MoneyStores {
            engine: ledger,
            keys: Arc::clone(&store),
            stability: Arc::clone(&stability),
            sinks: log_sinks,
        };
        let money = MoneyParts::build(&config, stores, &keys, lanes, background, &stopped)?;
        let (time, refresh) = (money.billing.time(), config.stability.refresh);
        let stability = StabilityParts::build(stability, &money.journal, time, refresh, background, &stopped);
        background.spawn(reloader.run(stopped));
        let drain = Drain::default();
        let parts = Self {
            public: public::build(&config, &live, &stability.snapshots),
            sign_ins: sign_in::build_sign_ins(&config, sign_ins, &store, money.billing.time()),
            live,
            switches,
            store,
            web_sessions,
            archive,
            log_homes,
            sessions: Arc::new(sessions),
            session_task,
            agents: sign_in::agent_settings(&config)?,
            keys,
            resolver,
            tls,
            attention: attention(&config, &sinks, background, &stop),
            sinks,
            deadlines: deadlines(&drain, background),
            drain,
            bodies: BodyResources::new(&config.gateway),
            heads: HeadBudget::new(config.heads()),
            money,
            stability,
            cache_task,
            reload,
            stop,
            config,
        };
        parts.observe();
        Ok(parts)
    }

    /// The gateway on these parts, with the portal if it has one. `last_rows` is for `/web/v1/me`.
    pub(crate) fn gateway(&self, portal: Option<Arc<Portal>>, last_rows: Arc<dyn LastRows>) -> Gateway {
        Gateway {
            live: Arc::clone(&self.live),
            switches: Arc::clone(&self.switches),
            sessions: Arc::clone(&self.sessions),
            keys: Arc::clone(&self.keys),
            learnt: Arc::new(LearnedUsage::new()),
            billing: self.money.billing.clone(),
            pages: Arc::new(LocalServices {
                public: Arc::clone(&self.public),
                own_usage: self.own_usage(last_rows),
                agents: self.agents.clone(),
                portal,
            }),
            limits: Arc::new(GatewayLimits {
                trusted_proxies: self.config.stability.trusted_proxies.clone(),
                bodies: self.bodies.clone(),
                running_max: Descriptors::share(&self.config).running,
                detached_permits: Arc::new(tokio::sync::Semaphore::new(self.config.upstream.client_gone_finish_max)),
                count_slots: KeySlots::default(),
                deadlines: self.deadlines.clone(),
            }),
            reporters: Arc::clone(&self.sinks),
            drain: self.drain.clone(),
        }
    }

    fn own_usage(&self, last_rows: Arc<dyn LastRows>) -> OwnUsage {
        let config = &self.config.own_usage;
        let allowance = RateAllowance {
            per_minute: config.per_minute,
            burst: config.burst,
            clients_max: config.addresses_max,
        };
        let trusted = self.config.stability.trusted_proxies.clone();
        let url = self.config.console.gateway_url.as_deref();
        let site = Site::new(self.tls.gateway.is_some(), trusted, url);
        let ledger = Arc::clone(&self.money.ledger);
        OwnUsage::new(ledger, last_rows, site, allowance, clock::instant())
    }

    /// Adds samplers for the figures of the parts.
    fn observe(&self) {
        let metrics = &self.sinks.metrics;
        self.money.observe(metrics);
        self.stability.observe(metrics);
        self.tls.observe(metrics);
        catalogue::add_metric_labels(metrics, &self.live.get().catalogue);
        let (live, switches) = (Arc::clone(&self.live), Arc::clone(&self.switches));
        let (keys, bodies, heads) = (Arc::clone(&self.keys), self.bodies.clone(), self.heads.clone());
        let (resolver, sinks) = (Arc::clone(&self.resolver), Arc::downgrade(&self.sinks));
        let (drain, sessions) = (self.drain.clone(), Arc::clone(&self.sessions));
        let store = Arc::clone(&self.store);
        let time = Arc::clone(self.money.billing.time());
        metrics.add_sampler(move |metrics| {
            let (live, now) = (live.get(), clock::instant());
            for provider in live.catalogue.providers() {
                let is_on = provider.is_on() && !switches.is_off(&provider.name);
                metrics
                    .providers
                    .on
                    .with_labels([metrics.provider_label(&provider.name)])
                    .set(is_on);
            }
            for (provider, pool) in live.pools.iter() {
                let resting = pool
                    .credentials
                    .iter()
                    .filter(|one| one.cooldown_end(now).is_some())
                    .count();
                let (of, labels) = (&metrics.providers, [metrics.provider_label(provider)]);
                of.credentials_resting.with_labels(labels).set(resting);
                of.places_ejected.with_labels(labels).set(pool.ejected(now));
                of.models_passed_over
                    .with_labels(labels)
                    .set(pool.open_circuits(now).len());
                of.passed_over.with_labels(labels).raise_to(pool.passed_over());
            }
            for (host, total) in resolver.failures() {
                let host = Label::configured(&host);
                metrics.providers.resolver_failures.with_labels([host]).raise_to(total);
            }
            metrics.providers.sessions_unwritten.raise_to(sessions.lost());
            let ahead_ms = time.offset_ms(now).unwrap_or(0);
            metrics.store.clock_offset.set_milliseconds(ahead_ms);
            metrics.store.up.set(keys.is_store_reachable());
            let warnings = store.warnings();
            for warning in StoreWarning::ALL {
                let is_so = warnings.contains(&warning);
                metrics.store.warning.with_labels([warning.kind().into()]).set(is_so);
            }
            let memory = store.memory();
            metrics.store.memory_used.set(memory.map_or(0, |memory| memory.used));
            metrics.store.memory_max.set(memory.map_or(0, |memory| memory.limit));
            for (event, total) in keys.events() {
                metrics.store.key_cache.with_labels([event.into()]).raise_to(total);
            }
            metrics.requests.body_bytes_buffered.set(bodies.bytes());
            metrics.requests.head_bytes_buffered.set(heads.in_use());
            metrics.requests.in_flight.set(drain.running());
            if let Some(sinks) = sinks.upgrade() {
                metrics.log.access_dropped.raise_to(sinks.access_log.dropped());
            }
        });
    }
}

/// The time limits of attempts, enforced in the background.
fn deadlines(drain: &Drain, background: &Runtime) -> Deadlines {
    let deadlines = Deadlines::new(drain.clone());
    background.spawn(deadlines.clone().run());
    deadlines
}

/// Watches for facts that need attention, if there is a console to show them.
fn attention(
    config: &Config,
    sinks: &RequestReporters,
    background: &Runtime,
    stop: &watch::Sender<bool>,
) -> Option<Arc<AttentionMonitor>> {
    config.console.listen?;
    let attention = Arc::new(AttentionMonitor::new(Arc::clone(&sinks.metrics)));
    background.spawn(Arc::clone(&attention).watch(stop.subscribe()));
    Some(attention)
}
