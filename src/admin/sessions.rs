//! Calls of the admin API about signed-in users and agents: users of the console and the portal in browsers, and agents with a
//! key.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Admin;
use crate::admin::audit::AdminPeer;
use crate::admin::{AdminHandler, audit::Author};
use crate::{
    api::{
        AdminError,
        sessions::{
            ConsoleLink, CreateConsoleLink, DecideSignIn, DecidedSignIn, Door, EndAllSessions, EndSession, EndSignIns,
            EndedSessions, EndedSignIns, ListSessions, ListSignIns, SessionList, SessionView, SignInList, SignInView,
        },
        values::Moment,
    },
    domain::{
        keys::KeyId,
        sign_in::{Role, device_request::UserCode},
    },
    edges::clock,
    sign_in::AgentSignIns,
    store::{
        KeyView, StoreError,
        sessions::{ListedWebSession, WebSessionStore},
    },
};

/// The maximum number of sessions in one answer. The most recently used sessions are returned.
const SESSIONS_MAX: usize = 1000;
/// The maximum number of rounds for ending all sessions. Each round ends [`SESSIONS_MAX`] sessions.
const ROUNDS_MAX: usize = 100;
/// The number of characters of a session's id. The id is a prefix of the digest of the session's cookie. Nobody can derive the
/// cookie from the digest.
const ID_CHARS: usize = 16;

/// The user of a session, in the form that the console and the portal store.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "door", content = "who", rename_all = "snake_case")]
pub(crate) enum SessionHolder {
    /// An operator, who is signed in at the console.
    Console { opened_by: AdminPeer, role: Role },
    /// The owner of the key with this id, who is signed in at the portal.
    Portal { key: KeyId },
}

impl SessionHolder {
    /// Parses a stored session. `None` if no user is signed in with it, for example because a sign-in is in progress.
    pub(crate) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl AdminHandler for CreateConsoleLink {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ConsoleLink, AdminError> {
        let Some(console) = &admin.console else {
            return Err(AdminError::not_found(
                "the console is off: set `listen` of [console] in the configuration and restart weir",
            ));
        };
        let link = console.issue(&author.peer, self.role.unwrap_or(Role::Owner));
        let link = link.map_err(AdminError::invalid)?;
        admin.audit(author.peer, "console.open", "", &self).await?;
        Ok(link)
    }
}

impl AdminHandler for ListSessions {
    async fn answer(self, admin: &Admin, _: Author) -> Result<SessionList, AdminError> {
        let sessions = held_sessions(&*admin.web_sessions).await?.into_iter();
        let sessions = sessions.map(|(session, holder)| session_view(&session, holder));
        Ok(SessionList {
            sessions: sessions.collect(),
        })
    }
}

impl AdminHandler for EndSession {
    async fn answer(self, admin: &Admin, author: Author) -> Result<EndedSessions, AdminError> {
        let sessions = held_sessions(&*admin.web_sessions).await?;
        let found = sessions.iter().find(|(session, _)| short_id(session) == self.id);
        let (session, _) = found.ok_or_else(|| {
            AdminError::not_found(
                "no session has this id, or the session has ended; `weir console sessions` lists all sessions",
            )
        })?;
        end_one(admin, &author.peer, session).await?;
        Ok(EndedSessions { ended: 1 })
    }
}

impl AdminHandler for EndAllSessions {
    async fn answer(self, admin: &Admin, author: Author) -> Result<EndedSessions, AdminError> {
        let mut ended = 0;
        for _ in 0..ROUNDS_MAX {
            let sessions = held_sessions(&*admin.web_sessions).await?;
            if sessions.is_empty() {
                break;
            }
            for (session, _) in &sessions {
                end_one(admin, &author.peer, session).await?;
                ended += 1;
            }
        }
        Ok(EndedSessions { ended })
    }
}

async fn held_sessions(store: &dyn WebSessionStore) -> Result<Vec<(ListedWebSession, SessionHolder)>, AdminError> {
    let sessions = store.list_web_sessions(SESSIONS_MAX).await?.into_iter();
    let held = sessions.filter_map(|session| {
        let holder = SessionHolder::read(&session.who)?;
        Some((session, holder))
    });
    Ok(held.collect())
}

/// The values that the audit record contains for the end of a session.
#[derive(Serialize)]
struct AuditedSessionEnd {
    session: String,
}

async fn end_one(admin: &Admin, peer: &AdminPeer, session: &ListedWebSession) -> Result<(), AdminError> {
    let values = AuditedSessionEnd {
        session: short_id(session),
    };
    admin.audit(peer.clone(), "console.end_session", "", &values).await?;
    admin.web_sessions.end(&session.id).await?;
    Ok(())
}

fn short_id(session: &ListedWebSession) -> String {
    session.id.to_hex().chars().take(ID_CHARS).collect()
}

fn session_view(session: &ListedWebSession, holder: SessionHolder) -> SessionView {
    let (door, opened_by, role, key) = match holder {
        SessionHolder::Console { opened_by, role } => (Door::Console, Some(opened_by.display_name()), Some(role), None),
        SessionHolder::Portal { key } => (Door::Portal, None, None, Some(key)),
    };
    SessionView {
        id: short_id(session),
        door,
        opened_by,
        role,
        key,
        idle_ends_at: Moment::of_millis(session.idle_ends_ms),
        ends_at: Moment::of_millis(session.ends_ms),
    }
}

/// The values that the audit record contains for a decision about an agent's sign-in. It is safe to record `user_code`, because
/// this code expires within minutes and is useless after the decision.
#[derive(Serialize)]
struct AuditedDecision<'a> {
    user_code: &'a UserCode,
    approve: bool,
}

