//! The command line of weir: its definition, and the subcommands that call the admin API.

pub(crate) mod account;
pub(crate) mod admin_client;
pub(crate) mod args;
pub(crate) mod console;
pub(crate) mod key;
#[cfg(not(feature = "sample-provider"))]
mod left_out;
pub(crate) mod log;
pub(crate) mod login;
pub(crate) mod output;
pub(crate) mod providers;
pub(crate) mod rules;

pub(crate) mod store;
#[cfg(test)]
mod tests;
pub(crate) mod usage;

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{
    Args, CommandFactory, Parser, Subcommand,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::{Shell, generate_to};

use crate::{
    api::node::{Upgrade, UpgradedProcess},
    cli::admin_client::{AdminClient, AdminClientError, ClientArgs},
    config::DEFAULT_PATH,
};

#[cfg(not(feature = "sample-provider"))]
pub(crate) use crate::cli::left_out::SampleProviderArgs;
#[cfg(feature = "sample-provider")]
use crate::sample_provider::SampleProviderArgs;

/// weir: an authenticating and metering gateway in front of providers of generative models.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, propagate_version = true)]
pub(crate) struct CommandLine {
    /// The subcommand, with its arguments.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands of weir.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway
    Serve(ServeArgs),
    /// Run a gateway with a sample provider; nothing must be installed, and nothing is left behind
    Demo(DemoArgs),
    /// Replace a running weir by a new process with the current program and configuration, without interruption
    Upgrade(ClientArgs),
    /// Check the configuration and all provider files
    Check(CheckArgs),
    /// Create, credit, correct, limit, suspend, list and show accounts
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Create, list, show, change, rotate, revoke and delete the keys of accounts
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Query, export and verify the consumption log, and set up or change its log backend
    #[command(subcommand)]
    Log(log::LogSubcommand),
    /// Show the usage of accounts, keys, models and tags
    Usage(usage::UsageArgs),
    /// List providers, and switch them on and off while weir runs
    #[command(subcommand)]
    Provider(providers::ProviderCommand),
    /// List the sign-ins of agents with a key, and end them
    #[command(subcommand)]
    SignIn(login::SignInCommand),
    /// Sign in to a gateway, so that agents on this machine can use a token instead of a key
    Login(login::LoginArgs),
    /// Print a token for the gateway that this machine is signed in to, which agents can use instead of a key
    Token(login::SignInFile),
    /// End this machine's sign-in
    Logout(login::SignInFile),
    /// Open the operators' console, and list and end its sessions
    #[command(subcommand)]
    Console(console::ConsoleCommand),
    /// List the models that are served now
    Models(ClientArgs),
    /// Set up, back up and restore the store
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Show what provider files do
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// Run a scripted provider with all protocols, for tests and benchmarks
    SampleProvider(SampleProviderArgs),
    /// Write man pages and shell completions
    Manual(ManualArgs),
}

/// The arguments of `weir serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub conf: PathBuf,
    /// A file that is written once all listeners are open. It contains JSON with the addresses of gateway, ops and admin
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Take over from the running weir at the other end of standard input
    #[arg(long, hide = true)]
    pub successor: bool,
}

/// The arguments of `weir demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// The address for clients; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080", value_parser = listen_address)]
    pub listen: SocketAddr,
    /// Print one line of JSON when the gateway is ready, for scripts
    #[arg(long)]
    pub json: bool,
}

fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "give IP:PORT, such as 127.0.0.1:8080")
}

/// The arguments of `weir check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub conf: PathBuf,
    /// Also connect to the store, and report rights and settings that are missing there
    #[arg(long)]
    pub store: bool,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// Parses the arguments; the first one is the program's name. An error contains the text to print. Help and version are returned
/// as errors too, but are not failures.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let takes_conf = args
        .get(1)
        .is_some_and(|command| command == "serve" || command == "check");
    CommandLine::try_parse_from(args)
        .map(|line| line.command)
        .map_err(|mut error| {
            let is_bare = |value: &ContextValue| matches!(value, ContextValue::String(text) if !text.starts_with('-'));
            if takes_conf
                && error.kind() == ErrorKind::UnknownArgument
                && error.get(ContextKind::InvalidArg).is_some_and(is_bare)
            {
                let tip = StyledStr::from("name the configuration with --conf FILE");
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
            }
            error
        })
}

/// Runs a subcommand of `weir key`.
pub(crate) async fn run_key(
    command: &key::KeyCommand,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(command.client(), socket_of)?);
    key::run(command, &client, out).await
}

