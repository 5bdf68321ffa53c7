//! Who is signed in, in the admin API: people in browsers, at the console and the portal, and agents with a key.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Admin, ask::Answered, author::Author, peer::Peer};
use crate::{
    api::{
        error::AdminError,
        sessions::{
            ConsoleLink, CreateConsoleLink, DecideSignIn, DecidedSignIn, Door, EndAllSessions, EndSession, EndSignIns,
            EndedSessions, EndedSignIns, ListSessions, ListSignIns, SessionList, SessionView, SignInList, SignInView,
        },
        values::Moment,
    },
    domain::{keys::key::KeyId, role::Role, sign_in::user_code::UserCode},
    edges::clock,
    sign_in::AgentSignIns,
    store::{
        KeyView, StoreError,
        web_sessions::{ListedWebSession, WebSessionStore},
    },
};

/// The most sessions of one answer: those that were used last.
const SESSIONS_MAX: usize = 1000;
/// How often so many are ended where all are to end.
const ROUNDS_MAX: usize = 100;
/// By so much of its digest a session is known: nobody can make a cookie of it.
const ID_CHARS: usize = 16;

/// Who holds a session, as the doors write it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "door", content = "who", rename_all = "snake_case")]
pub(crate) enum Holder {
    /// An operator, at the console.
    Console { opened_by: Peer, role: Role },
    /// The owner of a key, at the portal.
    Portal { key: KeyId },
}

impl Holder {
    /// Reads it; `None`: it is no session that somebody holds, such as a sign-in that is under way.
    pub(crate) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl Answered for CreateConsoleLink {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ConsoleLink, AdminError> {
        let Some(console) = &admin.console else {
            return Err(AdminError::not_found(
                "the console is off: set `listen` of [console] in the configuration and start weir anew",
            ));
        };
        let link = console.issue(&author.peer, self.role.unwrap_or(Role::Owner));
        let link = link.map_err(AdminError::invalid)?;
        admin.audit(author.peer, "console.open", "", &self).await?;
        Ok(link)
    }
}

impl Answered for ListSessions {
    async fn answer(self, admin: &Admin, _: Author) -> Result<SessionList, AdminError> {
        let sessions = held(&*admin.web_sessions).await?.into_iter();
        let sessions = sessions.map(|(session, holder)| shown(&session, holder));
        Ok(SessionList {
            sessions: sessions.collect(),
        })
    }
}

impl Answered for EndSession {
    async fn answer(self, admin: &Admin, author: Author) -> Result<EndedSessions, AdminError> {
        let sessions = held(&*admin.web_sessions).await?;
        let found = sessions.iter().find(|(session, _)| id(session) == self.id);
        let (session, _) = found.ok_or_else(|| {
            AdminError::not_found(
                "no session has this id, or it has ended; `weir console sessions` lists those that go on",
            )
        })?;
        end_one(admin, &author.peer, session).await?;
        Ok(EndedSessions { ended: 1 })
    }
}

impl Answered for EndAllSessions {
    async fn answer(self, admin: &Admin, author: Author) -> Result<EndedSessions, AdminError> {
        let mut ended = 0;
        for _ in 0..ROUNDS_MAX {
            let sessions = held(&*admin.web_sessions).await?;
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

async fn held(store: &dyn WebSessionStore) -> Result<Vec<(ListedWebSession, Holder)>, AdminError> {
    let sessions = store.list_web_sessions(SESSIONS_MAX).await?.into_iter();
    let held = sessions.filter_map(|session| {
        let holder = Holder::read(&session.who)?;
        Some((session, holder))
    });
    Ok(held.collect())
}

/// The audit record's values.
#[derive(Serialize)]
struct Ended {
    session: String,
}

async fn end_one(admin: &Admin, peer: &Peer, session: &ListedWebSession) -> Result<(), AdminError> {
    let values = Ended { session: id(session) };
    admin.audit(peer.clone(), "console.end_session", "", &values).await?;
    admin.web_sessions.end(&session.id).await?;
    Ok(())
}

fn id(session: &ListedWebSession) -> String {
    session.id.to_hex().chars().take(ID_CHARS).collect()
}

fn shown(session: &ListedWebSession, holder: Holder) -> SessionView {
    let (door, opened_by, role, key) = match holder {
        Holder::Console { opened_by, role } => (Door::Console, Some(opened_by.called()), Some(role), None),
        Holder::Portal { key } => (Door::Portal, None, None, Some(key)),
    };
    SessionView {
        id: id(session),
        door,
        opened_by,
        role,
        key,
        idle_ends_at: Moment::of_millis(session.idle_ends_ms),
        ends_at: Moment::of_millis(session.ends_ms),
    }
}

/// The audit record's values. The code is good for minutes and for nothing else, so it may be in the record.
#[derive(Serialize)]
struct Decision<'a> {
    user_code: &'a UserCode,
    approve: bool,
}

impl Answered for DecideSignIn {
    async fn answer(self, admin: &Admin, author: Author) -> Result<DecidedSignIn, AdminError> {
        let Self { id, user_code, approve } = self;
        let sign_ins = on(admin)?;
        let view = existing(admin, &id).await?;
        let works = view.record.check(&view.digest, clock::unix_seconds());
        works.map_err(|denied| AdminError::invalid(format!("{denied}: nobody can sign in with it")))?;
        // A form that was sent twice is answered alike.
        if sign_ins.is_decided(&user_code, &view, approve).await? {
            return Ok(DecidedSignIn { id, approved: approve });
        }
        if sign_ins.waiting(&user_code).await?.is_none() {
            return Err(not_waiting());
        }
        let values = Decision {
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

impl Answered for ListSignIns {
    async fn answer(self, admin: &Admin, _: Author) -> Result<SignInList, AdminError> {
        let sign_ins = on(admin)?;
        existing(admin, &self.id).await?;
        let lasting = sign_ins.lasting(&self.id).await?.into_iter();
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

impl Answered for EndSignIns {
    async fn answer(self, admin: &Admin, author: Author) -> Result<EndedSignIns, AdminError> {
        let sign_ins = on(admin)?;
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

fn on(admin: &Admin) -> Result<&AgentSignIns, AdminError> {
    admin.sign_ins.as_deref().ok_or_else(|| {
        AdminError::not_found(
            "agents cannot sign in here: set `enabled` of [sign_in] in the configuration and start weir anew",
        )
    })
}

async fn existing(admin: &Admin, id: &KeyId) -> Result<KeyView, AdminError> {
    let found = admin.store.by_id(id).await?;
    Ok(found.ok_or(StoreError::NotFound)?)
}

fn not_waiting() -> AdminError {
    AdminError::not_found(
        "no sign-in with this code waits for approval: it has expired, was decided, or was mistyped; let the agent begin anew",
    )
}
