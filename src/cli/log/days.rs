//! Goes through days of accounts, and tells of what differs on one.

use std::time::Duration;

use jiff::{ToSpan, tz::TimeZone};

use crate::{
    api::{
        log::{
            Day,
            checks::{DifferingSums, SumsDifference, SumsSubject},
        },
        names::AccountId,
    },
    cli::{
        account_names,
        admin_client::{AdminClient, AdminClientError},
        progress::Progress,
    },
    edges::clock,
};

/// How long a comparison of a day may take, or what is brought then.
pub(super) const VERIFY_WAIT: Duration = Duration::from_secs(3600);

/// Does something for each day from `from` to before `until` of one account, or of all, and shows how far it is; says how many accounts
/// that were.
pub(super) async fn each(
    client: &AdminClient,
    account: Option<&AccountId>,
    (from, until): (Day, Day),
    progress: &Progress,
    mut visit: impl AsyncFnMut(&AccountId, Day) -> Result<(), AdminClientError>,
) -> Result<u64, AdminClientError> {
    if from >= until {
        return Err(AdminClientError::Usage(
            "--until is not after --from, so no day is left".to_owned(),
        ));
    }
    let accounts: Vec<AccountId> = match account {
        Some(account) => vec![account.clone()],
        None => {
            let names = account_names::read(client).await?;
            let names = names.iter().map(|name| name.parse());
            names.collect::<Result<_, _>>().map_err(AdminClientError::Refused)?
        }
    };
    let days = || from.0.series(1.day()).take_while(|day| *day < until.0);
    let count = accounts.len() as u64;
    progress.set_total(count.saturating_mul(days().count() as u64));
    for account in &accounts {
        for day in days() {
            progress.show(format_args!("{account}  {day}"));
            visit(account, Day(day)).await?;
            progress.advance(1);
        }
    }
    Ok(count)
}

/// Whose sums differ, and each number on both sides.
pub(super) fn shown(difference: &SumsDifference) -> String {
    format!(
        "{} model {}: kept {}; rows {}",
        whose(difference.of, difference.name.as_deref()),
        difference.model,
        listed(&difference.kept),
        listed(&difference.rows),
    )
}

/// Whose sums or counters, with the name of the key or the tag.
pub(super) fn whose(of: SumsSubject, name: Option<&str>) -> String {
    name.map_or_else(|| of.to_string(), |name| format!("{of} {name}"))
}

fn listed(sums: &DifferingSums) -> String {
    let counts = sums.usage.named().filter(|(_, count)| *count > 0);
    let all: Vec<String> = [
        sums.requests.map(|requests| format!("requests {requests}")),
        sums.errors.map(|errors| format!("errors {errors}")),
        sums.cost_usd.map(|cost| format!("cost_usd {cost}")),
    ]
    .into_iter()
    .flatten()
    .chain(counts.map(|(name, count)| format!("{name} {count}")))
    .chain(
        sums.digest
            .iter()
            .map(|digest| format!("another column (digest {digest})")),
    )
    .collect();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join(", ")
    }
}

/// This day in UTC.
pub(super) fn today() -> Day {
    let now = jiff::Timestamp::from_second(clock::unix_seconds()).unwrap_or_default();
    Day(now.to_zoned(TimeZone::UTC).date())
}

/// A date, or a time for the date that it lies on in UTC.
pub(super) fn date(text: &str) -> Result<Day, String> {
    text.parse().or_else(|wanted| {
        let time = text.parse::<jiff::Timestamp>().map_err(|_| wanted)?;
        Ok(Day(time.to_zoned(TimeZone::UTC).date()))
    })
}
