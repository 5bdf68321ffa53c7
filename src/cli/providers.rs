//! `weir provider` and `weir models`: lists the providers and models of a running weir, and switches providers off and on.

use std::io::Write;

use clap::{Args, Subcommand};

use crate::{
    api::node::{
        CredentialView, DisableProvider, EnableProvider, ListModels, ListProviders, OpenCircuitView, ProviderView,
    },
    cli::admin_client::{AdminClient, AdminClientError, ClientArgs, write_json},
    domain::wire::Protocol,
};

/// The subcommands of `weir provider`.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// List all providers with their state
    List(ClientArgs),
    /// Switch a provider off on this node: weir sends no further requests to it. Running requests continue
    Disable(NameArgs),
    /// Switch a provider on again on this node
    Enable(NameArgs),
}

/// The argument that names a provider.
#[derive(Args, Debug)]
pub struct NameArgs {
    /// The provider's name
    pub name: String,
    /// The options for calling a running weir.
    #[command(flatten)]
    pub client: ClientArgs,
}

impl ProviderCommand {
    /// Returns the options for calling a running weir.
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::List(client) => client,
            Self::Disable(args) | Self::Enable(args) => &args.client,
        }
    }
}

/// Calls the admin API and prints the result.
pub(crate) async fn run(
    command: &ProviderCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let (args, reply, state) = match command {
        ProviderCommand::List(args) => return list(args, client, out).await,
        ProviderCommand::Disable(args) => {
            let name = args.name.clone();
            (args, client.request(&DisableProvider { name }).await?, "disabled")
        }
        ProviderCommand::Enable(args) => {
            let name = args.name.clone();
            (args, client.request(&EnableProvider { name }).await?, "enabled")
        }
    };
    if args.client.json {
        writeln!(out, "{}", reply.text)?;
    } else if reply.read()?.changed {
        writeln!(out, "{}: {state} on this node", args.name)?;
    } else {
        writeln!(out, "{}: already {state}", args.name)?;
    }
    Ok(())
}

async fn list(args: &ClientArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let answer = client.request(&ListProviders {}).await?.read()?;
    if !args.json {
        writeln!(
            out,
            "{:<16}  {:<10}  CREDENTIALS, OR WHY THE PROVIDER IS OFF",
            "PROVIDER", "STATE"
        )?;
    }
    for provider in &answer.providers {
        if args.json {
            write_json(out, provider)?;
            continue;
        }
        let is_unresolved = !provider.unresolved.is_empty() && provider.backends.is_empty();
        let state = match (provider.configured, provider.enabled) {
            (_, false) => "disabled",
            (false, true) => "off",
            (true, true) if is_unresolved => "unresolved",
            (true, true) => "on",
        };
        let credential = |one: &CredentialView| match one.cooldown_seconds {
            0 => one.name.clone(),
            seconds => format!("{} (cools down for {seconds} s)", one.name),
        };
        let why = match &provider.why_off {
            Some(why) => why.clone(),
            None if !provider.enabled => format!("`weir provider enable {}` enables it on this node", provider.name),
            None => {
                let credentials: Vec<String> = provider.credentials.iter().map(credential).collect();
                credentials.join(", ") + &skipped_text(provider)
            }
        };
        writeln!(out, "{:<16}  {state:<10}  {why}", provider.name)?;
    }
    Ok(())
}

/// Describes which models and backends of a provider are not used now. The text is appended to the provider's line.
fn skipped_text(provider: &ProviderView) -> String {
    let mut text = String::new();
    for OpenCircuitView {
        model,
        probe_seconds: seconds,
    } in &provider.open_circuits
    {
        text += &format!("; skipped for {model} (tried again in {seconds} s)");
    }
    for host in &provider.unresolved {
        text += &format!("; {host} is not resolved");
    }
    match provider.backends_ejected {
        0 => {}
        1 => text += "; 1 backend not used",
        count => text += &format!("; {count} backends not used"),
    }
    text
}

/// Prints the models, sorted by name.
pub(crate) async fn list_models(
    args: &ClientArgs,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let answer = client.request(&ListModels {}).await?.read()?;
    if !args.json {
        writeln!(out, "{:<32}  {:<16}  PROTOCOLS", "MODEL", "PROVIDER")?;
    }
    for model in &answer.models {
        if args.json {
            write_json(out, model)?;
            continue;
        }
        let protocols: Vec<&str> = model.protocols.iter().copied().map(Protocol::as_str).collect();
        let (name, provider) = (&model.name, &model.provider);
        writeln!(out, "{name:<32}  {provider:<16}  {}", protocols.join(", "))?;
    }
    Ok(())
}
