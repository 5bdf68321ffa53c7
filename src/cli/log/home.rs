//! The log's home beside the store: whether it has what the daily sums say, and what brings to it what it lacks.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::days::{self, VERIFY_WAIT, date, shown};
use crate::{
    api::{
        log::{
            Day,
            checks::{FillLogHome, FilledDay, LogHome, ShowLogHome, VerifyLogHome},
        },
        names::AccountId,
    },
    cli::admin_client::{AdminClient, AdminClientError, ClientArgs, Reply},
};

/// A home that rows can be brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// The Parquet files of `[log.files]`.
    Files,
    /// The table of `[log.postgres]`.
    Postgres,
}

/// `weir log move`
#[derive(Args, Clone, Debug)]
pub struct MoveArgs {
    /// The home that `[log] home` names
    #[arg(long, value_enum)]
    pub to: To,
    /// The first day, in UTC [default: as far back as rows are kept]
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub(crate) from: Option<Day>,
    /// Only days before this one [default: tomorrow]
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub(crate) until: Option<Day>,
    /// Only this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// Brings all rows that the store has and the home lacks to the home.
pub(super) async fn move_rows(
    args: &MoveArgs,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let wanted = match args.to {
        To::Files => "files",
        To::Postgres => "postgres",
    };
    let LogHome { home, from, until, .. } = client.ask(&ShowLogHome {}).await?.read()?;
    if home.as_deref() != Some(wanted) {
        return Err(AdminClientError::Usage(format!(
            "the log's home is {}, not {wanted}: name it in `[log] home` and start weir anew",
            home.as_deref().unwrap_or("the store")
        )));
    }
    let days = (args.from.unwrap_or(from), args.until.unwrap_or(until));
    let mut rows = 0;
    days::each(client, args.account.as_ref(), days, async |account, day| {
        let brought = fill(client, account, day).await?;
        rows += brought;
        if brought > 0 && args.client.json {
            let told = Brought {
                account,
                day,
                rows: brought,
            };
            let told = serde_json::to_string(&told).map_err(std::io::Error::other)?;
            writeln!(out, "{told}")?;
        } else if brought > 0 {
            writeln!(out, "{account}  {day}  {brought} rows")?;
        }
        Ok(())
    })
    .await?;
    if !args.client.json {
        writeln!(out, "{rows} rows brought to {wanted}")?;
    }
    Ok(())
}

/// What was brought of a day of an account, for scripts.
#[derive(Serialize)]
struct Brought<'a> {
    account: &'a AccountId,
    day: Day,
    rows: u64,
}

/// The name of the log's home; `None`: it is the store.
pub(super) async fn name(client: &AdminClient) -> Result<Option<String>, AdminClientError> {
    Ok(client.ask(&ShowLogHome {}).await?.read()?.home)
}

/// Brings the rows of a day of an account to the home that it lacks; says how many.
pub(super) async fn fill(client: &AdminClient, account: &AccountId, day: Day) -> Result<u64, AdminClientError> {
    let account = account.clone();
    let asked = FillLogHome { account, day };
    let reply: Reply<FilledDay> = client.ask_within(VERIFY_WAIT, None, &asked).await?;
    Ok(reply.read()?.rows)
}

/// What a comparison of a day has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) rows: u64,
    pub(super) differs: bool,
    /// It may still get rows.
    pub(super) is_open: bool,
}

/// Compares the home's rows of a day of an account with the daily sums, and tells what differs, or which lanes may still bring
/// rows that the sums count.
pub(super) async fn compare(
    client: &AdminClient,
    asked: &VerifyLogHome,
    json: bool,
    out: &mut impl Write,
) -> Result<Comparison, AdminClientError> {
    let reply = client.ask_within(VERIFY_WAIT, None, asked).await?;
    let answer = reply.read()?;
    let is_open = !answer.behind.is_empty() && answer.again == 0;
    let differs = !is_open && (answer.again > 0 || !answer.differences.is_empty());
    if (differs || is_open) && json {
        writeln!(out, "{}", reply.text)?;
    }
    let place = format!("{}  {}  {}", asked.account, asked.day, answer.home);
    if is_open && !json {
        let lanes = answer.behind.join(", ");
        writeln!(out, "{place}: open: {lanes} may still bring rows")?;
    } else if differs && !json {
        for difference in &answer.differences {
            writeln!(out, "{place}: {}", shown(difference))?;
        }
        if answer.again > 0 {
            let again = answer.again;
            writeln!(out, "{place}: {again} rows are of requests that have one there already")?;
        }
    }
    Ok(Comparison {
        rows: answer.rows,
        differs,
        is_open,
    })
}
