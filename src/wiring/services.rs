//! weir's services: built from a configuration, and added to a server.

use std::{fmt, net::TcpListener, path::Path, sync::Arc, time::Duration};

use pingora::server::{Server, configuration::ServerConf};
use tempfile::NamedTempFile;
use tokio::{
    runtime::Runtime,
    sync::{Mutex, watch},
};

use crate::{
    admin::Upgrades,
    config::Config,
    journal::handle::StartRole,
    side::unix_socket::SocketClaim,
    wiring::{
        StartError,
        assembly::{self, SideState},
        listeners::{self, BoundAddresses, GATEWAY, ListeningSockets},
        load,
        node::Node,
        parts::NodeParts,
        prepared::PreparedStart,
        process::{Descriptors, Phase, ProcessOwner, ServerPhases},
        running::{RunningWeir, ServerEnd},
        stop::CUT_WAIT,
        tls,
        upgrade::{self, Launch, Upgrader, handover::Predecessor},
    },
};

/// Pingora's own limit of tries; weir's rules (`upstream.rs`) end sooner.
const TRIES_MAX: usize = 16;

/// Pingora's default grace period.
const GRACE_PERIOD: Duration = Duration::from_secs(300);

/// weir's services, built from a configuration, before they are part of a server.
///
/// These are the gateway and everything else in `weir serve`: the listeners for metrics and health, the public record, the
/// admin API, the console and the redirect to TLS, as far as they are configured, and the background work, on weir's own
/// threads: settlement, the journal, feeding the log, health checks, name resolution and reloads.
///
/// Everything that can fail fails here, before the server runs: the configuration and the files that it names are read, the
/// journal and the store are opened, and every TCP address is bound. Only the admin API's unix socket is opened when the server
/// runs; if that fails, an error is logged and `/readyz` reports `admin_not_listening`.
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

/// The owner of the process, and what it inherits.
pub(super) struct ProcessOrigin<'a> {
    pub(super) process: ProcessOwner,
    /// Sockets from a service manager.
    pub(super) activated: Vec<TcpListener>,
    /// The process that this one replaces.
    pub(super) predecessor: Option<&'a mut Predecessor>,
}

/// How weir learns of its end, and how an upgrade replaces it.
pub(super) struct LifecycleControl {
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) server: ServerEnd,
    /// How long running requests may go on after the gateway has closed.
    pub(super) drain_time: Duration,
    /// How to start a successor; `None` if upgrades are not possible.
    pub(super) launch: Option<Launch>,
    /// From which process the admin API's socket may be taken.
    pub(super) claim: SocketClaim,
}

impl Services {
    /// Builds the services of a configuration file, and binds their addresses.
    ///
    /// It blocks on files, the store and the names of providers, so do not call it in asynchronous code.
    ///
    /// # Errors [`StartError::Configuration`] if the file, or a file that it names, has a mistake; [`StartError::Listen`] if an
    /// address cannot be used; [`StartError::Failed`] if the journal or the store cannot be opened, for example because another
    /// process uses them.
    pub fn from_file(conf: impl AsRef<Path>) -> Result<Self, StartError> {
        let conf = conf.as_ref();
        let origin = ProcessOrigin {
            process: ProcessOwner::Foreign,
            // Sockets in the environment belong to the process, which may have its own listeners.
            activated: Vec::new(),
            predecessor: None,
        };
        Self::open(load(conf)?, conf, background()?, origin)
    }

    /// Adds the services to a server that does not run yet. They start and end with it.
    ///
    /// When the server begins to shut down, weir accepts nothing new and lets running requests end: for `[gateway]
    /// drain_seconds`, or until five seconds before the end of the server's `grace_period_seconds` if that is sooner. Requests
    /// that still run then end with their protocol's error. Every request is charged, and everything is written, before the
    /// grace period ends; [`Node::finish`] waits for that.
    ///
    /// # Errors [`StartError::Configuration`] if the server is set to run as a daemon of Pingora, or to take the sockets of an
    /// earlier process (`--upgrade`), or if a file of `weir.toml` has a mistake; [`StartError::Failed`] if no descriptors or
    /// threads are left.
    pub fn add_to(self, server: &mut Server) -> Result<Node, StartError> {
        check_server(server)?;
        let config = &self.parts.config.gateway;
        let gateway = self.listeners.address(GATEWAY, config.listen);
        let drain_time = within_grace(config.drain, server.configuration.grace_period_seconds);
        if drain_time < config.drain {
            tracing::warn!(
                drain_seconds = config.drain.as_secs(),
                used = drain_time.as_secs(),
                "the server's grace_period_seconds is too short for [gateway] drain_seconds: running requests are ended earlier"
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

    /// Builds the services, with background work on `background`.
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
                // No request is served while the store is handed over, so it comes last.
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

    /// Adds the services to a server; the returned watches report when each listener is open.
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

    /// The parts that the services share.
    pub(super) fn parts(&self) -> &NodeParts {
        &self.parts
    }

    /// The runtime of the background tasks.
    pub(super) fn background(&self) -> &Runtime {
        &self.background
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Services").finish_non_exhaustive()
    }
}

/// The runtime for background tasks.
pub(super) fn background() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("cannot start the background threads", error))
}

/// Pingora's configuration for the gateway's proxy, which ignores the server's own configuration.
fn gateway_conf(config: &Config, roots: Option<&NamedTempFile>) -> ServerConf {
    ServerConf {
        threads: 1,
        max_retries: TRIES_MAX,
        // Each worker of the gateway has its own connections.
        upstream_keepalive_pool_size: Descriptors::share(config).pool.div_ceil(config.gateway.threads),
        ca_file: roots.map(|roots| roots.path().to_string_lossy().into_owned()),
        ..ServerConf::default()
    }
}

/// Checks that weir can be part of a server.
///
/// # Errors
/// The server would run in another process, or would take the sockets of an earlier one.
fn check_server(server: &Server) -> Result<(), StartError> {
    let refused = |why: &str| Err(StartError::Configuration(why.to_owned()));
    if server.configuration.daemon {
        return refused(
            "the server is set to run as a daemon, in a process without weir's threads: run it in the foreground, and have the service \
             manager keep it running",
        );
    }
    if server.options.as_ref().is_some_and(|options| options.upgrade) {
        return refused(
            "the server is set to take the sockets of an earlier process (--upgrade), which cannot hand over weir's journal and store: stop \
             that process and start this one without --upgrade",
        );
    }
    Ok(())
}

/// The drain time in a server with `grace_period_seconds`, so that requests that are cut off still end properly.
fn within_grace(drain: Duration, grace_period_seconds: Option<u64>) -> Duration {
    let grace = grace_period_seconds.map_or(GRACE_PERIOD, Duration::from_secs);
    drain.min(grace.saturating_sub(CUT_WAIT))
}

#[cfg(test)]
mod tests {
    use pingora::server::configuration::Opt;

    use super::*;

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
