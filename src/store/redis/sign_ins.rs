//! Sign-in documents and browser sessions in Redis, each with an expiry.

use async_trait::async_trait;

use super::link::CallPolicy;
use super::{ADMIN_BUDGET, RedisStore};
use crate::domain::keys::secret::KeyDigest;
use crate::store::sign_ins::{DocumentChange, SignInStore};
use crate::store::{FEED_CHANGES_MAX, StoreError};

impl RedisStore {
    /// The key of a document.
    pub(super) fn document_key(&self, name: &KeyDigest) -> String {
        format!("{{{}:keys}}:sign-in:{}", self.namespace, name.to_hex())
    }
}

#[async_trait]
impl SignInStore for RedisStore {
    async fn document(&self, name: &KeyDigest) -> Result<Option<String>, StoreError> {
        let mut call = self.prepare(&self.scripts.document);
        call.key(self.document_key(name));
        let text = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.text()?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    async fn exchange(&self, change: &DocumentChange) -> Result<bool, StoreError> {
        let DocumentChange {
            expected,
            put,
            removed,
            ended,
        } = change;
        let mut call = self.prepare(&self.scripts.exchange);
        let removed: Vec<&KeyDigest> = removed.iter().chain(ended).collect();
        let names = expected
            .iter()
            .map(|(name, _)| name)
            .chain(put.iter().map(|(name, ..)| name));
        for name in names.chain(removed.iter().copied()) {
            call.key(self.document_key(name));
        }
        call.arg(FEED_CHANGES_MAX)
            .arg(expected.len())
            .arg(put.len())
            .arg(removed.len())
            .arg(ended.len());
        for (_, text) in expected {
            call.arg(text.as_ref().map_or_else(String::new, |text| format!("={text}")));
        }
        for (_, text, seconds) in put {
            call.arg(*seconds).arg(text);
        }
        for digest in ended {
            call.arg(digest.to_hex());
        }
        Ok(!self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict())
    }
}
