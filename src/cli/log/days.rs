//! Goes through days of accounts, and describes differences.

use std::time::Duration;

use jiff::{ToSpan, tz::TimeZone};

use crate::{
    api::{
        log::{
            UtcDay,
            checks::{DifferingSums, SumsDifference, SumsSubject},
        },
        names::AccountId,
    },
    cli::{
        account_names,
        admin_client::{AdminClient, AdminClientError},
        progress::CommandProgress,
    },
    edges::clock,
};

/// The timeout for comparing one day, or copying its rows.
pub(super) const VERIFY_WAIT: Duration = Duration::from_secs(3600);

/// Calls `visit` for each day from `from` to before `until` of one account, or of all, and shows the progress; returns the
/// number of accounts.
pub(super) async fn for_each_day(
    client: &AdminClient,
    account: Option<&AccountId>,
    (from, until): (UtcDay, UtcDay),
    progress: &CommandProgress,
    mut visit: impl AsyncFnMut(&AccountId, UtcDay) -> Result<(), AdminClientError>,
) -> Result<u64, AdminClientError> {
    if from >= until {
        return Err(AdminClientError::Usage("--until must be after --from".to_owned()));
    }
    let accounts: Vec<AccountId> = match account {
        Some(account) => vec![account.clone()],
        None => {
            let names = account_names::read_account_names(client).await?;
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
            visit(account, UtcDay(day)).await?;
            progress.advance(1);
        }
    }
    Ok(count)
}

/// Describes differing sums: whose they are, and each number on both sides.
pub(super) fn difference_text(difference: &SumsDifference) -> String {
    format!(
        "{} model {}: sums {}; rows {}",
        subject_text(difference.of, difference.name.as_deref()),
        difference.model,
        counts_text(&difference.kept),
        counts_text(&difference.rows),
    )
}

/// The subject of sums or counters, with the name of the key or tag.
pub(super) fn subject_text(of: SumsSubject, name: Option<&str>) -> String {
    name.map_or_else(|| of.to_string(), |name| format!("{of} {name}"))
}

fn counts_text(sums: &DifferingSums) -> String {
    let counts = sums.usage.named_parts().filter(|(_, count)| *count > 0);
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

/// Today's date in UTC.
pub(super) fn today() -> UtcDay {
    let now = jiff::Timestamp::from_second(clock::unix_seconds()).unwrap_or_default();
    UtcDay(now.to_zoned(TimeZone::UTC).date())
}

/// Parses a date, or a time, which stands for its date in UTC.
pub(super) fn date(text: &str) -> Result<UtcDay, String> {
    text.parse().or_else(|wanted| {
        let time = text.parse::<jiff::Timestamp>().map_err(|_| wanted)?;
        Ok(UtcDay(time.to_zoned(TimeZone::UTC).date()))
    })
}
