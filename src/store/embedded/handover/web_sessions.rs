//! People's sessions of a store that may be handed over. A process that ends serves no pages any more: nothing of them is
//! asked of its successor.

use async_trait::async_trait;

use super::HandoverStore;
use crate::store::{
    StoreError,
    web_sessions::{Lifetime, ListedWebSession, SessionDigest, WebSessionStore},
};

#[async_trait]
impl WebSessionStore for HandoverStore {
    async fn begin(&self, id: &SessionDigest, who: &str, lasts: Lifetime) -> Result<(), StoreError> {
        self.files().await?.keys.begin(id, who, lasts).await
    }

    async fn visit(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        self.files().await?.keys.visit(id).await
    }

    async fn end(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        self.files().await?.keys.end(id).await
    }

    async fn list_web_sessions(&self, most: usize) -> Result<Vec<ListedWebSession>, StoreError> {
        self.files().await?.keys.list_web_sessions(most).await
    }
}
