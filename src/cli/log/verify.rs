//! `weir log verify`: checks that daily sums match the rows in the log backend, that counters match the sums, and that the log
//! backend has the journal's rows.

use std::io::Write;

use clap::Args;
use jiff::Span;

use crate::{
    api::{
        log::{
            UtcDay,
            checks::{
                LogBackendView, MendLog, NoteVerifiedLog, VerifiedDay, VerifyCounters, VerifyJournal, VerifyLog,
                WrongCounter,
            },
        },
        values::AccountId,
    },
    cli::{
        admin_client::{AdminClient, AdminClientError, ClientArgs},
        log::{self, JournalReport, VERIFY_WAIT, backend, date, difference_text, subject_text},
        output::{CommandProgress, ProgressArgs, ProgressUnit, counted},
    },
};

/// The arguments of `weir log verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// The first day, in UTC; required without --days
    #[arg(long, value_name = "DATE", value_parser = date, required_unless_present = "days", conflicts_with = "days")]
    pub(crate) from: Option<UtcDay>,
    /// The day after the last day, in UTC; required without --days
    #[arg(long, value_name = "DATE", value_parser = date, required_unless_present = "days", conflicts_with = "days")]
    pub(crate) until: Option<UtcDay>,
    /// The number of days to compare, up to and including yesterday; replaces --from and --until
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=180))]
    pub days: Option<u16>,
    /// Compare only this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// If daily sums differ from the rows, replace them with the sums of the rows
    #[arg(long)]
    pub mend: bool,
    /// Copy missing rows to the log backend, from this node's journal and from the previous log backend
    #[arg(long)]
    pub fill: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The results of all comparisons so far.
#[derive(Default)]
struct VerifyTotals {
    rows: u64,
    on_their_way: u64,
    /// The number of days on which the rows do not match the daily sums. Each account's days are counted separately.
    wrong: u64,
    mended: u64,
    /// The number of days for which rows are not in the log backend yet. Each account's days are counted separately.
    open: u64,
    counters: CounterChecks,
    journal: JournalReport,
}

impl VerifyArgs {
    /// Returns the first day to compare, and the day after the last one to compare.
    fn range(&self, today: UtcDay) -> (UtcDay, UtcDay) {
        let first = |days| UtcDay(today.0.saturating_sub(Span::new().days(days)));
        let first = self.days.map(first);
        let (from, until) = (self.from.or(first), self.until);
        (from.unwrap_or(today), until.unwrap_or(today))
    }
}

/// Compares everything, and prints the differences and the number of compared days. Returns an error if a difference remains.
pub(super) async fn run(args: &VerifyArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let mut found = VerifyTotals::default();
    let homes = backend::read_log_backends(client).await?;
    let account = args.account.as_ref();
    let (from, until) = args.range(log::today());
    let json = args.client.json;
    if from < until {
        let asked = VerifyJournal {
            from,
            until,
            account: account.cloned(),
            after: None,
        };
        found.journal = JournalReport::compare(client, asked, (args.fill, json), out).await?;
    }
    let progress = CommandProgress::start(args.progress, "Comparing", ProgressUnit::Days, None);
    let mut lines = progress.lines_above(&mut *out);
    let accounts = log::for_each_day(client, account, (from, until), &progress, async |account, day| {
        found
            .compare(args, (client, &homes), (account, day), &mut lines)
            .await?;
        // The counters of an account are compared once, after its last day, because its sums are corrected by then.
        if day.0.saturating_add(Span::new().days(1)) >= until.0 {
            let account = account.clone();
            let asked = VerifyCounters { account, from, until };
            found.counters.compare(client, &asked, json, &mut lines).await?;
        }
        Ok(())
    })
    .await?;
    drop(progress);
    let home = backend::backend_name(&homes.home);
    if !json {
        found.print_totals(accounts, home, out)?;
    }
    let faults = found.faults(home);
    if !faults.is_empty() {
        return Err(AdminClientError::Refused(faults.join("; ")));
    }
    if !json && found.open == 0 {
        writeln!(out, "no differences from {from} up to but not including {until}")?;
    }
    // Only a comparison of all accounts, without open days, proves that the log is complete.
    if account.is_some() || found.open > 0 {
        return Ok(());
    }
    client.request(&NoteVerifiedLog { from, until }).await.map(drop)
}

