//! Builds weir's services from a configuration, and adds them to a Pingora server. The server belongs to another program, or to
//! weir itself (`weir serve`, `weir demo`).

use std::{fmt, net::TcpListener, path::Path, sync::Arc, time::Duration};

use pingora::server::{RunArgs, Server, configuration::ServerConf};
use tempfile::NamedTempFile;
use tokio::{
    runtime::Runtime,
    sync::{Mutex, watch},
};

use crate::{
    admin::Upgrades,
    config::Config,
    journal::handle::StartRole,
    side::connection::SocketClaim,
    wiring::{
        StartError,
        assembly::{self, SideState},
        listeners::{self, Addresses, BoundAddresses, GATEWAY, ListeningSockets},
        load,
        parts::NodeParts,
        prepared::PreparedStart,
        process::{Descriptors, Phase, ProcessOwner, ServerPhases},
        running::{self, CUT_WAIT, Node, RunningWeir, ServerEnd, TerminationWatch},
        tls,
        upgrade::{self, Launch, Upgrader, handover::Predecessor},
    },
};

/// The maximum number of attempts for one request in Pingora's configuration. weir's own rules (`gateway/upstream`) end a request
/// sooner.
const TRIES_MAX: usize = 16;

/// Pingora's default grace period.
const GRACE_PERIOD: Duration = Duration::from_secs(300);

/// weir's services, built from a configuration and not yet part of a server.
///
/// These are the services of `weir serve`: the gateway, the listeners for metrics and health, the public record, the admin API,
/// and, if they are configured, the console and the redirect to HTTPS. weir's own threads do background work: settlement, the
/// journal, feeding the log, health checks, name resolution and reloads.
///
/// Failures are reported while the services are built, before the server runs: the configuration and the files that it names are
/// read, the journal and the store are opened, and every TCP address is bound. Only the admin API's Unix socket is opened later,
/// when the server runs. If that fails, an error is logged, and `/readyz` reports `admin_not_listening`.
///
/// # Example
///
/// ```no_run
/// use pingora::server::{RunArgs, Server};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let mut server = Server::new(None)?;
///     server.bootstrap();
///     let weir = weir::Services::from_file("weir.toml")?.add_to(&mut server)?;
///     // Further services: server.add_service(...)
///     server.run(RunArgs::default());
///     weir.finish();
///     Ok(())
/// }
/// ```
pub struct Services {
    process: ProcessOwner,
    parts: NodeParts,
    listeners: Arc<ListeningSockets>,
    background: Runtime,
}

/// The owner of the process, and the sockets that the process inherits.
pub(super) struct ProcessOrigin<'a> {
    pub(super) process: ProcessOwner,
    /// The sockets that a service manager has passed to the process.
    pub(super) activated: Vec<TcpListener>,
    /// The process that this process replaces. `None` for a start without a predecessor.
    pub(super) predecessor: Option<&'a mut Predecessor>,
}

/// The controls of weir's lifetime: its end, and its replacement by an upgrade.
pub(super) struct LifecycleControl {
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) server: ServerEnd,
    /// The maximum time for which running requests continue after the gateway has stopped accepting requests.
    pub(super) drain_time: Duration,
    /// The data for starting a successor. `None` if upgrades are not possible.
    pub(super) launch: Option<Launch>,
    /// Whether the admin API's socket path can be taken only from a process that has ended, or also from a serving one.
    pub(super) claim: SocketClaim,
}

impl Services {
    /// Builds the services of a configuration file, and binds their addresses.
    ///
    /// This blocks on files, the store and the resolution of names, so do not call it in asynchronous code.
    ///
    /// # Errors
    /// [`StartError::Configuration`] if the file, or a file that it names, is invalid. [`StartError::Listen`] if an address
    /// cannot be used. [`StartError::Failed`] if the journal or the store cannot be opened, for example because another process
    /// uses them.
    pub fn from_file(conf: impl AsRef<Path>) -> Result<Self, StartError> {
        let conf = conf.as_ref();
        let origin = ProcessOrigin {
            process: ProcessOwner::Foreign,
            // Sockets of a service manager are not used: they belong to the program, which may have its own listeners.
            activated: Vec::new(),
            predecessor: None,
        };
        Self::open(load(conf)?, conf, background()?, origin)
    }

