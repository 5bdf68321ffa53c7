//! People's sessions in browsers in the admin API: who is signed in at the console and the portal, and their end.

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    peer::Peer,
    reply::{AdminError, JsonResult, time_ms},
    state::Admin,
};
use crate::{
    domain::{keys::key::KeyId, role::Role},
    store::web_sessions::{ListedWebSession, WebSessionStore},
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

/// `GET /v1/console/sessions`
pub(super) async fn list(State(state): State<Admin>) -> JsonResult {
    let sessions = held(&*state.web_sessions).await?;
    let sessions: Vec<Value> = sessions
        .iter()
        .map(|(session, holder)| shown(session, holder))
        .collect();
    Ok(Json(json!({ "sessions": sessions })))
}

/// `DELETE /v1/console/sessions/{id}`
pub(super) async fn end(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    Path(wanted): Path<String>,
) -> JsonResult {
    let sessions = held(&*state.web_sessions).await?;
    let found = sessions.iter().find(|(session, _)| id(session) == wanted);
    let (session, _) = found.ok_or_else(|| {
        AdminError::not_found("no session has this id, or it has ended; `weir console sessions` lists those that go on")
    })?;
    end_one(&state, &peer, session).await?;
    Ok(Json(json!({ "ended": 1 })))
}

/// `DELETE /v1/console/sessions`
pub(super) async fn end_all(State(state): State<Admin>, Extension(peer): Extension<Peer>) -> JsonResult {
    let mut ended = 0;
    for _ in 0..ROUNDS_MAX {
        let sessions = held(&*state.web_sessions).await?;
        if sessions.is_empty() {
            break;
        }
        for (session, _) in &sessions {
            end_one(&state, &peer, session).await?;
            ended += 1;
        }
    }
    Ok(Json(json!({ "ended": ended })))
}

async fn held(store: &dyn WebSessionStore) -> Result<Vec<(ListedWebSession, Holder)>, AdminError> {
    let sessions = store.list_web_sessions(SESSIONS_MAX).await?.into_iter();
    let held = sessions.filter_map(|session| {
        let holder = Holder::read(&session.who)?;
        Some((session, holder))
    });
    Ok(held.collect())
}

async fn end_one(state: &Admin, peer: &Peer, session: &ListedWebSession) -> Result<(), AdminError> {
    let values = json!({ "session": id(session) });
    state.audit(peer.clone(), "console.end_session", "", &values).await?;
    state.web_sessions.end(&session.id).await?;
    Ok(())
}

fn id(session: &ListedWebSession) -> String {
    session.id.to_hex().chars().take(ID_CHARS).collect()
}

fn shown(session: &ListedWebSession, holder: &Holder) -> Value {
    let (door, opened_by, role, key) = match holder {
        Holder::Console { opened_by, role } => ("console", Some(opened_by.called()), Some(role.as_str()), None),
        Holder::Portal { key } => ("portal", None, None, Some(key.as_str())),
    };
    json!({
        "id": id(session),
        "door": door,
        "opened_by": opened_by,
        "role": role,
        "key": key,
        "idle_ends_at": time_ms(session.idle_ends_ms),
        "ends_at": time_ms(session.ends_ms),
    })
}
