//! Runs Pingora with all services.

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
};

use pingora::server::{RunArgs, Server, configuration::ServerConf};
use tempfile::NamedTempFile;
use tokio::{
    io::AsyncReadExt,
    net::UnixStream,
    runtime::Runtime,
    sync::{Mutex, watch},
    task::JoinHandle,
};

use crate::{
    admin::{Admin, Stores, Upgrades, audit::Audit},
    config::Config,
    edges::clock,
    gateway::reply::own_usage::LastRows,
    journal::lanes::Place,
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
        bounds::{Addresses, Bounds},
        console,
        descriptors::Descriptors,
        front_service,
        last_rows::RowsOfLog,
        listen_fds,
        listeners::{self, ADMIN, Listeners, OPS},
        parts::Parts,
        prepared::Prepared,
        served::Served,
        signals::{self, Phase, TerminationWatch},
        trust,
        upgrade::{self, Launch, Upgrader, predecessor::Predecessor},
    },
};

/// Pingora's own count of tries; weir's rules (`upstream.rs`) end sooner.
const TRIES_MAX: usize = 16;

/// A weir that serves, until [`Running::until_stopped`].
pub(crate) struct Running {
    /// The bound addresses.
    pub addresses: Addresses,
    /// The parts that it runs.
    pub parts: Parts,
    /// Where its background tasks run.
    pub background: Runtime,
    pub(super) phase: watch::Receiver<Phase>,
    /// Turns true when another process serves in its place.
    pub(super) handed_over: watch::Receiver<bool>,
    pub(super) listeners: Arc<Listeners>,
    /// Turns true when the listeners beside the gateway are to take nothing new.
    pub(super) side_closing: watch::Sender<bool>,
    /// Ends with the process before.
    pub(super) predecessor: Option<JoinHandle<()>>,
    pub(super) end: watch::Sender<bool>,
    pub(super) server_ended: Receiver<()>,
    _roots: Option<NamedTempFile>,
}

impl Running {
    /// Tells the process before that this one serves, answers what that one asks of the store, and knows when it has ended.
    pub(super) fn after(mut self, predecessor: Predecessor) -> Result<Self, StartError> {
        let line = predecessor.serving()?;
        let unheard = |error| StartError::failed("the line to the process before", error);
        let mut line = self
            .background
            .block_on(async { UnixStream::from_std(line) })
            .map_err(unheard)?;
        self.predecessor = Some(match self.parts.money.embedded() {
            Some(store) => self.background.spawn(store.serve_predecessor(line)),
            // It only closes it, in the end.
            None => self.background.spawn(async move { drop(line.read_u8().await) }),
        });
        Ok(self)
    }
}

/// Starts everything; returns when it serves. To be called before there are threads that read the environment. `launch` says how the next process is
/// started, if there may be one; `predecessor` is the one whose place this one takes.
pub(super) fn start(
    config: Config,
    conf: &Path,
    launch: Option<Launch>,
    predecessor: Option<&mut Predecessor>,
) -> Result<Running, StartError> {
    let wanted = listeners::wanted(&config);
    let activated = listen_fds::take(&wanted.iter().map(|listener| listener.at).collect::<Vec<_>>())?;
    let background = background()?;
    let no_signals = |error| StartError::failed("listening for signals", error);
    let phase = background.block_on(async { signals::phase() }).map_err(no_signals)?;
    let claim = if predecessor.is_some() {
        Claim::Handed
    } else {
        Claim::Left
    };
    let bind = |inherited| background.block_on(async { Listeners::open(wanted, activated, inherited) });
    let (parts, listeners) = match predecessor {
        None => {
            let prepared = Prepared::build(config, conf, Place::Alone, &background)?;
            (Parts::open(prepared, Vec::new(), &background)?, bind(Vec::new())?)
        }
        Some(predecessor) => {
            predecessor.keeps_as(&config)?;
            let prepared = Prepared::build(config, conf, Place::Successor, &background)?;
            let listeners = bind(predecessor.take_sockets())?;
            // Nobody is served while the store is on its way, so it comes last.
            let carried = predecessor.take_store()?;
            (Parts::open(prepared, carried, &background)?, listeners)
        }
    };
    let sinks = Arc::clone(&parts.sinks);
    background
        .block_on(async { signals::reopen_logs(sinks) })
        .map_err(no_signals)?;
    serve(
        parts,
        Arc::new(listeners),
        background,
        phase,
        Beginning { launch, claim },
    )
}