/// Runs a subcommand of `weir account`.
pub(crate) async fn run_account(
    command: &account::AccountCommand,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(command.client(), socket_of)?);
    account::run(command, &client, out).await
}

/// Runs a subcommand of `weir log` that calls a running weir.
pub(crate) async fn run_log(
    command: &log::LogCommand,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(command.client(), socket_of)?);
    log::run(command, &client, out).await
}

/// Runs `weir usage`.
pub(crate) async fn run_usage(
    args: &usage::UsageArgs,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(&args.client, socket_of)?);
    usage::run(args, &client, out).await
}

/// Runs a subcommand of `weir provider`.
pub(crate) async fn run_provider(
    command: &providers::ProviderCommand,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(command.client(), socket_of)?);
    providers::run(command, &client, out).await
}

/// Runs a subcommand of `weir sign-in`.
pub(crate) async fn run_sign_in(
    command: &login::SignInCommand,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(command.client(), socket_of)?);
    login::run(command, &client, out).await
}

/// Runs a subcommand of `weir console`.
pub(crate) async fn run_console(
    command: &console::ConsoleCommand,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(command.client(), socket_of)?);
    console::run(command, &client, out).await
}

/// Runs `weir models`.
pub(crate) async fn run_models(
    args: &ClientArgs,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(args, socket_of)?);
    providers::list_models(args, &client, out).await
}

/// Runs `weir upgrade`.
pub(crate) async fn run_upgrade(
    args: &ClientArgs,
    socket_of: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let client = AdminClient::new(admin_client::socket(args, socket_of)?);
    upgrade_process(args, &client, out).await
}

/// Runs `weir manual`.
pub(crate) fn write_manual(args: &ManualArgs) -> io::Result<()> {
    write_manual_pages(CommandLine::command(), &args.folder)
}

/// The timeout of `weir upgrade`. It is longer than the time that the running process waits for the new one.
const UPGRADE_WAIT: Duration = Duration::from_secs(900);

/// Requests the upgrade from the running process, and prints which process serves now.
pub(crate) async fn upgrade_process(
    args: &ClientArgs,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let reply = client.request_within(UPGRADE_WAIT, None, &Upgrade {}).await?;
    if args.json {
        writeln!(out, "{}", reply.text)?;
        return Ok(());
    }
    let UpgradedProcess { pid, running } = reply.read()?;
    let running = match running {
        0 => "has no running requests and ends".to_owned(),
        1 => "ends after its running request".to_owned(),
        more => format!("ends after its {more} running requests"),
    };
    writeln!(out, "process {pid} serves now; the previous one {running}")?;
    Ok(())
}

/// The arguments of `weir manual`.
#[derive(Args, Debug)]
pub struct ManualArgs {
    /// The folder in which the folders `man` and `completions` are created
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Writes the manual pages of all subcommands to `man/` and the completions for bash, zsh and fish to `completions/`.
///
/// # Errors
/// A folder cannot be created, or a file cannot be written.
pub(crate) fn write_manual_pages(mut line: clap::Command, folder: &Path) -> io::Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(line.clone(), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut line, "weir", &completions)?;
    }
    Ok(())
}

#[cfg(test)]
mod manual_tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::CommandLine;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        write_manual_pages(CommandLine::command(), folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        for command in CommandLine::command().get_subcommands() {
            let page = read(&format!("man/weir-{}.1", command.get_name()));
            assert!(
                page.contains(&roff(&command.get_about().unwrap().to_string())),
                "{page}"
            );
            for nested in command.get_subcommands() {
                let flag = nested.get_arguments().find_map(|argument| argument.get_long());
                let page = read(&format!("man/weir-{}-{}.1", command.get_name(), nested.get_name()));
                assert!(flag.is_none_or(|flag| page.contains(&roff(flag))), "{page}");
            }
        }
        assert!(read("man/weir.1").contains(&roff("weir-serve(1)")));
        for (file, words) in [
            ("weir.bash", "complete -F _weir"),
            ("_weir", "#compdef weir"),
            ("weir.fish", "complete -c weir"),
        ] {
            let script = read(&format!("completions/{file}"));
            assert!(script.contains(words) && script.contains("ready-file"), "{file}");
        }
    }

    /// Returns a text in the form that it has in a manual page.
    fn roff(text: &str) -> String {
        text.replace('-', "\\-").replace('\'', "\\*(Aq")
    }
}
