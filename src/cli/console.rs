//! `weir console`: the way into the operators' console.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};

/// What to do with the console.
#[derive(Debug, Subcommand)]
pub enum ConsoleCommand {
    /// Print a link that opens a session in a browser, once, within 60 seconds
    Open(OpenArgs),
}

/// `weir console open`
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// What the session may do
    #[arg(long, value_enum, default_value_t = Role::Owner)]
    pub role: Role,
    /// Whom to ask.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// What a session may do.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Look at everything
    Viewer,
    /// Change keys and switch providers, too
    Operator,
    /// Change accounts and their money, too
    Owner,
}

impl Role {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }
}

impl ConsoleCommand {
    /// Whom to ask, and how to print.
    pub(crate) fn client(&self) -> &ClientArgs {
        let Self::Open(args) = self;
        &args.client
    }
}

/// Runs one command.
pub(crate) async fn run(
    command: &ConsoleCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let ConsoleCommand::Open(args) = command;
    let body = json!({ "role": args.role.as_str() });
    let link = client.call(Method::POST, "/v1/console/links", Some(&body)).await?;
    if args.client.json {
        writeln!(out, "{link}")?;
    } else {
        let url = link.get("url").and_then(Value::as_str).unwrap_or_default();
        writeln!(out, "{url}")?;
    }
    Ok(())
}
