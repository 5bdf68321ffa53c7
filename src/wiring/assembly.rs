//! Adds weir's services to a Pingora server: the gateway's workers and the other listeners. Gives the admin API access to this
//! process's models and providers, and to the providers' switches.

use std::{sync::Arc, time::Instant};

use pingora::server::{Server, configuration::ServerConf};
use tokio::sync::watch;

use crate::{
    admin::{Admin, AdminStores, ProviderDirectory, Upgrades, audit::Audit},
    api::node::{BackendView, CredentialView, ModelView, OpenCircuitView, ProviderView},
    domain::{
        catalogue::{Catalogue, Model},
        money::price::Price,
        rules::Provider,
        strict_toml::nearest,
    },
    edges::{ProviderSwitches, clock},
    gateway::reply::own_usage::LastRows,
    money::account_changes::JournaledChanges,
    providers::{
        CurrentConfig,
        pools::{BackendState, CredentialState, OpenCircuit, Pool},
    },
    side::{
        self, OpsState, Readiness, ReadinessSource, admin,
        connection::SocketClaim,
        service::{BoundAddress, SideService},
    },
    store::{KeyStore, StoreWarning},
    telemetry::metrics::Metrics,
    wiring::{
        StartError,
        console::{self, OwnerLogRows},
        front_service,
        listeners::{ADMIN, BoundAddresses, ListeningSockets, OPS},
        parts::NodeParts,
        process::Phase,
    },
};

/// The state of the process for all listeners except the gateway's.
pub(super) struct SideState {
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) closing: watch::Receiver<bool>,
    pub(super) claims: watch::Receiver<SocketClaim>,
    pub(super) upgrades: Option<Arc<dyn Upgrades>>,
}

/// Adds all services to a server. `conf` is Pingora's configuration of the gateway's proxy.
///
/// # Errors
/// A file that the configuration names cannot be used, or no file descriptors are left.
pub(super) fn add(
    server: &mut Server,
    conf: &Arc<ServerConf>,
    parts: &NodeParts,
    listeners: &ListeningSockets,
    side: &SideState,
) -> Result<BoundAddresses, StartError> {
    let closing = || side.closing.clone();
    let (state, links) = console::with_links(admin_state(parts, side.upgrades.clone())?, parts);
    let log = Arc::clone(state.log());
    let tell = move |metrics: &Metrics| metrics.log.verified_at.set(log.verified_at());
    parts.sinks.metrics.add_sampler(tell);
    let portal = console::portal(parts, &state, console::openid(parts)?);
    let ways = (links, console::openid(parts)?, console::alerts(parts)?);
    let for_owners = (portal, Arc::new(OwnerLogRows::new(state.clone())) as Arc<dyn LastRows>);
    let (gateway, gateway_bound) = front_service::gateway(conf, parts, for_owners, listeners)?;
    let redirect = front_service::redirect(parts, gateway_bound.clone(), listeners, closing());
    let (redirect, redirect_bound) = redirect.unzip();
    let (admin_tcp, admin_tcp_bound) = admin_tcp_service(parts, &state, listeners).unzip();
    let (admin, admin_bound) = admin_service(parts, state.clone(), side.claims.clone());
    let ready = readiness(parts, side.phase.clone(), admin_bound.clone());
    let seen = (&ready, &gateway_bound);
    let (console, console_bound) = console::service(parts, state, ways, seen, listeners, closing()).unzip();
    let (ops, ops_bound) = ops_service(parts, listeners, ready);
    let (stability, stability_bound) = front_service::stability(parts, listeners, closing());
    listeners.add_services(server, |server| {
        let mut services = vec![
            server.add_service(ops.closing_on(closing())),
            server.add_service(stability),
            server.add_service(admin.closing_on(closing())),
        ];
        services.extend(gateway.into_iter().map(|worker| server.add_service(worker)));
        services.extend(admin_tcp.map(|admin_tcp| server.add_service(admin_tcp.closing_on(closing()))));
        services.extend(redirect.map(|redirect| server.add_service(redirect)));
        services.extend(console.map(|console| server.add_service(console)));
        services
    })?;
    Ok(BoundAddresses {
        gateway: gateway_bound,
        ops: ops_bound,
        stability: stability_bound,
        admin: admin_bound,
        admin_tcp: admin_tcp_bound,
        redirect: redirect_bound,
        console: console_bound,
    })
}

