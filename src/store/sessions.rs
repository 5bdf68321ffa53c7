//! Stores sign-ins, browser sessions, and the owners of state at providers. All nodes share this storage.

use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::{
    domain::{
        keys::secret::KeyDigest,
        wire::{provider_state::StateKey, session_hint::ServedBy},
    },
    store::StoreError,
};

/// The time for which weir stores the owner of state at a provider. OpenAI keeps stored responses for 30 days, and no state
/// of other providers is known to live longer.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum number of states in an embedded store. A state takes some 100 bytes. When the maximum is exceeded, the older half is
/// dropped.
pub(crate) const EMBEDDED_SESSIONS_MAX: u64 = 1_000_000;

/// The owners of state at providers (such as stored responses): which account owns a state, and which provider and credential
/// serve it. The owner of a state is stored for as long as providers keep such state. The account and the state's identifier are
/// stored as one digest, never in clear text. An account can no longer use state whose owner has been dropped.
#[async_trait]
pub(crate) trait SessionStore: Send + Sync {
    /// Returns which provider and credential serve each of these states, in the order of `states`; `None` for an unknown state.
    async fn recall(&self, states: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError>;

    /// Stores which provider and credential serve these states at the time `now`, which is in seconds since the Unix epoch. The
    /// latest call wins.
    async fn remember(&self, served: &[(StateKey, ServedBy)], now: i64) -> Result<(), StoreError>;
}

/// Returns `provider/credential`. Neither name contains a slash.
pub(super) fn to_text(served_by: &ServedBy) -> String {
    format!("{}/{}", served_by.provider, served_by.credential)
}

pub(super) fn from_text(text: &str) -> Option<ServedBy> {
    let (provider, credential) = text.split_once('/')?;
    Some(ServedBy {
        provider: provider.to_owned(),
        credential: credential.to_owned(),
    })
}

/// The tests that every session store must pass, whatever its engine.
#[cfg(test)]
pub(crate) mod contract {
    use super::*;
    use crate::domain::wire::provider_state::StateId;

    fn served_by(credential: &str) -> ServedBy {
        ServedBy {
            provider: "p".to_owned(),
            credential: credential.to_owned(),
        }
    }

    /// The latest call wins, and a state of another account is not returned.
    pub(crate) async fn sessions_are_remembered_by_their_latest_word(store: &dyn SessionStore, now: i64) {
        let key = |id: &str| StateKey::new("account", StateId::new(id));
        assert_eq!(store.recall(&[key("a")]).await.unwrap(), [None]);
        assert_eq!(store.recall(&[]).await.unwrap(), []);
        let both = [(key("a"), served_by("x")), (key("b"), served_by("y"))];
        store.remember(&both, now).await.unwrap();
        store.remember(&[(key("a"), served_by("z"))], now).await.unwrap();
        store.remember(&[], now).await.unwrap();
        let others = StateKey::new("other", StateId::new("a"));
        assert_eq!(
            store.recall(&[key("b"), others, key("a"), key("b")]).await.unwrap(),
            [Some(served_by("y")), None, Some(served_by("z")), Some(served_by("y"))]
        );
    }
}

/// Maximum number of documents in an embedded store. A document takes some kilobytes at most. When the maximum is reached, no
/// further sign-in is possible.
pub(crate) const EMBEDDED_DOCUMENTS_MAX: usize = 100_000;

/// The documents of sign-ins: texts that are stored for a limited time, each under a digest. All nodes share them.
///
/// Access tokens are documents too. [`KeyStore::find`](crate::store::KeyStore::find) returns them. Nodes can cache them like
/// keys, because the feed contains the digests of tokens that end. Backups do not include documents: after a restore, users sign
/// in again.
#[async_trait]
pub(crate) trait SignInStore: Send + Sync {
    /// Returns the document with this name; `None` if there is none, or if it has expired.
    async fn document(&self, name: &KeyDigest) -> Result<Option<String>, StoreError>;

    /// Makes a change in one atomic step, if the documents on which it depends are as expected. If one of them is not, changes
    /// nothing and returns `false`. An acknowledged change is as durable as the engine can make it.
    async fn exchange(&self, change: &DocumentChange) -> Result<bool, StoreError>;
}

/// A change of several documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentChange {
    /// The documents on which the change depends. Each must exist with the given text, or must not exist if the text is `None`.
    pub expected: Vec<(KeyDigest, Option<String>)>,
    /// The documents to store, each with its text and its lifetime in seconds, at least 1.
    pub put: Vec<(KeyDigest, String, u64)>,
    /// The documents to remove.
    pub removed: Vec<KeyDigest>,
    /// The access tokens that end with the change: they are removed, and every node is notified.
    pub ended: Vec<KeyDigest>,
}

