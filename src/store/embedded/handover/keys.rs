//! Keys and sessions of a store that may be handed over.

use async_trait::async_trait;
use tokio::sync::watch;

use super::{HandoverStore, Owner, call::Call, elsewhere};
use crate::domain::keys::{
    change::{KeyChange, MadeFrom},
    key::{KeyId, KeyRecord},
    secret::KeyDigest,
};
use crate::domain::wire::{provider_state::StateKey, session_hint::ServedBy};
use crate::store::{ChangeError, Changes, KeyHealer, KeyStore, KeyView, Lookup, StoreError, sessions::SessionStore};

#[async_trait]
impl KeyStore for HandoverStore {
    async fn find(&self, digest: &KeyDigest) -> Result<Lookup, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.keys.find(digest).await,
            Owner::Successor(successor) => successor.ask(&Call::Find(*digest)).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        self.files().await?.keys.create(digest, record).await
    }

    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError> {
        self.files().await?.keys.by_id(id).await
    }

    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError> {
        self.files().await?.keys.list(after, limit).await
    }

    async fn change(&self, id: &KeyId, change: &KeyChange, from: &MadeFrom) -> Result<KeyView, ChangeError> {
        self.files().await?.keys.change(id, change, from).await
    }

    async fn delete(&self, id: &KeyId, from: &MadeFrom) -> Result<Option<KeyView>, ChangeError> {
        self.files().await?.keys.delete(id, from).await
    }

    async fn touch(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.keys.touch(used).await,
            Owner::Successor(successor) => successor.ask(&Call::Touch(used.to_vec())).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.keys.changes_since(version).await,
            Owner::Successor(successor) => successor.ask(&Call::ChangesSince(version)).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    fn nudges(&self) -> watch::Receiver<u64> {
        self.nudges.subscribe()
    }

    fn nudges_all(&self) -> bool {
        // Not while it is being decided who has the files.
        self.owner
            .try_read()
            .is_ok_and(|owner| matches!(*owner, Owner::This(_)))
    }
}

#[async_trait]
impl KeyHealer for HandoverStore {
    async fn heal(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        self.files().await?.keys.heal(digest, record).await
    }

    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        self.files().await?.keys.heal_gone(id, revision).await
    }
}

#[async_trait]
impl SessionStore for HandoverStore {
    async fn recall(&self, states: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.keys.recall(states).await,
            Owner::Successor(successor) => successor.ask(&Call::Recall(states.to_vec())).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }

    async fn remember(&self, served: &[(StateKey, ServedBy)], now: i64) -> Result<(), StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.keys.remember(served, now).await,
            Owner::Successor(successor) => successor.ask(&Call::Remember(served.to_vec(), now)).await,
            Owner::Nobody => Err(elsewhere()),
        }
    }
}
