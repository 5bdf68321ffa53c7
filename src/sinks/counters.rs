//! Compares the spending counters of an account and its keys, which enforce quotas, with the daily sums.
//!
//! Settlement changes counters and sums in one step. However, a request is added to the counters of the periods in which it was
//! admitted, and to the sums of the day on which it ended. If the counters and the sums of a period differ, the rows at the edges
//! of the period are read to correct the sums. Counters of periods that ended more than a week ago are not compared, because the
//! store drops them. If an account is older than the retained sums, its total spending is compared only with the counters of its
//! keys.

use std::{ops::Range, sync::Arc};

use crate::{
    domain::ledger::{
        SpendByKey,
        consumption::RETENTION_DAYS,
        daily_sums::{DailySum, SumSelector, SumSubject},
        log_query::LogFilter,
        period::Period,
        proof::{self, CountedPeriod, CounterBasis, CounterDifference},
    },
    sinks::{
        PAGE_ROWS_MAX,
        reading::{LogCursor, LogReadError, LogReader},
    },
    store::{StoreError, ledger::LedgerStore},
};

/// The maximum number of comparisons of one period. A comparison is repeated if rows were settled while it ran.
const ATTEMPTS_MAX: usize = 8;
/// The number of days whose sums are in memory at once.
const DAYS_AT_ONCE: i64 = 31;
/// The number of days beyond today whose sums are read, because a clock may be ahead.
const AHEAD_DAYS: i64 = 2;
const DAY_MS: i64 = 24 * 3_600_000;

/// The result of comparing an account's counters with its daily sums.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterComparison {
    /// The periods whose counters were compared.
    pub(crate) compared: Vec<Period>,
    /// The periods that could not be compared, because rows were settled during each attempt.
    pub(crate) moving: Vec<Period>,
    /// Whether the account is older than the retained sums. If so, its total spending was compared only with its keys' counters.
    pub(crate) older_than_sums: bool,
    /// The counters that differ from the sums.
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

/// Compares the counters of all periods that contain one of `days` with the daily sums. Also compares the total that the account
/// has ever spent. Rows that are settled during the comparison never cause a difference.
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

/// Returns the differences in one period. `None` means that rows were settled during each attempt.
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

/// Returns the account's sums of all days on which requests of the period may have ended. Whenever such a request is settled,
/// these sums change.
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

/// Corrects `sums` with the rows that match a filter. The requests of these rows ended near the start or the end of the period.
/// Therefore some of them were admitted in the period but ended on a day outside it, or the reverse.
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

/// Returns the amount that each key has spent, by the daily sums of `days`.
async fn spent_by_sums(ledger: &dyn LedgerStore, account: &str, days: Range<i64>) -> Result<SpendByKey, StoreError> {
    let (mut spent, mut first) = (SpendByKey::new(), days.start);
    while first < days.end {
        let last = (first + DAYS_AT_ONCE).min(days.end) - 1;
        let sums = ledger.sums(account, first..=last, &SumSelector::Keys).await?;
        proof::add_daily_sums(&mut spent, &sums);
        first = last + 1;
    }
    Ok(spent)
}

/// Returns the differences in the total that the account has ever spent. `days` contains all days that have sums; it is `None` if
/// the account is older than the first of these days. The result is `None` if something was charged during each attempt.
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
                let total = proof::total_spend(&sums);
                (proof::total_differences(&of_keys, &sums), total, CounterBasis::Sums)
            }
            None => (Vec::new(), proof::total_spend(&of_keys), CounterBasis::Keys),
        };
        differences.extend(proof::account_difference(before.spent, expected, by));
        let now = ledger.account(account).await?;
        if differences.is_empty() || now.is_some_and(|now| now.spent == before.spent) {
            return Ok(Some(differences));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
