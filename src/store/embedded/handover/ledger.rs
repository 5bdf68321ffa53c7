//! The ledger, the public record and the backups of a store that may be handed over.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

use super::{HandoverStore, Owner, call::Call, elsewhere};
use crate::domain::{
    faults::stability::{Bucket, Hour, Share},
    keys::key::KeyId,
    ledger::{
        AccountRecord, AccountView, Admit, AdmitReply, KeySpend, LogDay, NodeId, OperationId, Spent, Step, TopUp,
        ToppedUp,
        consumption::Row,
        daily_sums::{DailySum, SumsOf},
        lease::{AskLease, LeaseAnswer},
        notice::{NoticeOf, TakenNotices},
        period::Period,
    },
    money::NanoUsd,
};
use crate::store::{
    StoreError,
    archive::{Archive, Item},
    ledger::LedgerStore,
    stability::StabilityStore,
};

#[async_trait]
impl LedgerStore for HandoverStore {
    async fn admit(&self, ask: &Admit) -> Result<AdmitReply, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.admit(ask).await,
            Owner::Successor(successor) => successor.ask(&Call::Admit(Box::new(ask.clone()))).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    fn admit_now(&self, ask: &Admit) -> Option<AdmitReply> {
        match &*self.owner.try_read().ok()? {
            Owner::This(files) => files.ledger.admit_now(ask),
            Owner::Successor(_) | Owner::Nobody => None,
        }
    }

    async fn top_up(&self, ask: &TopUp) -> Result<ToppedUp, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.top_up(ask).await,
            Owner::Successor(successor) => successor.ask(&Call::TopUp(Box::new(ask.clone()))).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn lease(&self, ask: &AskLease) -> Result<LeaseAnswer, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.lease(ask).await,
            Owner::Successor(successor) => successor.ask(&Call::Lease(Box::new(ask.clone()))).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step]) -> Result<u64, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.apply(node, account, steps).await,
            Owner::Successor(successor) => {
                let call = Call::Apply(node.clone(), account.to_owned(), steps.to_vec());
                successor.ask(&call).await
            }
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError> {
        self.files().await?.ledger.set_terms(account, from, to).await
    }

    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.watermark(node, account).await,
            Owner::Successor(successor) => {
                let call = Call::Watermark(node.clone(), account.to_owned());
                successor.ask(&call).await
            }
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.renew(node, accounts).await,
            Owner::Successor(successor) => successor.ask(&Call::Renew(node.clone(), accounts.to_vec())).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.release(node, account).await,
            Owner::Successor(successor) => {
                let call = Call::Release(node.clone(), account.to_owned());
                successor.ask(&call).await
            }
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError> {
        self.files().await?.ledger.account(id).await
    }

    async fn operation(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.operation(account, id).await,
            Owner::Successor(successor) => {
                let call = Call::Operation(account.to_owned(), id.clone());
                successor.ask(&call).await
            }
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError> {
        self.files().await?.ledger.accounts(after, limit).await
    }

    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError> {
        self.files().await?.ledger.key_spend(account, key).await
    }

    async fn spent(&self, account: &str, period: Period) -> Result<Spent, StoreError> {
        self.files().await?.ledger.spent(account, period).await
    }

    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.files().await?.ledger.rows(account, day, skip, limit).await
    }

    async fn sums(&self, account: &str, days: RangeInclusive<i64>, of: &SumsOf) -> Result<Vec<DailySum>, StoreError> {
        self.files().await?.ledger.sums(account, days, of).await
    }

    async fn resum(&self, account: &str, day: i64) -> Result<(), StoreError> {
        self.files().await?.ledger.resum(account, day).await
    }

    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError> {
        self.files().await?.ledger.log_days(account, days).await
    }

    async fn trim(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError> {
        self.files().await?.ledger.trim(account, seen).await
    }

    async fn put_rows(&self, account: &str, day: i64, rows: &[Row]) -> Result<bool, StoreError> {
        self.files().await?.ledger.put_rows(account, day, rows).await
    }

    async fn take_turn(&self, task: &str, node: &NodeId, for_ms: i64) -> Result<bool, StoreError> {
        self.files().await?.ledger.take_turn(task, node, for_ms).await
    }

    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError> {
        self.files().await?.ledger.take_notices(account, pause_ms).await
    }

    async fn told(&self, account: &str, told: &[NoticeOf]) -> Result<(), StoreError> {
        self.files().await?.ledger.told(account, told).await
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        // Both processes are on this machine.
        Ok((self.now_ms)())
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}

#[async_trait]
impl StabilityStore for HandoverStore {
    async fn tell(&self, node: &NodeId, shares: &[Share]) -> Result<(), StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.tell(node, shares).await,
            Owner::Successor(successor) => successor.ask(&Call::Tell(node.clone(), shares.to_vec())).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, Bucket>, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.buckets(first, last).await,
            Owner::Successor(successor) => successor.ask(&Call::Buckets(first, last)).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}

/// Keys first, then accounts with their log.
#[async_trait]
impl Archive for HandoverStore {
    async fn dump(&self, to: mpsc::Sender<Item>) -> Result<(), StoreError> {
        let _backup = self.backup.lock().await;
        // Other calls, and who waits for them to end, do not wait for the client.
        let files = self.files().await?.clone();
        files.keys.dump(to.clone()).await?;
        files.ledger.dump(to).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        let files = self.files().await?;
        Ok(Archive::is_empty(&*files.keys).await? && Archive::is_empty(&*files.ledger).await?)
    }

    async fn load(&self, items: &[Item]) -> Result<(), StoreError> {
        let files = self.files().await?;
        files.keys.load(items).await?;
        files.ledger.load(items).await
    }
}
