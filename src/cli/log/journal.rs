//! The journal of the node that is asked: whether the log has the rows that it still has.

use std::io::Write;

use http::Method;
use jiff::civil::Date;
use serde_json::{Map, Value, json};

use super::days::VERIFY_WAIT;
use crate::cli::admin_client::{AdminClient, AdminClientError};

/// What the log's home is called where it has no other.
const STORE: &str = "the store";
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

/// Which rows are compared, and whether what is missing is brought.
pub(super) struct Asked<'a> {
    pub(super) account: Option<&'a str>,
    pub(super) from: Date,
    pub(super) until: Date,
    pub(super) fills: bool,
}

impl OfJournal {
    /// Compares all of them, some at a time, and tells what is missing or differs.
    pub(super) async fn compare(
        client: &AdminClient,
        asked: &Asked<'_>,
        json: bool,
        out: &mut impl Write,
    ) -> Result<Self, AdminClientError> {
        let (mut found, mut after) = (Self::default(), None);
        loop {
            let answer = asked.call(client, after.as_deref()).await?;
            let days = answer.get("days").and_then(Value::as_array).into_iter().flatten();
            for day in days {
                found.add(day, json, out)?;
            }
            after = answer.get("next").and_then(Value::as_str).map(str::to_owned);
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    fn add(&mut self, day: &Value, json: bool, out: &mut impl Write) -> std::io::Result<()> {
        let number = |name: &str| day.get(name).and_then(Value::as_u64).unwrap_or(0);
        let (missing, brought, differing) = (number("missing"), number("brought"), number("differing"));
        self.rows += number("rows");
        self.missing += missing;
        self.brought += brought;
        self.differing += differing;
        if missing == 0 && differing == 0 {
            return Ok(());
        }
        if json {
            return writeln!(out, "{day}");
        }
        let text = |name: &str| day.get(name).and_then(Value::as_str).unwrap_or_default();
        let whose = [text("account"), text("day")].join("  ");
        if missing > 0 {
            let requests = day.get("requests").and_then(Value::as_array).into_iter().flatten();
            let requests: Vec<&str> = requests.filter_map(Value::as_str).collect();
            let more = if missing > requests.len() as u64 { ", …" } else { "" };
            let requests = requests.join(", ");
            writeln!(
                out,
                "{whose}  journal: {missing} rows are missing in the log ({requests}{more})"
            )?;
        }
        if brought > 0 {
            writeln!(out, "{whose}  {brought} rows brought")?;
        }
        if differing > 0 {
            writeln!(out, "{whose}  journal: {differing} rows have another charge in the log")?;
        }
        Ok(())
    }

    /// Tells how much was compared.
    pub(super) fn tell(&self, home: Option<&str>, out: &mut impl Write) -> std::io::Result<()> {
        let home = home.unwrap_or(STORE);
        writeln!(out, "{} rows of this node's journal looked for in {home}", self.rows)
    }

    /// What is wrong, and what to do; `None`: nothing. No home: it is the store.
    pub(super) fn fault(&self, home: Option<&str>) -> Option<String> {
        let lacking = self.missing.saturating_sub(self.brought);
        let mut faults = Vec::new();
        let corrects = match home {
            Some(_) => "take them out there, and --fill brings them as they were",
            None => NAME_A_HOME,
        };
        let home = home.unwrap_or(STORE);
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

impl Asked<'_> {
    async fn call(&self, client: &AdminClient, after: Option<&str>) -> Result<Value, AdminClientError> {
        let mut fields = Map::new();
        let given = [
            ("from", Some(self.from.to_string())),
            ("until", Some(self.until.to_string())),
            ("account", self.account.map(str::to_owned)),
            ("after", after.map(str::to_owned)),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                fields.insert(name.to_owned(), json!(value));
            }
        }
        if self.fills {
            let body = Value::Object(fields);
            let path = "/v1/log/journal/fill";
            return client.call_within(VERIFY_WAIT, Method::POST, path, Some(&body)).await;
        }
        let query: Vec<String> = fields
            .iter()
            .map(|(name, value)| {
                let value = value.as_str().unwrap_or_default();
                let value = percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC);
                format!("{name}={value}")
            })
            .collect();
        let path = format!("/v1/log/journal?{}", query.join("&"));
        client.call_within(VERIFY_WAIT, Method::GET, &path, None).await
    }
}
