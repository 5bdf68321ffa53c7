//! `weir log`: reads, exports and verifies the consumption log, and sets up its database.

mod backend;
mod export;
mod verify;

use std::{io::Write, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use jiff::{ToSpan, tz::TimeZone};

use crate::{
    api::{
        log::{
            LogRow, QueryLog, StatusRange, UtcDay,
            checks::{DifferingSums, FillFromJournal, JournalDayView, SumsDifference, SumsSubject, VerifyJournal},
        },
        values::{AccountId, Moment},
    },
    cli::{
        self,
        admin_client::{AdminClient, AdminClientError, ClientArgs},
        output::{CommandProgress, counted},
    },
    config::DEFAULT_PATH,
    domain::{
        catalogue::SecretRef,
        keys::KeyId,
        ledger::{consumption::CostShare, ids::Tag},
    },
    edges::clock,
};

/// The number of rows per call of the admin API.
const PAGE: usize = 1000;
/// The timeout for a page of rows. It is long, because weir searches for rows for some seconds, and the log backend can be slow.
const PAGE_WAIT: Duration = Duration::from_secs(45);
/// The number of hours up to now that a query covers by default.
const QUERY_HOURS: u32 = 24;

/// The subcommands of `weir log`.
#[derive(Clone, Debug, Subcommand)]
pub enum LogSubcommand {
    /// Create the schema of the log's Postgres database and grant rights on it. Does not need a running weir
    Init(LogInitArgs),
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    Read(LogCommand),
}

/// The subcommands of `weir log` that call a running weir.
#[derive(Clone, Debug, Subcommand)]
pub enum LogCommand {
    /// Print rows. Without --from, print only rows of the last 24 hours
    Query(QueryArgs),
    /// Write rows as JSON lines, CSV or Parquet. Without --from, write rows from the earliest one on
    Export(export::ExportArgs),
    /// Compare the log's rows with the daily sums, the counters and the journal. The exit code is 1 if they differ
    Verify(verify::VerifyArgs),
    /// Copy the rows of the previous log backend to the current one, while weir serves requests
    Move(backend::MoveArgs),
}

/// The arguments of `weir log query`.
#[derive(Args, Clone, Debug)]
pub struct QueryArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub filter: FilterArgs,
    /// Maximum number of rows [default: all]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl LogCommand {
    /// Returns the options for calling a running weir.
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::Query(args) => &args.client,
            Self::Export(args) => &args.client,
            Self::Verify(args) => &args.client,
            Self::Move(args) => &args.client,
        }
    }
}

