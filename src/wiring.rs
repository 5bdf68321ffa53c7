//! The only place where concrete types meet.

pub mod catalogue;
mod check;
pub mod demo;
pub mod front_service;
mod greeting;
pub mod money;
pub mod parts;
pub mod prices;
pub mod public;
pub mod reload;
pub mod server;
pub mod signals;
pub mod stability;
mod stop;
pub mod store;
mod store_check;
mod store_commands;
pub mod tls;
pub mod trust;

use std::{
    fmt::Display,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    access_log,
    cli::{
        self, Command, DemoArgs,
        admin_client::ClientError,
        rules::{RulesCommand, RulesError},
    },
    config::Config,
    domain::rules::shipped,
    sample_provider,
    wiring::demo::{DemoOptions, Output},
};

/// Why weir does not start, or a command failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration or a rule file is wrong: exit code 78.
    #[error("{0}")]
    Configuration(String),
    /// An address or a socket cannot be taken.
    #[error("cannot listen: {0}")]
    Listen(String),
    /// A client command did not succeed.
    #[error("{0}")]
    Client(String),
    /// Something else that is needed cannot be had.
    #[error("{what}: {why}")]
    Failed {
        /// The action that failed.
        what: &'static str,
        /// The error's text.
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

/// Runs one command to its end.
pub fn run(command: Command) -> Result<(), StartError> {
    let client = |done: Result<(), ClientError>| match done {
        Err(ClientError::Output(error)) => printed(Err(error)),
        Err(ClientError::Configuration(text)) => Err(StartError::Configuration(text)),
        Err(other) => Err(StartError::Client(other.to_string())),
        Ok(()) => Ok(()),
    };
    let mut out = std::io::stdout();
    match command {
        Command::Serve(args) => serve(load(&args.conf)?, &args.conf, args.ready_file),
        Command::Demo(DemoArgs { listen, json }) => demo(DemoOptions {
            listen,
            output: if json { Output::Json } else { Output::Text },
        }),
        Command::Check(args) => check::run(&args, &mut out),
        Command::Key(command) => client(client_runtime()?.block_on(cli::run_key(&command, socket, &mut out))),
        Command::Account(command) => client(client_runtime()?.block_on(cli::run_account(&command, socket, &mut out))),
        Command::Log(command) => client(client_runtime()?.block_on(cli::run_log(&command, socket, &mut out))),
        Command::Provider(command) => client(client_runtime()?.block_on(cli::run_provider(&command, socket, &mut out))),
        Command::Models(args) => client(client_runtime()?.block_on(cli::run_models(&args, socket, &mut out))),
        Command::Store(command) => store_commands::run(&command, &mut out),
        Command::Rules(command) => explain_rules(&command, &mut out),
        Command::SampleProvider(args) => {
            let running = provider_runtime(args.threads)?.block_on(sample_provider::run(&args));
            running.map_err(|error| StartError::failed("the sample provider", error))
        }
    }
}

fn load(conf: &Path) -> Result<Config, StartError> {
    Config::load(conf).map_err(|error| StartError::Configuration(error.to_string()))
}

/// The admin socket that a configuration names.
fn socket(conf: Option<&Path>) -> Result<PathBuf, String> {
    let conf = conf.unwrap_or(Path::new("/etc/weir/weir.toml"));
    Config::load(conf).map(|config| config.admin.socket).map_err(|error| {
        format!("{error}\nname the admin socket with --admin unix:PATH, or the configuration with --conf")
    })
}

fn client_runtime() -> Result<tokio::runtime::Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("the client's runtime", error))
}

/// `threads` workers for `weir sample-provider`; 0 means one per core.
fn provider_runtime(threads: usize) -> Result<tokio::runtime::Runtime, StartError> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("the sample provider's threads", error))
}

/// `weir rules`: on the files of a configuration, or on those inside the binary.
fn explain_rules(command: &RulesCommand, out: &mut impl Write) -> Result<(), StartError> {
    let RulesCommand::Explain(args) = command;
    let files = match &args.conf {
        Some(conf) => catalogue::rule_files(&load(conf)?).map_err(StartError::Configuration)?,
        None => shipped(),
    };
    match cli::rules::run(command, &files, out) {
        Err(RulesError::Output(error)) => printed(Err(error)),
        Err(RulesError::Configuration(text)) => Err(StartError::Configuration(text)),
        Err(other) => Err(StartError::Client(other.to_string())),
        Ok(()) => Ok(()),
    }
}

/// What came of writing to standard output. Whoever reads it may have seen enough (`| head`): that is no failure.
fn printed(written: std::io::Result<()>) -> Result<(), StartError> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| StartError::failed("standard output", error)),
    }
}

/// `weir serve`: runs until a signal ends it. `ready_file` is written once everything listens.
pub fn serve(config: Config, conf: &Path, ready_file: Option<PathBuf>) -> Result<(), StartError> {
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
        });
        // Renamed into place, so that nobody reads half of it.
        let partial = path.with_extension("partial");
        std::fs::write(&partial, ready.to_string())
            .and_then(|()| std::fs::rename(&partial, &path))
            .map_err(|error| StartError::failed("the ready file", error))?;
    }
    tracing::info!(
        "{}",
        greeting::ready(&running.addresses, running.parts.tls.gateway.is_some(), conf)
    );
    running.until_stopped();
    Ok(())
}

/// `weir demo`.
pub fn demo(options: DemoOptions) -> Result<(), StartError> {
    diagnostics("warn")?;
    demo::run(options)
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
