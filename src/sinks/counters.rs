//! Whether the counters of an account and of its keys, which quotas are checked by, are what the daily sums say.
//!
//! Settlement changes both in one step. A request counts in the periods of its admission and in the sums of the day of its end,
//! so where they differ the rows at the edges of the period are looked at. Not compared are counters of periods that ended a week
//! ago, which the store drops, and what was ever spent in an account that is older than the sums: there the account's counter
//! is held against those of its keys alone.

use std::{ops::Range, sync::Arc};

use crate::{
    domain::ledger::{
        Spent,
        consumption::RETENTION_DAYS,
        counters::{self, Basis, CountedPeriod, CounterDifference},
        daily_sums::{DailySum, Subject, SumsOf},
        log_filter::LogFilter,
        period::Period,
    },
    sinks::{
        asks::PAGE_ROWS_MAX,
        reading::{LogCursor, LogReadError, LogReading},
    },
    store::{StoreError, ledger::LedgerStore},
};

/// How often a period is looked at again because rows came meanwhile.
const ATTEMPTS_MAX: usize = 8;
/// Days whose sums are in memory at once.
const DAYS_AT_ONCE: i64 = 31;
/// How far clocks may be ahead.
const AHEAD_DAYS: i64 = 2;
const DAY_MS: i64 = 24 * 3_600_000;

/// What a comparison has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The periods whose counters were compared.
    pub(crate) compared: Vec<Period>,
    /// Periods whose counters changed whenever they were looked at: nothing is known of them.
    pub(crate) moving: Vec<Period>,
    /// The account is older than the sums: what it has ever spent is compared with its keys' counters alone.
    pub(crate) older_than_sums: bool,
    /// What differs.
    pub(crate) differences: Vec<CounterDifference>,
}

impl Counted {
    fn add(&mut self, period: Period, found: Option<Vec<CounterDifference>>) {
        match found {
            Some(differences) => {
                self.compared.push(period);
                self.differences.extend(differences);
            }
            None => self.moving.push(period),
        }
    }
}

/// Compares the counters of all periods that have one of these days, and what was ever spent. Nothing is a difference that comes of
/// rows that were settled meanwhile.
pub(crate) async fn compare(
    ledger: &dyn LedgerStore,
    log: &Arc<LogReading>,
    account: &str,
    days: &Range<i64>,
) -> Result<Counted, LogReadError> {
    let now_ms = ledger.now_ms().await?;
    let mut counted = Counted::default();
    for period in CountedPeriod::kept(days, now_ms) {
        let found = of_period(ledger, log, account, &period).await?;
        counted.add(period.period, found);
    }
    let first = now_ms.div_euclid(DAY_MS) - i64::from(RETENTION_DAYS);
    let view = ledger.account(account).await?;
    let created = view
        .map_or(0, |view| view.created_at)
        .saturating_mul(1000)
        .div_euclid(DAY_MS);
    counted.older_than_sums = created <= first;
    let kept = first..now_ms.div_euclid(DAY_MS) + AHEAD_DAYS;
    let found = of_all(ledger, account, (!counted.older_than_sums).then_some(kept)).await?;
    counted.add(Period::All, found);
    Ok(counted)
}

/// What differs in one period; `None`: rows came whenever it was looked at.
async fn of_period(
    ledger: &dyn LedgerStore,
    log: &Arc<LogReading>,
    account: &str,
    period: &CountedPeriod,
) -> Result<Option<Vec<CounterDifference>>, LogReadError> {
    for _ in 0..ATTEMPTS_MAX {
        let before = standing(ledger, account, period).await?;
        let counters = ledger.spent(account, period.period).await?;
        let (first, last) = period.days().into_inner();
        let mut sums = spent_by_sums(ledger, account, first..last + 1).await?;
        if period.differences(&counters, &sums).is_empty() {
            return Ok(Some(Vec::new()));
        }
        for day in period.edges() {
            correct(log, period, &LogFilter::of_day(account, day), &mut sums).await?;
        }
        let differences = period.differences(&counters, &sums);
        if differences.is_empty() || standing(ledger, account, period).await? == before {
            return Ok(Some(differences));
        }
    }
    Ok(None)
}

/// The sums of the days whose rows may count in the period: they change with each row.
async fn standing(
    ledger: &dyn LedgerStore,
    account: &str,
    period: &CountedPeriod,
) -> Result<Vec<DailySum>, StoreError> {
    let [first, behind] = period.edges();
    ledger
        .sums(account, first..=behind, &SumsOf::One(Subject::Account))
        .await
}

/// Puts right what the sums of a period say, by the rows that a filter takes.
async fn correct(
    log: &Arc<LogReading>,
    period: &CountedPeriod,
    filter: &LogFilter,
    sums: &mut Spent,
) -> Result<(), LogReadError> {
    let mut rows = log.rows(filter.clone(), LogCursor::before(filter));
    while rows.cursor().is_some() {
        let page = rows.next(PAGE_ROWS_MAX).await?;
        page.iter().for_each(|row| period.correct(sums, row));
    }
    Ok(())
}

/// What keys have spent by the sums of some days.
async fn spent_by_sums(ledger: &dyn LedgerStore, account: &str, days: Range<i64>) -> Result<Spent, StoreError> {
    let (mut spent, mut first) = (Spent::new(), days.start);
    while first < days.end {
        let last = (first + DAYS_AT_ONCE).min(days.end) - 1;
        let sums = ledger.sums(account, first..=last, &SumsOf::Keys).await?;
        counters::add(&mut spent, &sums);
        first = last + 1;
    }
    Ok(spent)
}

/// What differs of what was ever spent, with the sums of all days if these are all there ever were; `None`: something was charged
/// whenever it was looked at.
async fn of_all(
    ledger: &dyn LedgerStore,
    account: &str,
    days: Option<Range<i64>>,
) -> Result<Option<Vec<CounterDifference>>, StoreError> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(before) = ledger.account(account).await? else {
            return Ok(Some(Vec::new()));
        };
        let of_keys = ledger.spent(account, Period::All).await?;
        let (mut differences, expected, by) = match &days {
            Some(days) => {
                let sums = spent_by_sums(ledger, account, days.clone()).await?;
                let total = counters::total(&sums);
                (counters::differences_of_all(&of_keys, &sums), total, Basis::Sums)
            }
            None => (Vec::new(), counters::total(&of_keys), Basis::Keys),
        };
        differences.extend(counters::difference_of_account(before.spent, expected, by));
        let now = ledger.account(account).await?;
        if differences.is_empty() || now.is_some_and(|now| now.spent == before.spent) {
            return Ok(Some(differences));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
