//! Builds the long-lived parts from the configuration, in the order of their dependencies.

use std::sync::Arc;

use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    admin::LogHomes,
    config::Config,
    console::{Site, portal::Portal},
    edges::{clock, limiter::Allowance, resolver::Resolver, switches::Switches},
    front::head_budget::HeadBudget,
    gateway::{
        Gateway, Limits, Pages,
        attempt::deadline::Deadlines,
        drain::Drain,
        key_slots::KeySlots,
        log_entry::Sinks,
        reply::{
            agent_settings::Agents,
            own_usage::{LastRows, OwnUsage},
        },
        request::bodies::Bodies,
    },
    providers::{learnt_usage::Learnt, live::LiveCell, sessions::Sessions},
    sign_in::AgentSignIns,
    stability::public::Public,
    store::{
        KeyStore, StoreWarning, archive::Archive, embedded::handover::Carried, key_cache::KeyCache,
        web_sessions::WebSessionStore,
    },
    telemetry::{attention::Attention, metrics::Label},
    wiring::{
        StartError, catalogue,
        descriptors::Descriptors,
        log_sinks::LogSinks,
        money::{Money, Stores},
        prepared::Prepared,
        public,
        reload::ReloadTrigger,
        sign_in,
        stability::Stability,
        store, tls,
    },
};

/// What is shared between the gateway, the side services and the background.
pub(crate) struct Parts {
    /// The configuration at the start.
    pub config: Arc<Config>,
    /// The version in force of what can be loaded anew.
    pub live: Arc<LiveCell>,
    /// Providers that an operator has switched off.
    pub switches: Arc<Switches>,
    pub store: Arc<dyn KeyStore>,
    /// People's sessions in browsers.
    pub web_sessions: Arc<dyn WebSessionStore>,
    /// All that it keeps, for backups of a store that this process owns.
    pub archive: Option<Arc<dyn Archive>>,
    /// Where the log is at home.
    pub log_homes: LogHomes,
    /// Who served the sessions whose state lies at a provider.
    pub sessions: Arc<Sessions>,
    /// Ends when they are written after `stop`.
    pub session_task: JoinHandle<()>,
    /// Signs agents in; `None`: none can.
    pub sign_ins: Option<Arc<AgentSignIns>>,
    /// What those that are signed in are told.
    agents: Option<Agents>,
    /// The cache in front of it.
    pub keys: Arc<KeyCache>,
    /// Resolves the providers' names in the background.
    pub resolver: Arc<Resolver>,
    pub tls: Arc<tls::Listeners>,
    /// Metrics and access log.
    pub sinks: Arc<Sinks>,
    /// What needs attention on this node, for the console.
    pub attention: Option<Arc<Attention>>,
    /// Counts running requests, for the shutdown.
    pub drain: Drain,
    /// The time limits of the attempts under way.
    deadlines: Deadlines,
    /// Memory for request bodies, and time to work on them.
    pub bodies: Bodies,
    /// Memory for the heads of requests that have not come to their end, of all listeners.
    pub heads: HeadBudget,
    /// Billing, journal and settlement.
    pub money: Money,
    /// What is counted of each model, and what is known of it.
    pub stability: Stability,
    /// The public stability service.
    pub public: Arc<Public>,
    /// Ends when the last keys' use has been noted after `stop`.
    pub cache_task: JoinHandle<()>,
    /// Asks for a reload.
    pub reload: ReloadTrigger,
    /// Tells the background to stop.
    pub stop: watch::Sender<bool>,
}

