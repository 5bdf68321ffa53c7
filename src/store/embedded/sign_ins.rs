//! The sign-in documents in the embedded store: changed first in its file, then in memory.

use async_trait::async_trait;

use super::database::unavailable;
use super::file::{DOCUMENTS, StoreFile};
use super::{EmbeddedStore, StoreInner};
use crate::domain::keys::secret::KeyDigest;
use crate::edges::clock;
use crate::store::StoreError;
use crate::store::sign_ins::{DocumentChange, EMBEDDED_DOCUMENTS_MAX, SignInStore};

impl StoreInner {
    fn exchange(&self, change: &DocumentChange, now: i64, most: usize) -> Result<bool, StoreError> {
        let file = self.file.lock();
        let going = {
            let documents = self.documents.read();
            if !documents.is_as_expected(change, now) {
                return Ok(false);
            }
            let going = documents.obsolete(change, now);
            let added = documents.count_added(change);
            if added > 0 && documents.kept.len() + added > most + going.len() {
                let why = format!("the maximum of {most} sign-in documents is reached");
                return Err(StoreError::Busy(why));
            }
            going
        };
        file.commit_documents(&going, &change.put, now)?;
        let mut documents = self.documents.write();
        for name in going {
            documents.kept.remove(&name);
        }
        for (name, text, seconds) in &change.put {
            let until = now.saturating_add_unsigned(*seconds);
            documents.kept.insert(*name, (until, text.clone()));
        }
        drop(documents);
        if !change.ended.is_empty() {
            let version = self.index.write().announce_ended(change.ended.clone());
            self.nudge.send_replace(version);
        }
        Ok(true)
    }
}

impl StoreFile {
    /// Makes a change durable.
    fn commit_documents(
        &self,
        going: &[KeyDigest],
        put: &[(KeyDigest, String, u64)],
        now: i64,
    ) -> Result<(), StoreError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.begin_write()?;
            {
                let mut documents = transaction.open_table(DOCUMENTS)?;
                for name in going {
                    documents.remove(name.as_bytes().as_slice())?;
                }
                for (name, text, seconds) in put {
                    let until = now.saturating_add_unsigned(*seconds);
                    documents.insert(name.as_bytes().as_slice(), (until, text.as_str()))?;
                }
            }
            Ok(transaction.commit()?)
        };
        write().map_err(unavailable)
    }
}

#[async_trait]
impl SignInStore for EmbeddedStore {
    async fn document(&self, name: &KeyDigest) -> Result<Option<String>, StoreError> {
        let here = self.ownership.here().await?;
        let documents = here.documents.read();
        Ok(documents.text(name, clock::unix_seconds()).map(str::to_owned))
    }

    async fn exchange(&self, change: &DocumentChange) -> Result<bool, StoreError> {
        let change = change.clone();
        self.run_blocking(move |inner| inner.exchange(&change, clock::unix_seconds(), EMBEDDED_DOCUMENTS_MAX))
            .await
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::store::sign_ins::contract;

    fn put(number: u8, seconds: u64) -> DocumentChange {
        DocumentChange {
            put: vec![(KeyDigest::from_bytes([number; 32]), "text".to_owned(), seconds)],
            ..DocumentChange::default()
        }
    }

    #[tokio::test]
    async fn the_contract_holds() {
        for behaviour in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let store = EmbeddedStore::open(folder.path()).unwrap();
            match behaviour {
                0 => contract::documents_change_all_at_once_or_not_at_all(&store).await,
                1 => contract::a_document_ends_with_its_time(&store).await,
                _ => contract::an_access_token_is_found_until_it_ends(&store).await,
            }
        }
    }

    #[tokio::test]
    async fn documents_are_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(folder.path()).unwrap();
        assert_eq!(store.exchange(&put(1, 1000)).await, Ok(true));
        drop(store);
        let store = EmbeddedStore::open(folder.path()).unwrap();
        let text = store.document(&KeyDigest::from_bytes([1; 32])).await.unwrap();
        assert_eq!(text.as_deref(), Some("text"));
    }

    #[test]
    fn beyond_the_most_nothing_is_put_until_something_ends() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreInner::open(folder.path(), watch::channel(0).0).unwrap();
        let exchange = |change: &DocumentChange, now| store.exchange(change, now, 2);
        assert_eq!(exchange(&put(1, 10), 0), Ok(true));
        assert_eq!(exchange(&put(2, 20), 0), Ok(true));
        assert!(matches!(exchange(&put(3, 10), 9), Err(StoreError::Busy(_))));
        assert_eq!(exchange(&put(2, 20), 9), Ok(true), "what is there may change");
        assert_eq!(exchange(&put(3, 10), 10), Ok(true), "the first one has ended");
        assert_eq!(store.documents.read().kept.len(), 2);
    }
}
