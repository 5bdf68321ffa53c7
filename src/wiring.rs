//! The only place where concrete types meet.

pub(crate) mod catalogue;
mod check;
mod configuration;
mod console;
#[cfg(feature = "sample-provider")]
mod demo;
mod descriptors;
pub(crate) mod front_service;
mod greeting;
#[cfg(not(feature = "sample-provider"))]
mod left_out;
mod listen_fds;
pub(crate) mod money;
mod notify;
mod output;
pub(crate) mod parts;
pub(crate) mod prices;
pub(crate) mod public;
pub(crate) mod reload;
mod runtimes;
#[cfg(feature = "sample-provider")]
mod sample_provider;
mod served;
pub(crate) mod server;
pub(crate) mod signals;
pub(crate) mod stability;
mod start_error;
mod stop;
pub(crate) mod store;
mod store_check;
mod store_commands;
pub(crate) mod tls;
pub(crate) mod trust;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::json;

#[cfg(feature = "sample-provider")]
use demo::run as run_demo;
#[cfg(not(feature = "sample-provider"))]
use left_out::{run_demo, run_sample_provider};
#[cfg(feature = "sample-provider")]
use sample_provider::run as run_sample_provider;
pub use start_error::StartError;

use crate::{
    cli::{
        self, Command,
        admin_client::AdminClientError,
        rules::{RulesCommand, RulesCommandError},
    },
    config::Config,
    domain::rules::shipped,
    telemetry::access_log,
    wiring::{
        configuration::{load, socket},
        output::printed,
        runtimes::client_runtime,
    },
};

/// Runs one command to its end.
pub fn run(command: Command) -> Result<(), StartError> {
    let client = |done: Result<(), AdminClientError>| match done {
        Err(AdminClientError::Output(error)) => printed(Err(error)),
        Err(AdminClientError::Configuration(text)) => Err(StartError::Configuration(text)),
        Err(other) => Err(StartError::Client(other.to_string())),
        Ok(()) => Ok(()),
    };
    let mut out = std::io::stdout();
    match command {
        Command::Serve(args) => serve(load(&args.conf)?, &args.conf, args.ready_file),
        Command::Demo(args) => {
            diagnostics("warn")?;
            run_demo(&args)
        }
        Command::Check(args) => check::run(&args, &mut out),
        Command::Key(command) => client(client_runtime()?.block_on(cli::run_key(&command, socket, &mut out))),
        Command::Account(command) => client(client_runtime()?.block_on(cli::run_account(&command, socket, &mut out))),
        Command::Log(command) => client(client_runtime()?.block_on(cli::run_log(&command, socket, &mut out))),
        Command::Usage(args) => client(client_runtime()?.block_on(cli::run_usage(&args, socket, &mut out))),
        Command::Provider(command) => client(client_runtime()?.block_on(cli::run_provider(&command, socket, &mut out))),
        Command::Console(command) => client(client_runtime()?.block_on(cli::run_console(&command, socket, &mut out))),
        Command::Models(args) => client(client_runtime()?.block_on(cli::run_models(&args, socket, &mut out))),
        Command::Store(command) => store_commands::run(&command, &mut out),
        Command::Rules(command) => explain_rules(&command, &mut out),
        Command::SampleProvider(args) => run_sample_provider(&args),
        Command::Manual(args) => cli::write_manual(&args).map_err(|error| StartError::failed("the manual", error)),
    }
}

/// `weir rules`: on the files of a configuration, or on those inside the binary.
fn explain_rules(command: &RulesCommand, out: &mut impl Write) -> Result<(), StartError> {
    let RulesCommand::Explain(args) = command;
    let files = match &args.conf {
        Some(conf) => catalogue::rule_files(&load(conf)?).map_err(StartError::Configuration)?,
        None => shipped(),
    };
    match cli::rules::run(command, &files, out) {
        Err(RulesCommandError::Output(error)) => printed(Err(error)),
        Err(RulesCommandError::Configuration(text)) => Err(StartError::Configuration(text)),
        Err(other) => Err(StartError::Client(other.to_string())),
        Ok(()) => Ok(()),
    }
}

/// `weir serve`: runs until a signal ends it. `ready_file` is written once everything listens.
pub(crate) fn serve(config: Config, conf: &Path, ready_file: Option<PathBuf>) -> Result<(), StartError> {
    diagnostics(&config.log.level.to_string())?;
    let running = server::start(config, conf)?;
    if let Some(path) = ready_file {
        let addresses = &running.addresses;
        let ready = json!({
            "gateway": addresses.gateway.to_string(),
            "ops": addresses.ops.to_string(),
            "stability": addresses.stability.to_string(),
            "admin": addresses.admin,
            "admin_tcp": addresses.admin_tcp.map(|address| address.to_string()),
            "redirect": addresses.redirect.map(|address| address.to_string()),
            "console": addresses.console.map(|address| address.to_string()),
        });
        // Renamed into place, so that nobody reads half of it.
        let partial = path.with_extension("partial");
        std::fs::write(&partial, ready.to_string())
            .and_then(|()| std::fs::rename(&partial, &path))
            .map_err(|error| StartError::failed("the ready file", error))?;
    }
    let (addresses, tls) = (&running.addresses, running.parts.tls.gateway.is_some());
    tracing::info!("{}", greeting::ready(addresses, tls, conf));
    running.background.spawn(notify::watchdog());
    notify::ready();
    running.until_stopped();
    Ok(())
}

/// Log lines, and panics told by their place only: their text may quote what they choked on.
fn diagnostics(level: &str) -> Result<(), StartError> {
    access_log::init_tracing(level).map_err(|error| StartError::failed("diagnostics", error))?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(%place, "a part of weir failed; the request that it worked on has ended");
    }));
    Ok(())
}