impl AdminHandler for DecideSignIn {
    async fn answer(self, admin: &Admin, author: Author) -> Result<DecidedSignIn, AdminError> {
        let Self { id, user_code, approve } = self;
        let sign_ins = enabled_sign_ins(admin)?;
        let view = existing_key_view(admin, &id).await?;
        let works = view.record.check(&view.digest, clock::unix_seconds());
        works.map_err(|denied| AdminError::invalid(format!("{denied}: nobody can sign in with this key")))?;
        // A form that is submitted twice gets the same answer both times.
        if sign_ins.is_decided(&user_code, &view, approve).await? {
            return Ok(DecidedSignIn { id, approved: approve });
        }
        if sign_ins.pending(&user_code).await?.is_none() {
            return Err(not_waiting());
        }
        let values = AuditedDecision {
            user_code: &user_code,
            approve,
        };
        admin.audit(author.peer, "key.sign_in", id.as_str(), &values).await?;
        if !sign_ins.decide(&user_code, &view, approve).await? {
            return Err(not_waiting());
        }
        Ok(DecidedSignIn { id, approved: approve })
    }
}

impl AdminHandler for ListSignIns {
    async fn answer(self, admin: &Admin, _: Author) -> Result<SignInList, AdminError> {
        let sign_ins = enabled_sign_ins(admin)?;
        existing_key_view(admin, &self.id).await?;
        let lasting = sign_ins.active(&self.id).await?.into_iter();
        let sign_ins = lasting.map(|(used, ends)| SignInView {
            used_at: Moment::of_seconds(used),
            ends_at: Moment::of_seconds(ends),
        });
        let sign_ins: Vec<_> = sign_ins.collect();
        Ok(SignInList {
            id: self.id,
            signed_in: sign_ins.len(),
            sign_ins,
        })
    }
}

impl AdminHandler for EndSignIns {
    async fn answer(self, admin: &Admin, author: Author) -> Result<EndedSignIns, AdminError> {
        let sign_ins = enabled_sign_ins(admin)?;
        admin
            .audit(author.peer, "key.sign_out", self.id.as_str(), &json!({}))
            .await?;
        sign_ins.end_all(&self.id).await?;
        Ok(EndedSignIns {
            id: self.id,
            signed_in: 0,
        })
    }
}

fn enabled_sign_ins(admin: &Admin) -> Result<&AgentSignIns, AdminError> {
    admin.sign_ins.as_deref().ok_or_else(|| {
        AdminError::not_found(
            "the sign-in of agents is off: set `enabled` of [sign_in] in the configuration and restart weir",
        )
    })
}

async fn existing_key_view(admin: &Admin, id: &KeyId) -> Result<KeyView, AdminError> {
    let found = admin.store.by_id(id).await?;
    Ok(found.ok_or(StoreError::NotFound)?)
}

fn not_waiting() -> AdminError {
    AdminError::not_found(
        "no sign-in with this code is waiting for approval: the code has expired, was used, or was mistyped; start the sign-in at the agent again",
    )
}
