//! The counters that quotas are checked by: whether they are what the daily sums say.

use std::io::Write;

use super::days::{VERIFY_WAIT, whose};
use crate::{
    api::log::checks::{VerifyCounters, WrongCounter},
    cli::admin_client::{AdminClient, AdminClientError},
};

/// What has been found, of all accounts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Periods of accounts that were compared.
    compared: usize,
    /// Counters that differ.
    wrong: usize,
    /// Periods of accounts whose counters changed all the time.
    moving: usize,
    /// Accounts that are older than the sums.
    older: usize,
}

impl Counters {
    /// Compares the counters of an account, of the periods that have one of these days, and tells what differs.
    pub(super) async fn compare(
        &mut self,
        client: &AdminClient,
        asked: &VerifyCounters,
        json: bool,
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let reply = client.ask_within(VERIFY_WAIT, None, asked).await?;
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
            writeln!(out, "{}  {}", asked.account, shown(difference))?;
        }
        Ok(())
    }

    /// Tells how much was compared.
    pub(super) fn tell(&self, out: &mut impl Write) -> std::io::Result<()> {
        let compared = self.compared;
        writeln!(out, "counters of {compared} periods compared with the daily sums")?;
        if self.moving > 0 {
            let moving = self.moving;
            writeln!(
                out,
                "counters of {moving} periods changed all the time and were passed over"
            )?;
        }
        if self.older > 0 {
            let older = self.older;
            let what =
                "are older than the daily sums: what they have ever spent was compared with their keys' counters";
            writeln!(out, "{older} accounts {what}")?;
        }
        Ok(())
    }

    /// What is wrong, and what to do; `None`: nothing.
    pub(super) fn fault(&self) -> Option<String> {
        (self.wrong > 0).then(|| {
            format!(
                "{} counters differ from what they count: where the rows agree with their sums it is the counter that is wrong, and \
                 the key's quota with it until the period ends; docs/log.md says what to do",
                self.wrong
            )
        })
    }
}

fn shown(difference: &WrongCounter) -> String {
    format!(
        "{}  {}: the counter says {} USD, the {} {} USD",
        whose(difference.of, difference.name.as_deref()),
        difference.period,
        difference.counter_usd,
        difference.by.as_str(),
        difference.expected_usd,
    )
}