/// Calls the admin API and prints the result.
pub(crate) async fn run(
    command: &LogCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    match command {
        LogCommand::Query(args) => {
            // The time range is sent as a number of hours, so that the store's clock determines its end, not this machine's
            // clock.
            let asked = QueryLog {
                hours: args.filter.from.is_none().then_some(QUERY_HOURS),
                ..args.filter.query()
            };
            rows(asked, args.limit, client, args.client.json, out).await
        }
        LogCommand::Verify(args) => verify::run(args, client, out).await,
        LogCommand::Move(args) => backend::move_rows(args, client, out).await,
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
    let mut has_heading = as_json;
    let mut left = limit.unwrap_or(usize::MAX);
    // A model that is no longer in the catalogue may still have rows, so the message about an unknown model is only printed if no
    // row is found.
    let (mut found, mut unknown_model) = (false, None);
    while left > 0 {
        asked.limit = Some(left.min(PAGE));
        let page = client.request_within(PAGE_WAIT, None, &asked).await?.read()?;
        if !std::mem::replace(&mut has_heading, true) {
            writeln!(out, "{}", heading())?;
        }
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
    let time = time.map_or_else(|| row.time_ms.to_string(), |time| format!("{time:.3}"));
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

/// Formats the line of one model. If several models served a request, their lines are printed below its row.
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

/// Selects rows that meet all given conditions. The rows are sorted by day, then by account, and then by the time at which the
/// request ended.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Select only rows of this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Select only rows of the key with this id
    #[arg(long, value_name = "ID")]
    pub(crate) key: Option<KeyId>,
    /// Select only rows of requests that named this model or were served by it
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Select only requests that ended with this status, or with any status of a class such as 5xx
    #[arg(long)]
    pub(crate) status: Option<StatusRange>,
    /// Select only requests with this tag
    #[arg(long, value_name = "NAME=VALUE", value_parser = tag)]
    pub(crate) tag: Option<Tag>,
    /// Select only requests that ended at this time or later: an RFC 3339 time, or a date (its first moment in UTC)
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<Moment>,
    /// Select only requests that ended before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,
}

/// Parses a tag of the form `NAME=VALUE`.
pub(crate) fn tag(text: &str) -> Result<Tag, &'static str> {
    Tag::parse(text).ok_or(Tag::RULE)
}

impl FilterArgs {
    /// Returns the call for the selected rows.
    fn query(&self) -> QueryLog {
        let Self {
            account,
            key,
            model,
            status,
            tag,
            from,
            until,
        } = self.clone();
        QueryLog {
            account,
            key,
            model,
            status,
            tag,
            from,
            until,
            ..QueryLog::default()
        }
    }
}

/// The arguments of `weir log init`.
#[derive(Args, Clone, Debug)]
pub struct LogInitArgs {
    /// The configuration file that names the log backend
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub conf: PathBuf,
    /// The connection string of the role that creates and owns the schema, as env:NAME, file:PATH or credential:NAME [default:
    /// the url in the configuration]
    #[arg(long, value_name = "SECRET")]
    pub owner: Option<SecretRef>,
    /// A Postgres role to which the command grants the rights to write the log, and no others. Can be repeated
    #[arg(long, value_name = "ROLE")]
    pub grant_writer: Vec<String>,
    /// A Postgres role to which the command grants the right to read the log. Can be repeated
    #[arg(long, value_name = "ROLE")]
    pub grant_reader: Vec<String>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// The timeout for comparing one day of an account, or for copying the rows of that day.
const VERIFY_WAIT: Duration = Duration::from_secs(3600);

/// Calls `visit` for each day from `from` up to but excluding `until`, for one account or all accounts. Displays the progress,
/// and returns the number of accounts.
async fn for_each_day(
    client: &AdminClient,
    account: Option<&AccountId>,
    (from, until): (UtcDay, UtcDay),
    progress: &CommandProgress,
    mut visit: impl AsyncFnMut(&AccountId, UtcDay) -> Result<(), AdminClientError>,
) -> Result<u64, AdminClientError> {
    if from >= until {
        return Err(AdminClientError::Usage("--until must be after --from".to_owned()));
    }
    let accounts: Vec<AccountId> = match account {
        Some(account) => vec![account.clone()],
        None => {
            let names = cli::read_account_names(client).await?;
            let names = names.iter().map(|name| name.parse());
            names.collect::<Result<_, _>>().map_err(AdminClientError::Refused)?
        }
    };
    let days = || from.0.series(1.day()).take_while(|day| *day < until.0);
    let count = accounts.len() as u64;
    progress.set_total(count.saturating_mul(days().count() as u64));
    for account in &accounts {
        for day in days() {
            progress.show(format_args!("{account}  {day}"));
            visit(account, UtcDay(day)).await?;
            progress.advance(1);
        }
    }
    Ok(count)
}

/// Describes a difference between daily sums and rows. The text contains the subject of the sums, the values in the sums, and the
/// values that were computed from the rows.
fn difference_text(difference: &SumsDifference) -> String {
    format!(
        "{} model {}: sums {}; rows {}",
        subject_text(difference.of, difference.name.as_deref()),
        difference.model,
        counts_text(&difference.kept),
        counts_text(&difference.rows),
    )
}

/// Describes the requests that are included in sums or counters. With a name, these are the requests of the key or tag with this
/// name. Without a name, these are the requests of the account, or the requests with tags that have no separate sums.
fn subject_text(of: SumsSubject, name: Option<&str>) -> String {
    name.map_or_else(|| of.to_string(), |name| format!("{of} {name}"))
}

fn counts_text(sums: &DifferingSums) -> String {
    let counts = sums.usage.named_parts().filter(|(_, count)| *count > 0);
    let all: Vec<String> = [
        sums.requests.map(|requests| format!("requests {requests}")),
        sums.errors.map(|errors| format!("errors {errors}")),
        sums.cost_usd.map(|cost| format!("cost_usd {cost}")),
    ]
    .into_iter()
    .flatten()
    .chain(counts.map(|(name, count)| format!("{name} {count}")))
    .chain(
        sums.digest
            .iter()
            .map(|digest| format!("another column (digest {digest})")),
    )
    .collect();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join(", ")
    }
}

/// Returns the current date (UTC).
fn today() -> UtcDay {
    let now = jiff::Timestamp::from_second(clock::unix_seconds()).unwrap_or_default();
    UtcDay(now.to_zoned(TimeZone::UTC).date())
}

/// Parses a date. A time is also accepted, and is converted to its date in UTC.
fn date(text: &str) -> Result<UtcDay, String> {
    text.parse().or_else(|wanted| {
        let time = text.parse::<jiff::Timestamp>().map_err(|_| wanted)?;
        Ok(UtcDay(time.to_zoned(TimeZone::UTC).date()))
    })
}

/// The advice for operators if the log backend is the store, and rows have other charges there than in the journal. The advice is
/// to choose another log backend, because a new log backend receives all rows that the journal still contains.
const NAME_A_HOME: &str =
    "keep the journal, and set `[log] home` to \"files\" or \"postgres\", which then gets the rows of the journal";

/// The result of comparing the journal with the log, as part of `weir log verify`. The log must contain each row that this node's
/// journal still contains.
#[derive(Debug, Default)]
struct JournalReport {
    rows: u64,
    missing: u64,
    brought: u64,
    differing: u64,
}

impl JournalReport {
    /// Compares all rows, one portion per call, and prints missing and differing rows. With `fills`, missing rows are copied to
    /// the log.
    async fn compare(
        client: &AdminClient,
        mut asked: VerifyJournal,
        (fills, json): (bool, bool),
        out: &mut impl Write,
    ) -> Result<Self, AdminClientError> {
        let mut found = Self::default();
        loop {
            let reply = if fills {
                let fill = FillFromJournal(asked.clone());
                client.request_within(VERIFY_WAIT, None, &fill).await?
            } else {
                client.request_within(VERIFY_WAIT, None, &asked).await?
            };
            let answer = reply.read()?;
            for day in &answer.days {
                found.add(day, json, out)?;
            }
            if answer.next.is_none() {
                return Ok(found);
            }
            asked.after = answer.next;
        }
    }

    fn add(&mut self, day: &JournalDayView, json: bool, out: &mut impl Write) -> std::io::Result<()> {
        self.rows += day.rows;
        self.missing += day.missing;
        self.brought += day.brought;
        self.differing += day.differing;
        if day.missing == 0 && day.differing == 0 {
            return Ok(());
        }
        if json {
            return writeln!(out, "{}", serde_json::to_string(day)?);
        }
        let whose = format!("{}  {}", day.account, day.day);
        if day.missing > 0 {
            let more = if day.missing > day.requests.len() as u64 {
                ", …"
            } else {
                ""
            };
            let (missing, requests) = (counted(day.missing, "row"), day.requests.join(", "));
            writeln!(out, "{whose}  journal: {missing} missing in the log ({requests}{more})")?;
        }
        if day.brought > 0 {
            writeln!(out, "{whose}  {} copied", counted(day.brought, "row"))?;
        }
        if day.differing > 0 {
            let differing = counted(day.differing, "row");
            writeln!(out, "{whose}  journal: {differing} with a different charge in the log")?;
        }
        Ok(())
    }

    /// Prints the number of compared rows.
    fn print_totals(&self, home: &str, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{} of this node's journal compared with {home}",
            counted(self.rows, "row")
        )
    }

    /// Describes the differences and what the operator can do. `None` if there is no difference.
    fn fault(&self, home: &str) -> Option<String> {
        let lacking = self.missing.saturating_sub(self.brought);
        let mut faults = Vec::new();
        let corrects = if home == backend::backend_name(backend::STORE) {
            NAME_A_HOME
        } else {
            "remove them from the log backend, and then copy them from the journal with --fill"
        };
        if lacking > 0 {
            faults.push(format!(
                "{} of this node's journal missing in {home}: --fill copies what is missing",
                counted(lacking, "row")
            ));
        }
        if self.differing > 0 {
            faults.push(format!(
                "{} in {home} with a different charge than in this node's journal: {corrects}",
                counted(self.differing, "row")
            ));
        }
        (!faults.is_empty()).then(|| faults.join("; "))
    }
}
