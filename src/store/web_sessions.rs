//! The storage of browser sessions.

use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::store::StoreError;

/// The maximum number of sessions in an embedded store, some 200 bytes each; beyond it those that would end first are
/// removed.
pub(crate) const EMBEDDED_WEB_SESSIONS_MAX: u64 = 20_000;
/// The minimum interval between two visits that an embedded store records: each is a write to its disk. A session may end
/// that much earlier than its lifetime without a visit says.
pub(crate) const VISIT_RECORD_INTERVAL: Duration = Duration::from_secs(60);

/// The digest of the text in a session's cookie, by which the session is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionDigest([u8; 32]);

impl SessionDigest {
    /// The digest of a cookie's text. Digests of different `kind`s differ.
    pub(crate) fn of(kind: &str, text: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(Sha256::digest(kind));
        hash.update(text);
        Self(hash.finalize().into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest as hexadecimal text.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads the text that [`Self::to_hex`] writes.
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

    /// A digest that an engine has stored as bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// The lifetimes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLifetime {
    /// The lifetime without a visit.
    pub(crate) idle: Duration,
    /// The lifetime in all.
    pub(crate) whole: Duration,
}

/// A session that has not ended, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedWebSession {
    /// The digest by which it is found.
    pub(crate) id: SessionDigest,
    /// The person.
    pub(crate) who: String,
    /// When it ends without a further visit, in milliseconds since the Unix epoch.
    pub(crate) idle_ends_ms: i64,
    /// When it ends in any case, in milliseconds since the Unix epoch.
    pub(crate) ends_ms: i64,
}

/// The sessions of people in browsers, shared by all nodes. The text in a cookie is never stored, only its digest. Every
/// method is atomic.
///
/// A session ends by the store's clock: after some time without a visit, and at its end in any case.
#[async_trait]
pub(crate) trait WebSessionStore: Send + Sync {
    /// Begins a session of `who`. An existing session becomes `who`'s, and its end does not change.
    async fn begin(&self, id: &SessionDigest, who: &str, lasts: SessionLifetime) -> Result<(), StoreError>;

    /// The person of a session; `None` if it has ended. This counts as a visit.
    async fn visit(&self, id: &SessionDigest) -> Result<Option<String>, StoreError>;

    /// Ends a session and returns its person, to only one of several callers.
    async fn end(&self, id: &SessionDigest) -> Result<Option<String>, StoreError>;

    /// The sessions that have not ended, at most `most`: those that end last without a further visit, the last one first.
    async fn list_web_sessions(&self, most: usize) -> Result<Vec<ListedWebSession>, StoreError>;
}

/// The behaviour of every engine.
#[cfg(test)]
pub(crate) mod contract {
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

    /// All behaviours, on a store of its own.
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
