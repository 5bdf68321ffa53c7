//! The reference model as a store of its own. The tests and the random program are run with it first.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Failover, Fixture, TestClock, ledger_suite, lists_suite, model::Model};
use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            AccountRecord, AccountView, AdmitCall, AdmitReply, KeySpend, LogDay, NodeId, OperationId, SpendByKey, Step,
            TopUp, TopUpReply,
            consumption::Row,
            daily_sums::{DailySum, DailySums, SumSelector},
            lease::{LeaseCall, LeaseReply},
            notice::{NoticeId, TakenNotices},
            period::Period,
        },
        money::NanoUsd,
    },
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore, LogLists},
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
