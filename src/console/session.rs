//! Sessions of people in a browser: a random text in a cookie, of which only the digest is kept.
//!
//! They are in the memory of this node: a browser that reaches another node has to sign in there, and a restart ends all.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;
use rand::CryptoRng;
use sha2::{Digest, Sha256};

use super::sent::Sent;
use crate::domain::keys::secret::random_base62;

/// How long a session lasts without a request.
pub(super) const IDLE: Duration = Duration::from_secs(30 * 60);
/// How long a session lasts in all.
pub(super) const WHOLE: Duration = Duration::from_secs(12 * 3600);
/// The most sessions of one door; beyond it the one that was idle for longest ends.
const SESSIONS_MAX: usize = 10_000;
/// 43 characters of 62 carry 256 bits.
const ID_CHARS: usize = 43;

type IdDigest = [u8; 32];

/// Who is signed in at one door.
#[derive(Debug)]
pub(super) struct Sessions<W> {
    kept: Mutex<LruCache<IdDigest, Arc<Session<W>>>>,
    most: usize,
}

/// One person in one browser.
#[derive(Debug)]
pub(super) struct Session<W> {
    /// Who it is.
    pub(super) who: W,
    /// The forms that it has sent.
    pub(super) sent: Sent,
    began: Instant,
    seen: Mutex<Instant>,
    /// What the tokens of its forms are made with.
    form_secret: [u8; 32],
}

impl<W> Default for Sessions<W> {
    fn default() -> Self {
        Self::with_most(SESSIONS_MAX)
    }
}

impl<W> Sessions<W> {
    fn with_most(most: usize) -> Self {
        Self {
            kept: Mutex::new(LruCache::unbounded()),
            most,
        }
    }

    /// Begins a session. The text is for its cookie alone.
    pub(super) fn open(&self, who: W, now: Instant, rng: &mut impl CryptoRng) -> (String, Arc<Session<W>>) {
        let id = random_base62(ID_CHARS, rng);
        let mut form_secret = [0; 32];
        rng.fill_bytes(&mut form_secret);
        let session = Arc::new(Session {
            who,
            sent: Sent::default(),
            began: now,
            seen: Mutex::new(now),
            form_secret,
        });
        let mut kept = self.kept.lock();
        kept.put(digest(&id), Arc::clone(&session));
        // Those that are over go first: they are the ones that nobody has used for longest.
        while kept.peek_lru().is_some_and(|(_, oldest)| !oldest.is_alive(now)) || kept.len() > self.most {
            kept.pop_lru();
        }
        (id, session)
    }

    /// The session of a cookie's text, if it has not ended. It has been seen then.
    pub(super) fn find(&self, id: &str, now: Instant) -> Option<Arc<Session<W>>> {
        let digest = digest(id);
        let mut kept = self.kept.lock();
        let session = Arc::clone(kept.get(&digest)?);
        if session.is_alive(now) {
            *session.seen.lock() = now;
            return Some(session);
        }
        kept.pop(&digest);
        None
    }

    /// Ends a session.
    pub(super) fn close(&self, id: &str) {
        self.kept.lock().pop(&digest(id));
    }
}

impl<W> Session<W> {
    fn is_alive(&self, now: Instant) -> bool {
        let since = |time: Instant| now.saturating_duration_since(time);
        since(self.began) < WHOLE && since(*self.seen.lock()) < IDLE
    }

    /// What a form has to carry: good in this session, for this operation and this place only.
    pub(super) fn token(&self, operation: &str, action: &str) -> String {
        let mut hash = Sha256::new();
        // Nothing here is of a variable length but the last.
        hash.update(self.form_secret);
        hash.update(Sha256::digest(operation));
        hash.update(action);
        hex(&hash.finalize())
    }

    /// Whether a form carries its token. In a time that does not tell how much of it is right.
    pub(super) fn is_token(&self, token: &str, operation: &str, action: &str) -> bool {
        Sha256::digest(token) == Sha256::digest(self.token(operation, action))
    }
}

fn digest(id: &str) -> IdDigest {
    Sha256::digest(id).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    #[test]
    fn a_session_ends_when_it_is_idle_and_when_its_time_is_up() {
        let (sessions, start) = (Sessions::default(), clock::instant());
        let (id, _) = sessions.open("me", start, &mut rand::rng());
        assert_eq!(id.len(), ID_CHARS);
        assert!(sessions.find(&id, start + minutes(29)).is_some());
        assert!(sessions.find(&id, start + minutes(58)).is_some(), "it was in use");
        assert!(sessions.find(&id, start + minutes(88)).is_none(), "idle for 30 minutes");
        assert!(sessions.find(&id, start + minutes(59)).is_none(), "ended for good");
        let (id, _) = sessions.open("me", start, &mut rand::rng());
        for minute in (0..12 * 60).step_by(20) {
            assert!(sessions.find(&id, start + minutes(minute)).is_some(), "{minute}");
        }
        assert!(sessions.find(&id, start + WHOLE).is_none(), "12 hours in all");
    }

    #[test]
    fn nobody_else_finds_it_and_nobody_after_its_end() {
        let (sessions, now) = (Sessions::default(), clock::instant());
        let (id, session) = sessions.open("me", now, &mut rand::rng());
        assert_eq!(session.who, "me");
        for other in ["", "x", id.get(1..).unwrap()] {
            assert!(sessions.find(other, now).is_none());
        }
        sessions.close(&id);
        assert!(sessions.find(&id, now).is_none());
    }

    #[test]
    fn beyond_the_most_the_one_that_was_idle_for_longest_ends() {
        let (sessions, now) = (Sessions::with_most(2), clock::instant());
        let open = |who| sessions.open(who, now, &mut rand::rng()).0;
        let (first, second) = (open(1), open(2));
        sessions.find(&first, now + minutes(1)).unwrap();
        let third = open(3);
        assert!(sessions.find(&second, now).is_none());
        assert!(sessions.find(&first, now).is_some() && sessions.find(&third, now).is_some());
    }

    #[test]
    fn a_token_is_good_for_one_session_one_operation_and_one_place() {
        let (sessions, now) = (Sessions::default(), clock::instant());
        let (_, mine) = sessions.open("me", now, &mut rand::rng());
        let (_, other) = sessions.open("other", now, &mut rand::rng());
        let token = mine.token("op", "/keys");
        assert!(mine.is_token(&token, "op", "/keys"));
        assert!(!mine.is_token(&token, "op2", "/keys") && !mine.is_token(&token, "op", "/keys/x"));
        assert!(!other.is_token(&token, "op", "/keys") && !mine.is_token("", "op", "/keys"));
    }
}
