//! Builds all parts of weir from the configuration and connects them. Only this module uses the concrete types of all parts. It
//! also runs the program's commands.

mod assembly;
pub(crate) mod catalogue;
mod check;
mod console;
#[cfg(feature = "sample-provider")]
mod demo;
pub(crate) mod front_service;
mod listeners;
mod log_sinks;
pub(crate) mod money;
mod orphaned_journals;
pub(crate) mod parts;
mod prepared;
mod process;
pub(crate) mod reload;
pub(crate) mod running;
pub(crate) mod services;
pub(crate) mod store;
mod store_commands;
pub(crate) mod tls;
mod upgrade;

use std::{
    fmt::Display,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::json;
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    cli::{
        self, Command, ServeArgs,
        admin_client::AdminClientError,
        log::LogSubcommand,
        login::LoginError,
        rules::{RulesCommand, RulesCommandError},
    },
    config::Config,
    domain::{catalogue::Catalogue, rules::shipped},
    edges::{clock, limiter::RateAllowance},
    journal::Journal,
    providers::CurrentConfig,
    stability::{
        Publisher, Snapshot, Snapshots,
        public::{PublicService, PublicSettings, StabilitySource},
    },
    store::{ledger::StabilityStore, time::StoreTime},
    telemetry::{self, Diagnostics, metrics::Metrics},
    wiring::{
        running::RunningWeir,
        upgrade::{Launch, handover::Predecessor},
    },
};

#[cfg(feature = "sample-provider")]
use crate::wiring::demo::run_demo;
#[cfg(feature = "sample-provider")]
use crate::wiring::demo::run_sample_provider;
#[cfg(not(feature = "sample-provider"))]
use crate::wiring::left_out::{run_demo, run_sample_provider};
pub use crate::wiring::running::Node;
pub use crate::wiring::services::Services;

/// Runs one command of the program `weir` until it ends.
///
/// The command handles signals, notifies the service manager and writes to standard error, so the process must belong to weir
/// alone. To run weir in another program's process, use [`Services`].
///
/// # Errors
/// The command has failed, or weir did not start.
pub fn run(command: Command) -> Result<(), StartError> {
    let client = |done: Result<(), AdminClientError>| match done {
        Err(AdminClientError::Output(error)) => print_result(Err(error)),
        Err(AdminClientError::Configuration(text)) => Err(StartError::Configuration(text)),
        Err(other) => Err(StartError::Client(other.to_string())),
        Ok(()) => Ok(()),
    };
    let mut out = std::io::stdout();
    match command {
        Command::Serve(args) => serve(&args),
        Command::Upgrade(args) => client(client_runtime()?.block_on(cli::run_upgrade(&args, socket, &mut out))),
        Command::Demo(args) => {
            let _diagnostics = start_diagnostics("warn")?;
            run_demo(&args)
        }
        Command::Check(args) => check::run(&args, &mut out),
        Command::Key(command) => client(client_runtime()?.block_on(cli::run_key(&command, socket, &mut out))),
        Command::Account(command) => client(client_runtime()?.block_on(cli::run_account(&command, socket, &mut out))),
        Command::Log(LogSubcommand::Init(args)) => log_sinks::run_log_init(&args, &mut out),
        Command::Log(LogSubcommand::Read(command)) => {
            client(client_runtime()?.block_on(cli::run_log(&command, socket, &mut out)))
        }
        Command::Usage(args) => client(client_runtime()?.block_on(cli::run_usage(&args, socket, &mut out))),
        Command::Provider(command) => client(client_runtime()?.block_on(cli::run_provider(&command, socket, &mut out))),
        Command::SignIn(command) => client(client_runtime()?.block_on(cli::run_sign_in(&command, socket, &mut out))),
        Command::Login(args) => login_result(client_runtime()?.block_on(cli::login::login(&args, &mut out))),
        Command::Token(file) => login_result(client_runtime()?.block_on(cli::login::token(&file, &mut out))),
        Command::Logout(file) => login_result(client_runtime()?.block_on(cli::login::logout(&file, &mut out))),
        Command::Console(command) => client(client_runtime()?.block_on(cli::run_console(&command, socket, &mut out))),
        Command::Models(args) => client(client_runtime()?.block_on(cli::run_models(&args, socket, &mut out))),
        Command::Store(command) => store_commands::run(&command, &mut out),
        Command::Rules(command) => explain_rules(&command, &mut out),
        Command::SampleProvider(args) => run_sample_provider(&args),
        Command::Manual(args) => {
            cli::write_manual(&args).map_err(|error| StartError::failed("cannot write the manual", error))
        }
    }
}

/// Writes the reason for a command's failure to standard error. Gives up after a timeout if nothing reads standard error.
pub fn print_error(error: &StartError) {
    telemetry::print_last(&format!("weir: {error}"));
}

