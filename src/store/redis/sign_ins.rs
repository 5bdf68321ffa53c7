//! Sign-in documents and browser sessions in Redis, each with an expiry.

use async_trait::async_trait;

use crate::{
    domain::keys::secret::KeyDigest,
    store::{
        FEED_CHANGES_MAX, StoreError,
        redis::{
            ADMIN_BUDGET, RedisStore,
            link::CallPolicy,
            scripts::{RedisScript, ScriptCall, ScriptReply},
        },
        sessions::{DocumentChange, ListedWebSession, SessionDigest, SessionLifetime, SignInStore, WebSessionStore},
    },
};

impl RedisStore {
    /// Returns the Redis key of a document.
    pub(super) fn document_key(&self, name: &KeyDigest) -> String {
        format!("{{{}:keys}}:sign-in:{}", self.namespace, name.to_hex())
    }
}

#[async_trait]
impl SignInStore for RedisStore {
    async fn document(&self, name: &KeyDigest) -> Result<Option<String>, StoreError> {
        let mut call = self.prepare(&self.scripts.document);
        call.key(self.document_key(name));
        let text = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.text()?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    async fn exchange(&self, change: &DocumentChange) -> Result<bool, StoreError> {
        let DocumentChange {
            expected,
            put,
            removed,
            ended,
        } = change;
        let mut call = self.prepare(&self.scripts.exchange);
        let removed: Vec<&KeyDigest> = removed.iter().chain(ended).collect();
        let names = expected
            .iter()
            .map(|(name, _)| name)
            .chain(put.iter().map(|(name, ..)| name));
        for name in names.chain(removed.iter().copied()) {
            call.key(self.document_key(name));
        }
        call.arg(FEED_CHANGES_MAX)
            .arg(expected.len())
            .arg(put.len())
            .arg(removed.len())
            .arg(ended.len());
        for (_, text) in expected {
            call.arg(text.as_ref().map_or_else(String::new, |text| format!("={text}")));
        }
        for (_, text, seconds) in put {
            call.arg(*seconds).arg(text);
        }
        for digest in ended {
            call.arg(digest.to_hex());
        }
        Ok(!self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict())
    }
}

impl RedisStore {
    fn session_call<'a>(&self, script: &'a RedisScript, id: &SessionDigest) -> ScriptCall<'a> {
        let session = format!("{}:{}", self.web_session_key, id.to_hex());
        self.web_sessions_call(script, &session)
    }

    fn web_sessions_call<'a>(&self, script: &'a RedisScript, session: &str) -> ScriptCall<'a> {
        let mut call = self.prepare(script);
        call.key(session).key(&self.web_session_key);
        call
    }
}

/// Parses a session in the reply of the script that lists sessions. `entry` is `<digest> <expiry> <user>`. `idle_ends` is the
/// time at which the session expires if there is no further visit.
fn parse_listed(entry: &str, idle_ends: &str) -> Option<ListedWebSession> {
    let mut parts = entry.splitn(3, ' ');
    Some(ListedWebSession {
        id: SessionDigest::from_hex(parts.next()?)?,
        ends_ms: parts.next()?.parse().ok()?,
        who: parts.next()?.to_owned(),
        idle_ends_ms: idle_ends.parse().ok()?,
    })
}

fn read_who(mut reply: ScriptReply) -> Result<Option<String>, StoreError> {
    Ok(Some(reply.text()?).filter(|who| !who.is_empty()))
}

#[async_trait]
impl WebSessionStore for RedisStore {
    async fn begin(&self, id: &SessionDigest, who: &str, lasts: SessionLifetime) -> Result<(), StoreError> {
        let mut call = self.session_call(&self.scripts.web_session_begin, id);
        let [idle, whole] = [lasts.idle, lasts.whole].map(|time| time.as_millis().to_string());
        call.arg(who).arg(idle).arg(whole);
        self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await.map(drop)
    }

    async fn visit(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        let call = self.session_call(&self.scripts.web_session_visit, id);
        // A visit that is sent twice has only one effect.
        read_who(self.call(&call, CallPolicy::Read(self.budget)).await?)
    }

    async fn end(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        let call = self.session_call(&self.scripts.web_session_end, id);
        read_who(self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?)
    }

    async fn list_web_sessions(&self, most: usize) -> Result<Vec<ListedWebSession>, StoreError> {
        let mut call = self.web_sessions_call(&self.scripts.web_session_list, &self.web_session_key);
        call.arg(most.max(1));
        let mut texts = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.texts();
        let mut sessions = Vec::new();
        while let (Some(entry), Some(idle_ends)) = (texts.next(), texts.next()) {
            let session = parse_listed(&entry, &idle_ends);
            sessions.push(session.ok_or_else(|| {
                StoreError::Corrupt(
                    "redis returned an entry of the list of browser sessions that is not a session".to_owned(),
                )
            })?);
        }
        Ok(sessions)
    }
}
