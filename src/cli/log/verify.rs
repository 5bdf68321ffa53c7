//! `weir log verify`: whether the daily sums are the sums of their rows at the log's home, and whether counters and journal say the
//! same.

use std::io::Write;

use clap::Args;
use jiff::Span;

use super::{
    counters::Counters,
    days::{self, VERIFY_WAIT, date, shown},
    home,
    journal::OfJournal,
};
use crate::{
    api::{
        log::{
            Day,
            checks::{LogHome, MendLog, NoteVerifiedLog, VerifiedDay, VerifyCounters, VerifyJournal, VerifyLog},
        },
        names::AccountId,
    },
    cli::{
        admin_client::{AdminClient, AdminClientError, ClientArgs},
        progress::{Progress, ProgressArgs, Unit},
    },
};

/// `weir log verify`
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// The first day, in UTC
    #[arg(long, value_name = "DATE", value_parser = date, required_unless_present = "days", conflicts_with = "days")]
    pub(crate) from: Option<Day>,
    /// Only days before this one
    #[arg(long, value_name = "DATE", value_parser = date, required_unless_present = "days", conflicts_with = "days")]
    pub(crate) until: Option<Day>,
    /// So many days, yesterday the last of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=180))]
    pub days: Option<u16>,
    /// Only this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Put the sums of the rows in the place of those that differ
    #[arg(long)]
    pub mend: bool,
    /// Bring the rows that the log's home lacks, from this node's journal and from the home before
    #[arg(long)]
    pub fill: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// What has been found.
#[derive(Default)]
struct Found {
    rows: u64,
    on_their_way: u64,
    /// Days of an account with a difference, and how many of them are mended.
    wrong: u64,
    mended: u64,
    /// Days of an account whose rows have not all come to the home yet.
    open: u64,
    counters: Counters,
    journal: OfJournal,
}

impl VerifyArgs {
    /// The first day, and the one behind the last.
    fn range(&self, today: Day) -> (Day, Day) {
        let first = |days| Day(today.0.saturating_sub(Span::new().days(days)));
        let first = self.days.map(first);
        let (from, until) = (self.from.or(first), self.until);
        (from.unwrap_or(today), until.unwrap_or(today))
    }
}

/// Runs the command and prints what differs, and how much was compared. An error where something differs and stays so.
pub(super) async fn run(args: &VerifyArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let mut found = Found::default();
    let homes = home::of(client).await?;
    let account = args.account.as_ref();
    let (from, until) = args.range(days::today());
    let json = args.client.json;
    if from < until {
        let asked = VerifyJournal {
            from,
            until,
            account: account.cloned(),
            after: None,
        };
        found.journal = OfJournal::compare(client, asked, (args.fill, json), out).await?;
    }
    let progress = Progress::start(args.progress, "Comparing", Unit::Days, None);
    let mut lines = progress.above(&mut *out);
    let accounts = days::each(client, account, (from, until), &progress, async |account, day| {
        found
            .compare(args, (client, &homes), (account, day), &mut lines)
            .await?;
        // Once for each account, when its sums are as they will be.
        if day.0.saturating_add(Span::new().days(1)) >= until.0 {
            let account = account.clone();
            let asked = VerifyCounters { account, from, until };
            found.counters.compare(client, &asked, json, &mut lines).await?;
        }
        Ok(())
    })
    .await?;
    drop(progress);
    let home = home::shown(&homes.home);
    if !json {
        found.tell(accounts, home, out)?;
    }
    let faults = found.faults(home);
    if !faults.is_empty() {
        return Err(AdminClientError::Refused(faults.join("; ")));
    }
    // Only all of it says that the log is whole.
    if account.is_some() || found.open > 0 {
        return Ok(());
    }
    client.ask(&NoteVerifiedLog { from, until }).await.map(drop)
}