/// How this process came to be, and how the next one will.
struct Beginning {
    launch: Option<Launch>,
    claim: Claim,
}

/// What the listeners beside the gateway have to know.
struct Side {
    phase: watch::Receiver<Phase>,
    closing: watch::Receiver<bool>,
    claims: watch::Receiver<Claim>,
    upgrades: Option<Arc<dyn Upgrades>>,
}

/// Starts Pingora with all services.
fn serve(
    parts: Parts,
    listeners: Arc<Listeners>,
    background: Runtime,
    phase: watch::Receiver<Phase>,
    beginning: Beginning,
) -> Result<Running, StartError> {
    let ca_file = parts.config.upstream.ca_file.as_deref();
    let roots = ca_file
        .map(trust::bundle)
        .transpose()
        .map_err(StartError::Configuration)?;
    let mut server = Server::new_with_opt_and_conf(None, server_conf(&parts.config, roots.as_ref()));
    server.bootstrap();
    let (side_closing, handed_over) = (watch::Sender::new(false), watch::Sender::new(false));
    let claims = watch::Sender::new(beginning.claim);
    let upgrader = beginning.launch.map(|launch| Upgrader {
        launch,
        kept_in: upgrade::kept_in(&parts.config),
        listeners: Arc::clone(&listeners),
        left: Arc::clone(&parts.money.left),
        journal: Arc::clone(&parts.money.journal),
        store: parts.money.embedded(),
        phase: phase.clone(),
        drain: parts.drain.clone(),
        handed_over: handed_over.clone(),
        claims: claims.clone(),
        background: background.handle().clone(),
        turn: Mutex::default(),
        line: Mutex::default(),
    });
    let side = Side {
        phase: phase.clone(),
        closing: side_closing.subscribe(),
        claims: claims.subscribe(),
        upgrades: upgrader.map(|upgrader| Arc::new(upgrader) as Arc<dyn Upgrades>),
    };
    let bounds = services(&mut server, &parts, &listeners, &side)?;
    let (end, server_ended) = run(server)?;
    let addresses = background.block_on(bounds.addresses())?;
    Ok(Running {
        addresses,
        parts,
        background,
        phase,
        handed_over: handed_over.subscribe(),
        listeners,
        side_closing,
        predecessor: None,
        end,
        server_ended,
        _roots: roots,
    })
}

/// Adds all services.
fn services(server: &mut Server, parts: &Parts, listeners: &Listeners, side: &Side) -> Result<Bounds, StartError> {
    let closing = || side.closing.clone();
    let (state, links) = console::state(admin_state(parts, side.upgrades.clone())?, parts);
    let log = Arc::clone(state.log());
    let tell = move |metrics: &Metrics| metrics.log.verified_at.set(log.verified_at());
    parts.sinks.metrics.sample(tell);
    let portal = console::portal(parts, &state, console::openid(parts)?);
    let ways = (links, console::openid(parts)?, console::alerts(parts)?);
    let for_owners = (portal, Arc::new(RowsOfLog::new(state.clone())) as Arc<dyn LastRows>);
    let (gateway, gateway_bound) = front_service::gateway(&server.configuration, parts, for_owners, listeners)?;
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

/// Runs Pingora in a thread of its own: what ends it, and what tells that it has.
fn run(server: Server) -> Result<(watch::Sender<bool>, Receiver<()>), StartError> {
    let end = watch::Sender::new(false);
    let told = TerminationWatch(end.subscribe());
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
    Ok((end, server_ended))
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
        threads: 1,
        max_retries: TRIES_MAX,
        // Each worker of the gateway has connections of its own.
        upstream_keepalive_pool_size: Descriptors::share(config).pool.div_ceil(config.gateway.threads),
        ca_file: roots.map(|roots| roots.path().to_string_lossy().into_owned()),
        // Each service has one thread, and the gateway a service for each of its threads (docs/benchmarks.md, "Threads").
        work_stealing: false,
        // Pingora is told to end when the gateway has drained.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        // Timers of its own would wake a thread a hundred times a second, for as long as the process runs.
        fast_timeout_to_tokio_threshold_seconds: Some(0),
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
