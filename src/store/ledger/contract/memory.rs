//! The reference model of a ledger, with which the real ledgers are compared, and a store in memory that is based on the model.
//! The tests and the random program are run with that store first.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            Account, AccountRecord, AccountView, AdmitCall, AdmitReply, KeySpend, LogDay, NodeId, OperationId,
            SpendByKey, Step, TopUp, TopUpReply,
            account::notices::{NoticeId, TakenNotices},
            consumption::Row,
            daily_sums::{self, DailySum, DailySums, DayTags, SumSelector, SumSubject},
            lease::{LeaseCall, LeaseReply},
            period::Period,
        },
        money::NanoUsd,
    },
    store::{
        StoreError,
        ledger::{
            APPLY_STEPS_MAX, LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore, LogLists,
            contract::{Failover, Fixture, TestClock, ledger_suite, lists_suite},
            limit_steps,
        },
    },
};

/// A ledger in memory that keeps rows.
pub(crate) struct MemoryLedger {
    state: Arc<Mutex<Model>>,
    clock: TestClock,
}

impl MemoryLedger {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Arc::default(),
            clock: TestClock::new(),
        })
    }
}

#[async_trait]
impl LedgerStore for MemoryLedger {
    async fn admit(&self, ask: &AdmitCall) -> Result<AdmitReply, StoreError> {
        Ok(self.state.lock().admit(ask, self.clock.now_ms()))
    }

    fn admit_now(&self, ask: &AdmitCall) -> Option<AdmitReply> {
        Some(self.state.lock().admit(ask, self.clock.now_ms()))
    }

    async fn top_up(&self, ask: &TopUp) -> Result<TopUpReply, StoreError> {
        Ok(self.state.lock().top_up(ask, self.clock.now_ms()))
    }