/// Returns the function that determines this node's readiness at the time of each call.
fn readiness(
    parts: &NodeParts,
    phase: watch::Receiver<Phase>,
    admin: watch::Receiver<BoundAddress>,
) -> ReadinessSource {
    let store = Arc::clone(&parts.store);
    let keys = Arc::clone(&parts.keys);
    let live = Arc::clone(&parts.live);
    let time = Arc::clone(parts.money.billing.time());
    let (billing, journal) = (parts.money.billing.clone(), Arc::clone(&parts.money.journal));
    let warns = |store: &dyn KeyStore, warning| store.warnings().contains(&warning);
    Arc::new(move || Readiness {
        store_reachable: keys.is_store_reachable(),
        store_trouble: store.trouble(),
        store_rights_missing: warns(&*store, StoreWarning::MissingRights),
        store_evicted: warns(&*store, StoreWarning::Evicted),
        serves_on_grace: billing.has_grace() && keys.has_offline_keys(clock::instant()),
        journal: journal.unavailability(),
        admin_listening: matches!(*admin.borrow(), BoundAddress::Unix(_)),
        providers_on: live
            .get()
            .catalogue
            .providers()
            .filter(|provider| provider.is_on())
            .count(),
        draining: *phase.borrow() != Phase::Serving,
        clock_offset_ms: time.offset_ms(clock::instant()),
    })
}

fn ops_service(
    parts: &NodeParts,
    listeners: &ListeningSockets,
    ready: ReadinessSource,
) -> (SideService, watch::Receiver<BoundAddress>) {
    let state = OpsState {
        metrics: Arc::clone(&parts.sinks.metrics),
        ready,
    };
    SideService::http(
        OPS,
        listeners.address(OPS, parts.config.ops.listen),
        side::ops_router(state),
    )
}

fn admin_state(parts: &NodeParts, upgrades: Option<Arc<dyn Upgrades>>) -> Result<Admin, StartError> {
    let audit = Audit::open(&parts.config.admin.audit)
        .map_err(|error| StartError::failed("cannot open the audit record", error))?;
    let prefix = parts.config.gateway.key_prefix.clone();
    Ok(Admin::new(
        AdminStores {
            keys: Arc::clone(&parts.store),
            ledger: Arc::clone(&parts.money.ledger),
            changes: Arc::new(JournaledChanges::new(
                Arc::clone(&parts.money.journal),
                Arc::clone(&parts.money.ledger),
                parts.money.billing.clone(),
            )),
            archive: parts.archive.clone(),
            homes: parts.log_homes.clone(),
            web_sessions: Arc::clone(&parts.web_sessions),
        },
        Arc::new(ServedCatalogue::new(&parts.live, &parts.switches)),
        prefix,
        audit,
        upgrades,
    )
    .with_sign_ins(parts.sign_ins.clone()))
}

fn admin_service(
    parts: &NodeParts,
    state: Admin,
    claims: watch::Receiver<SocketClaim>,
) -> (SideService, watch::Receiver<BoundAddress>) {
    let serve = move |listener, shutdown| admin::serve_unix(listener, state.clone(), shutdown);
    let socket = parts.config.admin.socket.clone();
    SideService::unix("admin", socket, claims, serve)
}

/// Creates the service of the admin API over TCP. `None` if it is not configured. It always uses TLS.
fn admin_tcp_service(
    parts: &NodeParts,
    state: &Admin,
    listeners: &ListeningSockets,
) -> Option<(SideService, watch::Receiver<BoundAddress>)> {
    let tcp = parts.config.admin.tcp()?;
    let tls = Arc::clone(parts.tls.admin.as_ref()?);
    let serve = admin::serve_tls(state.clone(), tls);
    Some(SideService::tcp(
        ADMIN,
        listeners.address(ADMIN, tcp.listen),
        Box::new(serve),
    ))
}

