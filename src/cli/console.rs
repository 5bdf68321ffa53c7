//! `weir console`: the way into the operators' console.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};

/// What to do with the console.
#[derive(Debug, Subcommand)]
pub enum ConsoleCommand {
    /// Print a link that opens a session in a browser, once, within 60 seconds
    Open(OpenArgs),
    /// List the sessions of people in browsers, at the console and the portal, or end some of them
    Sessions(SessionsArgs),
}

/// `weir console sessions`
#[derive(Args, Debug)]
pub struct SessionsArgs {
    /// End the session with this id, as the list shows it; at all nodes
    #[arg(long, value_name = "ID")]
    pub end: Option<String>,
    /// End all of them
    #[arg(long, conflicts_with = "end")]
    pub end_all: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub client: ClientArgs,
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
        match self {
            Self::Open(args) => &args.client,
            Self::Sessions(args) => &args.client,
        }
    }
}

/// Runs one command.
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

const SESSIONS: &str = "/v1/console/sessions";

async fn sessions(args: &SessionsArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let wanted = args.end.as_deref();
    let wanted = wanted.map(|id| format!("{SESSIONS}/{}", utf8_percent_encode(id, NON_ALPHANUMERIC)));
    let wanted = wanted.or(args.end_all.then(|| SESSIONS.to_owned()));
    if let Some(path) = wanted {
        let answer = client.call(Method::DELETE, &path, None).await?;
        let ended = answer.get("ended").and_then(Value::as_u64).unwrap_or_default();
        match ended {
            _ if args.client.json => writeln!(out, "{answer}")?,
            1 => writeln!(out, "1 session has ended")?,
            ended => writeln!(out, "{ended} sessions have ended")?,
        }
        return Ok(());
    }
    let answer = client.call(Method::GET, SESSIONS, None).await?;
    let sessions = answer.get("sessions").and_then(Value::as_array);
    if !args.client.json {
        writeln!(
            out,
            "{:<16}  {:<7}  {:<8}  {:<20}  {:<24}  ENDS",
            "ID", "DOOR", "ROLE", "WHO", "WITHOUT USE ENDS"
        )?;
    }
    for one in sessions.into_iter().flatten() {
        let text = |field: &str| one.get(field).and_then(Value::as_str);
        if args.client.json {
            writeln!(out, "{one}")?;
            continue;
        }
        let [id, door, idle, ends] =
            ["id", "door", "idle_ends_at", "ends_at"].map(|field| text(field).unwrap_or_default());
        let who = text("opened_by").or(text("key")).unwrap_or_default();
        let role = text("role").unwrap_or("-");
        writeln!(out, "{id:<16}  {door:<7}  {role:<8}  {who:<20}  {idle:<24}  {ends}")?;
    }
    Ok(())
}
