//! `weir log verify`: whether the daily sums are the sums of their rows.

use std::io::Write;

use clap::Args;
use http::Method;
use jiff::{ToSpan, civil::Date, tz::TimeZone};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::cli::admin_client::{AdminClient, AdminClientError, ClientArgs};

/// Accounts asked for at once.
const PAGE: usize = 1000;

/// `weir log verify`
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// The first day, in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub from: Date,
    /// Only days before this one
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub until: Date,
    /// Only this account
    #[arg(long)]
    pub account: Option<String>,
    /// Put the sums of the rows in the place of those that differ, such as those of days before sums were kept
    #[arg(long)]
    pub mend: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// What has been found.
#[derive(Default)]
struct Found {
    rows: u64,
    /// Days of an account with a difference, and how many of them are mended.
    wrong: u64,
    mended: u64,
}

/// Runs the command and prints what differs, and how much was compared. An error where something differs and stays so.
pub(super) async fn run(args: &VerifyArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    if args.from >= args.until {
        return Err(AdminClientError::Usage(
            "--until is not after --from, so no day is left".to_owned(),
        ));
    }
    let mut found = Found::default();
    let mut accounts = 0_u64;
    let mut after = String::new();
    loop {
        let (names, next) = match &args.account {
            Some(account) => (vec![account.clone()], None),
            None => page(client, &after).await?,
        };
        for account in &names {
            accounts += 1;
            let days = args.from.series(1.day()).take_while(|day| *day < args.until);
            for day in days {
                compare(args, client, account, day, &mut found, out).await?;
            }
        }
        match next {
            Some(next) => after = next,
            None => break,
        }
    }
    let Found { rows, wrong, mended } = found;
    if !args.client.json {
        writeln!(out, "{accounts} accounts, {rows} rows compared with their daily sums")?;
    }
    let left = wrong - mended;
    if left == 0 {
        return Ok(());
    }
    Err(AdminClientError::Refused(format!(
        "the sums of {left} days differ from their rows; --mend puts the sums of the rows in their place"
    )))
}

async fn page(client: &AdminClient, after: &str) -> Result<(Vec<String>, Option<String>), AdminClientError> {
    let after = match after {
        "" => String::new(),
        after => format!("&after={}", utf8_percent_encode(after, NON_ALPHANUMERIC)),
    };
    let page = client
        .call(Method::GET, &format!("/v1/accounts?limit={PAGE}{after}"), None)
        .await?;
    let accounts = page.get("accounts").and_then(Value::as_array).into_iter().flatten();
    let names = accounts.filter_map(|account| Some(account.get("id")?.as_str()?.to_owned()));
    let next = page.get("next").and_then(Value::as_str).map(str::to_owned);
    Ok((names.collect(), next))
}

/// Compares one day of one account.
async fn compare(
    args: &VerifyArgs,
    client: &AdminClient,
    account: &str,
    day: Date,
    found: &mut Found,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let name = utf8_percent_encode(account, NON_ALPHANUMERIC);
    let path = format!("/v1/log/verify?account={name}&day={day}");
    let answer = client.call(Method::GET, &path, None).await?;
    found.rows += answer.get("rows").and_then(Value::as_u64).unwrap_or(0);
    let differences = answer
        .get("differences")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if differences.is_empty() {
        return Ok(());
    }
    found.wrong += 1;
    if args.client.json {
        writeln!(out, "{answer}")?;
    } else {
        for difference in differences {
            writeln!(out, "{account}  {day}  {}", shown(difference))?;
        }
        let agree = answer.get("sums_agree") == Some(&Value::Bool(true));
        let which = if agree {
            "the sums agree with each other: rows are missing or twice there, or these are from before sums were kept"
        } else {
            "the sums do not agree with each other: they are wrong, not the rows"
        };
        writeln!(out, "{account}  {day}  {which}")?;
    }
    if args.mend {
        let body = json!({ "account": account, "day": day.to_string() });
        client.call(Method::POST, "/v1/log/mend", Some(&body)).await?;
        found.mended += 1;
        if !args.client.json {
            writeln!(out, "{account}  {day}  mended")?;
        }
    }
    Ok(())
}

/// Whose sums differ, and each number on both sides.
fn shown(difference: &Value) -> String {
    let text = |name: &str| difference.get(name).and_then(Value::as_str).unwrap_or_default();
    let fields = |name: &str| {
        difference
            .get(name)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let listed = |fields: &Map<String, Value>| {
        let fields = fields.iter().filter(|(name, _)| *name != "cost_nano_usd");
        let fields = fields.map(|(name, value)| match value {
            Value::String(text) => format!("{name} {text}"),
            other => format!("{name} {other}"),
        });
        let all: Vec<String> = fields.collect();
        if all.is_empty() {
            "nothing".to_owned()
        } else {
            all.join(", ")
        }
    };
    let whose = [text("of"), text("name")].join(" ");
    format!(
        "{} model {}: kept {}; rows {}",
        whose.trim_end(),
        text("model"),
        listed(&fields("kept")),
        listed(&fields("rows")),
    )
}

/// A date, or a time for the date that it lies on in UTC.
fn date(text: &str) -> Result<Date, String> {
    if let Ok(date) = text.parse::<Date>() {
        return Ok(date);
    }
    let time = text
        .parse::<jiff::Timestamp>()
        .map_err(|_| "a date such as 2027-01-31".to_owned())?;
    Ok(time.to_zoned(TimeZone::UTC).date())
}
