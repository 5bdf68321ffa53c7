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
    journal::lanes::Place,
    side::unix_socket::Claim,
    wiring::{
        StartError,
        assembly::{self, Side},
        bounds::Bounds,
        configuration::load,
        descriptors::Descriptors,
        listeners::{self, GATEWAY, Listeners},
        node::Node,
        parts::Parts,
        phase::{Phase, ServerPhases},
        prepared::Prepared,
        process::Process,
        running::{Running, ServerEnd},
        stop::CUT_WAIT,
        trust,
        upgrade::{self, Launch, Upgrader, predecessor::Predecessor},
    },
};

/// Pingora's own count of tries; weir's rules (`upstream.rs`) end sooner.
const TRIES_MAX: usize = 16;

/// The grace period of a server whose configuration has none: Pingora's.
const GRACE_PERIOD: Duration = Duration::from_secs(300);

/// weir's services, built from a configuration, before they are part of a server.
///
/// These are the gateway and all that `weir serve` has beside it: the listeners for metrics and health, for the public record, for the
/// admin API, for the console and for the redirect to TLS, as far as they are configured; and the background work for them, on threads
/// of weir's own: settlement, the journal, the log's feeders, health checks, names, reloads.
///
/// Everything that can fail fails here, before the server runs: the configuration and the files that it names are read, the journal and
/// the store are opened, and every TCP address is bound. Only the admin API's unix socket is taken when the server runs; where that
/// fails an error is logged and `/readyz` says `admin_not_listening`.
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
    process: Process,
    parts: Parts,
    listeners: Arc<Listeners>,
    background: Runtime,
}

/// How a process comes by what it serves with.
pub(super) struct Origin<'a> {
    pub(super) process: Process,
    /// Sockets that a service manager has handed over.
    pub(super) activated: Vec<TcpListener>,
    /// The process whose place this one takes.
    pub(super) predecessor: Option<&'a mut Predecessor>,
}

/// How weir is told of its end, and what comes after it.
pub(super) struct Ending {
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) server: ServerEnd,
    /// How long requests may go on when nothing new is taken.
    pub(super) drain_time: Duration,
    /// How the next process is started, if there may be one.
    pub(super) launch: Option<Launch>,
    /// Whom the admin API's socket may be taken from.
    pub(super) claim: Claim,
}

impl Services {
    /// Builds the services of a configuration file, and binds their addresses.
    ///
    /// It waits for files, the store and the names of providers, so it is not to be called in asynchronous code.
    ///
    /// # Errors
    /// [`StartError::Configuration`] where the file, or a file that it names, has a mistake; [`StartError::Listen`] where an address
    /// cannot be had; [`StartError::Failed`] where the journal or the store cannot be opened, for example because another process
    /// serves with them.
    pub fn from_file(conf: impl AsRef<Path>) -> Result<Self, StartError> {
        let conf = conf.as_ref();
        let origin = Origin {
            process: Process::Foreign,
            // Those of the environment are the process's, which may have listeners of its own.
            activated: Vec::new(),
            predecessor: None,
        };
        Self::open(load(conf)?, conf, background()?, origin)
    }

    /// Adds the services to a server that does not run yet. They start and end with it.
    ///
    /// When the server begins to shut down, weir takes nothing new and lets running requests end: for `[gateway] drain_seconds`, or until
    /// five seconds before the server's `grace_period_seconds` are over if that is sooner. What runs then ends with its protocol's error.
    /// Every request is charged, and everything is written, before the grace period is over; [`Node::finish`] waits for it.
    ///
    /// # Errors
    /// [`StartError::Configuration`] where the server is to run as a daemon of Pingora's, or to take the sockets of a process before
    /// it (`--upgrade`), and where a file of `weir.toml` has a mistake; [`StartError::Failed`] where there are no descriptors or threads
    /// left.
    pub fn add_to(self, server: &mut Server) -> Result<Node, StartError> {
        check(server)?;
        let config = &self.parts.config.gateway;
        let gateway = self.listeners.address(GATEWAY, config.listen);
        let drain_time = within_grace(config.drain, server.configuration.grace_period_seconds);
        if drain_time < config.drain {
            tracing::warn!(
                drain_seconds = config.drain.as_secs(),
                used = drain_time.as_secs(),
                "the server's grace_period_seconds is too short for [gateway] drain_seconds: what runs is ended before it is over"
            );
        }
        let ServerPhases { phase, ended } =
            ServerPhases::follow(server.watch_execution_phase(), self.background.handle());
        let ending = Ending {
            phase,
            server: ServerEnd { order: None, ended },
            drain_time,
            launch: None,
            claim: Claim::Left,
        };
        let (running, _) = self.join(server, ending)?;
        Node::start(running, gateway)
    }

