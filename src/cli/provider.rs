//! `weir provider ...`: the providers of a running weir, and their switches.

use std::io::Write;

use clap::{Args, Subcommand};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs, write_json};
use crate::api::providers::{
    CredentialView, DisableProvider, EnableProvider, ListProviders, PassedOverView, ProviderView,
};

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
    let (args, reply, state) = match command {
        ProviderCommand::List(args) => return list(args, client, out).await,
        ProviderCommand::Disable(args) => {
            let name = args.name.clone();
            (args, client.ask(&DisableProvider { name }).await?, "disabled")
        }
        ProviderCommand::Enable(args) => {
            let name = args.name.clone();
            (args, client.ask(&EnableProvider { name }).await?, "enabled")
        }
    };
    if args.client.json {
        writeln!(out, "{}", reply.text)?;
    } else if reply.read()?.changed {
        writeln!(out, "{}: {state} on this node", args.name)?;
    } else {
        writeln!(out, "{}: was {state} already", args.name)?;
    }
    Ok(())
}

async fn list(args: &ClientArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let answer = client.ask(&ListProviders {}).await?.read()?;
    if !args.json {
        writeln!(
            out,
            "{:<16}  {:<10}  CREDENTIALS, OR WHY IT IS OFF",
            "PROVIDER", "STATE"
        )?;
    }
    for provider in &answer.providers {
        if args.json {
            write_json(out, provider)?;
            continue;
        }
        let is_unresolved = !provider.unresolved.is_empty() && provider.places.is_empty();
        let state = match (provider.configured, provider.enabled) {
            (_, false) => "disabled",
            (false, true) => "off",
            (true, true) if is_unresolved => "unresolved",
            (true, true) => "on",
        };
        let credential = |one: &CredentialView| match one.rests_seconds {
            0 => one.name.clone(),
            seconds => format!("{} (rests {seconds} s)", one.name),
        };
        let why = match &provider.why_off {
            Some(why) => why.clone(),
            None if !provider.enabled => "switched off: `weir provider enable` switches it on".to_owned(),
            None => {
                let credentials: Vec<String> = provider.credentials.iter().map(credential).collect();
                credentials.join(", ") + &left_out(provider)
            }
        };
        writeln!(out, "{:<16}  {state:<10}  {why}", provider.name)?;
    }
    Ok(())
}

/// What of a provider is not asked now, as the end of its line.
fn left_out(provider: &ProviderView) -> String {
    let mut text = String::new();
    for PassedOverView {
        model,
        asked_again_seconds: seconds,
    } in &provider.passed_over
    {
        text += &format!("; passed over for {model} (asked again in {seconds} s)");
    }
    for host in &provider.unresolved {
        text += &format!("; {host} has no address");
    }
    match provider.places_ejected {
        0 => {}
        1 => text += "; 1 address left out",
        count => text += &format!("; {count} addresses left out"),
    }
    text
}
