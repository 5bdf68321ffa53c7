//! Sessions of people in browsers in Redis: a hash each, which expires when the session ends.

use async_trait::async_trait;

use super::{
    ADMIN_BUDGET, RedisStore,
    link::Effort,
    reply::ScriptReply,
    script::{Script, ScriptCall},
};
use crate::store::{
    StoreError,
    web_sessions::{Lifetime, ListedWebSession, SessionDigest, WebSessionStore},
};

impl RedisStore {
    fn of_session<'a>(&self, script: &'a Script, id: &SessionDigest) -> ScriptCall<'a> {
        let session = format!("{}:{}", self.web_session_key, id.to_hex());
        self.of_web_sessions(script, &session)
    }

    fn of_web_sessions<'a>(&self, script: &'a Script, session: &str) -> ScriptCall<'a> {
        let mut call = self.prepare(script);
        call.key(session).key(&self.web_session_key);
        call
    }
}

/// A session as the script about all of them tells it: `<digest> <end> <whose it is>`, and when it ends without a visit.
fn listed(entry: &str, idle_ends: &str) -> Option<ListedWebSession> {
    let mut parts = entry.splitn(3, ' ');
    Some(ListedWebSession {
        id: SessionDigest::from_hex(parts.next()?)?,
        ends_ms: parts.next()?.parse().ok()?,
        who: parts.next()?.to_owned(),
        idle_ends_ms: idle_ends.parse().ok()?,
    })
}

fn who(mut reply: ScriptReply) -> Result<Option<String>, StoreError> {
    Ok(Some(reply.text()?).filter(|who| !who.is_empty()))
}

#[async_trait]
impl WebSessionStore for RedisStore {
    async fn begin(&self, id: &SessionDigest, who: &str, lasts: Lifetime) -> Result<(), StoreError> {
        let mut call = self.of_session(&self.scripts.web_session_begin, id);
        let [idle, whole] = [lasts.idle, lasts.whole].map(|time| time.as_millis().to_string());
        call.arg(who).arg(idle).arg(whole);
        self.call(&call, Effort::Write(ADMIN_BUDGET)).await.map(drop)
    }

    async fn visit(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        let call = self.of_session(&self.scripts.web_session_visit, id);
        // Done twice it does the same.
        who(self.call(&call, Effort::Read(self.budget)).await?)
    }

    async fn end(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        let call = self.of_session(&self.scripts.web_session_end, id);
        who(self.call(&call, Effort::Write(ADMIN_BUDGET)).await?)
    }

    async fn list_web_sessions(&self, most: usize) -> Result<Vec<ListedWebSession>, StoreError> {
        let mut call = self.of_web_sessions(&self.scripts.web_session_list, &self.web_session_key);
        call.arg(most.max(1));
        let mut texts = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?.texts();
        let mut sessions = Vec::new();
        while let (Some(entry), Some(idle_ends)) = (texts.next(), texts.next()) {
            let session = listed(&entry, &idle_ends);
            sessions.push(session.ok_or_else(|| StoreError::Corrupt("redis lists what is no session".to_owned()))?);
        }
        Ok(sessions)
    }
}
