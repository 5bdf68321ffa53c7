//! The storage of state at providers, of sign-ins and of browser sessions, shared by all nodes.

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::wire::{provider_state::StateKey, session_hint::ServedBy};
use crate::store::StoreError;

/// How long state is remembered. Providers keep responses for 30 days (OpenAI, `store`), and no state of others is known to
/// live longer.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// The maximum number of states that an embedded store remembers, some 100 bytes each; beyond it the older half is forgotten.
pub(crate) const EMBEDDED_SESSIONS_MAX: u64 = 1_000_000;

/// The memory of state at providers: which account owns it and who serves it, kept for as long as providers keep such state.
/// Account and identifier are stored as one digest, never in clear. State that is forgotten is no longer available to its
/// account.
#[async_trait]
pub(crate) trait SessionStore: Send + Sync {
    /// Who serves each of these states, in their order; `None` for one that is not remembered.
    async fn recall(&self, states: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError>;

    /// Remembers who serves these states, as of `now` (seconds since the Unix epoch). The latest call wins.
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
    use crate::domain::wire::provider_state::StateId;

    fn served_by(credential: &str) -> ServedBy {
        ServedBy {
            provider: "p".to_owned(),
            credential: credential.to_owned(),
        }
    }

    /// The latest word stands, and nobody else's is heard.
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
