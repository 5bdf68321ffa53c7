//! `weir console`: opens sessions of the operators' console, and lists and ends sessions.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum, builder::PossibleValue};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs, text_or_empty, write_json};
use crate::{
    api::sessions::{CreateConsoleLink, EndAllSessions, EndSession, ListSessions},
    domain::{keys::KeyId, sign_in::Role},
};

/// The subcommands of `weir console`.
#[derive(Debug, Subcommand)]
pub enum ConsoleCommand {
    /// Print a link that opens one session in a browser. The link is valid for 60 seconds
    Open(OpenArgs),
    /// List the sessions of users of the console and the portal, or end some of them
    Sessions(SessionsArgs),
}

/// The arguments of `weir console sessions`.
#[derive(Args, Debug)]
pub struct SessionsArgs {
    /// End the session with this id at all nodes. Without this option, the command lists the sessions with their ids
    #[arg(long, value_name = "ID")]
    pub end: Option<String>,
    /// End all sessions at all nodes
    #[arg(long, conflicts_with = "end")]
    pub end_all: bool,
    /// The options for calling a running weir.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// The arguments of `weir console open`.
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// The role of the session, which determines what the user can change
    #[arg(long, value_enum, default_value_t = Role::Owner)]
    pub(crate) role: Role,
    /// The options for calling a running weir.
    #[command(flatten)]
    pub client: ClientArgs,
}

impl ValueEnum for Role {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let may = match self {
            Self::Viewer => "View everything",
            Self::Operator => "Also change keys, and switch providers off and on",
            Self::Owner => "Also change accounts and their money",
        };
        Some(PossibleValue::new(self.as_str()).help(may))
    }
}

impl ConsoleCommand {
    /// Returns the options for calling a running weir.
    pub(crate) fn client(&self) -> &ClientArgs {
        match self {
            Self::Open(args) => &args.client,
            Self::Sessions(args) => &args.client,
        }
    }
}

/// Calls the admin API and prints the result.
pub(crate) async fn run(
    command: &ConsoleCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    match command {
        ConsoleCommand::Open(args) => open(args, client, out).await,
        ConsoleCommand::Sessions(args) => sessions(args, client, out).await,
    }
}

async fn open(args: &OpenArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let role = Some(args.role);
    let reply = client.request(&CreateConsoleLink { role }).await?;
    if args.client.json {
        writeln!(out, "{}", reply.text)?;
    } else {
        writeln!(out, "{}", reply.read()?.url)?;
    }
    Ok(())
}

async fn sessions(args: &SessionsArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let ended = match &args.end {
        Some(id) => Some(client.request(&EndSession { id: id.clone() }).await?),
        None if args.end_all => Some(client.request(&EndAllSessions {}).await?),
        None => None,
    };
    if let Some(reply) = ended {
        match reply.read()?.ended {
            _ if args.client.json => writeln!(out, "{}", reply.text)?,
            1 => writeln!(out, "1 session has ended")?,
            ended => writeln!(out, "{ended} sessions have ended")?,
        }
        return Ok(());
    }
    let answer = client.request(&ListSessions {}).await?.read()?;
    if !args.client.json {
        writeln!(
            out,
            "{:<16}  {:<7}  {:<8}  {:<20}  {:<24}  ENDS",
            "ID", "PAGES", "ROLE", "WHO", "ENDS IF UNUSED"
        )?;
    }
    for one in &answer.sessions {
        if args.client.json {
            write_json(out, one)?;
            continue;
        }
        let (id, door, role) = (&one.id, one.door.as_str(), one.role.map_or("-", Role::as_str));
        let who = one.opened_by.as_deref().or(one.key.as_ref().map(KeyId::as_str));
        let who = who.unwrap_or_default();
        let [idle, ends] = [one.idle_ends_at, one.ends_at].map(text_or_empty);
        writeln!(out, "{id:<16}  {door:<7}  {role:<8}  {who:<20}  {idle:<24}  {ends}")?;
    }
    Ok(())
}
