//! Sign-ins of a store that may be handed over. Nobody signs in at a process that ends.

use async_trait::async_trait;

use super::HandoverStore;
use crate::domain::keys::secret::KeyDigest;
use crate::store::StoreError;
use crate::store::sign_ins::{DocumentChange, SignInStore};

#[async_trait]
impl SignInStore for HandoverStore {
    async fn document(&self, name: &KeyDigest) -> Result<Option<String>, StoreError> {
        self.files().await?.keys.document(name).await
    }

    async fn exchange(&self, change: &DocumentChange) -> Result<bool, StoreError> {
        self.files().await?.keys.exchange(change).await
    }
}
