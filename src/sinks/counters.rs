//! Compares the counters of an account and its keys, which enforce quotas, with the daily sums.
//!
//! Settlement changes both in one step. A request counts in the periods of its admission, but in the sums of the day of its end:
//! where they differ, the rows at the edges of the period are read. Counters of periods that ended a week ago are not compared,
//! because the store drops them. For an account that is older than the sums, the total ever spent is compared with its keys'
//! counters only.

use std::{ops::Range, sync::Arc};

use crate::{
    domain::ledger::{
        SpendByKey,
        consumption::RETENTION_DAYS,
        counters::{self, CountedPeriod, CounterBasis, CounterDifference},
        daily_sums::{DailySum, SumSelector, SumSubject},
        log_query::LogFilter,
        period::Period,
    },
    sinks::{
        asks::PAGE_ROWS_MAX,
        reading::{LogCursor, LogReadError, LogReader},
    },
    store::{StoreError, ledger::LedgerStore},
};

/// How often a period is compared again because rows came meanwhile.
const ATTEMPTS_MAX: usize = 8;
/// The days whose sums are in memory at once.
const DAYS_AT_ONCE: i64 = 31;
/// The maximum number of days that a clock may be ahead.
const AHEAD_DAYS: i64 = 2;
const DAY_MS: i64 = 24 * 3_600_000;

/// The result of a comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterComparison {
    /// The periods whose counters were compared.
    pub(crate) compared: Vec<Period>,
    /// The periods whose counters changed during each attempt: they could not be compared.
    pub(crate) moving: Vec<Period>,
    /// The account is older than the sums: its total ever spent was compared with its keys' counters only.
    pub(crate) older_than_sums: bool,
    /// The differences.
    pub(crate) differences: Vec<CounterDifference>,
}

impl CounterComparison {
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

/// Compares the counters of all periods that contain one of these days, and the total ever spent. Rows that are settled meanwhile
/// never cause a difference.
pub(crate) async fn compare(
    ledger: &dyn LedgerStore,
    log: &Arc<LogReader>,
    account: &str,
    days: &Range<i64>,
) -> Result<CounterComparison, LogReadError> {
    let now_ms = ledger.now_ms().await?;
    let mut counted = CounterComparison::default();
    for period in CountedPeriod::kept(days, now_ms) {
        let found = compare_period(ledger, log, account, &period).await?;
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
    let found = compare_totals(ledger, account, (!counted.older_than_sums).then_some(kept)).await?;
    counted.add(Period::All, found);
    Ok(counted)
}

/// The differences in one period; `None` if rows came during each attempt.
async fn compare_period(
    ledger: &dyn LedgerStore,
    log: &Arc<LogReader>,
    account: &str,
    period: &CountedPeriod,
) -> Result<Option<Vec<CounterDifference>>, LogReadError> {
    for _ in 0..ATTEMPTS_MAX {
        let before = period_sums(ledger, account, period).await?;
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
        if differences.is_empty() || period_sums(ledger, account, period).await? == before {
            return Ok(Some(differences));
        }
    }
    Ok(None)
}

/// The sums of all days whose rows may count in the period: they change with each such row.
async fn period_sums(
    ledger: &dyn LedgerStore,
    account: &str,
    period: &CountedPeriod,
) -> Result<Vec<DailySum>, StoreError> {
    let [first, behind] = period.edges();
    ledger
        .sums(account, first..=behind, &SumSelector::One(SumSubject::Account))
        .await
}

/// Corrects the sums of a period by the rows that match a filter.
async fn correct(
    log: &Arc<LogReader>,
    period: &CountedPeriod,
    filter: &LogFilter,
    sums: &mut SpendByKey,
) -> Result<(), LogReadError> {
    let mut rows = log.rows(filter.clone(), LogCursor::before(filter));
    while rows.cursor().is_some() {
        let page = rows.next(PAGE_ROWS_MAX).await?;
        page.iter().for_each(|row| period.correct(sums, row));
    }
    Ok(())
}

/// The amounts that keys have spent, by the sums of some days.
async fn spent_by_sums(ledger: &dyn LedgerStore, account: &str, days: Range<i64>) -> Result<SpendByKey, StoreError> {
    let (mut spent, mut first) = (SpendByKey::new(), days.start);
    while first < days.end {
        let last = (first + DAYS_AT_ONCE).min(days.end) - 1;
        let sums = ledger.sums(account, first..=last, &SumSelector::Keys).await?;
        counters::add_daily_sums(&mut spent, &sums);
        first = last + 1;
    }
    Ok(spent)
}

/// The differences in the total ever spent. `days` are all days of the sums, if these cover the account's whole life. `None` if
/// something was charged during each attempt.
async fn compare_totals(
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
                let total = counters::total_spend(&sums);
                (counters::total_differences(&of_keys, &sums), total, CounterBasis::Sums)
            }
            None => (Vec::new(), counters::total_spend(&of_keys), CounterBasis::Keys),
        };
        differences.extend(counters::account_difference(before.spent, expected, by));
        let now = ledger.account(account).await?;
        if differences.is_empty() || now.is_some_and(|now| now.spent == before.spent) {
            return Ok(Some(differences));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
