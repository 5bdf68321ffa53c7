//! `weir log verify`: checks that the counters of quotas match the daily sums.

use std::io::Write;

use super::days::{VERIFY_WAIT, subject_text};
use crate::{
    api::log::checks::{VerifyCounters, WrongCounter},
    cli::admin_client::{AdminClient, AdminClientError},
};

/// The results for all accounts.
#[derive(Debug, Default)]
pub(super) struct CounterChecks {
    /// Periods of accounts that were compared.
    compared: usize,
    /// Counters that differ.
    wrong: usize,
    /// Periods of accounts whose counters changed too often to be compared.
    moving: usize,
    /// Accounts that are older than the sums.
    older: usize,
}

impl CounterChecks {
    /// Compares the counters of an account in the periods that contain one of these days, and prints what differs.
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

    /// Prints how much was compared.
    pub(super) fn print_totals(&self, out: &mut impl Write) -> std::io::Result<()> {
        let compared = self.compared;
        writeln!(out, "counters of {compared} periods compared with the daily sums")?;
        if self.moving > 0 {
            let moving = self.moving;
            writeln!(out, "counters of {moving} periods changed too often and were skipped")?;
        }
        if self.older > 0 {
            let older = self.older;
            let what = "are older than the daily sums: their total spending was compared with their keys' counters";
            writeln!(out, "{older} accounts {what}")?;
        }
        Ok(())
    }

    /// What is wrong, and what to do; `None` if nothing is wrong.
    pub(super) fn fault(&self) -> Option<String> {
        (self.wrong > 0).then(|| {
            format!(
                "{} counters do not match the daily sums: if the rows match the sums, the counter is wrong, and the key's quota with \
                 it until the period ends; docs/log.md says what to do",
                self.wrong
            )
        })
    }
}

fn counter_text(difference: &WrongCounter) -> String {
    format!(
        "{}  {}: the counter says {} USD, the {} {} USD",
        subject_text(difference.of, difference.name.as_deref()),
        difference.period,
        difference.counter_usd,
        difference.by.as_str(),
        difference.expected_usd,
    )
}
