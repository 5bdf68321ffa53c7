//! Builds the long-lived parts of the process from the configuration, in the order of their dependencies.

use std::{path::Path, sync::Arc};

use serde_json::{Map, Value};
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    admin::AdminLogBackends,
    config::Config,
    console::{Site, portal::Portal},
    domain::sign_in::{ManagedSettings, TokenLifetimes},
    edges::{ProviderSwitches, clock, limiter::RateAllowance, resolver::Resolver},
    front::head_budget::HeadBudget,
    gateway::{
        Gateway, GatewayLimits, LocalServices,
        attempt::deadline::Deadlines,
        conversations::Conversations,
        drain::Drain,
        key_slots::KeySlots,
        log_entry::RequestReporters,
        reply::{
            SignedInAgents,
            own_usage::{LastRows, OwnUsage},
        },
        request::body::BodyResources,
    },
    providers::{CurrentConfig, learnt_usage::LearnedUsage, sessions::StateRegistry},
    sign_in::{AgentSignIns, SignInSettings},
    stability::public::PublicService,
    store::{
        KeyStore, StoreWarning,
        archive::Archive,
        embedded::handover::HandoverState,
        key_cache::KeyCache,
        sessions::{SignInStore, WebSessionStore},
        time::StoreTime,
    },
    telemetry::{attention::AttentionMonitor, metrics::Label},
    wiring::{
        StabilityParts, StartError, build_public_service, catalogue,
        log_sinks::LogSinks,
        money::{MoneyParts, MoneyStores},
        prepared::PreparedStart,
        process::Descriptors,
        reload::ReloadTrigger,
        store, tls,
    },
};

/// The parts that the gateway, the other listeners and the background tasks share.
pub(crate) struct NodeParts {
    /// The configuration at the start of the process.
    pub config: Arc<Config>,
    /// The current config snapshot, which a reload replaces.
    pub live: Arc<CurrentConfig>,
    /// The switches with which operators turn providers off and on.
    pub switches: Arc<ProviderSwitches>,
    pub store: Arc<dyn KeyStore>,
    /// The sessions of users of the console and the portal.
    pub web_sessions: Arc<dyn WebSessionStore>,
    /// Reads the complete store for a backup. `None` if this process does not own the store.
    pub archive: Option<Arc<dyn Archive>>,
    /// The current and the former log backend.
    pub log_homes: AdminLogBackends,
    /// The records of provider state. The record of a state contains its provider and its credential.
    pub sessions: Arc<StateRegistry>,
    /// The task that writes the records of provider state to the store. When `stop` turns true, it writes all remaining records
    /// and ends.
    pub session_task: JoinHandle<()>,
    /// The sign-ins of agents. `None` if agents cannot sign in.
    pub sign_ins: Option<Arc<AgentSignIns>>,
    /// The data for answers to signed-in agents. `None` if agents cannot sign in.
    agents: Option<SignedInAgents>,
    /// The cache of keys from the store.
    pub keys: Arc<KeyCache>,
    /// Resolves the host names of providers in the background.
    pub resolver: Arc<Resolver>,
    pub tls: Arc<tls::TlsListeners>,
    /// The metrics and the access log.
    pub sinks: Arc<RequestReporters>,
    /// Watches this node for problems that need an operator's attention. `None` if there is no console to display them.
    pub attention: Option<Arc<AttentionMonitor>>,
    /// Counts running requests and open connections, so that the process can wait for them before it ends.
    pub drain: Drain,
    /// The time limits of running attempts.
    deadlines: Deadlines,
    /// Limits the memory for request bodies and the number of threads that process them.
    pub bodies: BodyResources,
    /// The conversations on clients' WebSocket connections.
    conversations: Arc<Conversations>,
    /// Limits the memory that incomplete request heads take on all listeners together.
    pub heads: HeadBudget,
    /// The parts that deal with money: billing, journal and settlement.
    pub money: MoneyParts,
    /// The public record: the publisher of this node's counts, and the published record.
    pub stability: StabilityParts,
    /// The public stability service.
    pub public: Arc<PublicService>,
    /// The background task of the key cache. When `stop` turns true, it writes the time of each key's last use to the store, and
    /// ends.
    pub cache_task: JoinHandle<()>,
    /// Triggers a reload of the configuration.
    pub reload: ReloadTrigger,
    /// Is turned true to stop the background tasks.
    pub stop: watch::Sender<bool>,
}

impl NodeParts {
    /// Opens the store, builds the parts that use it, and starts their background tasks. `carried` is the part of the
    /// predecessor's state that is in no file.
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
            public: build_public_service(&config, &live, &stability.snapshots),
            sign_ins: build_sign_ins(&config, sign_ins, &store, money.billing.time()),
            live,
            switches,
            store,
            web_sessions,
            archive,
            log_homes,
            sessions: Arc::new(sessions),
            session_task,
            agents: agent_settings(&config)?,
            keys,
            resolver,
            tls,
            attention: attention(&config, &sinks, background, &stop),
            sinks,
            deadlines: deadlines(&drain, background),
            drain,
            bodies: BodyResources::new(&config.gateway),
            conversations: Arc::new(Conversations::new(&config.sockets)),
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

