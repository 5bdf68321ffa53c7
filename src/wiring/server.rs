//! Runs Pingora with all services.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use pingora::server::{RunArgs, Server, configuration::ServerConf};
use tempfile::NamedTempFile;
use tokio::{runtime::Runtime, sync::watch};

use crate::{
    config::Config,
    edges::clock,
    money::account_changes::journaled::JournaledChanges,
    side::{
        admin::{self, AdminState},
        audit::Audit,
        ops::{self, OpsState, Readiness, Ready},
        service::{Bound, SideService},
    },
    store::StoreWarning,
    wiring::{
        StartError, console,
        descriptors::Descriptors,
        front_service,
        listen_fds::HandedOver,
        parts::Parts,
        served::Served,
        signals::{self, Phase, TerminationWatch},
        trust,
    },
};

/// How long listening sockets may take to be there.
const START_WAIT: Duration = Duration::from_secs(10);

/// Pingora's own count of tries; weir's rules (`upstream.rs`) end sooner.
const TRIES_MAX: usize = 16;

/// Where a running weir listens.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The listener for clients.
    pub gateway: SocketAddr,
    /// The listener for metrics and health.
    pub ops: SocketAddr,
    /// The public stability service.
    pub stability: SocketAddr,
    /// The admin API's unix socket.
    pub admin: PathBuf,
    /// The admin API over TCP.
    pub admin_tcp: Option<SocketAddr>,
    /// The listener that sends clients to the one with TLS.
    pub redirect: Option<SocketAddr>,
    /// The operators' console.
    pub console: Option<SocketAddr>,
}

/// A weir that serves, until [`Running::until_stopped`].
pub(crate) struct Running {
    /// The bound addresses.
    pub addresses: Addresses,
    /// The parts that it runs.
    pub parts: Parts,
    /// Where its background tasks run.
    pub background: Runtime,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) end: watch::Sender<bool>,
    pub(super) server_ended: Receiver<()>,
    _roots: Option<NamedTempFile>,
}

/// Starts everything; returns when it serves. To be called before there are threads.
pub(crate) fn start(config: Config, conf: &Path) -> Result<Running, StartError> {
    let handed_over = HandedOver::take(&listeners(&config))?;
    let background = background()?;
    let no_signals = |error| StartError::failed("listening for signals", error);
    let phase = background.block_on(async { signals::phase() }).map_err(no_signals)?;
    let parts = Parts::build(config, conf, &background)?;
    let sinks = Arc::clone(&parts.sinks);
    background
        .block_on(async { signals::reopen_logs(sinks) })
        .map_err(no_signals)?;
    let ca_file = parts.config.upstream.ca_file.as_deref();
    let roots = ca_file
        .map(trust::bundle)
        .transpose()
        .map_err(StartError::Configuration)?;

    let mut server = Server::new_with_opt_and_conf(None, server_conf(&parts.config, roots.as_ref()));
    server.bootstrap();
    let (state, links) = console::state(admin_state(&parts)?, &parts);
    let portal = console::portal(&parts, &state);
    let (gateway, gateway_bound) = front_service::gateway(&server.configuration, &parts, portal);
    let (redirect, redirect_bound) = front_service::redirect(&parts, gateway_bound.clone()).unzip();
    let (admin_tcp, admin_tcp_bound) = admin_tcp_service(&parts, &state).unzip();
    let (admin, admin_bound) = admin_service(&parts, state.clone());
    let ready = readiness(&parts, phase.clone(), admin_bound.clone());
    let (console, console_bound) = console::service(&parts, state, links, (&ready, &gateway_bound)).unzip();
    let (ops, ops_bound) = ops_service(&parts, ready);
    let (stability, stability_bound) = front_service::stability(&parts);
    handed_over.before(&mut server, |server| {
        let mut services = vec![
            server.add_service(gateway),
            server.add_service(ops),
            server.add_service(stability),
            server.add_service(admin),
        ];
        services.extend(admin_tcp.map(|admin_tcp| server.add_service(admin_tcp)));
        services.extend(redirect.map(|redirect| server.add_service(redirect)));
        services.extend(console.map(|console| server.add_service(console)));
        services
    });

    let end = watch::Sender::new(false);
    let told = TerminationWatch(end.subscribe());
    let server_ended = run(server, told)?;
    let addresses = background.block_on(addresses(Bounds {
        gateway: gateway_bound,
        ops: ops_bound,
        stability: stability_bound,
        admin: admin_bound,
        admin_tcp: admin_tcp_bound,
        redirect: redirect_bound,
        console: console_bound,
    }))?;
    Ok(Running {
        addresses,
        parts,
        background,
        phase,
        end,
        server_ended,
        _roots: roots,
    })
}

/// The addresses of all listeners on TCP.
fn listeners(config: &Config) -> Vec<SocketAddr> {
    let mut listeners = vec![config.gateway.listen, config.ops.listen, config.stability.listen];
    listeners.extend(config.gateway.tls.redirect_listen);
    listeners.extend(config.admin.tcp.as_ref().map(|tcp| tcp.listen));
    listeners.extend(config.console.listen);
    listeners
}

/// Runs the server on a thread of its own until it is told to end. The receiver hears that it has.
fn run(server: Server, told: TerminationWatch) -> Result<Receiver<()>, StartError> {
    let (ended, server_ended) = channel();
    let serve = move || {
        server.run(RunArgs {
            shutdown_signal: Box::new(told),
        });
        // Nobody waits any more when the process ends for another reason.
        let _ = ended.send(());
    };
    std::thread::Builder::new()
        .name("server".to_owned())
        .spawn(serve)
        .map_err(|error| StartError::failed("the server's thread", error))?;
    Ok(server_ended)
}

