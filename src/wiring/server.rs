//! Runs weir's services in a server of its own: `weir serve` and `weir demo`.

use std::path::Path;

use pingora::server::{RunArgs, Server, configuration::ServerConf};
use tokio::sync::watch;

use crate::{
    config::Config,
    side::unix_socket::Claim,
    wiring::{
        StartError,
        bounds::Addresses,
        listen_fds, listeners,
        phase::ServerPhases,
        process::Process,
        running::{Running, ServerEnd},
        services::{self, Ending, Origin, Services},
        signals::{self, TerminationWatch},
        upgrade::{Launch, predecessor::Predecessor},
    },
};

/// Starts everything; returns when it serves, with the bound addresses. To be called before there are threads that read the environment.
/// `launch` says how the next process is started, if there may be one; `predecessor` is the one whose place this one takes.
pub(super) fn start(
    config: Config,
    conf: &Path,
    launch: Option<Launch>,
    predecessor: Option<&mut Predecessor>,
) -> Result<(Running, Addresses), StartError> {
    let at: Vec<_> = listeners::wanted(&config).iter().map(|listener| listener.at).collect();
    let activated = listen_fds::take(&at)?;
    let background = services::background()?;
    let no_signals = |error| StartError::failed("listening for signals", error);
    let phase = background.block_on(async { signals::phase() }).map_err(no_signals)?;
    let claim = if predecessor.is_some() {
        Claim::Handed
    } else {
        Claim::Left
    };
    let origin = Origin {
        process: Process::Own,
        activated,
        predecessor,
    };
    let services = Services::open(config, conf, background, origin)?;
    let reload = services.parts().reload.clone();
    services
        .background()
        .block_on(async { signals::reload_on_hangup(reload) })
        .map_err(no_signals)?;
    let mut server = Server::new_with_opt_and_conf(None, server_conf());
    server.bootstrap();
    let phases = ServerPhases::follow(server.watch_execution_phase(), services.background().handle());
    let order = watch::Sender::new(false);
    let termination = TerminationWatch(order.subscribe());
    let ending = Ending {
        phase,
        server: ServerEnd {
            order: Some(order),
            ended: phases.ended,
        },
        drain_time: services.parts().config.gateway.drain,
        launch,
        claim,
    };
    let (running, bounds) = services.join(&mut server, ending)?;
    run(server, termination)?;
    let addresses = running.background.block_on(bounds.addresses())?;
    Ok((running, addresses))
}

/// Runs the server in a thread of its own.
fn run(server: Server, termination: TerminationWatch) -> Result<(), StartError> {
    let serve = move || {
        server.run(RunArgs {
            shutdown_signal: Box::new(termination),
        });
    };
    let thread = std::thread::Builder::new().name("server".to_owned()).spawn(serve);
    thread.map_err(|error| StartError::failed("the server's thread", error))?;
    Ok(())
}

fn server_conf() -> ServerConf {
    ServerConf {
        // Each service has one thread, and the gateway a service for each of its threads (docs/benchmarks.md, "Threads").
        threads: 1,
        work_stealing: false,
        // Pingora is told to end when the gateway has drained.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        // Timers of its own would wake a thread a hundred times a second, for as long as the process runs.
        fast_timeout_to_tokio_threshold_seconds: Some(0),
        ..ServerConf::default()
    }
}
