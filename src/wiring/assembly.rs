//! Adds each of weir's services to a server: the gateway's workers, and what is served beside them.

use std::sync::Arc;

use pingora::server::{Server, configuration::ServerConf};
use tokio::sync::watch;

use crate::{
    admin::{Admin, Stores, Upgrades, audit::Audit},
    edges::clock,
    gateway::reply::own_usage::LastRows,
    money::account_changes::journaled::JournaledChanges,
    side::{
        admin,
        ops::{self, OpsState, Readiness, Ready},
        service::{Bound, SideService},
        unix_socket::Claim,
    },
    store::{KeyStore, StoreWarning},
    telemetry::metrics::Metrics,
    wiring::{
        StartError,
        bounds::Bounds,
        console, front_service,
        last_rows::RowsOfLog,
        listeners::{ADMIN, Listeners, OPS},
        parts::Parts,
        phase::Phase,
        served::Served,
    },
};

/// What the listeners beside the gateway have to know.
pub(super) struct Side {
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) closing: watch::Receiver<bool>,
    pub(super) claims: watch::Receiver<Claim>,
    pub(super) upgrades: Option<Arc<dyn Upgrades>>,
}

/// Adds all services to a server. `conf` is for the gateway's proxy.
///
/// # Errors
/// A file that the configuration names cannot be used, or there are no descriptors left.
pub(super) fn add(
    server: &mut Server,
    conf: &Arc<ServerConf>,
    parts: &Parts,
    listeners: &Listeners,
    side: &Side,
) -> Result<Bounds, StartError> {
    let closing = || side.closing.clone();
    let (state, links) = console::state(admin_state(parts, side.upgrades.clone())?, parts);
    let log = Arc::clone(state.log());
    let tell = move |metrics: &Metrics| metrics.log.verified_at.set(log.verified_at());
    parts.sinks.metrics.sample(tell);
    let portal = console::portal(parts, &state, console::openid(parts)?);
    let ways = (links, console::openid(parts)?, console::alerts(parts)?);
    let for_owners = (portal, Arc::new(RowsOfLog::new(state.clone())) as Arc<dyn LastRows>);
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
    listeners.before(server, |server| {
        let mut services = vec![
            server.add_service(ops.until(closing())),
            server.add_service(stability),
            server.add_service(admin.until(closing())),
        ];
        services.extend(gateway.into_iter().map(|worker| server.add_service(worker)));
        services.extend(admin_tcp.map(|admin_tcp| server.add_service(admin_tcp.until(closing()))));
        services.extend(redirect.map(|redirect| server.add_service(redirect)));
        services.extend(console.map(|console| server.add_service(console)));
        services
    })?;
    Ok(Bounds {
        gateway: gateway_bound,
        ops: ops_bound,
        stability: stability_bound,
        admin: admin_bound,
        admin_tcp: admin_tcp_bound,
        redirect: redirect_bound,
        console: console_bound,
    })
}

/// What must hold for requests to be sent here, as it is whenever it is asked for.
fn readiness(parts: &Parts, phase: watch::Receiver<Phase>, admin: watch::Receiver<Bound>) -> Ready {
    let store = Arc::clone(&parts.store);
    let keys = Arc::clone(&parts.keys);
    let live = Arc::clone(&parts.live);
    let time = Arc::clone(parts.money.billing.time());
    let (billing, journal) = (parts.money.billing.clone(), Arc::clone(&parts.money.journal));
    let warns = |store: &dyn KeyStore, warning| store.warnings().contains(&warning);
    Arc::new(move || Readiness {
        store_reachable: keys.store_is_reachable(),
        store_trouble: store.trouble(),
        store_rights_missing: warns(&*store, StoreWarning::MissingRights),
        store_evicted: warns(&*store, StoreWarning::Evicted),
        serves_on_grace: billing.has_grace() && keys.has_offline_keys(clock::instant()),
        journal: journal.shut(),
        admin_listening: matches!(*admin.borrow(), Bound::Unix(_)),
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

fn ops_service(parts: &Parts, listeners: &Listeners, ready: Ready) -> (SideService, watch::Receiver<Bound>) {
    let state = OpsState {
        metrics: Arc::clone(&parts.sinks.metrics),
        ready,
    };
    SideService::http(OPS, listeners.address(OPS, parts.config.ops.listen), ops::router(state))
}

fn admin_state(parts: &Parts, upgrades: Option<Arc<dyn Upgrades>>) -> Result<Admin, StartError> {
    let audit =
        Audit::open(&parts.config.admin.audit).map_err(|error| StartError::failed("the audit record", error))?;
    let prefix = parts.config.gateway.key_prefix.clone();
    Ok(Admin::new(
        Stores {
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
        Arc::new(Served::new(&parts.live, &parts.switches)),
        prefix,
        audit,
        upgrades,
    )
    .with_sign_ins(parts.sign_ins.clone()))
}

fn admin_service(parts: &Parts, state: Admin, claims: watch::Receiver<Claim>) -> (SideService, watch::Receiver<Bound>) {
    let serve = move |listener, shutdown| admin::serve(listener, state.clone(), shutdown);
    let socket = parts.config.admin.socket.clone();
    SideService::unix("admin", socket, claims, serve)
}

/// The same over TCP, if it is configured: only with TLS.
fn admin_tcp_service(
    parts: &Parts,
    state: &Admin,
    listeners: &Listeners,
) -> Option<(SideService, watch::Receiver<Bound>)> {
    let tcp = parts.config.admin.tcp()?;
    let tls = Arc::clone(parts.tls.admin.as_ref()?);
    let serve = admin::tcp::serve(state.clone(), tls);
    Some(SideService::tcp(
        ADMIN,
        listeners.address(ADMIN, tcp.listen),
        Box::new(serve),
    ))
}