/// The tests that every store of sign-ins must pass, whatever its engine.
#[cfg(test)]
pub(crate) mod sign_ins_contract {
    use super::*;
    use crate::domain::keys::KeyId;
    use crate::domain::sign_in::device_request::AccessGrant;
    use crate::store::KeyStore;
    use crate::store::contract::{digest, record, until};

    fn put(number: u8, text: &str) -> (KeyDigest, String, u64) {
        (digest(number), text.to_owned(), 1000)
    }

    fn expect(number: u8, text: Option<&str>) -> (KeyDigest, Option<String>) {
        (digest(number), text.map(str::to_owned))
    }

    /// Nothing changes unless all documents are as expected. Of two changes with the same expectation, only one wins.
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

    /// A document exists only until it expires.
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

    /// The call that finds keys also finds a token, but does not return it as a key. Every node is notified of the token's end.
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

/// Maximum number of browser sessions in an embedded store. A session takes some 200 bytes. When the maximum is exceeded, the
/// sessions that would expire first are removed.
pub(crate) const EMBEDDED_WEB_SESSIONS_MAX: u64 = 20_000;
/// The minimum interval between two visits that an embedded store records, because each record is a write to its disk. A session
/// may therefore expire earlier than its idle lifetime, by up to this interval.
pub(crate) const VISIT_RECORD_INTERVAL: Duration = Duration::from_secs(60);

/// The digest of the secret in a browser session's cookie. The store finds the session by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionDigest([u8; 32]);

impl SessionDigest {
    /// Returns the digest of a cookie's secret. Different `kind`s give different digests.
    pub(crate) fn of(kind: &str, text: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(Sha256::digest(kind));
        hash.update(text);
        Self(hash.finalize().into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the digest as hexadecimal text.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses the text that [`Self::to_hex`] returns; returns `None` for any other text.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.is_ascii() {
            return None;
        }
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Returns the digest whose bytes an engine has stored; `None` if the number of bytes is wrong.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// The lifetimes of a browser session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLifetime {
    /// The lifetime without a visit.
    pub(crate) idle: Duration,
    /// The maximum lifetime, even with visits.
    pub(crate) whole: Duration,
}

/// An unexpired browser session in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedWebSession {
    /// The digest of the session's cookie.
    pub(crate) id: SessionDigest,
    /// The user who signed in.
    pub(crate) who: String,
    /// The time at which the session expires if there is no further visit, in milliseconds since the Unix epoch.
    pub(crate) idle_ends_ms: i64,
    /// The time at which the session expires even if there are further visits, in milliseconds since the Unix epoch.
    pub(crate) ends_ms: i64,
}

/// The sessions of users in browsers. All nodes share them. A session's cookie contains a secret, of which only the digest is
/// stored. Every method is atomic.
///
/// A session expires when no visit has occurred for its idle lifetime, and at the latest at the end of its maximum lifetime. The
/// store's clock decides.
#[async_trait]
pub(crate) trait WebSessionStore: Send + Sync {
    /// Begins a session of the user `who`. If the session already exists, it becomes a session of `who`, but the end of its
    /// maximum lifetime does not change.
    async fn begin(&self, id: &SessionDigest, who: &str, lasts: SessionLifetime) -> Result<(), StoreError>;

    /// Returns the user of a session; `None` if the session has expired or ended. Records the call as a visit.
    async fn visit(&self, id: &SessionDigest) -> Result<Option<String>, StoreError>;

    /// Ends a session and returns its user. Of several concurrent callers, only one gets the user.
    async fn end(&self, id: &SessionDigest) -> Result<Option<String>, StoreError>;

    /// Returns at most `most` sessions that have not expired. The sessions that stay valid longest without a further visit come
    /// first.
    async fn list_web_sessions(&self, most: usize) -> Result<Vec<ListedWebSession>, StoreError>;
}

/// The tests that every store of browser sessions must pass, whatever its engine.
#[cfg(test)]
pub(crate) mod web_sessions_contract {
    use super::*;
    use crate::store::contract::until;

    const LONG: SessionLifetime = SessionLifetime {
        idle: Duration::from_secs(1800),
        whole: Duration::from_secs(43_200),
    };
    const SHORT: Duration = Duration::from_millis(150);

    fn id(text: &str) -> SessionDigest {
        SessionDigest::of("test", text)
    }

    async fn until_ended(store: &dyn WebSessionStore, id: &SessionDigest, visited: bool) {
        until("the session ends", async || {
            if visited {
                store.visit(id).await.unwrap().is_none()
            } else {
                store
                    .list_web_sessions(100)
                    .await
                    .unwrap()
                    .iter()
                    .all(|one| one.id != *id)
            }
        })
        .await;
    }