impl Found {
    /// Compares one day of one account, and again once it is filled.
    async fn compare(
        &mut self,
        args: &VerifyArgs,
        (client, homes): (&AdminClient, &LogHome),
        (account, day): (&AccountId, Day),
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let asked = VerifyLog {
            account: account.clone(),
            day,
        };
        let json = args.client.json;
        let mut outcome = ask(client, &asked, json, out).await?;
        if outcome.state != State::Proven && args.fill && homes.former.is_some() && homes.home != home::STORE {
            let rows = home::fill(client, account, day).await?;
            if !json {
                writeln!(out, "{account}  {day}  {rows} rows brought")?;
            }
            outcome = ask(client, &asked, json, out).await?;
        }
        self.rows += outcome.rows;
        self.on_their_way += outcome.on_their_way;
        self.open += u64::from(outcome.state == State::Open);
        self.wrong += u64::from(matches!(outcome.state, State::Differs | State::Twice));
        if args.mend && outcome.state == State::Differs {
            let mend = MendLog {
                account: account.clone(),
                day,
            };
            client.ask_within(VERIFY_WAIT, None, &mend).await?;
            self.mended += 1;
            if !json {
                writeln!(out, "{account}  {day}  mended")?;
            }
        }
        Ok(())
    }

    /// Tells how much was compared.
    fn tell(&self, accounts: u64, home: &str, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{accounts} accounts")?;
        writeln!(out, "{} rows in {home} compared with their daily sums", self.rows)?;
        if self.on_their_way > 0 {
            let what = "compared with the same sums";
            writeln!(out, "{} rows on their way to {home} {what}", self.on_their_way)?;
        }
        self.journal.tell(home, out)?;
        self.counters.tell(out)?;
        if self.open > 0 {
            let what = "a day of an account each, are open: rows of them may still be on their way";
            writeln!(out, "{} comparisons, {what}", self.open)?;
        }
        Ok(())
    }

    /// What is wrong and stays so, and what to do about it.
    fn faults(&self, home: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let left = self.wrong - self.mended;
        if left > 0 {
            faults.push(format!(
                "on {left} days {home} does not have what the sums say; --fill brings what this node's journal or the home before has \
                 and it lacks, --mend puts the sums of the rows in the place of those that differ, and docs/log.md says what to do \
                 about rows that are there twice"
            ));
        }
        faults.extend(self.journal.fault(home));
        faults.extend(self.counters.fault());
        faults
    }
}

/// What a comparison of a day has found.
struct Outcome {
    rows: u64,
    on_their_way: u64,
    state: State,
}

/// How a day stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Proven,
    /// It may still get rows.
    Open,
    Differs,
    /// Rows are there twice.
    Twice,
}

impl State {
    fn of(answer: &VerifiedDay) -> Self {
        match (answer.again, answer.behind.as_slice(), answer.differences.as_slice()) {
            (1.., _, _) => Self::Twice,
            (0, [_, ..], _) => Self::Open,
            (0, [], [_, ..]) => Self::Differs,
            (0, [], []) => Self::Proven,
        }
    }
}

/// Compares the rows of a day of an account with the daily sums, and tells what differs, or which lanes may still bring rows that the
/// sums count.
async fn ask(
    client: &AdminClient,
    asked: &VerifyLog,
    json: bool,
    out: &mut impl Write,
) -> Result<Outcome, AdminClientError> {
    let reply = client.ask_within(VERIFY_WAIT, None, asked).await?;
    let answer = reply.read()?;
    let state = State::of(&answer);
    if json && state != State::Proven {
        writeln!(out, "{}", reply.text)?;
    } else if !json {
        tell(&answer, state, out)?;
    }
    Ok(Outcome {
        rows: answer.rows,
        on_their_way: answer.on_their_way,
        state,
    })
}

/// Tells what is not as it should be.
fn tell(answer: &VerifiedDay, state: State, out: &mut impl Write) -> std::io::Result<()> {
    let place = format!("{}  {}  {}", answer.account, answer.day, home::shown(&answer.home));
    if state == State::Open {
        let (lanes, missing) = (answer.behind.join(", "), answer.missing);
        return writeln!(
            out,
            "{place}: open: {lanes} may still bring rows; {missing} rows that the sums count are not there"
        );
    }
    for difference in &answer.differences {
        writeln!(out, "{place}: {}", shown(difference))?;
    }
    if !answer.differences.is_empty() {
        let which = if answer.sums_agree {
            "the sums agree with each other: rows are missing, changed or twice there"
        } else {
            "the sums do not agree with each other: they are wrong, not the rows"
        };
        writeln!(out, "{place}: {which}")?;
    }
    if state == State::Twice {
        let again = answer.again;
        writeln!(out, "{place}: {again} rows are of requests that have one there already")?;
    }
    Ok(())
}
