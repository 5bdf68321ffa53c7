//! A store that is away, late, loses answers and forgets, as it is told to.

use std::ops::RangeInclusive;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    domain::{
        keys::{KeyId, KeyRecord, secret::KeyDigest},
        ledger::{
            AccountChange, AccountRecord, AccountView, AdmitCall, AdmitReply, KeySpend, NodeId, OperationId,
            SpendByKey, Step, TopUp, TopUpReply,
            account::notices::{NoticeId, TakenNotices},
            daily_sums::{DailySum, DailySums, SumSelector},
            lease::{LeaseCall, LeaseReply},
            period::Period,
        },
        money::NanoUsd,
    },
    store::{
        KeyHealer, StoreError,
        ledger::{APPLY_STEPS_MAX, LedgerStore},
    },
};

/// How the next calls end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Away,
    ReplyLost,
    Late,
    /// The effect comes at once, its answer late.
    LateReply,
    Corrupt,
}

/// What becomes of the answer of a call that had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Comes,
    ComesLate,
    IsLost,
}

impl Reply {
    async fn of<T>(self, value: T) -> Result<T, StoreError> {
        match self {
            Self::Comes => Ok(value),
            Self::ComesLate => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok(value)
            }
            Self::IsLost => unasked(),
        }
    }
}

#[derive(Default)]
pub(super) struct Inner {
    applied: BTreeMap<String, Vec<Step>>,
    pub(super) faults: Vec<Fault>,
    pub(super) healed: BTreeSet<String>,
    pub(super) records: BTreeMap<String, AccountRecord>,
    /// How many of the next records find that another one came before.
    pub(super) conflicts: usize,
}

pub(super) struct Store {
    pub(super) inner: Mutex<Inner>,
    pub(super) epoch: watch::Sender<u64>,
}

impl Store {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            epoch: watch::Sender::new(0),
        })
    }

    /// The fault of this call, if it has one before its effect, or what becomes of its answer.
    async fn fault(&self) -> Result<Reply, StoreError> {
        let fault = self.inner.lock().faults.pop();
        match fault {
            Some(Fault::Away) => Err(StoreError::Unavailable("away".to_owned())),
            Some(Fault::Corrupt) => Err(StoreError::Corrupt("odd".to_owned())),
            Some(Fault::Late) => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok(Reply::Comes)
            }
            Some(Fault::ReplyLost) => Ok(Reply::IsLost),
            Some(Fault::LateReply) => Ok(Reply::ComesLate),
            None => Ok(Reply::Comes),
        }
    }

    pub(super) fn forget(&self, account: &str, keep: usize, tell: bool) {
        let mut inner = self.inner.lock();
        if let Some(steps) = inner.applied.get_mut(account) {
            steps.truncate(keep);
        }
        drop(inner);
        if tell {
            self.epoch.send_modify(|epoch| *epoch += 1);
        }
    }

    pub(super) fn amounts(&self, account: &str) -> Vec<(u64, i64)> {
        let inner = self.inner.lock();
        let steps = inner.applied.get(account).map_or(&[][..], Vec::as_slice);
        let amount = |step: &Step| match &step.change {
            AccountChange::Credit { amount, .. } => (step.seq, amount.nanos()),
            other => panic!("nobody sent {other:?}"),
        };
        steps.iter().map(amount).collect()
    }
}

fn view(id: &str, record: AccountRecord) -> AccountView {
    AccountView {
        id: id.to_owned(),
        balance: NanoUsd::ZERO,
        spent: NanoUsd::ZERO,
        held: NanoUsd::ZERO,
        running: 0,
        record,
        paid_today: NanoUsd::ZERO,
        paid_this_month: NanoUsd::ZERO,
        created_at: 0,
    }
}

fn unasked<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("not part of the test".to_owned()))
}

#[async_trait]
impl LedgerStore for Store {
    async fn admit(&self, _: &AdmitCall) -> Result<AdmitReply, StoreError> {
        unasked()
    }
    async fn top_up(&self, _: &TopUp) -> Result<TopUpReply, StoreError> {
        unasked()
    }
    async fn lease(&self, _: &LeaseCall) -> Result<LeaseReply, StoreError> {
        unasked()
    }
    async fn apply(&self, _: &NodeId, account: &str, steps: &[Step], _: u64) -> Result<u64, StoreError> {
        assert!(steps.len() <= APPLY_STEPS_MAX);
        let reply = self.fault().await?;
        let watermark = {
            let mut inner = self.inner.lock();
            let applied = inner.applied.entry(account.to_owned()).or_default();
            for step in steps {
                if step.seq == applied.len() as u64 + 1 {
                    applied.push(step.clone());
                } else if step.seq > applied.len() as u64 {
                    break;
                }
            }
            applied.len() as u64
        };
        reply.of(watermark).await
    }
    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError> {
        let reply = self.fault().await?;
        let is_set = {
            let mut inner = self.inner.lock();
            if inner.conflicts > 0 {
                inner.conflicts -= 1;
                return Ok(false);
            }
            let present = inner.records.entry(account.to_owned()).or_default();
            let is_from = *present == *from;
            if is_from {
                *present = *to;
            }
            is_from || *present == *to
        };
        reply.of(is_set).await
    }
    async fn watermark(&self, _: &NodeId, account: &str) -> Result<u64, StoreError> {
        let reply = self.fault().await?;
        let watermark = self.inner.lock().applied.get(account).map_or(0, Vec::len) as u64;
        reply.of(watermark).await
    }
    async fn renew(&self, _: &NodeId, _: &[String]) -> Result<(), StoreError> {
        unasked()
    }
    async fn release(&self, _: &NodeId, _: &str) -> Result<(), StoreError> {
        unasked()
    }
    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError> {
        let reply = self.fault().await?;
        let record = self.inner.lock().records.get(id).copied();
        reply.of(record.map(|record| view(id, record))).await
    }
    async fn accounts(&self, _: Option<&str>, _: usize) -> Result<Vec<AccountView>, StoreError> {
        unasked()
    }
    async fn key_spend(&self, _: &str, _: &KeyId) -> Result<KeySpend, StoreError> {
        unasked()
    }
    async fn spent(&self, _: &str, _: Period) -> Result<SpendByKey, StoreError> {
        unasked()
    }
    async fn sums(&self, _: &str, _: RangeInclusive<i64>, _: &SumSelector) -> Result<Vec<DailySum>, StoreError> {
        unasked()
    }

    async fn summed_up_to(&self, _: &str) -> Result<BTreeMap<NodeId, u64>, StoreError> {
        unasked()
    }

    async fn put_sums(&self, _: &str, _: i64, _: &DailySums, _: u64) -> Result<bool, StoreError> {
        unasked()
    }

    async fn operation_amount(&self, _: &str, _: &OperationId) -> Result<Option<NanoUsd>, StoreError> {
        unasked()
    }

    async fn take_notices(&self, _: &str, _: i64) -> Result<TakenNotices, StoreError> {
        unasked()
    }

    async fn acknowledge_notices(&self, _: &str, _: &[NoticeId]) -> Result<(), StoreError> {
        unasked()
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        unasked()
    }
    fn epochs(&self) -> watch::Receiver<u64> {
        self.epoch.subscribe()
    }
}

#[async_trait]
impl KeyHealer for Store {
    async fn heal(&self, _: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        self.fault().await?;
        self.inner.lock().healed.insert(record.id.to_string());
        Ok(())
    }
    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        self.fault().await?;
        self.inner.lock().healed.insert(format!("{id} gone {revision}"));
        Ok(())
    }
}