    /// Tests the behaviour of browser sessions on a new store.
    pub(crate) async fn web_sessions_are_kept(store: &dyn WebSessionStore) {
        let (mine, other) = (id("mine"), id("other"));
        assert_eq!(store.visit(&mine).await.unwrap(), None);
        assert_eq!(store.end(&mine).await.unwrap(), None);
        store.begin(&mine, "me", LONG).await.unwrap();
        assert_eq!(store.visit(&mine).await.unwrap().as_deref(), Some("me"));
        assert_eq!(store.visit(&other).await.unwrap(), None);

        store.begin(&other, "you", LONG).await.unwrap();
        store.begin(&mine, "me, rotated", LONG).await.unwrap();
        assert_eq!(store.visit(&mine).await.unwrap().as_deref(), Some("me, rotated"));

        // One of several is told of the end, and nothing is left of the session.
        let ends = tokio::join!(store.end(&mine), store.end(&mine));
        let told = [ends.0.unwrap(), ends.1.unwrap()];
        assert_eq!(told.iter().flatten().count(), 1, "{told:?}");
        assert_eq!(store.visit(&mine).await.unwrap(), None);
        assert_eq!(store.visit(&other).await.unwrap().as_deref(), Some("you"));

        they_are_listed(store).await;
        ends_of_time(store).await;
    }

    async fn they_are_listed(store: &dyn WebSessionStore) {
        let (long, short) = (id("lasts long"), id("lasts short"));
        let half = SessionLifetime {
            whole: LONG.idle / 2,
            ..LONG
        };
        store.begin(&short, "{\"you\": \"a b\"}", half).await.unwrap();
        store.begin(&long, "me", LONG).await.unwrap();
        let listed = async |most| store.list_web_sessions(most).await.unwrap();
        let found = |all: &[ListedWebSession], id: &SessionDigest| all.iter().position(|one| one.id == *id);
        let all = listed(100).await;
        let (first, second) = (found(&all, &long).unwrap(), found(&all, &short).unwrap());
        assert!(first < second, "those that end last come first");
        assert_eq!((&*all[first].who, &*all[second].who), ("me", "{\"you\": \"a b\"}"));
        assert_eq!(
            all[second].idle_ends_ms, all[second].ends_ms,
            "it is over before it is idle for long"
        );
        let rest = all[first].ends_ms - all[first].idle_ends_ms;
        let expected = i64::try_from((LONG.whole - LONG.idle).as_millis()).unwrap();
        assert!((rest - expected).abs() <= 5000, "{rest} of {expected}");
        assert_eq!(listed(first + 1).await.len(), first + 1);
        store.visit(&long).await.unwrap();
        store.begin(&long, "me, rotated", LONG).await.unwrap();
        let all = listed(100).await;
        let of_long: Vec<&str> = all.iter().filter(|one| one.id == long).map(|one| &*one.who).collect();
        assert_eq!(of_long, ["me, rotated"], "once, as whose it is now");
        for id in [long, short] {
            store.end(&id).await.unwrap();
            assert_eq!(found(&listed(100).await, &id), None);
        }
        let soon = SessionLifetime { idle: SHORT, ..LONG };
        store.begin(&short, "me", soon).await.unwrap();
        until("a session that has ended is listed no more", async || {
            found(&listed(100).await, &short).is_none()
        })
        .await;
        assert_eq!(SessionDigest::from_hex(&long.to_hex()), Some(long));
        assert_eq!(SessionDigest::from_hex(&"g".repeat(64)), None);
        assert_eq!(SessionDigest::from_hex("ab"), None);
    }

    async fn ends_of_time(store: &dyn WebSessionStore) {
        let idle = SessionLifetime { idle: SHORT, ..LONG };
        store.begin(&id("idle"), "me", idle).await.unwrap();
        until_ended(store, &id("idle"), false).await;
        assert_eq!(store.visit(&id("idle")).await.unwrap(), None);
        let whole = SessionLifetime { whole: SHORT, ..LONG };
        store.begin(&id("whole"), "me", whole).await.unwrap();
        until_ended(store, &id("whole"), true).await;
        assert_eq!(
            store.end(&id("whole")).await.unwrap(),
            None,
            "nobody is told of what is over"
        );
        // Becoming somebody else's does not make it longer.
        store.begin(&id("both"), "me", whole).await.unwrap();
        store.begin(&id("both"), "you", LONG).await.unwrap();
        until_ended(store, &id("both"), true).await;
    }
}
