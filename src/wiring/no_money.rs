//! A ledger that is not there: what the admin API has until an engine's ledger and the journal are put in its place.

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    account_changes::{AccountChanges, ChangeError, Submitted},
    domain::{
        consumption::Row,
        key::{KeyId, KeyRecord},
        ledger::{AccountView, Admission, Admit, Change, KeySpend, NodeId, Step, TopUp, ToppedUp},
        secret::KeyDigest,
    },
    store::{StoreError, ledger::LedgerStore},
};

/// Answers to everything that it is unavailable.
#[derive(Clone, Debug, Default)]
pub struct NoMoney;

fn away<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("this weir has no accounts".to_owned()))
}

#[async_trait]
impl LedgerStore for NoMoney {
    async fn admit(&self, _: &Admit) -> Result<Admission, StoreError> {
        away()
    }
    async fn top_up(&self, _: &TopUp) -> Result<ToppedUp, StoreError> {
        away()
    }
    async fn apply(&self, _: &NodeId, _: &str, _: &[Step]) -> Result<u64, StoreError> {
        away()
    }
    async fn watermark(&self, _: &NodeId, _: &str) -> Result<u64, StoreError> {
        away()
    }
    async fn renew(&self, _: &NodeId, _: &[String]) -> Result<(), StoreError> {
        away()
    }
    async fn release(&self, _: &NodeId, _: &str) -> Result<(), StoreError> {
        away()
    }
    async fn account(&self, _: &str) -> Result<Option<AccountView>, StoreError> {
        away()
    }
    async fn accounts(&self, _: Option<&str>, _: usize) -> Result<Vec<AccountView>, StoreError> {
        away()
    }
    async fn key_spend(&self, _: &str, _: &KeyId) -> Result<KeySpend, StoreError> {
        away()
    }
    async fn rows(&self, _: &str, _: i64, _: usize, _: usize) -> Result<Vec<Row>, StoreError> {
        away()
    }
    fn epochs(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

#[async_trait]
impl AccountChanges for NoMoney {
    async fn submit(&self, _: &str, _: Change) -> Result<Submitted, ChangeError> {
        Err(ChangeError("there is none".to_owned()))
    }
    async fn key_changed(&self, _: &KeyDigest, _: &KeyRecord) -> Result<(), ChangeError> {
        Ok(())
    }
    async fn key_gone(&self, _: &KeyId, _: u64) -> Result<(), ChangeError> {
        Ok(())
    }
}
