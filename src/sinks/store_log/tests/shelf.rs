//! A store in memory that a test puts rows into and takes them from.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            AccountRecord, AccountView, AdmitCall, AdmitReply, KeySpend, LogDay, NodeId, OperationId, SpendByKey, Step,
            TopUp, TopUpReply,
            account::notices::{NoticeId, TakenNotices},
            consumption::Row,
            daily_sums::{DailySum, DailySums, SumSelector},
            lease::{LeaseCall, LeaseReply},
            period::Period,
        },
        money::NanoUsd,
    },
    sinks::contract::BEGIN_MS,
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore, LogLists},
    },
};

const DAY_MS: i64 = 24 * 3_600_000;

/// An account and a day.
type Day = (String, i64);

/// What of a store is asked when the log is read.
#[derive(Default)]
pub(in crate::sinks) struct StoreShelf {
    /// In the order in which they came.
    rows: Mutex<BTreeMap<Day, Vec<Row>>>,
    calls: AtomicUsize,
}

impl StoreShelf {
    pub(in crate::sinks) fn put(&self, row: Row) {
        let day = row.time_ms.div_euclid(DAY_MS);
        let mut rows = self.rows.lock();
        rows.entry((row.account.to_string(), day)).or_default().push(row);
    }

    /// Loses the last rows of each day, at most so many of each.
    pub(in crate::sinks) fn lose(&self, most: usize) {
        for rows in self.rows.lock().values_mut() {
            rows.truncate(rows.len().saturating_sub(most));
        }
    }

    pub(in crate::sinks) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl LogLists for StoreShelf {
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let rows = self.rows.lock();
        let of_day = rows.get(&(account.to_owned(), day)).map_or(&[][..], Vec::as_slice);
        Ok(of_day
            .iter()
            .skip(skip)
            .take(limit.min(LOG_ROWS_MAX))
            .cloned()
            .collect())
    }

    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError> {
        let rows = self.rows.lock();
        let of_account = rows
            .iter()
            .filter(|((name, day), _)| name == account && days.contains(day));
        let with_rows = of_account.filter(|(_, rows)| !rows.is_empty());
        Ok(with_rows
            .map(|((_, day), rows)| LogDay {
                day: *day,
                rows: rows.len() as u64,
            })
            .collect())
    }

    async fn put_rows(&self, _: &str, _: i64, _: &[Row]) -> Result<bool, StoreError> {
        unreachable!("the log is only read")
    }

    async fn remove(&self, _: &str, _: &LogDay) -> Result<bool, StoreError> {
        unreachable!("the log is only read")
    }
}

#[async_trait]
impl LedgerStore for StoreShelf {
    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError> {
        let rows = self.rows.lock();
        let mut names: Vec<String> = rows.keys().map(|(name, _)| name.clone()).collect();
        names.dedup();
        let names = names
            .into_iter()
            .filter(|name| after.is_none_or(|after| name.as_str() > after));
        let views = names.take(limit.min(LIST_ACCOUNTS_MAX)).map(|id| AccountView {
            id,
            balance: NanoUsd::ZERO,
            spent: NanoUsd::ZERO,
            held: NanoUsd::ZERO,
            running: 0,
            record: AccountRecord::default(),
            paid_today: NanoUsd::ZERO,
            paid_this_month: NanoUsd::ZERO,
            created_at: 0,
        });
        Ok(views.collect())
    }

    async fn sums(&self, _: &str, _: RangeInclusive<i64>, _: &SumSelector) -> Result<Vec<DailySum>, StoreError> {
        unreachable!("the log is only read")
    }

    async fn put_sums(&self, _: &str, _: i64, _: &DailySums, _: u64) -> Result<bool, StoreError> {
        unreachable!("the log is only read")
    }

    async fn admit(&self, _: &AdmitCall) -> Result<AdmitReply, StoreError> {
        unreachable!("the log is only read")
    }

    async fn lease(&self, _: &LeaseCall) -> Result<LeaseReply, StoreError> {
        unreachable!("the log is only read")
    }

    async fn top_up(&self, _: &TopUp) -> Result<TopUpReply, StoreError> {
        unreachable!("the log is only read")
    }

    async fn apply(&self, _: &NodeId, _: &str, _: &[Step], _: u64) -> Result<u64, StoreError> {
        unreachable!("the log is only read")
    }

    async fn summed_up_to(&self, _: &str) -> Result<BTreeMap<NodeId, u64>, StoreError> {
        unreachable!("the log is only read")
    }

    async fn set_terms(&self, _: &str, _: &AccountRecord, _: &AccountRecord) -> Result<bool, StoreError> {
        unreachable!("the log is only read")
    }

    async fn watermark(&self, _: &NodeId, _: &str) -> Result<u64, StoreError> {
        unreachable!("the log is only read")
    }

    async fn renew(&self, _: &NodeId, _: &[String]) -> Result<(), StoreError> {
        unreachable!("the log is only read")
    }

    async fn release(&self, _: &NodeId, _: &str) -> Result<(), StoreError> {
        unreachable!("the log is only read")
    }

    async fn account(&self, _: &str) -> Result<Option<AccountView>, StoreError> {
        unreachable!("the log is only read")
    }

    async fn operation_amount(&self, _: &str, _: &OperationId) -> Result<Option<NanoUsd>, StoreError> {
        unreachable!("the log is only read")
    }

    async fn key_spend(&self, _: &str, _: &KeyId) -> Result<KeySpend, StoreError> {
        unreachable!("the log is only read")
    }

    async fn spent(&self, _: &str, _: Period) -> Result<SpendByKey, StoreError> {
        unreachable!("the log is only read")
    }

    async fn take_notices(&self, _: &str, _: i64) -> Result<TakenNotices, StoreError> {
        unreachable!("the log is only read")
    }

    async fn acknowledge_notices(&self, _: &str, _: &[NoticeId]) -> Result<(), StoreError> {
        unreachable!("the log is only read")
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        Ok(BEGIN_MS)
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        unreachable!("the log is only read")
    }
}
