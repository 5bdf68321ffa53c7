//! Who calls the admin API.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use http::Method;

use crate::{
    api::{
        error::{AdminError, Code},
        node::AuditPeer,
        sessions::Door,
    },
    domain::{keys::key::KeyId, role::Role},
};

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Peer {
    /// A process on this machine, as far as the system tells.
    Process { uid: Option<u32>, pid: Option<i32> },
    /// The holder of a certificate.
    Certified(Arc<str>),
    /// A person whom the OpenID provider knows: by the identifier that it never gives to another, and by the name for people,
    /// which may change.
    Person { subject: Arc<str>, name: Arc<str> },
    /// A session of the console, which `opened_by` has asked for.
    Console { opened_by: Box<Peer>, role: Role },
    /// The owner of a key, signed in with it at the portal.
    Owner(KeyId),
}

/// The role that a session of the console needs for a call: to look, the least; whatever is not known, the most.
fn needed(method: &Method, path: &str) -> Role {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let kind = path.strip_prefix("/v1/").and_then(|rest| rest.split('/').next());
    match (kind, *method == Method::GET) {
        (Some("backup"), _) => Role::Owner,
        (_, true) => Role::Viewer,
        (Some("keys" | "providers"), false) => Role::Operator,
        (_, false) => Role::Owner,
    }
}

impl Peer {
    /// Why it may not make this call; `None`: it may. Sessions have roles; whoever has the socket or a certificate may do all.
    pub(super) fn barred(&self, method: &Method, path: &str) -> Option<String> {
        let Self::Console { role, .. } = self else {
            return None;
        };
        let needed = needed(method, path);
        (*role < needed).then(|| {
            format!(
                "this needs the role {}, and the session has the role {}; nothing was changed",
                needed.as_str(),
                role.as_str()
            )
        })
    }

    /// Refuses a question that needs more than a session's role. Whoever has the socket or a certificate may ask all.
    ///
    /// # Errors
    /// The role that it needs.
    pub(super) fn check(&self, needed: Role) -> Result<(), AdminError> {
        match self {
            Self::Console { role, .. } if *role < needed => Err(AdminError::new(
                Code::Forbidden,
                format!(
                    "this needs the role {}, and the session has the role {}; nothing was changed",
                    needed.as_str(),
                    role.as_str()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// What people call it.
    pub(super) fn called(&self) -> String {
        match self {
            Self::Process { uid, .. } => uid.map_or_else(|| "a process".to_owned(), |uid| format!("uid {uid}")),
            Self::Certified(holder) => holder.to_string(),
            Self::Person { name, .. } => name.to_string(),
            Self::Console { opened_by, .. } => opened_by.called(),
            Self::Owner(key) => key.as_str().to_owned(),
        }
    }

    /// Who it is, for the audit record.
    pub(super) fn told(self) -> AuditPeer {
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
                ..opened_by.told()
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
    fn a_session_of_the_console_may_do_what_its_role_says_and_others_may_do_all() {
        let process = Peer::Process {
            uid: Some(0),
            pid: None,
        };
        let may = |role, method: &Method, path: &str| {
            let session = Peer::Console {
                opened_by: Box::new(process.clone()),
                role,
            };
            assert_eq!(process.barred(method, path), None);
            session.barred(method, path).is_none()
        };
        use Role::{Operator, Owner, Viewer};
        for (method, path, least) in [
            (Method::GET, "/v1/keys?limit=1", Viewer),
            (Method::GET, "/v1/accounts/a", Viewer),
            (Method::GET, "/v1/backup", Owner),
            (Method::POST, "/v1/keys", Operator),
            (Method::PATCH, "/v1/keys/key_1", Operator),
            (Method::DELETE, "/v1/keys/key_1", Operator),
            (Method::POST, "/v1/providers/p/disable", Operator),
            (Method::POST, "/v1/accounts/a/credit", Owner),
            (Method::PATCH, "/v1/accounts/a", Owner),
            (Method::POST, "/v1/log/mend", Owner),
            (Method::POST, "/v1/console/links", Owner),
            (Method::POST, "/v2/keys", Owner),
        ] {
            for role in [Viewer, Operator, Owner] {
                assert_eq!(may(role, &method, path), role >= least, "{method} {path} {role:?}");
            }
        }
    }
}
