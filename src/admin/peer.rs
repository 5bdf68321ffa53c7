//! Who calls the admin API, and under which condition a change is to be made.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Extension, RequestPartsExt,
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        error::{AdminError, AdminErrorCode},
        node::AuditPeer,
        sessions::Door,
    },
    domain::{
        keys::{change::ChangePrecondition, key::KeyId},
        sign_in::Role,
        version::Version,
    },
};

/// Who calls the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminPeer {
    /// A process on this machine, with its user id and process id as far as the system reports them.
    Process { uid: Option<u32>, pid: Option<i32> },
    /// The owner of a client certificate: the certificate's subject and SHA-256.
    Certified(Arc<str>),
    /// A user of the OpenID provider. `subject` identifies the user and is never reassigned. `name` is for display and can
    /// change.
    Person { subject: Arc<str>, name: Arc<str> },
    /// A session of the console with this role, which `opened_by` has opened.
    Console { opened_by: Box<AdminPeer>, role: Role },
    /// The owner of this key, who is signed in at the portal with it.
    Owner(KeyId),
}

impl AdminPeer {
    /// Refuses a call that needs a higher role than that of the caller's session. Callers by socket or certificate can make every
    /// call.
    ///
    /// # Errors
    /// The session's role is too low. The message names the role that is needed.
    pub(super) fn check_role(&self, needed: Role) -> Result<(), AdminError> {
        match self {
            Self::Console { role, .. } if *role < needed => Err(AdminError::new(
                AdminErrorCode::Forbidden,
                format!(
                    "this needs the role {}, and the session has the role {}; nothing was changed",
                    needed.as_str(),
                    role.as_str()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the caller's name for display.
    pub(super) fn display_name(&self) -> String {
        match self {
            Self::Process { uid, .. } => uid.map_or_else(|| "a process".to_owned(), |uid| format!("uid {uid}")),
            Self::Certified(holder) => holder.to_string(),
            Self::Person { name, .. } => name.to_string(),
            Self::Console { opened_by, .. } => opened_by.display_name(),
            Self::Owner(key) => key.as_str().to_owned(),
        }
    }

    /// Converts the caller to its form in the audit record.
    pub(super) fn audit_peer(self) -> AuditPeer {
        match self {
            Self::Process { uid, pid } => AuditPeer {
                peer_uid: uid,
                peer_pid: pid,
                ..AuditPeer::default()
            },
            Self::Certified(holder) => AuditPeer {
                peer_certificate: Some(holder),
                ..AuditPeer::default()
            },
            Self::Person { subject, name } => AuditPeer {
                peer_subject: Some(subject),
                peer_name: Some(name),
                ..AuditPeer::default()
            },
            Self::Console { opened_by, .. } => AuditPeer {
                via: Some(Door::Console),
                ..opened_by.audit_peer()
            },
            Self::Owner(key) => AuditPeer {
                peer_key: Some(key.as_str().into()),
                via: Some(Door::Portal),
                ..AuditPeer::default()
            },
        }
    }
}

/// Lets a handler of a call extend the lifetime of the connection, which is needed for long answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionExtension(pub(crate) Arc<AtomicBool>);

impl ConnectionExtension {
    pub(crate) fn extend(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The author of a call of the admin API.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) peer: AdminPeer,
    /// The condition under which a change is made. Pages of this process set it; for other callers it is the header `If-Match`.
    pub(crate) from: ChangePrecondition,
}

impl From<AdminPeer> for Author {
    /// Creates an author whose changes are unconditional.
    fn from(peer: AdminPeer) -> Self {
        Self {
            peer,
            from: ChangePrecondition::Anything,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Author {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminError> {
        let peer = parts.extract::<Extension<AdminPeer>>().await;
        let Extension(peer) = peer.map_err(|error| AdminError::failed(error.to_string()))?;
        let from = match parts.extensions.get() {
            Some(from) => *from,
            None => if_match(&parts.headers)?,
        };
        Ok(Self { peer, from })
    }
}

/// Returns the condition in the header `If-Match`. A missing header and `*` are no condition.
fn if_match(headers: &HeaderMap) -> Result<ChangePrecondition, AdminError> {
    let version = condition(headers)?;
    Ok(version.map_or(ChangePrecondition::Anything, ChangePrecondition::Version))
}

/// Returns the version in the header `If-Match`. `None` if the change is unconditional.
fn condition(headers: &HeaderMap) -> Result<Option<Version>, AdminError> {
    let wanted = || AdminError::invalid("If-Match must be one version in quotes, such as \"17-5f3a9c21\", or `*`");
    let mut named = headers.get_all(header::IF_MATCH).iter();
    let tag = match (named.next(), named.next()) {
        (None, _) => return Ok(None),
        (Some(one), None) => one.to_str().map_err(|_| wanted())?.trim(),
        (Some(_), Some(_)) => return Err(wanted()),
    };
    if tag == "*" {
        return Ok(None);
    }
    let version = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let version = version.and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_session_of_the_console_may_ask_what_its_role_says_and_others_may_ask_all() {
        let process = AdminPeer::Process {
            uid: Some(0),
            pid: None,
        };
        for needed in Role::ALL {
            assert_eq!(process.check_role(needed), Ok(()));
            for role in Role::ALL {
                let opened_by = Box::new(process.clone());
                let session = AdminPeer::Console { opened_by, role };
                assert_eq!(
                    session.check_role(needed).is_ok(),
                    role >= needed,
                    "{role:?} {needed:?}"
                );
            }
        }
    }

    #[test]
    fn a_condition_is_one_version_in_quotes_any_or_none() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_MATCH, HeaderValue::from_static(value));
            }
            if_match(&headers).ok()
        };
        let version = Version::new(17, 0xcbf4_3926);
        assert_eq!(read(&["\"17-cbf43926\""]), Some(ChangePrecondition::Version(version)));
        assert_eq!(
            (read(&[]), read(&["*"])),
            (Some(ChangePrecondition::Anything), Some(ChangePrecondition::Anything))
        );
        for wrong in [
            "",
            "17-cbf43926",
            "W/\"17-cbf43926\"",
            "\"17-cbf43926\", \"18-cbf43926\"",
            "\"\"",
            "\"other\"",
        ] {
            assert_eq!(read(&[wrong]), None, "{wrong}");
        }
        assert_eq!(read(&["\"17-cbf43926\"", "\"17-cbf43926\""]), None);
    }
}