    /// Adds the services to a server that does not run yet. They start and end with the server.
    ///
    /// When the server begins to shut down, weir accepts no further requests. Running requests can continue for `[gateway]
    /// drain_seconds`, but only until five seconds before the end of the server's `grace_period_seconds`. Requests that have not
    /// finished by then get an error in the form of their protocol. Before the grace period ends, every request is charged and
    /// everything is written; [`Node::finish`] waits for that.
    ///
    /// # Errors
    /// [`StartError::Configuration`] if the server is configured to run as a daemon of Pingora, or to take over the sockets of an
    /// earlier process (`--upgrade`), or if a file that `weir.toml` names is invalid. [`StartError::Failed`] if no file
    /// descriptors or threads are left.
    pub fn add_to(self, server: &mut Server) -> Result<Node, StartError> {
        check_server(server)?;
        let config = &self.parts.config.gateway;
        let gateway = self.listeners.address(GATEWAY, config.listen);
        let drain_time = within_grace(config.drain, server.configuration.grace_period_seconds);
        if drain_time < config.drain {
            tracing::warn!(
                drain_seconds = config.drain.as_secs(),
                used = drain_time.as_secs(),
                "requests get less time than [gateway] drain_seconds when the server stops: raise the server's grace_period_seconds"
            );
        }
        let ServerPhases { phase, ended } =
            ServerPhases::follow(server.watch_execution_phase(), self.background.handle());
        let ending = LifecycleControl {
            phase,
            server: ServerEnd { order: None, ended },
            drain_time,
            launch: None,
            claim: SocketClaim::FromDeadProcess,
        };
        let (running, _) = self.attach_to(server, ending)?;
        Node::start(running, gateway)
    }

    /// Builds the services. Background tasks run on `background`.
    pub(super) fn open(
        config: Config,
        conf: &Path,
        background: Runtime,
        origin: ProcessOrigin<'_>,
    ) -> Result<Self, StartError> {
        let ProcessOrigin {
            process,
            activated,
            predecessor,
        } = origin;
        let wanted = listeners::configured_listeners(&config);
        let bind = |inherited| background.block_on(async { ListeningSockets::open(wanted, activated, inherited) });
        let (parts, listeners) = match predecessor {
            None => {
                let prepared = PreparedStart::build(config, conf, (process, StartRole::Alone), &background)?;
                (NodeParts::open(prepared, Vec::new(), &background)?, bind(Vec::new())?)
            }
            Some(predecessor) => {
                predecessor.check_locations(&config)?;
                let prepared = PreparedStart::build(config, conf, (process, StartRole::Successor), &background)?;
                let listeners = bind(predecessor.take_sockets())?;
                // The store is requested last, because requests wait while the store is handed over.
                let carried = predecessor.take_store()?;
                (NodeParts::open(prepared, carried, &background)?, listeners)
            }
        };
        Ok(Self {
            process,
            parts,
            listeners: Arc::new(listeners),
            background,
        })
    }