/// The models and providers of this process, for the admin API.
pub(super) struct ServedCatalogue {
    live: Arc<CurrentConfig>,
    switches: Arc<ProviderSwitches>,
}

impl ServedCatalogue {
    pub(super) fn new(live: &Arc<CurrentConfig>, switches: &Arc<ProviderSwitches>) -> Self {
        Self {
            live: Arc::clone(live),
            switches: Arc::clone(switches),
        }
    }
}

impl ProviderDirectory for ServedCatalogue {
    fn models(&self) -> Vec<ModelView> {
        models(&self.live.get().catalogue, &self.switches)
    }

    fn model_named(&self, name: &str) -> Result<String, Option<String>> {
        let live = self.live.get();
        let near = || nearest(name, live.catalogue.served_models().map(|model| model.name.as_str())).map(str::to_owned);
        let found = live.catalogue.find_name_or_alias(name);
        found.map(|model| model.name.clone()).ok_or_else(near)
    }

    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>> {
        let live = self.live.get();
        live.catalogue.find_name_or_alias(model)?.prices.get(provider).cloned()
    }

    fn providers(&self) -> Vec<ProviderView> {
        let (live, now) = (self.live.get(), clock::instant());
        let view = |provider: &Arc<Provider>| {
            let pool = live.pools.of(&provider.name);
            let credentials = pool.map(|pool| {
                let state = |one: &Arc<CredentialState>| CredentialView {
                    name: one.credential.name.clone(),
                    cooldown_seconds: one.cooldown_end(now).map_or(0, |until| (until - now).as_secs()),
                };
                pool.credentials.iter().map(state).collect()
            });
            ProviderView {
                name: provider.name.clone(),
                display_name: provider.display_name.clone(),
                configured: provider.is_on(),
                why_off: provider.why_off(),
                enabled: !self.switches.is_off(&provider.name),
                credentials: credentials.unwrap_or_default(),
                backends_ejected: pool.map_or(0, |pool| pool.ejected(now)),
                backends: pool.map(|pool| backends(pool, now)).unwrap_or_default(),
                unresolved: pool.map(|pool| pool.unresolved()).unwrap_or_default(),
                open_circuits: pool.map(|pool| open_circuits(pool, now)).unwrap_or_default(),
            }
        };
        live.catalogue.providers().map(view).collect()
    }

    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool> {
        self.switches.set(provider, on)
    }
}

fn backends(pool: &Pool, now: Instant) -> Vec<BackendView> {
    let view = |backend: BackendState| BackendView {
        address: backend.address.to_string(),
        origin: format!(
            "{}://{}",
            if backend.origin.https { "https" } else { "http" },
            backend.origin.authority()
        ),
        ejected_seconds: backend.ejected_until.map_or(0, |until| (until - now).as_secs().max(1)),
    };
    let mut backends: Vec<BackendView> = pool.backend_states(now).into_iter().map(view).collect();
    // A backend that several operations share is returned once.
    backends.sort();
    backends.dedup();
    backends
}

fn open_circuits(pool: &Pool, now: Instant) -> Vec<OpenCircuitView> {
    let view = |one: OpenCircuit| OpenCircuitView {
        model: one.upstream_model,
        probe_seconds: (one.until - now).as_secs(),
    };
    pool.open_circuits(now).into_iter().map(view).collect()
}

fn models(catalogue: &Catalogue, switches: &ProviderSwitches) -> Vec<ModelView> {
    let serves = |model: &&Arc<Model>| {
        let mut providers = model.providers.iter();
        providers.any(|provider| provider.is_on() && !switches.is_off(&provider.name))
    };
    let view = |model: &Arc<Model>| ModelView {
        name: model.name.clone(),
        display_name: model.display_name.clone(),
        aliases: model.aliases.clone(),
        provider: model.preferred_provider().to_owned(),
        providers: model.providers.iter().map(|provider| provider.name.clone()).collect(),
        protocols: model.protocols_served(|provider| switches.is_off(provider)),
        context_tokens: model.context_tokens,
        prices: model.prices.clone(),
    };
    catalogue.served_models().filter(serves).map(view).collect()
}
