//! Sessions of users in browsers. A session is identified by a random string in a cookie. weir stores only the digest of this
//! string.
//!
//! Sessions are in the store, so they are valid at all nodes and survive a restart. Each node also remembers the sessions that it
//! has seen. While the store cannot be reached, users of remembered sessions can read pages but cannot change anything.

#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue, header};
use lru::LruCache;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{
    api::values::Seed,
    domain::keys::secret::random_base62,
    store::{
        StoreError,
        sessions::{SessionDigest, SessionLifetime, WebSessionStore},
    },
};

/// The lifetime of a session. A session ends after half an hour without a request, and at the latest twelve hours after its
/// beginning.
pub(super) const SESSION_LIFETIME: SessionLifetime = SessionLifetime {
    idle: Duration::from_secs(30 * 60),
    whole: Duration::from_secs(12 * 3600),
};
/// The maximum number of sessions of one site that this node remembers. If there are more, the least recently used session is
/// removed from memory.
const SESSIONS_MAX: usize = 10_000;
/// The number of characters of the string in the cookie. 43 random characters from an alphabet of 62 have 256 bits of entropy.
const ID_CHARS: usize = 43;

/// The sessions of one site: the console or the portal.
pub(super) struct BrowserSessions {
    site: &'static str,
    store: Arc<dyn WebSessionStore>,
    kept: Mutex<LruCache<SessionDigest, RememberedSession>>,
    most: usize,
}

/// The stored form of a session's user. The admin API also reads it ([`SessionHolder`](crate::admin::sessions::SessionHolder)).
#[derive(Serialize, Deserialize)]
struct SessionPayload<W> {
    door: Box<str>,
    who: W,
}

/// A session that this node has seen.
#[derive(Debug)]
struct RememberedSession {
    /// The user of the session, in the stored form.
    who: String,
    began: Instant,
    seen: Instant,
}

/// A session of one user in one browser.
#[derive(Debug)]
pub(super) struct BrowserSession<W> {
    /// The user of the session.
    pub(super) who: W,
    id: SessionDigest,
    /// The secret from which the tokens of forms are derived. It is derived from the string in the cookie, so the store does not
    /// reveal it.
    form_secret: [u8; 32],
}

impl BrowserSessions {
    /// Creates the sessions of the site called `site`.
    pub(super) fn new(site: &'static str, store: Arc<dyn WebSessionStore>) -> Self {
        Self {
            site,
            store,
            kept: Mutex::new(LruCache::unbounded()),
            most: SESSIONS_MAX,
        }
    }

    /// Opens a session, and returns the string for its cookie. If the store cannot be reached, the session is valid only at this
    /// node, and ends when the store can be reached again.
    pub(super) async fn open<W: Serialize>(&self, who: &W, now: Instant) -> String {
        let text = random_base62(ID_CHARS, &mut rand::rng());
        let id = SessionDigest::of(self.site, &text);
        let who = self.to_payload(who);
        if let Err(error) = self.store.begin(&id, &who, SESSION_LIFETIME).await {
            tracing::warn!(door = self.site, %error, "cannot write a session to the store; the session is valid only on this node, and ends when the store can be reached again");
        }
        self.remember(id, who, now);
        text
    }

    /// Returns the session that belongs to the string in a cookie, and restarts the session's idle timeout. `None` if the session
    /// has ended.
    ///
    /// # Errors
    /// The store cannot be reached, and this node has not seen the session.
    pub(super) async fn find<W: DeserializeOwned>(
        &self,
        text: &str,
        now: Instant,
    ) -> Result<Option<BrowserSession<W>>, StoreError> {
        let id = SessionDigest::of(self.site, text);
        let who = match self.store.visit(&id).await {
            Ok(Some(who)) => {
                self.remember(id, who.clone(), now);
                who
            }
            Ok(None) => {
                self.kept.lock().pop(&id);
                return Ok(None);
            }
            Err(error) => self.remembered(&id, now).ok_or(error)?,
        };
        // If another version of weir has stored the session and this version cannot parse it, the session counts as ended.
        Ok(serde_json::from_str(&who)
            .ok()
            .map(|stored: SessionPayload<W>| BrowserSession {
                who: stored.who,
                id,
                form_secret: form_secret(text),
            }))
    }

    /// Ends a session.
    ///
    /// # Errors
    /// The store cannot be reached, so other nodes may still accept the session.
    pub(super) async fn close(&self, text: &str) -> Result<(), StoreError> {
        let id = SessionDigest::of(self.site, text);
        self.kept.lock().pop(&id);
        self.store.end(&id).await.map(drop)
    }

    /// Replaces the user of a session. The time at which the session ends does not change.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub(super) async fn set_person<W: Serialize>(
        &self,
        session: &BrowserSession<W>,
        who: &W,
    ) -> Result<(), StoreError> {
        self.store
            .begin(&session.id, &self.to_payload(who), SESSION_LIFETIME)
            .await
    }

    fn to_payload<W: Serialize>(&self, who: &W) -> String {
        let door = self.site.into();
        // Encoding as JSON cannot fail here.
        serde_json::to_string(&SessionPayload { door, who }).unwrap_or_default()
    }

    fn remember(&self, id: SessionDigest, who: String, now: Instant) {
        let mut kept = self.kept.lock();
        if let Some(known) = kept.get_mut(&id) {
            (known.who, known.seen) = (who, now);
            return;
        }
        let session = RememberedSession {
            who,
            began: now,
            seen: now,
        };
        kept.put(id, session);
        // Sessions that have ended are removed first, because they are the least recently used.
        while kept.peek_lru().is_some_and(|(_, oldest)| !oldest.is_alive(now)) || kept.len() > self.most {
            kept.pop_lru();
        }
    }

    /// Returns the user of a session that this node remembers. This function is only called while the store cannot be reached. At
    /// other times the store is asked, because only the store knows when the session ends: the session may have begun long before
    /// this node first saw it.
    fn remembered(&self, id: &SessionDigest, now: Instant) -> Option<String> {
        let mut kept = self.kept.lock();
        let known = kept.get_mut(id).filter(|known| known.is_alive(now))?;
        known.seen = now;
        Some(known.who.clone())
    }
}

