//! Who calls the admin API.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{domain::keys::key::KeyId, side::audit::AuditPeer};

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
    /// A session of the console, which the one within has asked for.
    Console(Box<Peer>),
    /// The owner of a key, signed in with it at the portal.
    Owner(KeyId),
}

impl Peer {
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
            Self::Console(opened_by) => AuditPeer {
                via: Some("console"),
                ..opened_by.told()
            },
            Self::Owner(key) => AuditPeer {
                peer_key: Some(key.as_str().into()),
                via: Some("portal"),
                ..AuditPeer::default()
            },
        }
    }
}
