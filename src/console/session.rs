//! Sessions of people in a browser: a random text in a cookie, of which only the digest is kept.
//!
//! They are in the store, so that all nodes know them and a restart keeps them. This node remembers those that it has seen
//! itself, for what it has answered to their forms, and for as long as the store is away: then they can look at pages, and
//! change nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{
    api::names::Seed,
    domain::keys::secret::random_base62,
    store::{
        StoreError,
        web_sessions::{Lifetime, SessionDigest, WebSessionStore},
    },
};

/// How long a session lasts: half an hour without a request, and half a day in all.
pub(super) const LASTS: Lifetime = Lifetime {
    idle: Duration::from_secs(30 * 60),
    whole: Duration::from_secs(12 * 3600),
};
/// The most sessions of one door that this node remembers; beyond it the one that was idle for longest is left to the store.
const SESSIONS_MAX: usize = 10_000;
/// 43 characters of 62 carry 256 bits.
const ID_CHARS: usize = 43;

/// Who is signed in at one door.
pub(super) struct Sessions {
    door: &'static str,
    store: Arc<dyn WebSessionStore>,
    kept: Mutex<LruCache<SessionDigest, Kept>>,
    most: usize,
}

/// Whose a session is, as the store has it. The admin API reads it, too ([`Holder`](crate::admin::sessions::Holder)).
#[derive(Serialize, Deserialize)]
struct Stored<W> {
    door: Box<str>,
    who: W,
}

/// What this node remembers of a session.
#[derive(Debug)]
struct Kept {
    /// Whose it is, as the store has it.
    who: String,
    began: Instant,
    seen: Instant,
}

/// One person in one browser.
#[derive(Debug)]
pub(super) struct Session<W> {
    /// Who it is.
    pub(super) who: W,
    id: SessionDigest,
    /// What the tokens of its forms are made with: comes of the cookie's text, so whoever reads the store has not got it.
    form_secret: [u8; 32],
}

impl Sessions {
    /// Those of a door.
    pub(super) fn new(door: &'static str, store: Arc<dyn WebSessionStore>) -> Self {
        Self {
            door,
            store,
            kept: Mutex::new(LruCache::unbounded()),
            most: SESSIONS_MAX,
        }
    }

    /// Begins a session. The text is for its cookie alone. While the store is away it is a session of this node alone, which
    /// ends when the store is back.
    pub(super) async fn open<W: Serialize>(&self, who: &W, now: Instant) -> String {
        let text = random_base62(ID_CHARS, &mut rand::rng());
        let id = SessionDigest::of(self.door, &text);
        let who = self.to_text(who);
        if let Err(error) = self.store.begin(&id, &who, LASTS).await {
            tracing::warn!(door = self.door, %error, "a session is not in the store: it is good at this node until the store is back");
        }
        self.keep(id, who, now);
        text
    }

    /// The session of a cookie's text, unless it has ended. It has been seen then.
    ///
    /// # Errors
    /// The store is away, and this node has not seen the session.
    pub(super) async fn find<W: DeserializeOwned>(
        &self,
        text: &str,
        now: Instant,
    ) -> Result<Option<Session<W>>, StoreError> {
        let id = SessionDigest::of(self.door, text);
        let who = match self.store.visit(&id).await {
            Ok(Some(who)) => {
                self.keep(id, who.clone(), now);
                who
            }
            Ok(None) => {
                self.kept.lock().pop(&id);
                return Ok(None);
            }
            Err(error) => self.remembered(&id, now).ok_or(error)?,
        };
        // One that another version has written and this one cannot read is none.
        Ok(serde_json::from_str(&who).ok().map(|stored: Stored<W>| Session {
            who: stored.who,
            id,
            form_secret: form_secret(text),
        }))
    }

    /// Ends a session.
    ///
    /// # Errors
    /// The store is away: another node may take the session for one that goes on.
    pub(super) async fn close(&self, text: &str) -> Result<(), StoreError> {
        let id = SessionDigest::of(self.door, text);
        self.kept.lock().pop(&id);
        self.store.end(&id).await.map(drop)
    }

    /// The session goes on as another one's, until it would have ended.
    ///
    /// # Errors
    /// The store is away.
    pub(super) async fn becomes<W: Serialize>(&self, session: &Session<W>, who: &W) -> Result<(), StoreError> {
        self.store.begin(&session.id, &self.to_text(who), LASTS).await
    }

    fn to_text<W: Serialize>(&self, who: &W) -> String {
        let door = self.door.into();
        // Nothing that is somebody has a form that JSON lacks.
        serde_json::to_string(&Stored { door, who }).unwrap_or_default()
    }

    fn keep(&self, id: SessionDigest, who: String, now: Instant) {
        let mut kept = self.kept.lock();
        if let Some(known) = kept.get_mut(&id) {
            (known.who, known.seen) = (who, now);
            return;
        }
        let session = Kept {
            who,
            began: now,
            seen: now,
        };
        kept.put(id, session);
        // Those that are over go first: they are the ones that nobody has used for longest.
        while kept.peek_lru().is_some_and(|(_, oldest)| !oldest.is_alive(now)) || kept.len() > self.most {
            kept.pop_lru();
        }
    }

    /// While the store is away. By this node's clock, which may have seen the session first long after it began: the store
    /// has the last word when it is back.
    fn remembered(&self, id: &SessionDigest, now: Instant) -> Option<String> {
        let mut kept = self.kept.lock();
        let known = kept.get_mut(id).filter(|known| known.is_alive(now))?;
        known.seen = now;
        Some(known.who.clone())
    }
}

impl Kept {
    fn is_alive(&self, now: Instant) -> bool {
        let since = |time: Instant| now.saturating_duration_since(time);
        since(self.began) < LASTS.whole && since(self.seen) < LASTS.idle
    }
}

impl<W> Session<W> {
    /// What a form has to carry: good in this session, for this operation and this place only.
    pub(super) fn token(&self, operation: &str, action: &str) -> String {
        let mut hash = Sha256::new();
        // Nothing here is of a variable length but the last.
        hash.update(self.form_secret);
        hash.update(Sha256::digest(operation));
        hash.update(action);
        hex(&hash.finalize())
    }

    /// The seed of the text that a form gives a key, for the form's own seed: neither the cookie nor the page alone makes it.
    pub(super) fn seed(&self, of_form: &str) -> Seed {
        Seed::derived(&self.form_secret, of_form)
    }

    /// Whether a form carries its token. In a time that does not tell how much of it is right.
    pub(super) fn is_token(&self, token: &str, operation: &str, action: &str) -> bool {
        Sha256::digest(token) == Sha256::digest(self.token(operation, action))
    }
}

fn form_secret(text: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(Sha256::digest("forms"));
    hash.update(text);
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
