//! The callers of the admin API.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    api::{
        error::{AdminError, AdminErrorCode},
        node::AuditPeer,
        sessions::Door,
    },
    domain::{keys::key::KeyId, role::Role},
};

/// A caller of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminPeer {
    /// A process on this machine, as far as the system identifies it.
    Process { uid: Option<u32>, pid: Option<i32> },
    /// The holder of a certificate.
    Certified(Arc<str>),
    /// A user of the OpenID provider. `subject` identifies the person and is never given to another; `name` is for people and may
    /// change.
    Person { subject: Arc<str>, name: Arc<str> },
    /// A session of the console that `opened_by` has opened.
    Console { opened_by: Box<AdminPeer>, role: Role },
    /// The owner of a key, signed in with it at the portal.
    Owner(KeyId),
}

impl AdminPeer {
    /// Refuses a question that needs a higher role than the session's. Callers by socket or certificate may ask everything.
    ///
    /// # Errors
    /// Names the role that is needed.
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

    /// The caller's name for people.
    pub(super) fn display_name(&self) -> String {
        match self {
            Self::Process { uid, .. } => uid.map_or_else(|| "a process".to_owned(), |uid| format!("uid {uid}")),
            Self::Certified(holder) => holder.to_string(),
            Self::Person { name, .. } => name.to_string(),
            Self::Console { opened_by, .. } => opened_by.display_name(),
            Self::Owner(key) => key.as_str().to_owned(),
        }
    }

    /// The caller as in the audit record.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
