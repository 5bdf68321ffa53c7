//! Who served a session whose state lies at a provider: remembered by every node for every node, for as long as providers
//! keep such state.

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::session_hint::{ServedBy, StateKey};
use crate::store::StoreError;

/// How long it is remembered. Providers keep responses for 30 days (OpenAI, `store`), and no state of others is known to
/// live longer.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// How many sessions an embedded store remembers; beyond it the older half is forgotten.
pub const EMBEDDED_SESSIONS_MAX: u64 = 200_000;

/// The memory of sessions. Forgetting one costs its next request at most: the provider then answers that it does not know
/// the state.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Who served it, if that is remembered.
    async fn recall(&self, state: StateKey) -> Result<Option<ServedBy>, StoreError>;

    /// Remembers who served sessions, as of `now` (seconds since the Unix epoch). The latest word stands.
    async fn remember(&self, served: &[(StateKey, ServedBy)], now: i64) -> Result<(), StoreError>;
}

/// `provider/credential`: neither name has a slash.
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

/// What every session store has to do, whatever its engine.
#[cfg(test)]
pub(crate) mod contract {
    use super::*;

    fn served_by(credential: &str) -> ServedBy {
        ServedBy {
            provider: "p".to_owned(),
            credential: credential.to_owned(),
        }
    }

    /// The latest word stands, and nobody else's is heard.
    pub(crate) async fn sessions_are_remembered_by_their_latest_word(store: &dyn SessionStore, now: i64) {
        let key = |id: &str| StateKey::new("key_1", id);
        assert_eq!(store.recall(key("a")).await.unwrap(), None);
        let both = [(key("a"), served_by("x")), (key("b"), served_by("y"))];
        store.remember(&both, now).await.unwrap();
        store.remember(&[(key("a"), served_by("z"))], now).await.unwrap();
        store.remember(&[], now).await.unwrap();
        assert_eq!(store.recall(key("a")).await.unwrap(), Some(served_by("z")));
        assert_eq!(store.recall(key("b")).await.unwrap(), Some(served_by("y")));
        assert_eq!(store.recall(StateKey::new("key_2", "a")).await.unwrap(), None);
    }
}
