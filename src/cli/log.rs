//! `weir log`: the consumption log, read page by page and printed as it comes.

use std::{io::Write, time::Duration};

use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};
use crate::domain::ledger::consumption::{Part, Row};

mod counters;
mod days;
mod export;
mod filter;
mod home;
pub(crate) mod init;
mod journal;
mod timestamp;
mod verify;

use filter::FilterArgs;
use timestamp::time;

/// Rows asked for at once.
const PAGE: usize = 1000;
/// How long a page may take: it looks for rows for some seconds, and a home may take its time.
const PAGE_WAIT: Duration = Duration::from_secs(45);
/// How far back a query goes, unless told otherwise, in hours.
const QUERY_HOURS: u32 = 24;

/// What to do with the log, or before there is one.
#[derive(Clone, Debug, Subcommand)]
pub enum LogSubcommand {
    /// Make what the log's database needs, and say who may use it; needs no running weir
    Init(init::LogInitArgs),
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    Read(LogCommand),
}

/// What to do with the log.
#[derive(Clone, Debug, Subcommand)]
pub enum LogCommand {
    /// Print rows; without --from those of the last 24 hours
    Query(QueryArgs),
    /// Write rows as JSON lines, CSV or Parquet; without --from all there are
    Export(export::ExportArgs),
    /// Compare rows, the daily sums that are kept of them, counters and the journal; ends with 1 where any differ
    Verify(verify::VerifyArgs),
    /// Bring the rows that the store has to the log's home, while weir serves
    Move(home::MoveArgs),
}

/// `weir log query`
#[derive(Args, Clone, Debug)]
pub struct QueryArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub filter: FilterArgs,
    /// At most so many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl LogCommand {
    /// The arguments that say which weir is meant and how to print.
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::Query(args) => &args.client,
            Self::Export(args) => &args.client,
            Self::Verify(args) => &args.client,
            Self::Move(args) => &args.client,
        }
    }
}

/// Runs the command against the admin API and prints what comes.
pub(crate) async fn run(
    command: &LogCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    match command {
        LogCommand::Query(args) => {
            // What time it is, the store says.
            let mut wanted = args.filter.query();
            if args.filter.from.is_none() {
                wanted.push_str(&format!("&hours={QUERY_HOURS}"));
            }
            rows(&wanted, args.limit, client, args.client.json, out).await
        }
        LogCommand::Verify(args) => verify::run(args, client, out).await,
        LogCommand::Move(args) => home::move_rows(args, client, out).await,
        LogCommand::Export(args) => export::run(args, client, out).await,
    }
}

async fn rows(
    wanted: &str,
    limit: Option<usize>,
    client: &AdminClient,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    if !as_json {
        writeln!(out, "{}", heading())?;
    }
    let mut left = limit.unwrap_or(usize::MAX);
    let mut cursor = String::new();
    // A model that has left the catalogue may still have rows.
    let (mut found, mut unknown_model) = (false, None);
    while left > 0 {
        let path = format!("/v1/log?limit={}{wanted}{cursor}", left.min(PAGE));
        let page = client.call_within(PAGE_WAIT, Method::GET, &path, None).await?;
        unknown_model = unknown_model.or_else(|| Some(page.get("unknown_model")?.as_str()?.to_owned()));
        for row in page.get("rows").and_then(Value::as_array).into_iter().flatten() {
            left = left.saturating_sub(1);
            found = true;
            if as_json {
                writeln!(out, "{row}")?;
                continue;
            }
            let row = read(row)?;
            writeln!(out, "{}", line(&row))?;
            for part in &row.parts {
                writeln!(out, "{}", part_line(part))?;
            }
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => cursor = format!("&cursor={}", utf8_percent_encode(next, NON_ALPHANUMERIC)),
            None => break,
        }
    }
    match unknown_model {
        Some(why) if !found => Err(AdminClientError::Refused(why)),
        _ => Ok(()),
    }
}

fn read(row: &Value) -> Result<Row, AdminClientError> {
    serde_json::from_value(row.clone())
        .map_err(|error| AdminClientError::Refused(format!("a row of another weir's version: {error}; use --json")))
}

fn heading() -> String {
    format!(
        "{:<24}  {:<20}  {:<32}  {:>6}  {:>10}  {:>10}  {:>16}",
        "TIME", "KEY", "MODEL", "STATUS", "TOKENS IN", "TOKENS OUT", "COST USD"
    )
}

fn line(row: &Row) -> String {
    format!(
        "{:<24}  {:<20}  {:<32}  {:>6}  {:>10}  {:>10}  {:>16}",
        time(row.time_ms),
        row.key_id.as_str(),
        row.model,
        row.status,
        row.usage.input_total(),
        row.usage.output_text.saturating_add(row.usage.output_reasoning),
        row.cost_nano_usd.to_string(),
    )
}

/// What one of several models had of the row above.
fn part_line(part: &Part) -> String {
    format!(
        "{:<24}  {:<20}  {:<32}  {:>6}  {:>10}  {:>10}  {:>16}",
        "",
        format!("  {}", part.run.as_str()),
        part.model,
        "",
        part.usage.input_total(),
        part.usage.output_total(),
        part.cost_nano_usd.to_string(),
    )
}
