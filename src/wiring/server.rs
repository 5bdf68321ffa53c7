//! Runs weir's services in a Pingora server of their own, for `weir serve` and `weir demo`.

use std::path::Path;

use pingora::server::{RunArgs, Server, configuration::ServerConf};
use tokio::sync::watch;

use crate::{
    config::Config,
    side::connection::SocketClaim,
    wiring::{
        StartError,
        listeners::{self, Addresses},
        process::{ProcessOwner, ServerPhases},
        running::{self, RunningWeir, ServerEnd, TerminationWatch},
        services::{self, LifecycleControl, ProcessOrigin, Services},
        upgrade::{Launch, handover::Predecessor},
    },
};

/// Starts weir, and returns its addresses once it serves. Must be called before other threads read the environment. `launch` says
/// how to start a successor; `None` if upgrades are not possible. `predecessor` is the process that this one replaces, if there
/// is one.
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
    let background = services::background()?;
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

/// Runs the server in a thread of its own.
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