    /// Adds the services to a server. The returned receivers get the address of each listener once it is open.
    pub(super) fn attach_to(
        self,
        server: &mut Server,
        ending: LifecycleControl,
    ) -> Result<(RunningWeir, BoundAddresses), StartError> {
        let Self {
            process,
            parts,
            listeners,
            background,
        } = self;
        let LifecycleControl {
            phase,
            server: server_end,
            drain_time,
            launch,
            claim,
        } = ending;
        let ca_file = parts.config.upstream.ca_file.as_deref();
        let roots = ca_file
            .map(tls::joined_bundle)
            .transpose()
            .map_err(StartError::Configuration)?;
        let conf = Arc::new(gateway_conf(&parts.config, roots.as_ref()));
        let (side_closing, handed_over) = (watch::Sender::new(false), watch::Sender::new(false));
        let claims = watch::Sender::new(claim);
        let upgrader = launch.map(|launch| Upgrader {
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
        let side = SideState {
            phase: phase.clone(),
            closing: side_closing.subscribe(),
            claims: claims.subscribe(),
            upgrades: upgrader.map(|upgrader| Arc::new(upgrader) as Arc<dyn Upgrades>),
        };
        let bounds = assembly::add(server, &conf, &parts, &listeners, &side)?;
        let running = RunningWeir {
            parts,
            background,
            process,
            phase,
            drain_time,
            handed_over: handed_over.subscribe(),
            listeners,
            side_closing,
            predecessor: None,
            server: server_end,
            _roots: roots,
        };
        Ok((running, bounds))
    }

    /// Returns the parts that the services share.
    pub(super) fn parts(&self) -> &NodeParts {
        &self.parts
    }

    /// Returns the runtime of the background tasks.
    pub(super) fn background(&self) -> &Runtime {
        &self.background
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Services").finish_non_exhaustive()
    }
}

/// Creates the runtime for background tasks.
pub(super) fn background() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("cannot start the background threads", error))
}

/// Returns the Pingora configuration of the gateway's proxy. The proxy does not use the configuration of the server.
fn gateway_conf(config: &Config, roots: Option<&NamedTempFile>) -> ServerConf {
    ServerConf {
        threads: 1,
        max_retries: TRIES_MAX,
        // The pool is divided, because each worker of the gateway has its own connections.
        upstream_keepalive_pool_size: Descriptors::share(config).pool.div_ceil(config.gateway.threads),
        ca_file: roots.map(|roots| roots.path().to_string_lossy().into_owned()),
        ..ServerConf::default()
    }
}

/// Checks that weir can be a part of a server.
///
/// # Errors
/// The server is configured to run in another process, or to take over the sockets of an earlier process.
fn check_server(server: &Server) -> Result<(), StartError> {
    let refused = |why: &str| Err(StartError::Configuration(why.to_owned()));
    if server.configuration.daemon {
        return refused(
            "the server is configured to run as a daemon, which is a process without weir's threads: run the server in the foreground, and have the service \
             manager keep it running",
        );
    }
    if server.options.as_ref().is_some_and(|options| options.upgrade) {
        return refused(
            "the server is configured to take over the sockets of an earlier process (--upgrade), which cannot hand over weir's journal and store: stop \
             that process and start this one without --upgrade",
        );
    }
    Ok(())
}

/// Returns the drain time. The time is shortened if the server's `grace_period_seconds` would otherwise end before weir has
/// answered all unfinished requests with an error.
fn within_grace(drain: Duration, grace_period_seconds: Option<u64>) -> Duration {
    let grace = grace_period_seconds.map_or(GRACE_PERIOD, Duration::from_secs);
    drain.min(grace.saturating_sub(CUT_WAIT))
}