impl Parts {
    /// Opens the store, with what the process before had that no file keeps, builds them on it and starts their background
    /// tasks.
    pub(crate) fn open(prepared: Prepared, carried: Carried, background: &Runtime) -> Result<Self, StartError> {
        let Prepared {
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
        let store::Opened {
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
        let (sessions, session_writer) = Sessions::new(session_store);
        let session_task = background.spawn(session_writer.run(stopped.clone()));
        let cache_task = background.spawn(Arc::clone(&keys).run(stopped.clone()));
        let rows = (ledger.store(), ledger.lists());
        let (log_sinks, log_homes) = LogSinks::open(&config, rows, background, &stopped)?;
        let stores = Stores {
            engine: ledger,
            keys: Arc::clone(&store),
            stability: Arc::clone(&stability),
            sinks: log_sinks,
        };
        let money = Money::build(&config, stores, &keys, lanes, background, &stopped)?;
        let (time, refresh) = (money.billing.time(), config.stability.refresh);
        let stability = Stability::build(stability, &money.journal, time, refresh, background, &stopped);
        background.spawn(reloader.run(stopped));
        let drain = Drain::default();
        let parts = Self {
            public: public::build(&config, &live, &stability.snapshots),
            sign_ins: sign_in::build(&config, sign_ins, &store, money.billing.time()),
            live,
            switches,
            store,
            web_sessions,
            archive,
            log_homes,
            sessions: Arc::new(sessions),
            session_task,
            agents: sign_in::agents(&config)?,
            keys,
            resolver,
            tls,
            attention: attention(&config, &sinks, background, &stop),
            sinks,
            deadlines: deadlines(&drain, background),
            drain,
            bodies: Bodies::new(&config.gateway),
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

    /// The gateway on these parts, with the portal if it has one. `last_rows` is for whoever asks what a key has used.
    pub(crate) fn gateway(&self, portal: Option<Arc<Portal>>, last_rows: Arc<dyn LastRows>) -> Gateway {
        Gateway {
            live: Arc::clone(&self.live),
            switches: Arc::clone(&self.switches),
            sessions: Arc::clone(&self.sessions),
            keys: Arc::clone(&self.keys),
            learnt: Arc::new(Learnt::new()),
            billing: self.money.billing.clone(),
            pages: Arc::new(Pages {
                public: Arc::clone(&self.public),
                own_usage: self.own_usage(last_rows),
                agents: self.agents.clone(),
                portal,
            }),
            limits: Arc::new(Limits {
                trusted_proxies: self.config.stability.trusted_proxies.clone(),
                bodies: self.bodies.clone(),
                running_max: Descriptors::share(&self.config).running,
                finishing: Arc::new(tokio::sync::Semaphore::new(self.config.upstream.client_gone_finish_max)),
                count_slots: KeySlots::default(),
                deadlines: self.deadlines.clone(),
            }),
            sinks: Arc::clone(&self.sinks),
            drain: self.drain.clone(),
        }
    }

    fn own_usage(&self, last_rows: Arc<dyn LastRows>) -> OwnUsage {
        let config = &self.config.own_usage;
        let allowance = Allowance {
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

    /// Figures that are read when somebody scrapes.
    fn observe(&self) {
        let metrics = &self.sinks.metrics;
        self.money.observe(metrics);
        self.stability.observe(metrics);
        self.tls.observe(metrics);
        catalogue::tell_metrics(metrics, &self.live.get().catalogue);
        let (live, switches) = (Arc::clone(&self.live), Arc::clone(&self.switches));
        let (keys, bodies, heads) = (Arc::clone(&self.keys), self.bodies.clone(), self.heads.clone());
        let (resolver, sinks) = (Arc::clone(&self.resolver), Arc::downgrade(&self.sinks));
        let (drain, sessions) = (self.drain.clone(), Arc::clone(&self.sessions));
        let store = Arc::clone(&self.store);
        let time = Arc::clone(self.money.billing.time());
        metrics.sample(move |metrics| {
            let (live, now) = (live.get(), clock::instant());
            for provider in live.catalogue.providers() {
                let is_on = provider.is_on() && !switches.is_off(&provider.name);
                metrics.providers.on.of([metrics.provider(&provider.name)]).set(is_on);
            }
            for (provider, pool) in live.pools.iter() {
                let resting = pool
                    .credentials
                    .iter()
                    .filter(|one| one.rests_until(now).is_some())
                    .count();
                let (of, labels) = (&metrics.providers, [metrics.provider(provider)]);
                of.credentials_resting.of(labels).set(resting);
                of.places_ejected.of(labels).set(pool.ejected(now));
                of.models_passed_over.of(labels).set(pool.models_passed_over(now).len());
                of.passed_over.of(labels).reach(pool.passed_over());
            }
            for (host, total) in resolver.failures() {
                let host = Label::configured(&host);
                metrics.providers.resolver_failures.of([host]).reach(total);
            }
            metrics.providers.sessions_unwritten.reach(sessions.lost());
            let ahead_ms = time.offset_ms(now).unwrap_or(0);
            metrics.store.clock_offset.set_milliseconds(ahead_ms);
            metrics.store.up.set(keys.store_is_reachable());
            let warnings = store.warnings();
            for warning in StoreWarning::ALL {
                let is_so = warnings.contains(&warning);
                metrics.store.warning.of([warning.kind().into()]).set(is_so);
            }
            let memory = store.memory();
            metrics.store.memory_used.set(memory.map_or(0, |memory| memory.used));
            metrics.store.memory_max.set(memory.map_or(0, |memory| memory.most));
            for (event, total) in keys.events() {
                metrics.store.key_cache.of([event.into()]).reach(total);
            }
            metrics.requests.body_bytes_buffered.set(bodies.bytes());
            metrics.requests.head_bytes_buffered.set(heads.in_use());
            metrics.requests.in_flight.set(drain.running());
            if let Some(sinks) = sinks.upgrade() {
                metrics.log.access_dropped.reach(sinks.access_log.dropped());
            }
        });
    }
}

/// The time limits of attempts, kept in the background.
fn deadlines(drain: &Drain, background: &Runtime) -> Deadlines {
    let deadlines = Deadlines::new(drain.clone());
    background.spawn(deadlines.clone().keep());
    deadlines
}

/// Looks for what needs attention, if there is a console to show it.
fn attention(
    config: &Config,
    sinks: &Sinks,
    background: &Runtime,
    stop: &watch::Sender<bool>,
) -> Option<Arc<Attention>> {
    config.console.listen?;
    let attention = Arc::new(Attention::new(Arc::clone(&sinks.metrics)));
    background.spawn(Arc::clone(&attention).watch(stop.subscribe()));
    Some(attention)
}