/// Converts the result of `weir login`, `weir token` or `weir logout` to the result of the program.
fn login_result(done: Result<(), LoginError>) -> Result<(), StartError> {
    match done {
        Err(LoginError::Output(error)) => print_result(Err(error)),
        Err(other) => Err(StartError::Client(other.to_string())),
        Ok(()) => Ok(()),
    }
}

/// Runs `weir rules` with the configuration's provider files. Without a configuration, runs it with the files that are built into
/// the binary.
fn explain_rules(command: &RulesCommand, out: &mut impl Write) -> Result<(), StartError> {
    let RulesCommand::Explain(args) = command;
    let (files, models) = match &args.conf {
        Some(conf) => {
            let config = load(conf)?;
            let files = catalogue::rule_files(&config).map_err(StartError::Configuration)?;
            (files, config.catalogue.models)
        }
        None => (shipped(), Vec::new()),
    };
    match cli::rules::run(command, (&files, &models), out) {
        Err(RulesCommandError::Output(error)) => print_result(Err(error)),
        Err(RulesCommandError::Configuration(text)) => Err(StartError::Configuration(text)),
        Err(other) => Err(StartError::Client(other.to_string())),
        Ok(()) => Ok(()),
    }
}

/// Runs `weir serve` until a signal ends it or a successor replaces it.
fn serve(args: &ServeArgs) -> Result<(), StartError> {
    let mut predecessor = args.successor.then(Predecessor::from_stdin).transpose()?;
    let line = predecessor.as_ref().map(Predecessor::failure_reporter).transpose()?;
    let started = start_serving(args, predecessor.as_mut()).and_then(|(running, diagnostics)| {
        let running = match predecessor {
            Some(predecessor) => running.announce_to(predecessor),
            None => Ok(running),
        };
        Ok((running?, diagnostics))
    });
    let (running, _diagnostics) = started.inspect_err(|error| {
        if let Some(line) = line {
            line.report(&error.to_string());
        }
    })?;
    running.background.spawn(process::watchdog(running.handed_over.clone()));
    if !args.successor {
        process::notify_ready();
    }
    running.until_stopped();
    Ok(())
}

/// Starts weir, and writes the ready file once all listeners are open.
fn start_serving(
    args: &ServeArgs,
    predecessor: Option<&mut Predecessor>,
) -> Result<(RunningWeir, Diagnostics), StartError> {
    let config = load(&args.conf)?;
    let diagnostics = start_diagnostics(&config.log.level.to_string())?;
    let launch = Launch {
        program: std::env::args_os().next().unwrap_or_else(|| "weir".into()),
        conf: args.conf.clone(),
        ready_file: args.ready_file.clone(),
    };
    let is_successor = predecessor.is_some();
    let (running, addresses) = services::start(config, &args.conf, Some(launch), predecessor)?;
    diagnostics.observe(&running.parts.sinks.metrics);
    if let Some(path) = &args.ready_file {
        let ready = json!({
            "gateway": addresses.gateway.to_string(),
            "ops": addresses.ops.to_string(),
            "stability": addresses.stability.to_string(),
            "admin": addresses.admin,
            "admin_tcp": addresses.admin_tcp.map(|address| address.to_string()),
            "redirect": addresses.redirect.map(|address| address.to_string()),
            "console": addresses.console.map(|address| address.to_string()),
        });
        // The complete file is renamed to its final name, so a reader never gets an incomplete file.
        let partial = path.with_extension("partial");
        std::fs::write(&partial, ready.to_string())
            .and_then(|()| std::fs::rename(&partial, path))
            .map_err(|error| StartError::failed("cannot write the ready file", error))?;
    }
    let tls = running.parts.tls.gateway.is_some();
    let ledger = &running.parts.money.ledger;
    let has_no_account = || {
        running
            .background
            .block_on(ledger.accounts(None, 1))
            .is_ok_and(|some| some.is_empty())
    };
    let is_first = !is_successor && has_no_account();
    tracing::info!("{}", listeners::ready_text(&addresses, tls, &args.conf, is_first));
    Ok((running, diagnostics))
}

/// Starts the log of messages. Of a panic, only the location in the code is logged, because the panic's message may quote a
/// request.
fn start_diagnostics(level: &str) -> Result<Diagnostics, StartError> {
    let diagnostics =
        Diagnostics::start(level).map_err(|error| StartError::failed("cannot start the log of messages", error))?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(%place, "weir panicked, which is a bug in weir; the request or task that was running has ended");
    }));
    Ok(diagnostics)
}

/// Starts a runtime with one thread, for a command that does not serve.
fn client_runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("cannot start the runtime of the command", error))
}

/// Returns an error if a write to standard output has failed. It is not an error if the reader closes the pipe early (`weir ... |
/// head`).
fn print_result(written: std::io::Result<()>) -> Result<(), StartError> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| StartError::failed("cannot write to standard output", error)),
    }
}

