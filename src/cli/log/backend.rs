//! `weir log move`: copies rows from the previous log backend to the current one, and can remove them from the previous one.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cli::log::{self, VERIFY_WAIT, date};
use crate::{
    api::{
        log::{
            UtcDay,
            checks::{FillLogHome, LogBackendView, RemoveFormerRows, ShowLogHome},
        },
        values::AccountId,
    },
    cli::{
        admin_client::{AdminClient, AdminClientError, ClientArgs},
        output::{CommandProgress, ProgressArgs, ProgressUnit, counted},
    },
};

/// The name of the log backend that is the store.
pub(super) const STORE: &str = "store";

/// A log backend to which rows can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MoveTarget {
    /// The Parquet files of `[log.files]`
    Files,
    /// The table of `[log.postgres]`
    Postgres,
}

/// The arguments of `weir log move`.
#[derive(Args, Clone, Debug)]
pub struct MoveArgs {
    /// The log backend to copy to. It must be the one that `[log] home` names
    #[arg(long, value_enum)]
    pub to: MoveTarget,
    /// The first day to copy, in UTC [default: the first day that is kept]
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub(crate) from: Option<UtcDay>,
    /// The day after the last day to copy, in UTC [default: tomorrow]
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub(crate) until: Option<UtcDay>,
    /// Copy only rows of this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Also remove the rows of each day from the store, after verifying that the current log backend has them. The previous log
    /// backend must be the store
    #[arg(long)]
    pub remove: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// Copies rows from the previous log backend to the current one if they are missing there. If requested, also removes the rows of
/// each copied day from the previous log backend.
pub(super) async fn move_rows(
    args: &MoveArgs,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let homes = read_log_backends(client).await?;
    let wanted = args.home(&homes)?;
    let days = (args.from.unwrap_or(homes.from), args.until.unwrap_or(homes.until));
    let mut all = MoveCounts::default();
    let progress = CommandProgress::start(args.progress, "Moving", ProgressUnit::Days, None);
    let mut lines = progress.lines_above(&mut *out);
    log::for_each_day(client, args.account.as_ref(), days, &progress, async |account, day| {
        let mut moved = MoveCounts {
            rows: fill(client, account, day).await?,
            ..MoveCounts::default()
        };
        if args.remove {
            moved.remove(client, account, day).await?;
        }
        all.add(&moved);
        moved.print_day(account, day, args, &mut lines)
    })
    .await?;
    drop(progress);
    if !args.client.json {
        writeln!(out, "{} copied to {wanted}", counted(all.rows, "row"))?;
        if args.remove {
            writeln!(out, "{} removed from the store", counted(all.removed, "row"))?;
        }
    }
    if all.staying > 0 {
        return Err(AdminClientError::Refused(format!(
            "the rows of {} stay in the store, because the log backend may lack some of them: `weir log verify` \
             prints the differences, and the journals that may still send rows",
            counted(all.staying, "account day")
        )));
    }
    Ok(())
}

impl MoveArgs {
    /// Returns the name of the log backend to which rows are copied. Returns an error if the configuration or the options do not
    /// permit copying to it.
    fn home(&self, homes: &LogBackendView) -> Result<&'static str, AdminClientError> {
        let wanted = match self.to {
            MoveTarget::Files => "files",
            MoveTarget::Postgres => "postgres",
        };
        let why = match homes.former.as_deref() {
            _ if homes.home != wanted => format!(
                "the log backend is {}, not {wanted}: set `[log] home` to \"{wanted}\" and restart weir",
                backend_name(&homes.home)
            ),
            None => "no previous log backend is configured: set `[log] former_home` to the backend with the rows, and restart weir"
                .to_owned(),
            Some(former) if self.remove && former != STORE => {
                format!(
                    "--remove removes rows from the store only, but the previous log backend is {former}: leave it out"
                )
            }
            Some(_) => return Ok(wanted),
        };
        Err(AdminClientError::Usage(why))
    }
}

/// The result of moving one day of an account, or the sum of several such results.
#[derive(Default)]
struct MoveCounts {
    /// The number of rows that were copied.
    rows: u64,
    /// The number of rows that were removed from the store.
    removed: u64,
    /// The number of days whose rows were not removed, because it is not proven that the current log backend has them.
    staying: u64,
}

impl MoveCounts {
    async fn remove(&mut self, client: &AdminClient, account: &AccountId, day: UtcDay) -> Result<(), AdminClientError> {
        let asked = RemoveFormerRows {
            account: account.clone(),
            day,
        };
        let removed = client.request_within(VERIFY_WAIT, None, &asked).await?.read()?;
        self.removed = removed.rows;
        self.staying = u64::from(!removed.proven);
        Ok(())
    }

    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.removed += other.removed;
        self.staying += other.staying;
    }

    fn print_day(
        &self,
        account: &AccountId,
        day: UtcDay,
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
            writeln!(
                out,
                "{account}  {day}  {} copied, none removed",
                counted(self.rows, "row")
            )?;
        } else if args.remove {
            writeln!(
                out,
                "{account}  {day}  {} copied, {} removed",
                counted(self.rows, "row"),
                self.removed
            )?;
        } else {
            writeln!(out, "{account}  {day}  {} copied", counted(self.rows, "row"))?;
        }
        Ok(())
    }
}

/// The result of moving one day of an account, as JSON for scripts.
#[derive(Serialize)]
struct MoveLine<'a> {
    account: &'a AccountId,
    day: UtcDay,
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<u64>,
}

/// Fetches the names of the current and the previous log backend, and the days that they cover.
pub(super) async fn read_log_backends(client: &AdminClient) -> Result<LogBackendView, AdminClientError> {
    client.request(&ShowLogHome {}).await?.read()
}

/// Returns the name of a log backend for display.
pub(super) fn backend_name(home: &str) -> &str {
    if home == STORE { "the store" } else { home }
}

/// Copies rows of an account's day to the current log backend if they are missing there. Returns the number of copied rows.
pub(super) async fn fill(client: &AdminClient, account: &AccountId, day: UtcDay) -> Result<u64, AdminClientError> {
    let asked = FillLogHome {
        account: account.clone(),
        day,
    };
    Ok(client.request_within(VERIFY_WAIT, None, &asked).await?.read()?.rows)
}
