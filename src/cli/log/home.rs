//! The homes of the log: what brings rows from the one before, and what removes them there.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::days::{self, VERIFY_WAIT, date};
use crate::{
    api::{
        log::{
            Day,
            checks::{FillLogHome, LogHome, RemoveFormerRows, ShowLogHome},
        },
        names::AccountId,
    },
    cli::{
        admin_client::{AdminClient, AdminClientError, ClientArgs},
        progress::{Progress, ProgressArgs, Unit},
    },
};

/// The name of the home that is the store.
pub(super) const STORE: &str = "store";

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
    /// Where the store was the home: remove the rows of each day there that the home is found to have
    #[arg(long)]
    pub remove: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// Brings all rows that the home before has and the home lacks to the home, and removes them there if that is asked for.
pub(super) async fn move_rows(
    args: &MoveArgs,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let homes = of(client).await?;
    let wanted = args.home(&homes)?;
    let days = (args.from.unwrap_or(homes.from), args.until.unwrap_or(homes.until));
    let mut all = MoveCounts::default();
    let progress = Progress::start(args.progress, "Moving", Unit::Days, None);
    let mut lines = progress.above(&mut *out);
    days::each(client, args.account.as_ref(), days, &progress, async |account, day| {
        let mut moved = MoveCounts {
            rows: fill(client, account, day).await?,
            ..MoveCounts::default()
        };
        if args.remove {
            moved.remove(client, account, day).await?;
        }
        all.add(&moved);
        moved.tell(account, day, args, &mut lines)
    })
    .await?;
    drop(progress);
    if !args.client.json {
        writeln!(out, "{} rows brought to {wanted}", all.rows)?;
        if args.remove {
            writeln!(out, "{} rows removed from the store", all.removed)?;
        }
    }
    if all.staying > 0 {
        return Err(AdminClientError::Refused(format!(
            "{} days, of an account each, stay in the store: `weir log verify` names what differs, or the lanes that may still \
             bring rows",
            all.staying
        )));
    }
    Ok(())
}

impl MoveArgs {
    /// The name of the home that rows are brought to.
    fn home(&self, homes: &LogHome) -> Result<&'static str, AdminClientError> {
        let wanted = match self.to {
            To::Files => "files",
            To::Postgres => "postgres",
        };
        let why = match homes.former.as_deref() {
            _ if homes.home != wanted => format!(
                "the log's home is {}, not {wanted}: name it in `[log] home` and start weir anew",
                shown(&homes.home)
            ),
            None => "name the home before in `[log] former_home` and start weir anew".to_owned(),
            Some(former) if self.remove && former != STORE => {
                format!("--remove is for rows in the store, and the home before is {former}")
            }
            Some(_) => return Ok(wanted),
        };
        Err(AdminClientError::Usage(why))
    }
}

/// What became of a day of an account, or of all.
#[derive(Default)]
struct MoveCounts {
    /// How many rows were brought.
    rows: u64,
    /// How many were removed where they were.
    removed: u64,
    /// Days that the home is not found to have.
    staying: u64,
}

impl MoveCounts {
    async fn remove(&mut self, client: &AdminClient, account: &AccountId, day: Day) -> Result<(), AdminClientError> {
        let asked = RemoveFormerRows {
            account: account.clone(),
            day,
        };
        let removed = client.ask_within(VERIFY_WAIT, None, &asked).await?.read()?;
        self.removed = removed.rows;
        self.staying = u64::from(!removed.proven);
        Ok(())
    }

    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.removed += other.removed;
        self.staying += other.staying;
    }

    fn tell(
        &self,
        account: &AccountId,
        day: Day,
        args: &MoveArgs,
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        if self.rows == 0 && self.removed == 0 && self.staying == 0 {
            return Ok(());
        }
        if args.client.json {
            let told = MoveLine {
                account,
                day,
                rows: self.rows,
                removed: args.remove.then_some(self.removed),
            };
            let told = serde_json::to_string(&told).map_err(std::io::Error::other)?;
            writeln!(out, "{told}")?;
        } else if self.staying > 0 {
            writeln!(out, "{account}  {day}  {} rows, not removed", self.rows)?;
        } else if args.remove {
            writeln!(out, "{account}  {day}  {} rows, {} removed", self.rows, self.removed)?;
        } else {
            writeln!(out, "{account}  {day}  {} rows", self.rows)?;
        }
        Ok(())
    }
}

/// What became of a day of an account, for scripts.
#[derive(Serialize)]
struct MoveLine<'a> {
    account: &'a AccountId,
    day: Day,
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<u64>,
}

/// Asks which homes the log has.
pub(super) async fn of(client: &AdminClient) -> Result<LogHome, AdminClientError> {
    client.ask(&ShowLogHome {}).await?.read()
}

/// What a home is called.
pub(super) fn shown(home: &str) -> &str {
    if home == STORE { "the store" } else { home }
}

/// Brings the rows of a day of an account to the home that it lacks; says how many.
pub(super) async fn fill(client: &AdminClient, account: &AccountId, day: Day) -> Result<u64, AdminClientError> {
    let asked = FillLogHome {
        account: account.clone(),
        day,
    };
    Ok(client.ask_within(VERIFY_WAIT, None, &asked).await?.read()?.rows)
}
