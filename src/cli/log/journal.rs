//! The part of `weir log verify` that checks that the log has each row that this node's journal still has.

use std::io::Write;

use crate::cli::log::{VERIFY_WAIT, backend};
use crate::{
    api::log::checks::{FillFromJournal, JournalDayView, VerifyJournal},
    cli::admin_client::{AdminClient, AdminClientError},
};

/// What to do about rows with different charges if the store is the log backend. A new log backend gets all rows that the journal
/// still has.
const NAME_A_HOME: &str = "keep the journal, and set `[log] home` to files or postgres, which get its rows unchanged";

/// The result of comparing the journal's rows with the log.
#[derive(Debug, Default)]
pub(super) struct JournalReport {
    rows: u64,
    missing: u64,
    brought: u64,
    differing: u64,
}

impl JournalReport {
    /// Compares all rows, one portion per call, and prints what is missing or differs. With `fills`, missing rows are copied to
    /// the log.
    pub(super) async fn compare(
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
            let (missing, requests) = (day.missing, day.requests.join(", "));
            writeln!(
                out,
                "{whose}  journal: the log lacks {missing} of its rows ({requests}{more})"
            )?;
        }
        if day.brought > 0 {
            writeln!(out, "{whose}  {} rows copied", day.brought)?;
        }
        if day.differing > 0 {
            let differing = day.differing;
            writeln!(
                out,
                "{whose}  journal: {differing} of its rows have a different charge in the log"
            )?;
        }
        Ok(())
    }

    /// Prints how many rows were compared.
    pub(super) fn print_totals(&self, home: &str, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{} rows of this node's journal compared with {home}", self.rows)
    }

    /// Describes what is wrong and what to do. `None` if nothing is wrong.
    pub(super) fn fault(&self, home: &str) -> Option<String> {
        let lacking = self.missing.saturating_sub(self.brought);
        let mut faults = Vec::new();
        let corrects = if home == backend::backend_name(backend::STORE) {
            NAME_A_HOME
        } else {
            "remove them there, and --fill copies them again from the journal"
        };
        if lacking > 0 {
            faults.push(format!(
                "{home} has lost {lacking} rows that this node's journal still has: --fill copies them"
            ));
        }
        if self.differing > 0 {
            faults.push(format!(
                "{} rows in {home} have a different charge than in this node's journal: {corrects}",
                self.differing
            ));
        }
        (!faults.is_empty()).then(|| faults.join("; "))
    }
}
