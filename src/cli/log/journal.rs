//! The journal of the node that is asked: whether the log has the rows that it still has.

use std::io::Write;

use super::{days::VERIFY_WAIT, home};
use crate::{
    api::log::checks::{FillFromJournal, JournalDay, VerifyJournal},
    cli::admin_client::{AdminClient, AdminClientError},
};

/// What helps against other charges where the store is the home: a home of its own gets all rows that the journal still has.
const NAME_A_HOME: &str =
    "keep the journal, and name files or postgres in `[log] home`, which get its rows as they are";

/// What has been found.
#[derive(Debug, Default)]
pub(super) struct OfJournal {
    rows: u64,
    missing: u64,
    brought: u64,
    differing: u64,
}

impl OfJournal {
    /// Compares all of them, some at a time, and tells what is missing or differs. `fills`: what is missing is brought.
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
                client.ask_within(VERIFY_WAIT, None, &fill).await?
            } else {
                client.ask_within(VERIFY_WAIT, None, &asked).await?
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

    fn add(&mut self, day: &JournalDay, json: bool, out: &mut impl Write) -> std::io::Result<()> {
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
                "{whose}  journal: {missing} rows are missing in the log ({requests}{more})"
            )?;
        }
        if day.brought > 0 {
            writeln!(out, "{whose}  {} rows brought", day.brought)?;
        }
        if day.differing > 0 {
            let differing = day.differing;
            writeln!(out, "{whose}  journal: {differing} rows have another charge in the log")?;
        }
        Ok(())
    }

    /// Tells how much was compared.
    pub(super) fn tell(&self, home: &str, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{} rows of this node's journal looked for in {home}", self.rows)
    }

    /// What is wrong, and what to do; `None`: nothing.
    pub(super) fn fault(&self, home: &str) -> Option<String> {
        let lacking = self.missing.saturating_sub(self.brought);
        let mut faults = Vec::new();
        let corrects = if home == home::shown(home::STORE) {
            NAME_A_HOME
        } else {
            "take them out there, and --fill brings them as they were"
        };
        if lacking > 0 {
            faults.push(format!(
                "{home} lacks {lacking} rows that this node's journal has and that it was given: --fill brings them"
            ));
        }
        if self.differing > 0 {
            faults.push(format!(
                "{} rows in {home} have another charge than in this node's journal: {corrects}",
                self.differing
            ));
        }
        (!faults.is_empty()).then(|| faults.join("; "))
    }
}
