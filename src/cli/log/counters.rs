//! The counters that quotas are checked by: whether they are what the daily sums say.

use std::io::Write;

use http::Method;
use jiff::civil::Date;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::days::VERIFY_WAIT;
use crate::cli::admin_client::{AdminClient, AdminClientError};

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
        (account, from, until): (&str, Date, Date),
        json: bool,
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let name = utf8_percent_encode(account, NON_ALPHANUMERIC);
        let path = format!("/v1/log/counters?account={name}&from={from}&until={until}");
        let answer = client.call_within(VERIFY_WAIT, Method::GET, &path, None).await?;
        let listed = |name: &str| {
            answer
                .get(name)
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice)
        };
        let differences = listed("differences");
        self.compared += listed("compared").len();
        self.moving += listed("moving").len();
        self.older += usize::from(answer.get("older_than_sums") == Some(&Value::Bool(true)));
        self.wrong += differences.len();
        if json && !differences.is_empty() {
            writeln!(out, "{answer}")?;
            return Ok(());
        }
        for difference in differences {
            writeln!(out, "{account}  {}", shown(difference))?;
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

fn shown(difference: &Value) -> String {
    let text = |name: &str| difference.get(name).and_then(Value::as_str).unwrap_or_default();
    let whose = [text("of"), text("name")].join(" ");
    format!(
        "{}  {}: the counter says {} USD, the {} {} USD",
        whose.trim_end(),
        text("period"),
        text("counter_usd"),
        text("by"),
        text("expected_usd"),
    )
}