fn load(conf: &Path) -> Result<Config, StartError> {
    Config::load(conf).map_err(|error| StartError::Configuration(error.to_string()))
}

/// Returns the path of the admin socket that the configuration names.
fn socket(conf: Option<&Path>) -> Result<PathBuf, String> {
    let conf = conf.unwrap_or(Path::new("/etc/weir/weir.toml"));
    Config::load(conf).map(|config| config.admin.socket).map_err(|error| {
        format!("{error}\ngive the admin socket with --admin unix:PATH, or the configuration with --conf FILE")
    })
}

/// The reason why weir did not start, or why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration or a provider file is invalid. The exit code is 78.
    #[error("{0}")]
    Configuration(String),
    /// The process cannot listen on an address or a socket.
    #[error("cannot listen: {0}")]
    Listen(String),
    /// A command that calls a running weir has failed.
    #[error("{0}")]
    Client(String),
    /// Another part or action has failed.
    #[error("{what}: {why}")]
    Failed {
        /// The action that failed.
        what: &'static str,
        /// The reason of the failure.
        why: String,
    },
}

impl StartError {
    fn failed(what: &'static str, why: impl Display) -> Self {
        Self::Failed {
            what,
            why: why.to_string(),
        }
    }
}

/// Replaces the commands that need the sample provider, in a program that was built without it. Each command returns an error
/// that says how to build the program with it.
#[cfg(not(feature = "sample-provider"))]
mod left_out {
    use crate::{
        cli::{DemoArgs, SampleProviderArgs},
        wiring::StartError,
    };

    pub(super) fn run_demo(_: &DemoArgs) -> Result<(), StartError> {
        Err(left_out("demo"))
    }

    pub(super) fn run_sample_provider(_: &SampleProviderArgs) -> Result<(), StartError> {
        Err(left_out("sample-provider"))
    }

    fn left_out(command: &'static str) -> StartError {
        let how = "this program was built without the sample provider; to include it, build weir from source: \
                   `cargo build --release --locked`";
        StartError::failed(command, how)
    }
}

/// Builds the public stability service with the settings of `[stability]`.
pub(crate) fn build_public_service(
    config: &Config,
    live: &Arc<CurrentConfig>,
    snapshots: &Arc<Snapshots>,
) -> Arc<PublicService> {
    let stability = &config.stability;
    let settings = PublicSettings {
        refresh: stability.refresh,
        allowance: RateAllowance {
            per_minute: stability.requests_per_minute,
            burst: stability.burst,
            clients_max: stability.addresses_max,
        },
        trusted_proxies: stability.trusted_proxies.clone(),
    };
    let reads = NodeStabilitySource {
        live: Arc::clone(live),
        snapshots: Arc::clone(snapshots),
    };
    Arc::new(PublicService::new(settings, Box::new(reads), clock::instant()))
}

struct NodeStabilitySource {
    live: Arc<CurrentConfig>,
    snapshots: Arc<Snapshots>,
}

impl StabilitySource for NodeStabilitySource {
    fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.live.get().catalogue)
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.get()
    }
}

/// The parts of the public record: the publisher of this node's counts, and the snapshots of all nodes' counts.
pub(crate) struct StabilityParts {
    /// The snapshots of the published record.
    pub snapshots: Arc<Snapshots>,
    publisher: Arc<Publisher>,
    /// The task that publishes the counts. When `stop` turns true, it publishes them a last time and ends.
    publishing: JoinHandle<()>,
}

impl StabilityParts {
    /// Starts two tasks: one reads the counts from the journal and publishes them to the store, the other reads the published
    /// record at the interval `refresh`.
    pub(crate) fn build(
        store: Arc<dyn StabilityStore>,
        journal: &Arc<Journal>,
        time: &Arc<StoreTime>,
        refresh: Duration,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Self {
        let snapshots = Arc::new(Snapshots::new(Arc::clone(&store), Arc::clone(time), refresh));
        background.spawn(Arc::clone(&snapshots).run(stopped.clone()));
        let node = journal.node().clone();
        let publisher = Arc::new(Publisher::new(Arc::clone(journal) as _, store, node));
        let publishing = background.spawn(Arc::clone(&publisher).run(stopped.clone()));
        Self {
            snapshots,
            publisher,
            publishing,
        }
    }

    /// Adds a sampler that copies the record's figures to the metrics.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        let (publisher, snapshots) = (Arc::clone(&self.publisher), Arc::clone(&self.snapshots));
        metrics.add_sampler(move |metrics| {
            let read_at = snapshots
                .get()
                .map_or(0, |snapshot| snapshot.read_at_ms.div_euclid(1000));
            metrics.store.stability_untold_hours.set(publisher.unsent_hours());
            metrics.store.stability_read_at.set(read_at);
        });
    }

    /// Waits for the last publication. Must be called after `stop` has turned true.
    pub(crate) async fn end(self) {
        let _ = self.publishing.await;
    }
}
