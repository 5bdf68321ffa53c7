//! `weir sign-in`: the agents that are signed in with a key.

use std::io::Write;

use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{
    admin_client::{AdminClient, AdminClientError, ClientArgs},
    named::Named,
};

/// What to do with sign-ins.
#[derive(Clone, Debug, Subcommand)]
pub enum SignInCommand {
    /// List the agents that are signed in with a key: when each was last given tokens, and when its sign-in ends
    List(OfKeyArgs),
    /// Sign all agents of a key out; the key stays as it is
    End(OfKeyArgs),
}

/// A command on the sign-ins of one key.
#[derive(Args, Clone, Debug)]
pub struct OfKeyArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl SignInCommand {
    /// Whom to ask, and how to print.
    pub(crate) fn client(&self) -> &ClientArgs {
        let (Self::List(args) | Self::End(args)) = self;
        &args.client
    }
}

/// Runs one command.
pub(crate) async fn run(
    command: &SignInCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let (method, args) = match command {
        SignInCommand::List(args) => (Method::GET, args),
        SignInCommand::End(args) => (Method::DELETE, args),
    };
    let id = utf8_percent_encode(args.named.id(), NON_ALPHANUMERIC);
    let answer = client.call(method, &format!("/v1/keys/{id}/sign-ins"), None).await?;
    if args.client.json {
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    let sign_ins = answer.get("sign_ins").and_then(Value::as_array);
    let Some(sign_ins) = sign_ins else {
        writeln!(out, "all agents of {} are signed out", args.named.id())?;
        return Ok(());
    };
    writeln!(out, "{:<20}  ENDS", "LAST TOKENS")?;
    for one in sign_ins {
        let text = |field: &str| one.get(field).and_then(Value::as_str).unwrap_or_default();
        writeln!(out, "{:<20}  {}", text("used_at"), text("ends_at"))?;
    }
    Ok(())
}
