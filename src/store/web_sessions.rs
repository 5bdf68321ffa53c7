//! The storage of people's sessions in browsers, shared by all nodes. The text in a cookie is never here, only its digest.
//!
//! A session ends by the store's clock: after some time without a visit, and at its end in any case.

use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::store::StoreError;

/// How many sessions an embedded store keeps, some 200 bytes each; beyond it those end that would end first.
pub(crate) const EMBEDDED_WEB_SESSIONS_MAX: u64 = 20_000;
/// How seldom an embedded store notes visits, each of which is a write to its disk. A session may end that much earlier than
/// its time without a visit says.
pub(crate) const VISIT_NOTED_EVERY: Duration = Duration::from_secs(60);

/// By what a session is found: the digest of the text in its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionDigest([u8; 32]);

impl SessionDigest {
    /// The digest of a cookie's text. `kind` keeps apart what must not be taken for each other.
    pub(crate) fn of(kind: &str, text: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(Sha256::digest(kind));
        hash.update(text);
        Self(hash.finalize().into())
    }

    /// Its bytes.
    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The same as text.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A digest that was written by [`Self::to_hex`].
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

    /// One that an engine has stored as bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// How long a session lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// Without a visit.
    pub(crate) idle: Duration,
    /// In all.
    pub(crate) whole: Duration,
}

/// A session that goes on, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedWebSession {
    /// By what it is found.
    pub(crate) id: SessionDigest,
    /// Whose it is.
    pub(crate) who: String,
    /// When it ends without a further visit, in milliseconds since the Unix epoch.
    pub(crate) idle_ends_ms: i64,
    /// When it ends in any case.
    pub(crate) ends_ms: i64,
}

/// The sessions of all nodes. Every method is atomic.
#[async_trait]
pub(crate) trait WebSessionStore: Send + Sync {
    /// Begins a session of `who`. One that is there already is `who`'s from now on, and ends when it would have ended.
    async fn begin(&self, id: &SessionDigest, who: &str, lasts: Lifetime) -> Result<(), StoreError>;

    /// Whose session it is, unless it has ended. It was visited then.
    async fn visit(&self, id: &SessionDigest) -> Result<Option<String>, StoreError>;

    /// Ends a session and says whose it was: only one of several callers is told.
    async fn end(&self, id: &SessionDigest) -> Result<Option<String>, StoreError>;

    /// The sessions that go on, at most so many: those that end last without a further visit, the last one first.
    async fn list_web_sessions(&self, most: usize) -> Result<Vec<ListedWebSession>, StoreError>;
}

/// What every engine has to do.
#[cfg(test)]
pub(crate) mod contract {
    use super::*;
    use crate::store::contract::until;

    const LONG: Lifetime = Lifetime {
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
        let half = Lifetime {
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
        let soon = Lifetime { idle: SHORT, ..LONG };
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
        let idle = Lifetime { idle: SHORT, ..LONG };
        store.begin(&id("idle"), "me", idle).await.unwrap();
        until_ended(store, &id("idle"), false).await;
        assert_eq!(store.visit(&id("idle")).await.unwrap(), None);
        let whole = Lifetime { whole: SHORT, ..LONG };
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