/// Starts weir, and returns its addresses once it serves. Must be called before other threads read the environment. `launch` says
/// how to start a successor; `None` if upgrades are not possible. `predecessor` is the process that this process replaces; `None`
/// for a start without a predecessor.
pub(super) fn start(
    config: Config,
    conf: &Path,
    launch: Option<Launch>,
    predecessor: Option<&mut Predecessor>,
) -> Result<(RunningWeir, Addresses), StartError> {
    let at: Vec<_> = listeners::configured_listeners(&config)
        .iter()
        .map(|listener| listener.at)
        .collect();
    let activated = listeners::take_activated(&at)?;
    let background = background()?;
    let no_signals = |error| StartError::failed("cannot listen for signals", error);
    let phase = background
        .block_on(async { running::watch_phase() })
        .map_err(no_signals)?;
    let claim = if predecessor.is_some() {
        SocketClaim::FromServingProcess
    } else {
        SocketClaim::FromDeadProcess
    };
    let origin = ProcessOrigin {
        process: ProcessOwner::Own,
        activated,
        predecessor,
    };
    let services = Services::open(config, conf, background, origin)?;
    let reload = services.parts().reload.clone();
    services
        .background()
        .block_on(async { running::reload_on_hangup(reload) })
        .map_err(no_signals)?;
    let mut server = Server::new_with_opt_and_conf(None, server_conf());
    server.bootstrap();
    let phases = ServerPhases::follow(server.watch_execution_phase(), services.background().handle());
    let order = watch::Sender::new(false);
    let termination = TerminationWatch(order.subscribe());
    let ending = LifecycleControl {
        phase,
        server: ServerEnd {
            order: Some(order),
            ended: phases.ended,
        },
        drain_time: services.parts().config.gateway.drain,
        launch,
        claim,
    };
    let (running, bounds) = services.attach_to(&mut server, ending)?;
    run(server, termination)?;
    let addresses = running.background.block_on(bounds.addresses())?;
    Ok((running, addresses))
}

/// Runs the server in its own thread.
fn run(server: Server, termination: TerminationWatch) -> Result<(), StartError> {
    let serve = move || {
        server.run(RunArgs {
            shutdown_signal: Box::new(termination),
        });
    };
    let thread = std::thread::Builder::new().name("server".to_owned()).spawn(serve);
    thread.map_err(|error| StartError::failed("cannot start the server's thread", error))?;
    Ok(())
}

fn server_conf() -> ServerConf {
    ServerConf {
        // Each service has one thread. The gateway has one service for each of its threads (docs/benchmarks.md, "Threads").
        threads: 1,
        work_stealing: false,
        // There is no grace period, because Pingora is ended only after the gateway has drained.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        // Pingora's own timers are not used, because they would wake a thread a hundred times per second.
        fast_timeout_to_tokio_threshold_seconds: Some(0),
        ..ServerConf::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pingora::server::configuration::Opt;

    fn refusal(options: Option<Opt>, conf: ServerConf) -> Option<String> {
        let server = Server::new_with_opt_and_conf(options, conf);
        check_server(&server).err().map(|error| error.to_string())
    }

    #[test]
    fn a_server_that_runs_in_this_process_and_on_sockets_of_its_own_is_fine() {
        let plain = Opt::default();
        assert_eq!(refusal(Some(plain), ServerConf::default()), None);
        assert_eq!(refusal(None, ServerConf::default()), None);
        let daemon = ServerConf {
            daemon: true,
            ..ServerConf::default()
        };
        assert!(refusal(None, daemon).is_some_and(|why| why.contains("daemon")));
        let upgrade = Opt {
            upgrade: true,
            ..Opt::default()
        };
        assert!(refusal(Some(upgrade), ServerConf::default()).is_some_and(|why| why.contains("--upgrade")));
    }

    #[test]
    fn requests_have_the_configured_time_or_what_the_server_leaves_of_it() {
        let seconds = Duration::from_secs;
        assert_eq!(within_grace(seconds(60), Some(90)), seconds(60));
        assert_eq!(within_grace(seconds(600), Some(90)), seconds(85));
        assert_eq!(within_grace(seconds(600), Some(1)), Duration::ZERO);
        assert_eq!(within_grace(seconds(600), None), seconds(295));
    }

    #[test]
    fn a_file_with_a_mistake_is_refused_before_anything_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("weir.toml");
        std::fs::write(&conf, "nonsense = 1").unwrap();
        let refused = Services::from_file(&conf).unwrap_err();
        assert!(
            matches!(&refused, StartError::Configuration(why) if why.contains("nonsense")),
            "{refused}"
        );
    }
}
