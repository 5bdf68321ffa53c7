//! The sign-in documents and browser sessions of the embedded store. A change is first written to the file, then made in memory.

use std::collections::HashMap;

use async_trait::async_trait;
use redb::{ReadableTable, ReadableTableMetadata, Table};
use serde::{Deserialize, Serialize};

use crate::{
    domain::keys::secret::KeyDigest,
    edges::clock,
    store::{
        StoreError,
        embedded::{
            EmbeddedStore, StoreInner,
            file::{DOCUMENTS, StoreFile, WEB_SESSIONS, unavailable},
        },
        sessions::{
            DocumentChange, EMBEDDED_DOCUMENTS_MAX, EMBEDDED_WEB_SESSIONS_MAX, ListedWebSession, SessionDigest,
            SessionLifetime, SignInStore, VISIT_RECORD_INTERVAL, WebSessionStore,
        },
    },
};

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
                let why = format!("the maximum of {most} sign-in documents is reached: try again later");
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
    /// Writes a change of documents to the file.
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

/// The documents by name, each with the Unix time in seconds at which it expires.
#[derive(Debug, Default)]
pub(super) struct DocumentTable {
    pub(super) kept: HashMap<KeyDigest, (i64, String)>,
}

impl DocumentTable {
    /// Loads all documents of a file. The error describes what cannot be read.
    pub(super) fn load(file: &StoreFile) -> Result<Self, String> {
        let read = || -> Result<Self, redb::Error> {
            let table = file.snapshot()?.open_table(DOCUMENTS)?;
            let mut kept = HashMap::new();
            for entry in table.iter()? {
                let (name, document) = entry?;
                let (until, text) = document.value();
                // weir does not write entries whose name has another length.
                if let Ok(name) = name.value().try_into() {
                    kept.insert(KeyDigest::from_bytes(name), (until, text.to_owned()));
                }
            }
            Ok(Self { kept })
        };
        read().map_err(|error| error.to_string())
    }

    /// Returns the text of a document that has not expired at `now`.
    pub(super) fn text(&self, name: &KeyDigest, now: i64) -> Option<&str> {
        let (until, text) = self.kept.get(name)?;
        (now < *until).then_some(text.as_str())
    }

    /// Whether all documents on which a change depends are as the change expects.
    pub(super) fn is_as_expected(&self, change: &DocumentChange, now: i64) -> bool {
        let mut expected = change.expected.iter();
        expected.all(|(name, text)| self.text(name, now) == text.as_deref())
    }

    /// Returns the number of documents that a change adds.
    pub(super) fn count_added(&self, change: &DocumentChange) -> usize {
        let put = change.put.iter();
        put.filter(|(name, ..)| !self.kept.contains_key(name)).count()
    }

    /// Returns the documents that a change removes: those that it names, and those that have expired.
    pub(super) fn obsolete(&self, change: &DocumentChange, now: i64) -> Vec<KeyDigest> {
        let over = self.kept.iter().filter(|(_, (until, _))| *until <= now);
        let named = change.removed.iter().chain(&change.ended).copied();
        over.map(|(name, _)| *name).chain(named).collect()
    }
}

type WebSessionTable<'t> = Table<'t, &'static [u8], (i64, &'static [u8])>;

#[derive(Debug, Serialize, Deserialize)]
struct StoredSession {
    who: String,
    /// The session's lifetime without a visit, in milliseconds.
    idle_ms: i64,
    /// The time at which the session expires even if there are further visits, in milliseconds since the Unix epoch.
    ends_ms: i64,
}

impl StoredSession {
    /// Returns when the session expires after a visit at `now`, in milliseconds since the Unix epoch.
    fn end_after_visit(&self, now: i64) -> i64 {
        now.saturating_add(self.idle_ms).min(self.ends_ms)
    }
}

