//! Goes through days of accounts, and tells of what differs on one.

use std::time::Duration;

use jiff::{ToSpan, tz::TimeZone};

use crate::{
    api::{
        accounts::ListAccounts,
        log::{
            Day,
            checks::{DifferingSums, SumsDifference, SumsSubject},
        },
        names::AccountId,
    },
    cli::admin_client::{AdminClient, AdminClientError},
    edges::clock,
};

/// How long a comparison of a day may take, or what is brought then.
pub(super) const VERIFY_WAIT: Duration = Duration::from_secs(3600);
/// Accounts asked for at once.
const PAGE: u64 = 1000;

/// Does something for each day from `from` to before `until` of one account, or of all; says how many accounts that were.
pub(super) async fn each(
    client: &AdminClient,
    account: Option<&AccountId>,
    (from, until): (Day, Day),
    mut visit: impl AsyncFnMut(&AccountId, Day) -> Result<(), AdminClientError>,
) -> Result<u64, AdminClientError> {
    if from >= until {
        return Err(AdminClientError::Usage(
            "--until is not after --from, so no day is left".to_owned(),
        ));
    }
    let mut accounts = 0;
    let mut page = ListAccounts {
        after: None,
        limit: Some(PAGE),
    };
    loop {
        let (names, next) = match account {
            Some(account) => (vec![account.clone()], None),
            None => {
                let listed = client.ask(&page).await?.read()?;
                let names = listed.accounts.iter().map(|account| account.id.parse());
                let names = names.collect::<Result<_, _>>().map_err(AdminClientError::Refused)?;
                (names, listed.next)
            }
        };
        for account in &names {
            accounts += 1;
            for day in from.0.series(1.day()).take_while(|day| *day < until.0) {
                visit(account, Day(day)).await?;
            }
        }
        if next.is_none() {
            return Ok(accounts);
        }
        page.after = next;
    }
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