    /// Builds the gateway from these parts. `portal` is `None` if the portal is off. `last_rows` reads the rows for the API path
    /// `/web/v1/me`.
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
                socket_slots: KeySlots::default(),
                conversations: Arc::clone(&self.conversations),
                line_refusals: Arc::default(),
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

    /// Adds the samplers that copy the figures of all parts to the metrics.
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
        let conversations = Arc::clone(&self.conversations);
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
                of.backends_ejected.with_labels(labels).set(pool.ejected(now));
                of.circuits_open.with_labels(labels).set(pool.open_circuits(now).len());
                of.skipped.with_labels(labels).raise_to(pool.skipped());
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
            metrics.sockets.state_bytes.set(conversations.bytes());
            metrics.sockets.state_evicted.raise_to(conversations.evicted());
            if let Some(sinks) = sinks.upgrade() {
                metrics.log.access_dropped.raise_to(sinks.access_log.dropped());
            }
        });
    }
}

/// Starts the task that enforces the time limits of attempts.
fn deadlines(drain: &Drain, background: &Runtime) -> Deadlines {
    let deadlines = Deadlines::new(drain.clone());
    background.spawn(deadlines.clone().run());
    deadlines
}

/// Starts to watch for problems that need an operator's attention. `None` if there is no console to display them.
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

/// The maximum size of the file with settings for agents, in bytes.
const SETTINGS_BYTES_MAX: u64 = 256 * 1024;

/// Builds the sign-in of agents. `None` if it is off.
pub(super) fn build_sign_ins(
    config: &Config,
    documents: Arc<dyn SignInStore>,
    keys: &Arc<dyn KeyStore>,
    time: &Arc<StoreTime>,
) -> Option<Arc<AgentSignIns>> {
    let section = &config.sign_in;
    let settings = SignInSettings {
        lifetimes: TokenLifetimes {
            access_seconds: section.access_seconds,
            sign_in_seconds: section.sign_in_seconds,
        },
        codes_max: section.codes_max,
    };
    let build = || {
        let (keys, time) = (Arc::clone(keys), Arc::clone(time));
        AgentSignIns::new(documents, keys, time, config.gateway.key_prefix.clone(), settings)
    };
    section.enabled.then(|| Arc::new(build()))
}

/// Reads the data for answers to signed-in agents. `None` if agents cannot sign in.
///
/// # Errors
/// The file with settings for agents cannot be used.
pub(super) fn agent_settings(config: &Config) -> Result<Option<SignedInAgents>, StartError> {
    let section = &config.sign_in;
    if !section.enabled {
        return Ok(None);
    }
    let settings = section
        .managed_settings
        .as_deref()
        .map(read_managed_settings)
        .transpose();
    let wrong = |why| StartError::Configuration(format!("[sign_in] managed_settings: {why}"));
    let settings = settings.map_err(wrong)?;
    Ok(Some(SignedInAgents { settings }))
}

/// OpenID providers at which anybody can create an account.
const OPEN_TO_EVERYBODY: [&str; 14] = [
    "accounts.google.com",
    "login.microsoftonline.com/common/v2.0",
    "login.microsoftonline.com/consumers/v2.0",
    "login.microsoftonline.com/organizations/v2.0",
    // The tenant of all personal Microsoft accounts.
    "login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0",
    "appleid.apple.com",
    "www.facebook.com",
    "www.linkedin.com/oauth",
    "gitlab.com",
    "id.twitch.tv/oauth2",
    "api.login.yahoo.com",
    "access.line.me",
    "kauth.kakao.com",
    "www.paypal.com",
];

/// Returns a warning if the template would give a key to anybody who signs in. `None` otherwise.
pub(super) fn template_warning(config: &Config) -> Option<String> {
    let template = config
        .sign_in
        .template
        .as_ref()
        .filter(|template| template.groups.is_none())?;
    let issuer = &config.console.openid.as_ref()?.issuer;
    let place = issuer.strip_prefix("https://")?.trim_end_matches('/');
    let is_open = OPEN_TO_EVERYBODY.iter().any(|open| open.eq_ignore_ascii_case(place));
    is_open.then(|| {
        format!(
            "[sign_in.template] gives a key, paid by account `{}`, to every user of {issuer}, where anybody can create a user \
             account: set `groups` to give keys only to members of these groups",
            template.account
        )
    })
}

/// Reads the file with settings for agents. An error names the file and says what is wrong with it.
pub(super) fn read_managed_settings(path: &Path) -> Result<ManagedSettings, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let bytes = std::fs::metadata(path).map_err(|error| wrong(&error))?.len();
    if bytes > SETTINGS_BYTES_MAX {
        let why = format!("the file has {bytes} bytes, but at most {SETTINGS_BYTES_MAX} are allowed");
        return Err(wrong(&why));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let object: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|error| wrong(&format_args!("the content must be a JSON object: {error}")))?;
    Ok(ManagedSettings::new(&object))
}
