//! `weir log verify`: whether the daily sums are the sums of their rows, in the store and in the log's home, and whether counters and
//! journal say the same.

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
            checks::{MendLog, NoteVerifiedLog, VerifyCounters, VerifyJournal, VerifyLog, VerifyLogHome},
        },
        names::AccountId,
    },
    cli::admin_client::{AdminClient, AdminClientError, ClientArgs},
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
    /// Put the sums of the rows in the place of those that differ, such as those of days before sums were kept
    #[arg(long)]
    pub mend: bool,
    /// Bring the rows that the log lacks: to its home from the store or this node's journal, or from this journal to the store where
    /// that is the home
    #[arg(long)]
    pub fill: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// What has been found.
#[derive(Default)]
struct Found {
    rows: u64,
    /// Rows that have left the store.
    trimmed: u64,
    /// Days of an account with a difference, and how many of them are mended.
    wrong: u64,
    mended: u64,
    /// The same of the log's home beside the store.
    home_rows: u64,
    home_wrong: u64,
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
    let home = home::name(client).await?;
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
    let accounts = days::each(client, account, (from, until), async |account, day| {
        compare(args, client, (account, day), &mut found, out).await?;
        if home.is_some() {
            compare_home(args, client, (account, day), &mut found, out).await?;
        }
        // Once for each account, when its sums are as they will be.
        if day.0.saturating_add(Span::new().days(1)) >= until.0 {
            let account = account.clone();
            let asked = VerifyCounters { account, from, until };
            found.counters.compare(client, &asked, json, out).await?;
        }
        Ok(())
    })
    .await?;
    if !json {
        found.tell(accounts, home.as_deref(), out)?;
    }
    let faults = found.faults(home.as_deref());
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
    /// Tells how much was compared.
    fn tell(&self, accounts: u64, home: Option<&str>, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{accounts} accounts, {} rows compared with their daily sums",
            self.rows
        )?;
        if self.trimmed > 0 {
            let left = home.unwrap_or("another home");
            writeln!(out, "{} rows have left the store for {left}", self.trimmed)?;
        }
        if let Some(home) = home {
            writeln!(out, "{} rows in {home} compared with the same sums", self.home_rows)?;
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
    fn faults(&self, home: Option<&str>) -> Vec<String> {
        let mut faults = Vec::new();
        let left = self.wrong - self.mended;
        if left > 0 {
            faults.push(format!(
                "the sums of {left} days differ from their rows; --mend puts the sums of the rows in their place"
            ));
        }
        faults.extend(self.journal.fault(home));
        if let (Some(home), 1..) = (home, self.home_wrong) {
            faults.push(format!(
                "on {} days {home} does not have what the sums say; --fill brings what the store or this node's journal has and it \
                 lacks, and docs/log.md says what to do about rows that are there twice",
                self.home_wrong
            ));
        }
        faults.extend(self.counters.fault());
        faults
    }
}

/// Compares one day of one account at the log's home, and again once it is filled.
async fn compare_home(
    args: &VerifyArgs,
    client: &AdminClient,
    (account, day): (&AccountId, Day),
    found: &mut Found,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let asked = VerifyLogHome {
        account: account.clone(),
        day,
    };
    let mut compared = home::compare(client, &asked, args.client.json, out).await?;
    if (compared.differs || compared.is_open) && args.fill {
        let rows = home::fill(client, account, day).await?;
        if !args.client.json {
            writeln!(out, "{account}  {day}  {rows} rows brought")?;
        }
        compared = home::compare(client, &asked, args.client.json, out).await?;
    }
    found.home_rows += compared.rows;
    found.home_wrong += u64::from(compared.differs);
    found.open += u64::from(compared.is_open);
    Ok(())
}

/// Compares one day of one account.
async fn compare(
    args: &VerifyArgs,
    client: &AdminClient,
    (account, day): (&AccountId, Day),
    found: &mut Found,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let asked = VerifyLog {
        account: account.clone(),
        day,
    };
    let reply = client.ask_within(VERIFY_WAIT, None, &asked).await?;
    let answer = reply.read()?;
    found.rows += answer.rows;
    found.trimmed += answer.trimmed;
    if answer.differences.is_empty() {
        return Ok(());
    }
    found.wrong += 1;
    if args.client.json {
        writeln!(out, "{}", reply.text)?;
    } else {
        for difference in &answer.differences {
            writeln!(out, "{account}  {day}  {}", shown(difference))?;
        }
        let which = if answer.sums_agree {
            "the sums agree with each other: rows are missing or twice there, or these are from before sums were kept"
        } else {
            "the sums do not agree with each other: they are wrong, not the rows"
        };
        writeln!(out, "{account}  {day}  {which}")?;
    }
    if args.mend {
        let mend = MendLog {
            account: account.clone(),
            day,
        };
        client.ask(&mend).await?;
        found.mended += 1;
        if !args.client.json {
            writeln!(out, "{account}  {day}  mended")?;
        }
    }
    Ok(())
}
