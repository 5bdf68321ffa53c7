//! The command line of weir: its definition, and the subcommands that call the admin API.

pub(crate) mod account;
pub(crate) mod admin_client;
pub(crate) mod console;
pub(crate) mod key;
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
    error::Error,
    ffi::OsString,
    fs,
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::{
    Args, CommandFactory, Parser, Subcommand,
    builder::{PossibleValuesParser, StyledStr, TypedValueParser},
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::{Shell, generate_to};

use crate::{
    api::{
        accounts::ListAccounts,
        node::{Upgrade, UpgradedProcess},
        values::{FactorInput, LimitInput, Nullable, Percents, Usd},
    },
    cli::admin_client::{AdminClient, AdminClientError, ClientArgs},
    config::DEFAULT_PATH,
    domain::{
        Version,
        keys::OVERLAP_MAX_SECONDS,
        ledger::{OnExhausted, QuotaReset},
    },
};

#[cfg(feature = "sample-provider")]
use crate::sample_provider::SampleProviderArgs;

/// The ignored arguments of `weir sample-provider` in a program that was built without the sample provider.
#[cfg(not(feature = "sample-provider"))]
#[derive(Args, Debug)]
pub struct SampleProviderArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

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
    /// Run a gateway with a sample provider, to try weir. It needs no installation or configuration, and leaves no files behind
    Demo(DemoArgs),
    /// Replace a running weir with a new process that uses the current program and configuration, without interruption
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
    /// List the agents that are signed in with a key, and sign them out
    #[command(subcommand)]
    SignIn(login::SignInCommand),
    /// Sign this machine in to a gateway, so that agents on this machine can use a token instead of a key
    Login(login::LoginArgs),
    /// Print a token for the gateway that this machine is signed in to. Agents can send the token instead of a key
    Token(login::SignInFile),
    /// End this machine's sign-in at the gateway
    Logout(login::SignInFile),
    /// Open the operators' console, and list and end sessions of the console and the portal
    #[command(subcommand)]
    Console(console::ConsoleCommand),
    /// List the models that weir serves now
    Models(ClientArgs),
    /// Set up, back up and restore the store
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Show how provider files change requests and answers
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// Run a sample provider that speaks all protocols, for tests and benchmarks
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
    /// A file to write when all listeners are open. It contains JSON with the addresses of the gateway, the ops listener and the
    /// admin API
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Take over from the running weir, which is connected to standard input
    #[arg(long, hide = true)]
    pub successor: bool,
}

/// The arguments of `weir demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// The address for clients. With port 0, the system chooses a free port
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
    /// Also connect to the store, and report missing rights and wrong settings there
    #[arg(long)]
    pub store: bool,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// Parses the arguments, of which the first is the program's name. An error contains the text to print. Help and version are also
/// returned as errors, but are not failures.
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

/// The timeout of `weir upgrade`. It is longer than the time for which the running process waits for the new process.
const UPGRADE_WAIT: Duration = Duration::from_secs(900);

/// Requests an upgrade from the running process, and prints the id of the process that serves afterwards.
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
    writeln!(out, "the new process {pid} serves now; the previous process {running}")?;
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

/// The keyword on the command line that removes the value of a setting, so the setting's default applies.
pub(crate) const DEFAULT: &str = "default";

/// The value of an option, or `None` for a keyword that means "no value", such as `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

impl<T> OrNone<T> {
    /// Converts an option to a field of the admin API: left out, null or a value.
    pub(crate) fn nullable(option: Option<Self>) -> Nullable<T> {
        option.map(|Self(value)| value)
    }
}

/// Parses a value, or the keyword `none`.
pub(crate) fn or_none<T: FromStr>(text: &str) -> Result<OrNone<T>, T::Err> {
    or("none", text)
}

/// Parses a value, or the keyword in the parameter `none`, which means "no value".
pub(crate) fn or<T: FromStr>(none: &str, text: &str) -> Result<OrNone<T>, T::Err> {
    if text == none {
        return Ok(OrNone(None));
    }
    text.parse().map(|value| OrNone(Some(value)))
}

/// Returns a parser that accepts one of `words`.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

/// The options for limits of rate and concurrency.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct RateArgs {
    /// The maximum number of requests per minute, or none
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) rpm: Option<OrNone<LimitInput>>,
    /// The maximum number of input and output tokens per minute, or none
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) tpm: Option<OrNone<LimitInput>>,
    /// The maximum number of concurrent requests, or none
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) concurrency: Option<OrNone<LimitInput>>,
}

/// The options for the quota of a key.
#[derive(Args, Clone, Debug, Default)]
pub struct QuotaArgs {
    /// The amount in USD that the key may spend per period, or unlimited
    #[arg(long, value_name = "D|unlimited", allow_negative_numbers = true, value_parser = quota)]
    pub(crate) quota_usd: Option<OrNone<Usd>>,
    /// How often the quota is reset, always at 00:00 UTC. Weeks begin on Monday
    #[arg(long, value_name = "none|daily|weekly|monthly",
        value_parser = one_of::<QuotaReset>(&["none", "daily", "weekly", "monthly"]))]
    pub(crate) reset: Option<QuotaReset>,
    /// What weir does with a running answer when the quota or the balance is used up: finish completes the answer, cut ends it
    #[arg(long, value_name = "finish|cut", value_parser = one_of::<OnExhausted>(&["finish", "cut"]))]
    pub(crate) on_exhausted: Option<OnExhausted>,
    /// The maximum cost of an answer with `--on-exhausted finish`, as a multiple of the quota. For a key without a quota, it is a
    /// multiple of the balance. weir cuts off an answer that exceeds this cost. `none` means no maximum. If the option was never
    /// set, the maximum is 2
    #[arg(long, value_name = "N|none", value_parser = or_none::<FactorInput>)]
    pub(crate) finish_factor: Option<OrNone<FactorInput>>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub notify: NotifyArgs,
}

