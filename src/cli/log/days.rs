//! Goes through days of accounts, and tells of what differs on one.

use std::time::Duration;

use http::Method;
use jiff::{ToSpan, civil::Date, tz::TimeZone};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::{
    cli::admin_client::{AdminClient, AdminClientError},
    edges::clock,
};

/// How long a comparison of a day may take, or what is brought then.
pub(super) const VERIFY_WAIT: Duration = Duration::from_secs(3600);
/// Accounts asked for at once.
const PAGE: usize = 1000;

/// Does something for each day from `from` to before `until` of one account, or of all; says how many accounts that were.
pub(super) async fn each(
    client: &AdminClient,
    account: Option<&str>,
    from: Date,
    until: Date,
    mut visit: impl AsyncFnMut(&str, Date) -> Result<(), AdminClientError>,
) -> Result<u64, AdminClientError> {
    if from >= until {
        return Err(AdminClientError::Usage(
            "--until is not after --from, so no day is left".to_owned(),
        ));
    }
    let mut accounts = 0;
    let mut after = String::new();
    loop {
        let (names, next) = match account {
            Some(account) => (vec![account.to_owned()], None),
            None => page(client, &after).await?,
        };
        for account in &names {
            accounts += 1;
            for day in from.series(1.day()).take_while(|day| *day < until) {
                visit(account, day).await?;
            }
        }
        match next {
            Some(next) => after = next,
            None => return Ok(accounts),
        }
    }
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

/// Whose sums differ, and each number on both sides.
pub(super) fn shown(difference: &Value) -> String {
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

/// This day in UTC.
pub(super) fn today() -> Date {
    let now = jiff::Timestamp::from_second(clock::unix_seconds()).unwrap_or_default();
    now.to_zoned(TimeZone::UTC).date()
}

/// A date, or a time for the date that it lies on in UTC.
pub(super) fn date(text: &str) -> Result<Date, String> {
    if let Ok(date) = text.parse::<Date>() {
        return Ok(date);
    }
    let time = text
        .parse::<jiff::Timestamp>()
        .map_err(|_| "a date such as 2027-01-31".to_owned())?;
    Ok(time.to_zoned(TimeZone::UTC).date())
}