impl RememberedSession {
    fn is_alive(&self, now: Instant) -> bool {
        let since = |time: Instant| now.saturating_duration_since(time);
        since(self.began) < SESSION_LIFETIME.whole && since(self.seen) < SESSION_LIFETIME.idle
    }
}

impl<W> BrowserSession<W> {
    /// Returns the token of a form. It is only valid in this session, for this operation and this path.
    pub(super) fn token(&self, operation: &str, action: &str) -> String {
        let mut hash = Sha256::new();
        // The hashed input is unambiguous, because only its last part has a variable length.
        hash.update(self.form_secret);
        hash.update(Sha256::digest(operation));
        hash.update(action);
        hex(&hash.finalize())
    }

    /// Derives the seed of a key's secret from the form's seed and the session, so neither the page nor the cookie alone
    /// determines it.
    pub(super) fn seed(&self, of_form: &str) -> Seed {
        Seed::derived(&self.form_secret, of_form)
    }

    /// Returns whether `token` is the token of this form. Compares digests, so the time taken reveals nothing about the token.
    pub(super) fn is_valid_token(&self, token: &str, operation: &str, action: &str) -> bool {
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

/// The names of a cookie over encrypted and unencrypted connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookie {
    /// The name over an encrypted connection. It has the prefix `__Host-`.
    secure: &'static str,
    /// The name over plain HTTP.
    plain: &'static str,
}

/// The cookie of a session of the operators' console.
pub(super) const CONSOLE: Cookie = Cookie {
    secure: "__Host-weir-console",
    plain: "weir-console",
};

/// The cookie of a sign-in at the console with the OpenID provider, used while the sign-in is in progress.
pub(super) const OPENID: Cookie = Cookie {
    secure: "__Host-weir-openid",
    plain: "weir-openid",
};

/// The cookie of a sign-in at the portal with the OpenID provider, used while the sign-in is in progress.
pub(super) const PORTAL_OPENID: Cookie = Cookie {
    secure: "__Host-weir-portal-openid",
    plain: "weir-portal-openid",
};

/// The cookie of a session of the key owners' portal.
pub(super) const PORTAL: Cookie = Cookie {
    secure: "__Host-weir-portal",
    plain: "weir-portal",
};

/// Whether the client's connection to weir, or to a trusted proxy in front of it, is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionSecurity {
    /// The connection uses TLS.
    Encrypted,
    /// The connection uses plain HTTP.
    Plain,
}

impl Cookie {
    /// Returns the value of this cookie in a request. `None` if the request does not have it.
    pub(super) fn read<'a>(&self, headers: &'a HeaderMap, way: ConnectionSecurity) -> Option<&'a str> {
        let wanted = self.name(way);
        let lines = headers.get_all(header::COOKIE).iter();
        let mut pairs = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'));
        pairs.find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == wanted).then_some(value)
        })
    }

    /// Returns the header that sets the cookie. The browser deletes the cookie when the user closes the browser.
    pub(super) fn set(&self, id: &str, way: ConnectionSecurity) -> HeaderValue {
        self.line(id, way, "")
    }

    /// Returns the header that removes the cookie.
    pub(super) fn clear(&self, way: ConnectionSecurity) -> HeaderValue {
        self.line("", way, "; Max-Age=0")
    }

    fn name(&self, way: ConnectionSecurity) -> &'static str {
        match way {
            ConnectionSecurity::Encrypted => self.secure,
            ConnectionSecurity::Plain => self.plain,
        }
    }

    fn line(&self, value: &str, way: ConnectionSecurity, more: &str) -> HeaderValue {
        let secure = if way == ConnectionSecurity::Encrypted {
            "; Secure"
        } else {
            ""
        };
        let line = format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}",
            self.name(way)
        );
        // The value only has letters, digits and `.`, which are valid in a header.
        HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod cookie_tests {
    use super::*;

    #[test]
    fn the_cookie_is_the_hosts_own_and_out_of_reach_of_scripts() {
        let set = CONSOLE.set("abc", ConnectionSecurity::Encrypted);
        assert_eq!(
            set,
            "__Host-weir-console=abc; Path=/; HttpOnly; SameSite=Strict; Secure"
        );
        let set = PORTAL.set("abc", ConnectionSecurity::Plain);
        assert_eq!(set, "weir-portal=abc; Path=/; HttpOnly; SameSite=Strict");
        let clear = PORTAL.clear(ConnectionSecurity::Plain);
        assert_eq!(clear, "weir-portal=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }

    #[test]
    fn a_cookie_that_a_plain_site_may_have_set_is_not_taken_for_the_encrypted_one() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; weir-console=plain"));
        headers.append(header::COOKIE, HeaderValue::from_static("x; __Host-weir-console=safe"));
        assert_eq!(CONSOLE.read(&headers, ConnectionSecurity::Encrypted), Some("safe"));
        assert_eq!(CONSOLE.read(&headers, ConnectionSecurity::Plain), Some("plain"));
        assert_eq!(PORTAL.read(&headers, ConnectionSecurity::Plain), None);
    }
}