fn quota(text: &str) -> Result<OrNone<Usd>, String> {
    or("unlimited", text)
}

/// The option that says when notices are sent.
#[derive(Args, Clone, Debug, Default)]
pub struct NotifyArgs {
    /// The percentages of a key's quota at which weir sends a notice, separated by commas: any of 50, 75, 80, 90, 95 and 100.
    /// `none` sends no notices. `default` uses the account's list, or otherwise the list in the configuration
    #[arg(long, value_name = "LIST|none|default", value_parser = notify)]
    pub(crate) notify: Option<OrNone<Percents>>,
}

fn notify(text: &str) -> Result<OrNone<Percents>, String> {
    or(DEFAULT, text)
}

/// Returns an error if an update is empty, because the user has probably forgotten an option.
pub(crate) fn something_to_change(is_empty: bool) -> Result<(), AdminClientError> {
    if is_empty {
        let help = "there is nothing to change: give at least one option (see --help)";
        return Err(AdminClientError::Usage(help.to_owned()));
    }
    Ok(())
}

/// The error message for an invalid overlap.
const OVERLAP_HINT: &str =
    "give a whole number with the unit s, m, h or d, such as 24h (at most 30d), or 0 to end the old secret at once";

/// The time for which the old secret of a rotated key remains valid, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapArg(pub u64);

impl OverlapArg {
    /// Parses a number with a unit.
    ///
    /// # Errors
    /// The text is not a valid time. The error message describes valid times.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| OVERLAP_HINT)?;
        let unit = match text.strip_prefix(digits) {
            Some("s") => 1,
            Some("m") => 60,
            Some("h") => 3600,
            Some("d") => 24 * 3600,
            Some("") if number == 0 => 1,
            _ => return Err(OVERLAP_HINT),
        };
        let seconds = number
            .checked_mul(unit)
            .filter(|seconds| *seconds <= OVERLAP_MAX_SECONDS);
        seconds.map(Self).ok_or(OVERLAP_HINT)
    }
}

/// The option that makes a change conditional.
#[derive(Args, Clone, Debug, Default)]
pub struct IfVersion {
    /// Make the change only if this is the current version of the key or account. `show` prints the current version
    #[arg(long, value_name = "V")]
    pub if_version: Option<Version>,
}

/// The id of an object, as an argument or as the option `--id`.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct IdArgs<T = String>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// The id, which `list` prints
    #[arg(value_name = "ID", value_parser = T::from_str)]
    positional: Option<T>,
    /// The id, as an option instead of an argument
    #[arg(long = "id", value_name = "ID", value_parser = T::from_str)]
    option: Option<T>,
}

impl<T> IdArgs<T>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// Returns the id, or an error if no id was given.
    pub(crate) fn id_or_error(&self) -> Result<T, AdminClientError> {
        let given = self.positional.as_ref().or(self.option.as_ref());
        given
            .cloned()
            .ok_or_else(|| AdminClientError::Usage("give an ID".to_owned()))
    }
}

impl IdArgs {
    /// Returns the id as a string. Empty if no id was given.
    pub fn id(&self) -> &str {
        let given = self.positional.as_deref().or(self.option.as_deref());
        given.unwrap_or_default()
    }
}

/// The number of accounts per call of the admin API.
const PAGE: u64 = 1000;

/// Reads the ids of all accounts, in alphabetical order.
pub(crate) async fn read_account_names(client: &AdminClient) -> Result<Vec<String>, AdminClientError> {
    let mut names = Vec::new();
    let mut page = ListAccounts {
        after: None,
        limit: Some(PAGE),
    };
    loop {
        let listed = client.request(&page).await?.read()?;
        names.extend(listed.accounts.into_iter().map(|account| account.id));
        if listed.next.is_none() {
            return Ok(names);
        }
        page.after = listed.next;
    }
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

    /// Returns a text in the encoding of a manual page.
    fn roff(text: &str) -> String {
        text.replace('-', "\\-").replace('\'', "\\*(Aq")
    }
}

#[cfg(test)]
mod args_tests {
    use super::*;

    #[test]
    fn an_overlap_has_a_unit_and_an_end() {
        let seconds = |text| OverlapArg::parse(text).map(|overlap| overlap.0);
        for (text, expected) in [
            ("0", 0),
            ("90s", 90),
            ("5m", 300),
            ("24h", 86_400),
            ("30d", OVERLAP_MAX_SECONDS),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "h",
            "24",
            "-1h",
            "1.5h",
            "1w",
            "1 h",
            "31d",
            "721h",
            "99999999999999999999s",
            "9223372036854775807d",
        ] {
            assert_eq!(seconds(text), Err(OVERLAP_HINT), "{text}");
        }
    }
}