    /// Builds the services, with threads of `background`.
    pub(super) fn open(
        config: Config,
        conf: &Path,
        background: Runtime,
        origin: Origin<'_>,
    ) -> Result<Self, StartError> {
        let Origin {
            process,
            activated,
            predecessor,
        } = origin;
        let wanted = listeners::wanted(&config);
        let bind = |inherited| background.block_on(async { Listeners::open(wanted, activated, inherited) });
        let (parts, listeners) = match predecessor {
            None => {
                let prepared = Prepared::build(config, conf, (process, Place::Alone), &background)?;
                (Parts::open(prepared, Vec::new(), &background)?, bind(Vec::new())?)
            }
            Some(predecessor) => {
                predecessor.keeps_as(&config)?;
                let prepared = Prepared::build(config, conf, (process, Place::Successor), &background)?;
                let listeners = bind(predecessor.take_sockets())?;
                // Nobody is served while the store is on its way, so it comes last.
                let carried = predecessor.take_store()?;
                (Parts::open(prepared, carried, &background)?, listeners)
            }
        };
        Ok(Self {
            process,
            parts,
            listeners: Arc::new(listeners),
            background,
        })
    }

    /// Adds the services to a server; the watches tell when each listens.
    pub(super) fn join(self, server: &mut Server, ending: Ending) -> Result<(Running, Bounds), StartError> {
        let Self {
            process,
            parts,
            listeners,
            background,
        } = self;
        let Ending {
            phase,
            server: server_end,
            drain_time,
            launch,
            claim,
        } = ending;
        let ca_file = parts.config.upstream.ca_file.as_deref();
        let roots = ca_file
            .map(trust::bundle)
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
        let side = Side {
            phase: phase.clone(),
            closing: side_closing.subscribe(),
            claims: claims.subscribe(),
            upgrades: upgrader.map(|upgrader| Arc::new(upgrader) as Arc<dyn Upgrades>),
        };
        let bounds = assembly::add(server, &conf, &parts, &listeners, &side)?;
        let running = Running {
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

    /// The parts that they share.
    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Where their background tasks run.
    pub(super) fn background(&self) -> &Runtime {
        &self.background
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Services").finish_non_exhaustive()
    }
}

/// The threads of the background.
pub(super) fn background() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("background threads", error))
}

/// What the gateway's proxy is built with. Of the server's own configuration it takes nothing.
fn gateway_conf(config: &Config, roots: Option<&NamedTempFile>) -> ServerConf {
    ServerConf {
        threads: 1,
        max_retries: TRIES_MAX,
        // Each worker of the gateway has connections of its own.
        upstream_keepalive_pool_size: Descriptors::share(config).pool.div_ceil(config.gateway.threads),
        ca_file: roots.map(|roots| roots.path().to_string_lossy().into_owned()),
        ..ServerConf::default()
    }
}

/// Whether weir can be part of a server.
///
/// # Errors
/// The server would run in another process than this one, or would take the sockets of one before it.
fn check(server: &Server) -> Result<(), StartError> {
    let refused = |why: &str| Err(StartError::Configuration(why.to_owned()));
    if server.configuration.daemon {
        return refused(
            "the server is to run as a daemon, in a process without weir's threads: leave it in the foreground, and have the service \
             manager keep it running",
        );
    }
    if server.options.as_ref().is_some_and(|options| options.upgrade) {
        return refused(
            "the server is to take the sockets of the process before (--upgrade): weir's journal and store cannot go along that way; stop \
             that process and start this one without --upgrade",
        );
    }
    Ok(())
}

/// The time for running requests in a server that waits for `grace_period_seconds`: what is cut off then still gets its end.
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
        check(&server).err().map(|error| error.to_string())
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
