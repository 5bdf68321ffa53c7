//! A ledger that can be away.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            AccountRecord, AccountView, AdmitCall, AdmitReply, KeySpend, NodeId, OperationId, SpendByKey, Step, TopUp,
            TopUpReply,
            account::notices::{NoticeId, TakenNotices},
            daily_sums::{DailySum, DailySums, SumSelector},
            lease::{LeaseCall, LeaseReply},
            period::Period,
        },
        money::NanoUsd,
    },
    store::{
        StoreError,
        ledger::{LedgerStore, contract::memory},
    },
};

/// What becomes of admissions, top-ups, renewals and questions; everything else is always answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// They are answered.
    There,
    /// They do not arrive.
    Away,
    /// Admissions are done, and nobody hears of it.
    AnswerLost,
    /// It has too much to do.
    Busy,
    /// It is away for the account that is named so, and renewals of others are done.
    AwayFor(&'static str),
}

/// A ledger that answers, is busy, or is away, as the test says.
pub(super) struct Ledger {
    inner: Arc<dyn LedgerStore>,
    way: Mutex<Way>,
    /// Admissions need not be asked for.
    at_hand: AtomicBool,
    /// Questions about leases that it has answered.
    pub(super) of_leases: AtomicUsize,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            inner: memory::ledger(),
            way: Mutex::new(Way::There),
            at_hand: AtomicBool::new(false),
            of_leases: AtomicUsize::new(0),
        }
    }
}

impl Ledger {
    pub(super) fn is(&self, way: Way) {
        *self.way.lock() = way;
    }

    pub(super) fn is_at_hand(&self, at_hand: bool) {
        self.at_hand.store(at_hand, Ordering::Relaxed);
    }

    fn way(&self) -> Way {
        *self.way.lock()
    }
}

fn away() -> StoreError {
    StoreError::Unavailable("away".to_owned())
}

#[async_trait]
impl LedgerStore for Ledger {
    async fn admit(&self, ask: &AdmitCall) -> Result<AdmitReply, StoreError> {
        match self.way() {
            Way::There => self.inner.admit(ask).await,
            Way::AnswerLost => self.inner.admit(ask).await.and(Err(away())),
            Way::Away => Err(away()),
            Way::Busy => Err(StoreError::Busy("4096".to_owned())),
            Way::AwayFor(account) if account == ask.key.account => self.inner.admit(ask).await.and(Err(away())),
            Way::AwayFor(_) => self.inner.admit(ask).await,
        }
    }

    fn admit_now(&self, ask: &AdmitCall) -> Option<AdmitReply> {
        let is_there = self.at_hand.load(Ordering::Relaxed) && self.way() == Way::There;
        is_there.then(|| self.inner.admit_now(ask)).flatten()
    }

    async fn top_up(&self, ask: &TopUp) -> Result<TopUpReply, StoreError> {
        match self.way() {
            Way::There | Way::AnswerLost | Way::AwayFor(_) => self.inner.top_up(ask).await,
            Way::Away | Way::Busy => Err(away()),
        }
    }

    async fn lease(&self, ask: &LeaseCall) -> Result<LeaseReply, StoreError> {
        match self.way() {
            Way::There | Way::AwayFor(_) => {
                let answer = self.inner.lease(ask).await;
                self.of_leases.fetch_add(1, Ordering::Relaxed);
                answer
            }
            Way::AnswerLost => self.inner.lease(ask).await.and(Err(away())),
            Way::Away | Way::Busy => Err(away()),
        }
    }

    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step], upto: u64) -> Result<u64, StoreError> {
        self.inner.apply(node, account, steps, upto).await
    }

    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError> {
        self.inner.set_terms(account, from, to).await
    }

    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError> {
        self.inner.watermark(node, account).await
    }

    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError> {
        match self.way() {
            Way::AwayFor(account) => {
                let others: Vec<String> = accounts.iter().filter(|name| *name != account).cloned().collect();
                let renewed = self.inner.renew(node, &others).await;
                if others.len() < accounts.len() {
                    Err(away())
                } else {
                    renewed
                }
            }
            Way::There => self.inner.renew(node, accounts).await,
            Way::AnswerLost | Way::Away | Way::Busy => Err(away()),
        }
    }

    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError> {
        self.inner.release(node, account).await
    }

    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError> {
        match self.way() {
            Way::Away => Err(away()),
            Way::There | Way::AnswerLost | Way::Busy | Way::AwayFor(_) => self.inner.account(id).await,
        }
    }

    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError> {
        self.inner.accounts(after, limit).await
    }

    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError> {
        match self.way() {
            Way::Away => Err(away()),
            Way::There | Way::AnswerLost | Way::Busy | Way::AwayFor(_) => self.inner.key_spend(account, key).await,
        }
    }

    async fn spent(&self, account: &str, period: Period) -> Result<SpendByKey, StoreError> {
        self.inner.spent(account, period).await
    }

    async fn sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError> {
        self.inner.sums(account, days, of).await
    }

    async fn summed_up_to(&self, account: &str) -> Result<BTreeMap<NodeId, u64>, StoreError> {
        self.inner.summed_up_to(account).await
    }

    async fn put_sums(&self, account: &str, day: i64, sums: &DailySums, seen: u64) -> Result<bool, StoreError> {
        self.inner.put_sums(account, day, sums, seen).await
    }

    async fn operation_amount(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError> {
        self.inner.operation_amount(account, id).await
    }

    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError> {
        self.inner.take_notices(account, pause_ms).await
    }

    async fn acknowledge_notices(&self, account: &str, told: &[NoticeId]) -> Result<(), StoreError> {
        self.inner.acknowledge_notices(account, told).await
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        match self.way() {
            Way::Away => Err(away()),
            Way::There | Way::AnswerLost | Way::Busy | Way::AwayFor(_) => self.inner.now_ms().await,
        }
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.inner.epochs()
    }
}
