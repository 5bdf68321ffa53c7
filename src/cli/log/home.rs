//! The log's home beside the store: whether it has what the daily sums say, and what brings to it what it lacks.

use std::io::Write;

use clap::{Args, ValueEnum};
use http::Method;
use jiff::civil::Date;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::days::{self, VERIFY_WAIT, date, shown};
use crate::cli::admin_client::{AdminClient, AdminClientError, ClientArgs};

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
    pub from: Option<Date>,
    /// Only days before this one [default: tomorrow]
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub until: Option<Date>,
    /// Only this account
    #[arg(long)]
    pub account: Option<String>,
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
    let home = client.call(Method::GET, "/v1/log/home", None).await?;
    let name = home.get("home").and_then(Value::as_str);
    if name != Some(wanted) {
        return Err(AdminClientError::Usage(format!(
            "the log's home is {}, not {wanted}: name it in `[log] home` and start weir anew",
            name.unwrap_or("the store")
        )));
    }
    let day = |name: &str| {
        home.get(name)
            .and_then(Value::as_str)
            .and_then(|text| text.parse::<Date>().ok())
    };
    let (Some(from), Some(until)) = (args.from.or_else(|| day("from")), args.until.or_else(|| day("until"))) else {
        return Err(AdminClientError::Usage("give --from and --until".to_owned()));
    };
    let mut rows = 0;
    days::each(client, args.account.as_deref(), from, until, async |account, day| {
        let brought = fill(client, account, day).await?;
        rows += brought;
        if brought > 0 {
            let told = json!({ "account": account, "day": day.to_string(), "rows": brought });
            if args.client.json {
                writeln!(out, "{told}")?;
            } else {
                writeln!(out, "{account}  {day}  {brought} rows")?;
            }
        }
        Ok(())
    })
    .await?;
    if !args.client.json {
        writeln!(out, "{rows} rows brought to {wanted}")?;
    }
    Ok(())
}

/// The name of the log's home; `None`: it is the store.
pub(super) async fn name(client: &AdminClient) -> Result<Option<String>, AdminClientError> {
    let answer = client.call(Method::GET, "/v1/log/home", None).await?;
    Ok(answer.get("home").and_then(Value::as_str).map(str::to_owned))
}

/// Brings the rows of a day of an account to the home that it lacks; says how many.
pub(super) async fn fill(client: &AdminClient, account: &str, day: Date) -> Result<u64, AdminClientError> {
    let body = json!({ "account": account, "day": day.to_string() });
    let answer = client
        .call_within(VERIFY_WAIT, Method::POST, "/v1/log/home/fill", Some(&body))
        .await?;
    Ok(answer.get("rows").and_then(Value::as_u64).unwrap_or(0))
}

/// What a comparison of a day has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) rows: u64,
    pub(super) differs: bool,
    /// It may still get rows.
    pub(super) is_open: bool,
}

/// Compares the home's rows of a day of an account with the daily sums, and tells what differs. A day that may still get rows is
/// passed over.
pub(super) async fn compare(
    client: &AdminClient,
    (account, day): (&str, Date),
    json: bool,
    out: &mut impl Write,
) -> Result<Comparison, AdminClientError> {
    let name = utf8_percent_encode(account, NON_ALPHANUMERIC);
    let path = format!("/v1/log/home/verify?account={name}&day={day}");
    let answer = client.call_within(VERIFY_WAIT, Method::GET, &path, None).await?;
    let rows = answer.get("rows").and_then(Value::as_u64).unwrap_or(0);
    let differences = answer
        .get("differences")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let is_complete = answer.get("complete") == Some(&Value::Bool(true));
    let again = answer.get("again").and_then(Value::as_u64).unwrap_or(0);
    let differs = is_complete && (again > 0 || !differences.is_empty());
    if differs && json {
        writeln!(out, "{answer}")?;
    } else if differs {
        let home = answer.get("home").and_then(Value::as_str).unwrap_or_default();
        for difference in differences {
            writeln!(out, "{account}  {day}  {home}: {}", shown(difference))?;
        }
        if again > 0 {
            writeln!(
                out,
                "{account}  {day}  {home}: {again} rows are of requests that have one there already"
            )?;
        }
    }
    Ok(Comparison {
        rows,
        differs,
        is_open: !is_complete,
    })
}