impl VerifyTotals {
    /// Compares one day of one account. If rows are missing and `--fill` is given, copies them and compares the day again.
    async fn compare(
        &mut self,
        args: &VerifyArgs,
        (client, homes): (&AdminClient, &LogBackendView),
        (account, day): (&AccountId, UtcDay),
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let asked = VerifyLog {
            account: account.clone(),
            day,
        };
        let json = args.client.json;
        let mut outcome = compare_day(client, &asked, json, out).await?;
        if outcome.state != DayState::Proven && args.fill && homes.former.is_some() && homes.home != backend::STORE {
            let rows = backend::fill(client, account, day).await?;
            if !json {
                writeln!(out, "{account}  {day}  {} copied", counted(rows, "row"))?;
            }
            outcome = compare_day(client, &asked, json, out).await?;
        }
        self.rows += outcome.rows;
        self.on_their_way += outcome.on_their_way;
        self.open += u64::from(outcome.state == DayState::Open);
        self.wrong += u64::from(matches!(outcome.state, DayState::Differs | DayState::Twice));
        if args.mend && outcome.state == DayState::Differs {
            let mend = MendLog {
                account: account.clone(),
                day,
            };
            client.request_within(VERIFY_WAIT, None, &mend).await?;
            self.mended += 1;
            if !json {
                writeln!(out, "{account}  {day}  corrected")?;
            }
        }
        Ok(())
    }

    /// Prints the numbers of compared items.
    fn print_totals(&self, accounts: u64, home: &str, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{}", counted(accounts, "account"))?;
        writeln!(
            out,
            "{} in {home} compared with their daily sums",
            counted(self.rows, "row")
        )?;
        if self.on_their_way > 0 {
            let rows = counted(self.on_their_way, "further row");
            writeln!(out, "{rows}, not in {home} yet, compared with the same sums")?;
        }
        self.journal.print_totals(home, out)?;
        self.counters.print_totals(out)?;
        if self.open > 0 {
            let days = counted(self.open, "account day");
            writeln!(out, "{days} open, because journals may still send rows")?;
        }
        Ok(())
    }

    /// Describes the remaining faults and what to do about them.
    fn faults(&self, home: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let left = self.wrong - self.mended;
        if left > 0 {
            faults.push(format!(
                "the rows of {} in {home} do not match the daily sums: --fill copies missing rows from this node's \
                 journal or the previous log backend, --mend replaces wrong sums with those of the rows, and docs/log.md explains \
                 how to remove duplicate rows",
                counted(left, "account day")
            ));
        }
        faults.extend(self.journal.fault(home));
        faults.extend(self.counters.fault());
        faults
    }
}

/// The result of comparing one day of one account.
struct DayResult {
    rows: u64,
    on_their_way: u64,
    state: DayState,
}

/// Whether the rows and the sums of a day match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DayState {
    Proven,
    /// Rows of the day are missing, but may still reach the log backend.
    Open,
    Differs,
    /// The log backend has duplicate rows of the day.
    Twice,
}

impl DayState {
    fn from_answer(answer: &VerifiedDay) -> Self {
        match (answer.again, answer.behind.as_slice(), answer.differences.as_slice()) {
            (1.., _, _) => Self::Twice,
            (0, [_, ..], _) => Self::Open,
            (0, [], [_, ..]) => Self::Differs,
            (0, [], []) => Self::Proven,
        }
    }
}

/// Compares the rows of an account's day with its daily sums. If rows may still arrive, prints the names of the journals that may
/// send them. Otherwise, prints the differences.
async fn compare_day(
    client: &AdminClient,
    asked: &VerifyLog,
    json: bool,
    out: &mut impl Write,
) -> Result<DayResult, AdminClientError> {
    let reply = client.request_within(VERIFY_WAIT, None, asked).await?;
    let answer = reply.read()?;
    let state = DayState::from_answer(&answer);
    if json && state != DayState::Proven {
        writeln!(out, "{}", reply.text)?;
    } else if !json {
        print_day(&answer, state, out)?;
    }
    Ok(DayResult {
        rows: answer.rows,
        on_their_way: answer.on_their_way,
        state,
    })
}

