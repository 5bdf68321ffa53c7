//! `weir log`: the consumption log, read page by page and printed as it comes.

use std::{
    fs::OpenOptions,
    io::{BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};
use super::partial_file::partial_path;
use crate::{
    domain::ledger::consumption::{Part, Row},
    sinks::files::Export,
};

mod csv;
mod days;
mod home;
pub(crate) mod init;
mod timestamp;
mod verify;

use timestamp::time;

/// Rows asked for at once.
const PAGE: usize = 1000;
/// Rows are for the eyes of whoever exports them.
const EXPORT_MODE: u32 = 0o600;
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
    /// Print rows; without --since those of the last 24 hours
    Query(QueryArgs),
    /// Write rows as JSON lines, CSV or Parquet; without --since all there are
    Export(ExportArgs),
    /// Compare rows with the daily sums that are kept of them; ends with 1 where any differ
    Verify(verify::VerifyArgs),
    /// Bring the rows that the store has to the log's home, while weir serves
    Move(home::MoveArgs),
}

/// Which rows. They come by account, then by day, in the order in which they were written.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only rows of this account
    #[arg(long)]
    pub account: Option<String>,
    /// Only rows of the key with this id
    #[arg(long, value_name = "ID")]
    pub key: Option<String>,
    /// Only rows of this model, asked for or served
    #[arg(long)]
    pub model: Option<String>,
    /// Only requests with this tag
    #[arg(long, value_name = "NAME=VALUE")]
    pub tag: Option<String>,
    /// Only requests that ended then or later: an RFC 3339 time, or a date for its first moment in UTC
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only requests that ended before then
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
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

/// `weir log export`
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub filter: FilterArgs,
    /// One JSON object per line, CSV with a heading, or Parquet
    #[arg(long, value_enum)]
    pub format: Format,
    /// Where to write, whole or not at all [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long, requires = "out")]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON lines.
    Jsonl,
    /// CSV, RFC 4180.
    Csv,
    /// Parquet, with the columns of the log's own files.
    Parquet,
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
            if args.filter.since.is_none() {
                wanted.push_str(&format!("&hours={QUERY_HOURS}"));
            }
            let form = if args.client.json { Form::Jsonl } else { Form::Table };
            rows(&wanted, args.limit, client, form, out).await
        }
        LogCommand::Verify(args) => verify::run(args, client, out).await,
        LogCommand::Move(args) => home::move_rows(args, client, out).await,
        LogCommand::Export(args) => {
            let form = match args.format {
                Format::Jsonl => Form::Jsonl,
                Format::Csv => Form::Csv,
                Format::Parquet => Form::Parquet,
            };
            let Some(path) = &args.out else {
                return rows(&args.filter.query(), None, client, form, out).await;
            };
            if !args.force && path.exists() {
                let what = format!("{} is there already; --force replaces it", path.display());
                return Err(AdminClientError::Usage(what));
            }
            // Renamed when it is whole, so that nobody takes a part for all.
            let partial = partial_path(path);
            let failed = |path: &Path, source| AdminClientError::File {
                path: path.to_owned(),
                source,
            };
            let mut file = OpenOptions::new();
            let file = file
                .write(true)
                .create(true)
                .truncate(true)
                .mode(EXPORT_MODE)
                .open(&partial);
            let mut file = BufWriter::new(file.map_err(|error| failed(&partial, error))?);
            let written = rows(&args.filter.query(), None, client, form, &mut file).await;
            let written = written.and_then(|()| {
                file.flush()?;
                std::fs::rename(&partial, path).map_err(|error| failed(path, error))
            });
            let written = written.map_err(|error| match error {
                AdminClientError::Output(error) => failed(&partial, error),
                other => other,
            });
            if written.is_err() {
                // What is left of it is no use, and the error says what happened.
                let _ = std::fs::remove_file(&partial);
            }
            written
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Table,
    Jsonl,
    Csv,
    Parquet,
}

async fn rows(
    wanted: &str,
    limit: Option<usize>,
    client: &AdminClient,
    form: Form,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    match form {
        Form::Table => writeln!(out, "{}", heading())?,
        Form::Csv => csv::heading(out)?,
        Form::Jsonl | Form::Parquet => {}
    }
    let mut table = (form == Form::Parquet).then(Export::begin).transpose()?;
    let mut left = limit.unwrap_or(usize::MAX);
    let mut cursor = String::new();
    // A model that has left the catalogue may still have rows.
    let (mut found, mut unknown_model) = (false, None);
    while left > 0 {
        let path = format!("/v1/log?limit={}{wanted}{cursor}", left.min(PAGE));
        let page = client.call(Method::GET, &path, None).await?;
        unknown_model = unknown_model.or_else(|| Some(page.get("unknown_model")?.as_str()?.to_owned()));
        for row in page.get("rows").and_then(Value::as_array).into_iter().flatten() {
            left = left.saturating_sub(1);
            found = true;
            match form {
                Form::Jsonl => writeln!(out, "{row}")?,
                Form::Table => {
                    let row = read(row)?;
                    writeln!(out, "{}", line(&row))?;
                    for part in &row.parts {
                        writeln!(out, "{}", part_line(part))?;
                    }
                }
                Form::Csv => csv::record(&read(row)?, out)?,
                Form::Parquet => {
                    if let Some(table) = &mut table {
                        out.write_all(&table.row(read(row)?)?)?;
                    }
                }
            }
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => cursor = format!("&cursor={}", utf8_percent_encode(next, NON_ALPHANUMERIC)),
            None => break,
        }
    }
    if let Some(table) = table {
        out.write_all(&table.finish()?)?;
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

impl FilterArgs {
    fn query(&self) -> String {
        let fields = [
            ("account", &self.account),
            ("key", &self.key),
            ("model", &self.model),
            ("tag", &self.tag),
            ("since", &self.since),
            ("until", &self.until),
        ];
        fields
            .into_iter()
            .filter_map(|(name, value)| {
                let value = value.as_deref()?;
                Some(format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            })
            .collect()
    }
}
