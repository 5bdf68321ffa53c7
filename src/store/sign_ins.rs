//! The storage of sign-ins.

use async_trait::async_trait;

use crate::domain::keys::secret::KeyDigest;
use crate::store::StoreError;

/// The maximum number of documents in an embedded store, some kilobytes each at most; beyond it nobody can sign in.
pub(crate) const EMBEDDED_DOCUMENTS_MAX: usize = 100_000;

/// The documents of sign-ins: texts under digests, shared by all nodes and kept for a while.
///
/// Access tokens are documents too; [`KeyStore::find`](crate::store::KeyStore::find) returns them, and the feed names those
/// that end, so that they are cached as keys are. Backups do not include documents: after a restore people sign in again.
#[async_trait]
pub(crate) trait SignInStore: Send + Sync {
    /// The document of this name, as long as it is kept.
    async fn document(&self, name: &KeyDigest) -> Result<Option<String>, StoreError>;

    /// Makes a change in one atomic step, if the documents that it depends on are as expected. `false` if one is not; then
    /// nothing has changed. An acknowledged change is durable by the engine's own measure.
    async fn exchange(&self, change: &DocumentChange) -> Result<bool, StoreError>;
}

/// A change of documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentChange {
    /// The documents that must exist before, with this text; `None` for one that must not exist.
    pub expected: Vec<(KeyDigest, Option<String>)>,
    /// The documents that exist afterwards, each for a number of seconds, at least 1.
    pub put: Vec<(KeyDigest, String, u64)>,
    /// The documents that are removed.
    pub removed: Vec<KeyDigest>,
    /// The access tokens that end with the change: they are removed, and every node is notified.
    pub ended: Vec<KeyDigest>,
}

/// What every store of sign-ins has to do, whatever its engine.
#[cfg(test)]
pub(crate) mod contract {
    use super::*;
    use crate::domain::keys::key::KeyId;
    use crate::domain::sign_in::access_token::AccessGrant;
    use crate::store::KeyStore;
    use crate::store::contract::{digest, record, until};

    fn put(number: u8, text: &str) -> (KeyDigest, String, u64) {
        (digest(number), text.to_owned(), 1000)
    }

    fn expect(number: u8, text: Option<&str>) -> (KeyDigest, Option<String>) {
        (digest(number), text.map(str::to_owned))
    }

    /// Nothing changes unless everything is as expected, and of two that expect the same one wins.
    pub(crate) async fn documents_change_all_at_once_or_not_at_all(store: &dyn SignInStore) {
        let text = async |number| store.document(&digest(number)).await.unwrap();
        assert_eq!(text(1).await, None);
        let first = DocumentChange {
            expected: vec![expect(1, None)],
            put: vec![put(1, "one"), put(2, "two")],
            ..DocumentChange::default()
        };
        assert_eq!(store.exchange(&first).await, Ok(true));
        assert_eq!(store.exchange(&first).await, Ok(false), "it is there by now");
        let other = DocumentChange {
            expected: vec![expect(1, Some("one")), expect(2, Some("another"))],
            put: vec![put(1, "changed"), put(3, "three")],
            removed: vec![digest(2)],
            ..DocumentChange::default()
        };
        assert_eq!(store.exchange(&other).await, Ok(false));
        assert_eq!(
            (text(1).await, text(2).await, text(3).await),
            (Some("one".to_owned()), Some("two".to_owned()), None)
        );
        let right = DocumentChange {
            expected: vec![expect(1, Some("one")), expect(2, Some("two")), expect(3, None)],
            ..other
        };
        let (one, two) = tokio::join!(store.exchange(&right), store.exchange(&right));
        assert!(one.unwrap() != two.unwrap(), "one of them was first");
        assert_eq!(
            (text(1).await, text(2).await, text(3).await),
            (Some("changed".to_owned()), None, Some("three".to_owned()))
        );
    }

    /// A document is there for its time only.
    pub(crate) async fn a_document_ends_with_its_time(store: &dyn SignInStore) {
        let short = DocumentChange {
            put: vec![(digest(1), "short".to_owned(), 1), put(2, "long")],
            ..DocumentChange::default()
        };
        assert_eq!(store.exchange(&short).await, Ok(true));
        let text = async |number| store.document(&digest(number)).await.unwrap();
        until("its time is over", async || text(1).await.is_none()).await;
        assert_eq!(text(2).await, Some("long".to_owned()));
        let anew = DocumentChange {
            expected: vec![expect(1, None)],
            put: vec![put(1, "anew")],
            ..DocumentChange::default()
        };
        assert_eq!(store.exchange(&anew).await, Ok(true));
    }

    /// A token is found where keys are, is no key, and every node hears of its end.
    pub(crate) async fn an_access_token_is_found_until_it_ends(store: &(impl SignInStore + KeyStore)) {
        store.create(&digest(1), &record(1, 100)).await.unwrap();
        let grant = AccessGrant {
            key: KeyId::parse("key_0000000000000001").unwrap(),
            digest: digest(1),
            sign_in: "a".to_owned(),
            until: 7000,
        };
        let issued = DocumentChange {
            put: vec![put(9, &serde_json::to_string(&grant).unwrap()), put(8, "no grant")],
            ..DocumentChange::default()
        };
        let before = store.find(&digest(9)).await.unwrap();
        assert_eq!((before.record, before.token), (None, None));
        assert_eq!(store.exchange(&issued).await, Ok(true));
        let found = store.find(&digest(9)).await.unwrap();
        assert_eq!(
            (found.record, found.token, found.version),
            (None, Some(grant), before.version)
        );
        let key = store.find(&digest(1)).await.unwrap();
        assert!(key.record.is_some() && key.token.is_none());
        assert_eq!(store.find(&digest(8)).await.unwrap().token, None, "another document");
        let mut nudges = store.nudges();
        nudges.mark_unchanged();
        let ending = DocumentChange {
            removed: vec![digest(8)],
            ended: vec![digest(9), digest(10)],
            ..DocumentChange::default()
        };
        assert_eq!(store.exchange(&ending).await, Ok(true));
        assert_eq!(store.find(&digest(9)).await.unwrap().token, None);
        let changes = store.changes_since(before.version).await.unwrap();
        assert_eq!(changes.digests, Some(vec![digest(9), digest(10)]));
        until("a nudge", async || nudges.has_changed().unwrap()).await;
    }
}