/// Prints the faults of a day.
fn print_day(answer: &VerifiedDay, state: DayState, out: &mut impl Write) -> std::io::Result<()> {
    let place = format!(
        "{}  {}  {}",
        answer.account,
        answer.day,
        backend::backend_name(&answer.home)
    );
    if state == DayState::Open {
        let (lanes, missing) = (answer.behind.join(", "), counted(answer.missing, "row"));
        return writeln!(
            out,
            "{place}: open: {lanes} may still send rows; {missing} of those in the sums missing"
        );
    }
    for difference in &answer.differences {
        writeln!(out, "{place}: {}", difference_text(difference))?;
    }
    if !answer.differences.is_empty() {
        let which = if answer.sums_agree {
            "the sums agree with each other, so rows are missing, changed or duplicated"
        } else {
            "the sums do not agree with each other, so the sums are wrong, not the rows"
        };
        writeln!(out, "{place}: {which}")?;
    }
    if state == DayState::Twice {
        writeln!(out, "{place}: {}", counted(answer.again, "duplicate row"))?;
    }
    Ok(())
}

/// The results of comparing the counters of all accounts.
#[derive(Debug, Default)]
pub(super) struct CounterChecks {
    /// The number of compared periods. Each account's periods are counted separately.
    compared: usize,
    /// The number of counters that differ from the daily sums.
    wrong: usize,
    /// The number of periods that could not be compared because the counters changed during each attempt. Each account's periods
    /// are counted separately.
    moving: usize,
    /// The number of accounts that are older than the oldest retained daily sums.
    older: usize,
}

impl CounterChecks {
    /// Compares the counters of an account with its daily sums, in each period that contains at least one of the requested days.
    /// Prints the differences.
    pub(super) async fn compare(
        &mut self,
        client: &AdminClient,
        asked: &VerifyCounters,
        json: bool,
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let reply = client.request_within(VERIFY_WAIT, None, asked).await?;
        let answer = reply.read()?;
        self.compared += answer.compared.len();
        self.moving += answer.moving.len();
        self.older += usize::from(answer.older_than_sums);
        self.wrong += answer.differences.len();
        if json && !answer.differences.is_empty() {
            writeln!(out, "{}", reply.text)?;
            return Ok(());
        }
        for difference in &answer.differences {
            writeln!(out, "{}  {}", asked.account, counter_text(difference))?;
        }
        Ok(())
    }

    /// Prints the numbers of compared items.
    pub(super) fn print_totals(&self, out: &mut impl Write) -> std::io::Result<()> {
        let periods = |count: usize| counted(count as u64, "period");
        let compared = periods(self.compared);
        writeln!(out, "counters of {compared} compared with the daily sums")?;
        if self.moving > 0 {
            let moving = periods(self.moving);
            writeln!(
                out,
                "counters of {moving} skipped, because they changed during each comparison"
            )?;
        }
        if self.older > 0 {
            let older = counted(self.older as u64, "account");
            let what = "older than the daily sums: the total spending was compared with the counters of the keys";
            writeln!(out, "{older} {what}")?;
        }
        Ok(())
    }

    /// Describes what is wrong and what to do. `None` if nothing is wrong.
    pub(super) fn fault(&self) -> Option<String> {
        (self.wrong > 0).then(|| {
            format!(
                "{} not matching the daily sums: if the rows match the sums, the counters are wrong, and quotas are \
                 enforced wrongly until the period ends; docs/log.md explains what to do",
                counted(self.wrong as u64, "counter")
            )
        })
    }
}

fn counter_text(difference: &WrongCounter) -> String {
    format!(
        "{}  {}: the counter is {} USD, but the {} give {} USD",
        subject_text(difference.of, difference.name.as_deref()),
        difference.period,
        difference.counter_usd,
        difference.by.as_str(),
        difference.expected_usd,
    )
}
