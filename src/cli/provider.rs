//! `weir provider ...`: the providers of a running weir, and their switches.

use std::io::Write;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};

/// What to do with providers.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// List all providers with their state
    List(ClientArgs),
    /// Send nothing more to a provider, from the next request on; requests that run go on
    Disable(NameArgs),
    /// Send requests to a provider again
    Enable(NameArgs),
}

/// Which provider.
#[derive(Args, Debug)]
pub struct NameArgs {
    /// The provider's name
    pub name: String,
    /// Whom to ask.
    #[command(flatten)]
    pub client: ClientArgs,
}

impl ProviderCommand {
    /// Whom to ask, and how to print.
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::List(client) => client,
            Self::Disable(args) | Self::Enable(args) => &args.client,
        }
    }
}

/// Runs one command.
pub(crate) async fn run(
    command: &ProviderCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let (args, verb) = match command {
        ProviderCommand::List(args) => return list(args, client, out).await,
        ProviderCommand::Disable(args) => (args, "disable"),
        ProviderCommand::Enable(args) => (args, "enable"),
    };
    let name = percent_encoding::utf8_percent_encode(&args.name, percent_encoding::NON_ALPHANUMERIC);
    let answer = client
        .call(Method::POST, &format!("/v1/providers/{name}/{verb}"), None)
        .await?;
    if args.client.json {
        writeln!(out, "{answer}")?;
    } else if answer.get("changed") == Some(&Value::Bool(true)) {
        writeln!(out, "{}: {verb}d on this node", args.name)?;
    } else {
        writeln!(out, "{}: was {verb}d already", args.name)?;
    }
    Ok(())
}

async fn list(args: &ClientArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let answer = client.call(Method::GET, "/v1/providers", None).await?;
    let providers = answer.get("providers").and_then(Value::as_array);
    if !args.json {
        writeln!(
            out,
            "{:<16}  {:<10}  CREDENTIALS, OR WHY IT IS OFF",
            "PROVIDER", "STATE"
        )?;
    }
    for provider in providers.map(Vec::as_slice).unwrap_or_default() {
        if args.json {
            writeln!(out, "{provider}")?;
            continue;
        }
        let is = |field: &str| provider.get(field) == Some(&Value::Bool(true));
        let list = |field: &str| {
            provider
                .get(field)
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice)
        };
        let is_unresolved = !list("unresolved").is_empty() && list("places").is_empty();
        let state = match (is("configured"), is("enabled")) {
            (_, false) => "disabled",
            (false, true) => "off",
            (true, true) if is_unresolved => "unresolved",
            (true, true) => "on",
        };
        let credential = |one: &Value| {
            let name = one.get("name").and_then(Value::as_str).unwrap_or_default();
            match one.get("rests_seconds").and_then(Value::as_u64) {
                None | Some(0) => name.to_owned(),
                Some(seconds) => format!("{name} (rests {seconds} s)"),
            }
        };
        let credentials = provider.get("credentials").and_then(Value::as_array);
        let credentials: Vec<String> = credentials.into_iter().flatten().map(credential).collect();
        let why = match provider.get("why_off").and_then(Value::as_str) {
            Some(why) => why.to_owned(),
            None if !is("enabled") => "switched off: `weir provider enable` switches it on".to_owned(),
            None => credentials.join(", ") + &left_out(provider),
        };
        let name = provider.get("name").and_then(Value::as_str).unwrap_or_default();
        writeln!(out, "{name:<16}  {state:<10}  {why}")?;
    }
    Ok(())
}

/// What of a provider is not asked now, as the end of its line.
fn left_out(provider: &Value) -> String {
    let models = provider.get("passed_over").and_then(Value::as_array);
    let model = |one: &Value| {
        let name = one.get("model").and_then(Value::as_str).unwrap_or_default();
        let seconds = one.get("asked_again_seconds").and_then(Value::as_u64);
        format!("; passed over for {name} (asked again in {} s)", seconds.unwrap_or(0))
    };
    let mut text: String = models.into_iter().flatten().map(model).collect();
    let hosts = provider.get("unresolved").and_then(Value::as_array);
    for host in hosts.into_iter().flatten().filter_map(Value::as_str) {
        text += &format!("; {host} has no address");
    }
    match provider.get("places_ejected").and_then(Value::as_u64) {
        None | Some(0) => {}
        Some(1) => text += "; 1 address left out",
        Some(count) => text += &format!("; {count} addresses left out"),
    }
    text
}
