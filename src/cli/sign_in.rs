//! `weir sign-in`: the agents that are signed in with a key.

use std::io::Write;

use clap::{Args, Subcommand};

use super::{
    admin_client::{AdminClient, AdminClientError, ClientArgs, or_nothing},
    named::Named,
};
use crate::{
    api::sessions::{EndSignIns, ListSignIns},
    domain::keys::key::KeyId,
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
    let (SignInCommand::List(args) | SignInCommand::End(args)) = command;
    let id = KeyId::parse(args.named.id()).map_err(|error| AdminClientError::Usage(error.to_string()))?;
    if let SignInCommand::End(_) = command {
        let reply = client.ask(&EndSignIns { id }).await?;
        if args.client.json {
            writeln!(out, "{}", reply.text)?;
        } else {
            writeln!(out, "all agents of {} are signed out", args.named.id())?;
        }
        return Ok(());
    }
    let reply = client.ask(&ListSignIns { id }).await?;
    if args.client.json {
        writeln!(out, "{}", reply.text)?;
        return Ok(());
    }
    writeln!(out, "{:<20}  ENDS", "LAST TOKENS")?;
    for one in reply.read()?.sign_ins {
        let [used, ends] = [one.used_at, one.ends_at].map(or_nothing);
        writeln!(out, "{used:<20}  {ends}")?;
    }
    Ok(())
}