    async fn lease(&self, ask: &LeaseCall) -> Result<LeaseReply, StoreError> {
        Ok(self.state.lock().lease(ask, self.clock.now_ms()))
    }

    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step], upto: u64) -> Result<u64, StoreError> {
        Ok(self.state.lock().apply(node, account, steps, upto))
    }

    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError> {
        Ok(self.state.lock().set_terms(account, from, to))
    }

    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError> {
        Ok(self.state.lock().watermark(node, account))
    }

    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError> {
        self.state.lock().renew(node, accounts, self.clock.now_ms());
        Ok(())
    }

    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError> {
        self.state.lock().release(node, account);
        Ok(())
    }

    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError> {
        Ok(self.state.lock().account(id, self.clock.now_ms()))
    }

    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError> {
        let limit = limit.min(LIST_ACCOUNTS_MAX);
        Ok(self.state.lock().accounts(after, limit, self.clock.now_ms()))
    }

    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError> {
        Ok(self.state.lock().key_spend(account, key, self.clock.now_ms()))
    }

    async fn spent(&self, account: &str, period: Period) -> Result<SpendByKey, StoreError> {
        Ok(self.state.lock().spent(account, period))
    }

    async fn sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError> {
        Ok(self.state.lock().sums(account, &days, of))
    }

    async fn summed_up_to(&self, account: &str) -> Result<BTreeMap<NodeId, u64>, StoreError> {
        Ok(self.state.lock().summed(account))
    }

    async fn put_sums(&self, account: &str, day: i64, sums: &DailySums, seen: u64) -> Result<bool, StoreError> {
        Ok(self.state.lock().put_sums(account, day, sums, seen))
    }

    async fn operation_amount(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError> {
        Ok(self.state.lock().operation(account, id))
    }

    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError> {
        Ok(self.state.lock().take_notices(account, pause_ms, self.clock.now_ms()))
    }

    async fn acknowledge_notices(&self, account: &str, told: &[NoticeId]) -> Result<(), StoreError> {
        self.state.lock().remove_acknowledged(account, told);
        Ok(())
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        Ok(self.clock.now_ms())
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

#[async_trait]
impl LogLists for MemoryLedger {
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        Ok(self.state.lock().rows(account, day, skip, limit.min(LOG_ROWS_MAX)))
    }

    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError> {
        Ok(self.state.lock().log_days(account, days))
    }

    async fn put_rows(&self, account: &str, day: i64, rows: &[Row]) -> Result<bool, StoreError> {
        Ok(self.state.lock().put_rows(account, day, rows))
    }

    async fn remove(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError> {
        Ok(self.state.lock().remove(account, seen))
    }
}

struct Snapshot {
    state: Arc<Mutex<Model>>,
    kept: Mutex<Option<Model>>,
}

#[async_trait]
impl Failover for Snapshot {
    async fn remember(&self) {
        *self.kept.lock() = Some(self.state.lock().clone());
    }

    async fn roll_back(&self) -> bool {
        let Some(kept) = self.kept.lock().clone() else {
            return false;
        };
        *self.state.lock() = kept;
        true
    }
}

fn fixture(fails_over: bool) -> Fixture {
    let ledger = MemoryLedger::new();
    let failover = Snapshot {
        state: Arc::clone(&ledger.state),
        kept: Mutex::default(),
    };
    Fixture {
        clock: ledger.clock.clone(),
        store: ledger.clone(),
        lists: Some(ledger),
        failover: fails_over.then(|| -> Box<dyn Failover> { Box::new(failover) }),
        kept: Box::new(()),
    }
}

/// Returns a ledger in memory, for tests of code that uses a ledger.
pub(crate) fn ledger() -> Arc<MemoryLedger> {
    MemoryLedger::new()
}

async fn open() -> Option<Fixture> {
    Some(fixture(false))
}

ledger_suite!(open);
lists_suite!(open);

#[tokio::test]
async fn what_a_failover_lost_is_sent_again_and_exact() {
    super::an_engine_answers_as_the_model_does(&fixture(true)).await;
}

/// All accounts and all rows, as in a store that keeps the log. Unlike a store, the model gets the time as an argument.
#[derive(Clone, Default)]
pub(crate) struct Model {
    accounts: BTreeMap<String, Account>,
    rows: BTreeMap<(String, i64), Vec<Row>>,
    sums: BTreeMap<String, DailySums>,
    tags: BTreeMap<(String, i64), DayTags>,
}

impl Model {
    fn is_there(&self, account: &str) -> bool {
        self.accounts.get(account).and_then(Account::summary).is_some()
    }

    fn account_mut(&mut self, id: &str) -> &mut Account {
        self.accounts.entry(id.to_owned()).or_default()
    }

    pub(crate) fn admit(&mut self, ask: &AdmitCall, now_ms: i64) -> AdmitReply {
        self.account_mut(&ask.key.account).admit(ask, now_ms)
    }

    pub(crate) fn top_up(&mut self, ask: &TopUp, now_ms: i64) -> TopUpReply {
        self.account_mut(&ask.account).top_up(ask, now_ms)
    }

    pub(crate) fn lease(&mut self, ask: &LeaseCall, now_ms: i64) -> LeaseReply {
        self.account_mut(&ask.account).lease(ask, now_ms)
    }

    pub(crate) fn apply(&mut self, node: &NodeId, account: &str, steps: &[Step], upto: u64) -> u64 {
        let (steps, upto) = limit_steps(steps, upto, APPLY_STEPS_MAX);
        let (watermark, rows) = self.account_mut(account).apply(node, steps, upto);
        for row in rows {
            let day = daily_sums::day_of(&row);
            let tags = self.tags.entry((account.to_owned(), day)).or_default();
            self.sums.entry(account.to_owned()).or_default().add(&row, tags);
            self.rows
                .entry((account.to_owned(), day))
                .or_default()
                .push(Arc::unwrap_or_clone(row));
        }
        watermark
    }

    pub(crate) fn set_terms(&mut self, account: &str, from: &AccountRecord, to: &AccountRecord) -> bool {
        self.account_mut(account).set_terms(from, to)
    }

    pub(crate) fn watermark(&self, node: &NodeId, account: &str) -> u64 {
        self.accounts.get(account).map_or(0, |account| account.watermark(node))
    }

    pub(crate) fn renew(&mut self, node: &NodeId, accounts: &[String], now_ms: i64) {
        for account in accounts {
            self.account_mut(account).renew(node, now_ms);
        }
    }

    pub(crate) fn release(&mut self, node: &NodeId, account: &str) {
        self.account_mut(account).release(node);
    }

    pub(crate) fn account(&self, id: &str, now_ms: i64) -> Option<AccountView> {
        self.accounts.get(id)?.view(id, now_ms)
    }

    pub(crate) fn operation(&self, account: &str, id: &OperationId) -> Option<NanoUsd> {
        self.accounts.get(account)?.operations().amount(id)
    }

    pub(crate) fn take_notices(&mut self, account: &str, pause_ms: i64, now_ms: i64) -> TakenNotices {
        self.account_mut(account).notices_mut().claim_due(pause_ms, now_ms)
    }

    pub(crate) fn remove_acknowledged(&mut self, account: &str, told: &[NoticeId]) {
        self.account_mut(account).notices_mut().acknowledge(told);
    }

    pub(crate) fn accounts(&self, after: Option<&str>, limit: usize, now_ms: i64) -> Vec<AccountView> {
        let behind = self.accounts.iter().filter(|(id, _)| Some(id.as_str()) > after);
        let views = behind.filter_map(|(id, account)| account.view(id, now_ms));
        views.take(limit).collect()
    }

    pub(crate) fn key_spend(&self, account: &str, key: &KeyId, now_ms: i64) -> KeySpend {
        let account = self.accounts.get(account);
        account.map_or_else(KeySpend::default, |account| account.key_spend(key, now_ms))
    }

    pub(crate) fn spent(&self, account: &str, period: Period) -> SpendByKey {
        let account = self.accounts.get(account);
        account.map_or_else(SpendByKey::new, |account| account.spend_by_key(period))
    }

    pub(crate) fn sums(&self, account: &str, days: &RangeInclusive<i64>, of: &SumSelector) -> Vec<DailySum> {
        self.sums
            .get(account)
            .map_or_else(Vec::new, |sums| sums.select(days, of))
    }

    pub(crate) fn summed(&self, account: &str) -> BTreeMap<NodeId, u64> {
        let summary = self.accounts.get(account).and_then(Account::summary);
        summary.map(|summary| summary.summed.clone()).unwrap_or_default()
    }

    pub(crate) fn put_sums(&mut self, account: &str, day: i64, sums: &DailySums, seen: u64) -> bool {
        let of_account = self.sums(account, &(day..=day), &SumSelector::One(SumSubject::Account));
        let requests: u64 = of_account.iter().map(|sum| sum.sums.requests).sum();
        if !self.is_there(account) || requests != seen {
            return false;
        }
        let of_day: Vec<DailySum> = sums.iter().filter(|sum| sum.day == day).collect();
        let tags = of_day.iter().filter_map(|sum| match &sum.subject {
            SumSubject::Tag(tag) => Some(tag.clone()),
            SumSubject::Account | SumSubject::Key(_) | SumSubject::OtherTags => None,
        });
        self.tags.insert((account.to_owned(), day), tags.collect());
        let kept = self.sums.entry(account.to_owned()).or_default();
        *kept = kept.iter().filter(|sum| sum.day != day).chain(of_day).collect();
        true
    }

    pub(crate) fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Vec<LogDay> {
        let of = |day| {
            let rows = self.rows.get(&(account.to_owned(), day)).map_or(0, Vec::len);
            LogDay { day, rows: rows as u64 }
        };
        days.map(of).filter(|day| day.rows > 0).collect()
    }

    pub(crate) fn put_rows(&mut self, account: &str, day: i64, rows: &[Row]) -> bool {
        let is_there = self.is_there(account);
        if is_there {
            let of_day = self.rows.entry((account.to_owned(), day)).or_default();
            of_day.extend_from_slice(rows);
        }
        is_there
    }

    pub(crate) fn remove(&mut self, account: &str, seen: &LogDay) -> bool {
        let place = (account.to_owned(), seen.day);
        let rows = self.rows.get(&place).map_or(0, Vec::len);
        let is_same = self.is_there(account) && rows as u64 == seen.rows;
        if is_same {
            self.rows.remove(&place);
        }
        is_same
    }

    pub(crate) fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Vec<Row> {
        let rows = self.rows.get(&(account.to_owned(), day));
        rows.into_iter().flatten().skip(skip).take(limit).cloned().collect()
    }
}
