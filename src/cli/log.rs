//! `weir log`: the consumption log.

use std::{io::Write, time::Duration};

use clap::{Args, Subcommand};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};
use crate::{
    api::log::{LogRow, QueryLog},
    domain::ledger::consumption::CostShare,
};

mod counters;
mod days;
mod export;
pub(crate) mod filter;
mod home;
pub(crate) mod init;
mod journal;
mod verify;

use filter::FilterArgs;

/// Rows per call.
const PAGE: usize = 1000;
/// The timeout of a page: weir searches for rows for some seconds, and the log backend may be slow.
const PAGE_WAIT: Duration = Duration::from_secs(45);
/// How far back a query goes by default, in hours.
const QUERY_HOURS: u32 = 24;

/// The subcommands of `weir log`.
#[derive(Clone, Debug, Subcommand)]
pub enum LogSubcommand {
    /// Create the schema of the log's database, and grant rights on it; needs no running weir
    Init(init::LogInitArgs),
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    Read(LogCommand),
}

/// The subcommands of `weir log` that call a running weir.
#[derive(Clone, Debug, Subcommand)]
pub enum LogCommand {
    /// Print rows; without --from those of the last 24 hours
    Query(QueryArgs),
    /// Write rows as JSON lines, CSV or Parquet; without --from all rows
    Export(export::ExportArgs),
    /// Compare rows, their daily sums, counters and the journal; exits with 1 if any differ
    Verify(verify::VerifyArgs),
    /// Copy the rows of the previous log backend to the new one, while weir serves
    Move(home::MoveArgs),
}

/// `weir log query`
#[derive(Args, Clone, Debug)]
pub struct QueryArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub filter: FilterArgs,
    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl LogCommand {
    /// The client options.
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::Query(args) => &args.client,
            Self::Export(args) => &args.client,
            Self::Verify(args) => &args.client,
            Self::Move(args) => &args.client,
        }
    }
}

/// Runs the command against the admin API and prints the result.
pub(crate) async fn run(
    command: &LogCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    match command {
        LogCommand::Query(args) => {
            // In hours, because the store's clock counts.
            let asked = QueryLog {
                hours: args.filter.from.is_none().then_some(QUERY_HOURS),
                ..args.filter.query()
            };
            rows(asked, args.limit, client, args.client.json, out).await
        }
        LogCommand::Verify(args) => verify::run(args, client, out).await,
        LogCommand::Move(args) => home::move_rows(args, client, out).await,
        LogCommand::Export(args) => export::run(args, client, out).await,
    }
}

async fn rows(
    mut asked: QueryLog,
    limit: Option<usize>,
    client: &AdminClient,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    if !as_json {
        writeln!(out, "{}", heading())?;
    }
    let mut left = limit.unwrap_or(usize::MAX);
    // A model that is no longer in the catalogue may still have rows.
    let (mut found, mut unknown_model) = (false, None);
    while left > 0 {
        asked.limit = Some(left.min(PAGE));
        let page = client.request_within(PAGE_WAIT, None, &asked).await?.read()?;
        unknown_model = unknown_model.or(page.unknown_model);
        for row in &page.rows {
            left = left.saturating_sub(1);
            found = true;
            if as_json {
                let row = serde_json::to_string(row).map_err(std::io::Error::other)?;
                writeln!(out, "{row}")?;
                continue;
            }
            writeln!(out, "{}", line(row))?;
            for part in &row.row.parts {
                writeln!(out, "{}", part_line(part))?;
            }
        }
        match page.next {
            Some(next) => asked.cursor = Some(next),
            None => break,
        }
    }
    match unknown_model {
        Some(why) if !found => Err(AdminClientError::Refused(why)),
        _ => Ok(()),
    }
}

fn heading() -> String {
    format!(
        "{:<24}  {:<20}  {:<32}  {:>6}  {:>10}  {:>10}  {:>16}",
        "TIME", "KEY", "MODEL", "STATUS", "TOKENS IN", "TOKENS OUT", "COST USD"
    )
}

fn line(LogRow { time, row, .. }: &LogRow) -> String {
    let time = time.map_or_else(|| row.time_ms.to_string(), |time| time.to_string());
    format!(
        "{:<24}  {:<20}  {:<32}  {:>6}  {:>10}  {:>10}  {:>16}",
        time,
        row.key_id.as_str(),
        row.model,
        row.status,
        row.usage.input_total(),
        row.usage.output_text.saturating_add(row.usage.output_reasoning),
        row.cost_nano_usd.to_string(),
    )
}

/// The line of one model, below the row of a request that several models served.
fn part_line(part: &CostShare) -> String {
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