fn background() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("background threads", error))
}

fn server_conf(config: &Config, roots: Option<&NamedTempFile>) -> ServerConf {
    ServerConf {
        threads: config.gateway.threads,
        max_retries: TRIES_MAX,
        upstream_keepalive_pool_size: Descriptors::share(config).pool,
        ca_file: roots.map(|roots| roots.path().to_string_lossy().into_owned()),
        // Pingora is told to end when the gateway has drained.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    }
}

/// What must hold for requests to be sent here, as it is whenever it is asked for.
fn readiness(parts: &Parts, phase: watch::Receiver<Phase>, admin: watch::Receiver<Bound>) -> Ready {
    let store = Arc::clone(&parts.store);
    let keys = Arc::clone(&parts.keys);
    let live = Arc::clone(&parts.live);
    let time = Arc::clone(parts.money.billing.time());
    let (billing, journal) = (parts.money.billing.clone(), Arc::clone(&parts.money.journal));
    Arc::new(move || Readiness {
        store_reachable: keys.store_is_reachable(),
        store_trouble: store.trouble(),
        store_rights_missing: store.warnings().contains(&StoreWarning::MissingRights),
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

fn ops_service(parts: &Parts, ready: Ready) -> (SideService, watch::Receiver<Bound>) {
    let state = OpsState {
        metrics: Arc::clone(&parts.sinks.metrics),
        ready,
    };
    SideService::http("ops", parts.config.ops.listen, ops::router(state))
}

fn admin_state(parts: &Parts) -> Result<AdminState, StartError> {
    let audit =
        Audit::open(&parts.config.admin.audit).map_err(|error| StartError::failed("the audit record", error))?;
    let prefix = parts.config.gateway.key_prefix.clone();
    Ok(AdminState::new(
        admin::Stores {
            keys: Arc::clone(&parts.store),
            ledger: Arc::clone(&parts.money.ledger),
            changes: Arc::new(JournaledChanges::new(
                Arc::clone(&parts.money.journal),
                Arc::clone(&parts.money.ledger),
                parts.money.billing.clone(),
            )),
            archive: parts.archive.clone(),
        },
        Arc::new(Served::new(&parts.live, &parts.switches)),
        prefix,
        audit,
    ))
}

fn admin_service(parts: &Parts, state: AdminState) -> (SideService, watch::Receiver<Bound>) {
    let serve = move |listener, shutdown| admin::serve(listener, state.clone(), shutdown);
    let socket = parts.config.admin.socket.clone();
    SideService::unix("admin", socket, serve)
}

/// The same over TCP, if it is configured: only with TLS.
fn admin_tcp_service(parts: &Parts, state: &AdminState) -> Option<(SideService, watch::Receiver<Bound>)> {
    let tcp = parts.config.admin.tcp.as_ref()?;
    let tls = Arc::clone(parts.tls.admin.as_ref()?);
    let serve = admin::tcp::serve(state.clone(), tls);
    Some(SideService::tcp("admin over TCP", tcp.listen, Box::new(serve)))
}

/// What tells where each listener is bound.
struct Bounds {
    gateway: watch::Receiver<Bound>,
    ops: watch::Receiver<Bound>,
    stability: watch::Receiver<Bound>,
    admin: watch::Receiver<Bound>,
    admin_tcp: Option<watch::Receiver<Bound>>,
    redirect: Option<watch::Receiver<Bound>>,
    console: Option<watch::Receiver<Bound>>,
}

async fn addresses(bounds: Bounds) -> Result<Addresses, StartError> {
    let admin = match bound(bounds.admin).await? {
        Bound::Unix(path) => path,
        Bound::Failed(reason) => return Err(StartError::Listen(reason)),
        Bound::Waiting | Bound::Tcp(_) => return Err(of_the_wrong_kind()),
    };
    Ok(Addresses {
        gateway: tcp(bounds.gateway).await?,
        ops: tcp(bounds.ops).await?,
        stability: tcp(bounds.stability).await?,
        admin,
        admin_tcp: optional(bounds.admin_tcp).await?,
        redirect: optional(bounds.redirect).await?,
        console: optional(bounds.console).await?,
    })
}

async fn optional(watch: Option<watch::Receiver<Bound>>) -> Result<Option<SocketAddr>, StartError> {
    match watch {
        Some(watch) => tcp(watch).await.map(Some),
        None => Ok(None),
    }
}

async fn tcp(watch: watch::Receiver<Bound>) -> Result<SocketAddr, StartError> {
    match bound(watch).await? {
        Bound::Tcp(address) => Ok(address),
        Bound::Failed(reason) => Err(StartError::Listen(reason)),
        Bound::Waiting | Bound::Unix(_) => Err(of_the_wrong_kind()),
    }
}

fn of_the_wrong_kind() -> StartError {
    StartError::Listen("a listener of the wrong kind".to_owned())
}

async fn bound(mut watch: watch::Receiver<Bound>) -> Result<Bound, StartError> {
    let waiting = watch.wait_for(|bound| *bound != Bound::Waiting);
    match tokio::time::timeout(START_WAIT, waiting).await {
        Ok(Ok(bound)) => Ok(bound.clone()),
        _ => Err(StartError::Listen("a listener did not start in time".to_owned())),
    }
}
