//! Sessions of people in a browser: a random text in a cookie, of which weir keeps only the digest.
//!
//! Sessions are in the store, so all nodes know them and they survive a restart. Each node also remembers the sessions that it
//! has seen: while the store is unreachable, their owners can still read pages, but change nothing.

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

/// The lifetime of a session: half an hour without a request, and half a day in all.
pub(super) const SESSION_LIFETIME: SessionLifetime = SessionLifetime {
    idle: Duration::from_secs(30 * 60),
    whole: Duration::from_secs(12 * 3600),
};
/// The maximum number of sessions of one site that this node remembers; beyond it, the least recently used are forgotten here.
const SESSIONS_MAX: usize = 10_000;
/// 43 characters of 62 carry 256 bits.
const ID_CHARS: usize = 43;

/// The sessions of one site: the console or the portal.
pub(super) struct BrowserSessions {
    site: &'static str,
    store: Arc<dyn WebSessionStore>,
    kept: Mutex<LruCache<SessionDigest, RememberedSession>>,
    most: usize,
}

/// Who a session belongs to, as stored. The admin API reads it too ([`SessionHolder`](crate::admin::sessions::SessionHolder)).
#[derive(Serialize, Deserialize)]
struct SessionPayload<W> {
    door: Box<str>,
    who: W,
}

/// A session that this node has seen.
#[derive(Debug)]
struct RememberedSession {
    /// Who it belongs to, as stored.
    who: String,
    began: Instant,
    seen: Instant,
}

/// The session of one person in one browser.
#[derive(Debug)]
pub(super) struct BrowserSession<W> {
    /// The person.
    pub(super) who: W,
    id: SessionDigest,
    /// The secret that the tokens of its forms are derived from. It comes from the cookie's text, so the store does not reveal
    /// it.
    form_secret: [u8; 32],
}

impl BrowserSessions {
    /// The sessions of the site of this name.
    pub(super) fn new(site: &'static str, store: Arc<dyn WebSessionStore>) -> Self {
        Self {
            site,
            store,
            kept: Mutex::new(LruCache::unbounded()),
            most: SESSIONS_MAX,
        }
    }

    /// Opens a session and returns the text for its cookie. While the store is unreachable, the session exists on this node only,
    /// and ends when the store is back.
    pub(super) async fn open<W: Serialize>(&self, who: &W, now: Instant) -> String {
        let text = random_base62(ID_CHARS, &mut rand::rng());
        let id = SessionDigest::of(self.site, &text);
        let who = self.to_payload(who);
        if let Err(error) = self.store.begin(&id, &who, SESSION_LIFETIME).await {
            tracing::warn!(door = self.site, %error, "a session could not be stored: it is valid on this node only, until the store is back");
        }
        self.remember(id, who, now);
        text
    }

    /// The session of a cookie's text, unless it has ended. Extends its idle time.
    ///
    /// # Errors
    /// The store is unreachable, and this node has not seen the session.
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
        // A session that another version has written and this one cannot read counts as ended.
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
    /// The store is unreachable: other nodes may still accept the session.
    pub(super) async fn close(&self, text: &str) -> Result<(), StoreError> {
        let id = SessionDigest::of(self.site, text);
        self.kept.lock().pop(&id);
        self.store.end(&id).await.map(drop)
    }

    /// Changes who the session belongs to. It still ends when it would have ended.
    ///
    /// # Errors
    /// The store is unreachable.
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
        // Every type of person can be written as JSON.
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
        // Ended sessions go first, because they are the least recently used.
        while kept.peek_lru().is_some_and(|(_, oldest)| !oldest.is_alive(now)) || kept.len() > self.most {
            kept.pop_lru();
        }
    }

    /// The session as this node remembers it, while the store is unreachable. This node may have seen it first long after it
    /// began, so the store decides again when it is back.
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
    /// The token of a form, valid only in this session, for this operation and this action.
    pub(super) fn token(&self, operation: &str, action: &str) -> String {
        let mut hash = Sha256::new();
        // Only the last part has a variable length, so the input is unambiguous.
        hash.update(self.form_secret);
        hash.update(Sha256::digest(operation));
        hash.update(action);
        hex(&hash.finalize())
    }

    /// Derives the seed of a key's text from a form's own seed. Neither the cookie nor the page alone determines it.
    pub(super) fn seed(&self, of_form: &str) -> Seed {
        Seed::derived(&self.form_secret, of_form)
    }

    /// Whether `token` is the form's token. Compares digests, so the time taken reveals nothing about the token.
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

/// The names of a cookie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookie {
    /// The name over an encrypted connection, with the prefix.
    secure: &'static str,
    /// The name over plain HTTP.
    plain: &'static str,
}

/// The session cookie of the operators' console.
pub(super) const CONSOLE: Cookie = Cookie {
    secure: "__Host-weir-console",
    plain: "weir-console",
};

/// The console's cookie for a sign-in in progress at the OpenID provider.
pub(super) const OPENID: Cookie = Cookie {
    secure: "__Host-weir-openid",
    plain: "weir-openid",
};

/// The portal's cookie for a sign-in in progress at the OpenID provider.
pub(super) const PORTAL_OPENID: Cookie = Cookie {
    secure: "__Host-weir-portal-openid",
    plain: "weir-portal-openid",
};

/// The session cookie of the owners' portal.
pub(super) const PORTAL: Cookie = Cookie {
    secure: "__Host-weir-portal",
    plain: "weir-portal",
};

/// How the client is connected to weir, or to a trusted proxy in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionSecurity {
    /// By TLS.
    Encrypted,
    /// By plain HTTP.
    Plain,
}

impl Cookie {
    /// The value of this cookie in a request.
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

    /// The header that sets the cookie until the browser closes.
    pub(super) fn set(&self, id: &str, way: ConnectionSecurity) -> HeaderValue {
        self.line(id, way, "")
    }

    /// The header that removes the cookie.
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
        // The value has letters, digits and `.` only.
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