fn millis(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn find_session(
    sessions: &WebSessionTable<'_>,
    id: &SessionDigest,
    now: i64,
) -> Result<Option<(i64, StoredSession)>, redb::Error> {
    let found = sessions.get(id.as_bytes().as_slice())?;
    let Some((until, text)) = found
        .as_ref()
        .map(redb::AccessGuard::value)
        .filter(|(until, _)| *until > now)
    else {
        return Ok(None);
    };
    let session = serde_json::from_slice(text).map_err(|error| redb::Error::Io(error.into()))?;
    Ok(Some((until, session)))
}

fn put_session(
    sessions: &mut WebSessionTable<'_>,
    id: &SessionDigest,
    until: i64,
    session: &StoredSession,
) -> Result<(), redb::Error> {
    let text = serde_json::to_vec(session).map_err(|error| redb::Error::Io(error.into()))?;
    sessions.insert(id.as_bytes().as_slice(), (until, text.as_slice()))?;
    Ok(())
}

impl StoreFile {
    /// Changes browser sessions. The change is on disk when this returns.
    fn change_web_sessions<T>(
        &self,
        change: impl FnOnce(&mut WebSessionTable<'_>) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let write = || -> Result<T, redb::Error> {
            let transaction = self.begin_write()?;
            let answer = change(&mut transaction.open_table(WEB_SESSIONS)?)?;
            transaction.commit()?;
            Ok(answer)
        };
        write().map_err(unavailable)
    }

    fn begin_web_session(
        &self,
        id: &SessionDigest,
        who: String,
        lasts: SessionLifetime,
        (now, most): (i64, u64),
    ) -> Result<(), StoreError> {
        self.change_web_sessions(|sessions| {
            let (until, session) = match find_session(sessions, id, now)? {
                Some((until, before)) => (until, StoredSession { who, ..before }),
                None => {
                    let session = StoredSession {
                        who,
                        idle_ms: millis(lasts.idle),
                        ends_ms: now.saturating_add(millis(lasts.whole)),
                    };
                    (session.end_after_visit(now), session)
                }
            };
            put_session(sessions, id, until, &session)?;
            if sessions.len()? <= most {
                return Ok(());
            }
            let mut ends: Vec<i64> = Vec::new();
            for entry in sessions.iter()? {
                ends.push(entry?.1.value().0);
            }
            ends.sort_unstable_by(|one, other| other.cmp(one));
            let last = usize::try_from(most).ok().and_then(|most| ends.get(most).copied());
            let over = last.unwrap_or(now).max(now);
            sessions.retain(|key, (until, _)| until > over || key == id.as_bytes().as_slice())?;
            Ok(())
        })
    }

    fn visit_web_session(&self, id: &SessionDigest, now: i64) -> Result<Option<String>, StoreError> {
        let read = || -> Result<Option<(i64, StoredSession)>, redb::Error> {
            let transaction = self.snapshot()?;
            let sessions = transaction.open_table(WEB_SESSIONS)?;
            let found = sessions.get(id.as_bytes().as_slice())?;
            let found = found.as_ref().map(redb::AccessGuard::value);
            let Some((until, text)) = found.filter(|(until, _)| *until > now) else {
                return Ok(None);
            };
            let session = serde_json::from_slice(text).map_err(|error| redb::Error::Io(error.into()))?;
            Ok(Some((until, session)))
        };
        let Some((until, session)) = read().map_err(unavailable)? else {
            return Ok(None);
        };
        let next = session.end_after_visit(now);
        if next.saturating_sub(until) >= millis(VISIT_RECORD_INTERVAL) {
            self.change_web_sessions(|sessions| put_session(sessions, id, next, &session))?;
        }
        Ok(Some(session.who))
    }

    fn living_web_sessions(&self, most: usize, now: i64) -> Result<Vec<ListedWebSession>, StoreError> {
        let read = || -> Result<Vec<ListedWebSession>, redb::Error> {
            let transaction = self.snapshot()?;
            let mut living = Vec::new();
            for entry in transaction.open_table(WEB_SESSIONS)?.iter()? {
                let (id, session) = entry?;
                let (until, text) = session.value();
                let Some(id) = SessionDigest::from_bytes(id.value()).filter(|_| until > now) else {
                    continue;
                };
                let session: StoredSession =
                    serde_json::from_slice(text).map_err(|error| redb::Error::Io(error.into()))?;
                living.push(ListedWebSession {
                    id,
                    who: session.who,
                    idle_ends_ms: until,
                    ends_ms: session.ends_ms,
                });
            }
            Ok(living)
        };
        let mut living = read().map_err(unavailable)?;
        living.sort_by_key(|session| std::cmp::Reverse(session.idle_ends_ms));
        living.truncate(most);
        Ok(living)
    }

    fn end_web_session(&self, id: &SessionDigest, now: i64) -> Result<Option<String>, StoreError> {
        self.change_web_sessions(|sessions| {
            let found = find_session(sessions, id, now)?;
            sessions.remove(id.as_bytes().as_slice())?;
            Ok(found.map(|(_, session)| session.who))
        })
    }
}

impl EmbeddedStore {
    async fn with_web_sessions<T: Send + 'static>(
        &self,
        work: impl FnOnce(&StoreFile, i64) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_blocking(move |inner| work(&inner.file.lock(), clock::unix_millis()))
            .await
    }
}

