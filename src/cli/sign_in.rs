//! `weir sign-in`: lists and ends the sign-ins of agents with a key.

use std::io::Write;

use clap::{Args, Subcommand};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs, text_or_empty};
use crate::cli::args::IdArgs;
use crate::{
    api::sessions::{EndSignIns, ListSignIns},
    domain::keys::key::KeyId,
};

/// The subcommands of `weir sign-in`.
#[derive(Clone, Debug, Subcommand)]
pub enum SignInCommand {
    /// List the sign-ins of agents with a key: when each last got tokens, and when it ends
    List(KeySignInsArgs),
    /// End all sign-ins of agents with a key; the key itself does not change
    End(KeySignInsArgs),
}

/// The arguments of a command about the sign-ins with one key.
#[derive(Args, Clone, Debug)]
pub struct KeySignInsArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: IdArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl SignInCommand {
    /// Returns the options for calling a running weir.
    pub(crate) fn client(&self) -> &ClientArgs {
        let (Self::List(args) | Self::End(args)) = self;
        &args.client
    }
}

/// Calls the admin API and prints the result.
pub(crate) async fn run(
    command: &SignInCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let (SignInCommand::List(args) | SignInCommand::End(args)) = command;
    let id = KeyId::parse(args.named.id()).map_err(|error| AdminClientError::Usage(error.to_string()))?;
    if let SignInCommand::End(_) = command {
        let reply = client.request(&EndSignIns { id }).await?;
        if args.client.json {
            writeln!(out, "{}", reply.text)?;
        } else {
            writeln!(out, "all agents of {} are signed out", args.named.id())?;
        }
        return Ok(());
    }
    let reply = client.request(&ListSignIns { id }).await?;
    if args.client.json {
        writeln!(out, "{}", reply.text)?;
        return Ok(());
    }
    writeln!(out, "{:<20}  ENDS", "LAST TOKENS")?;
    for one in reply.read()?.sign_ins {
        let [used, ends] = [one.used_at, one.ends_at].map(text_or_empty);
        writeln!(out, "{used:<20}  {ends}")?;
    }
    Ok(())
}