#[async_trait]
impl WebSessionStore for EmbeddedStore {
    async fn begin(&self, id: &SessionDigest, who: &str, lasts: SessionLifetime) -> Result<(), StoreError> {
        let (id, who) = (*id, who.to_owned());
        let most = EMBEDDED_WEB_SESSIONS_MAX;
        self.with_web_sessions(move |file, now| file.begin_web_session(&id, who, lasts, (now, most)))
            .await
    }

    async fn visit(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        let id = *id;
        self.with_web_sessions(move |file, now| file.visit_web_session(&id, now))
            .await
    }

    async fn end(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        let id = *id;
        self.with_web_sessions(move |file, now| file.end_web_session(&id, now))
            .await
    }

    async fn list_web_sessions(&self, most: usize) -> Result<Vec<ListedWebSession>, StoreError> {
        self.with_web_sessions(move |file, now| file.living_web_sessions(most, now))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sessions::sign_ins_contract;
    use std::time::Duration;
    use tokio::sync::watch;

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
                0 => sign_ins_contract::documents_change_all_at_once_or_not_at_all(&store).await,
                1 => sign_ins_contract::a_document_ends_with_its_time(&store).await,
                _ => sign_ins_contract::an_access_token_is_found_until_it_ends(&store).await,
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

    const LASTS: SessionLifetime = SessionLifetime {
        idle: Duration::from_secs(1800),
        whole: Duration::from_secs(43_200),
    };
    const MINUTE: i64 = 60_000;

    fn id(number: i64) -> SessionDigest {
        SessionDigest::of("test", &number.to_string())
    }

    #[test]
    fn a_session_ends_30_minutes_after_its_last_visit_to_the_minute_and_after_12_hours() {
        let folder = tempfile::tempdir().unwrap();
        let (file, ..) = StoreFile::open(folder.path()).unwrap();
        let visit = |now| file.visit_web_session(&id(1), now).unwrap().is_some();
        file.begin_web_session(&id(1), "me".to_owned(), LASTS, (0, 9)).unwrap();
        assert!(visit(29 * MINUTE) && visit(58 * MINUTE));
        assert!(visit(58 * MINUTE + MINUTE / 2), "which is too soon to be noted");
        assert!(!visit(88 * MINUTE));
        file.begin_web_session(&id(1), "me".to_owned(), LASTS, (0, 9)).unwrap();
        for minute in (0..12 * 60).step_by(20) {
            assert!(visit(minute * MINUTE), "{minute}");
        }
        assert!(!visit(12 * 60 * MINUTE));
    }

    #[test]
    fn beyond_the_most_those_end_that_would_end_first() {
        let folder = tempfile::tempdir().unwrap();
        let (file, ..) = StoreFile::open(folder.path()).unwrap();
        for number in 0..4 {
            file.begin_web_session(&id(number), "me".to_owned(), LASTS, (number * MINUTE, 3))
                .unwrap();
        }
        let left: Vec<bool> = (0..4)
            .map(|number| file.visit_web_session(&id(number), 5 * MINUTE).unwrap().is_some())
            .collect();
        assert_eq!(left, [false, true, true, true]);
    }

    #[tokio::test]
    async fn sessions_outlive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(folder.path()).unwrap();
        store.begin(&id(1), "me", LASTS).await.unwrap();
        drop(store);
        let store = EmbeddedStore::open(folder.path()).unwrap();
        assert_eq!(store.visit(&id(1)).await.unwrap().as_deref(), Some("me"));
    }
}
