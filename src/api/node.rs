//! Questions about the node that answers: its audit record, its process, and the store that it owns.

use std::{borrow::Cow, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{question, sessions::Door};

/// Reads the audit record of this node, the latest change first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAuditedChanges {
    /// The changes in front of this place, which the page before names in `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<u64>,
}

question!(ListAuditedChanges => AuditPage: GET "/v1/audit", Viewer);

/// Some lines of the audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditPage {
    /// The changes, the latest first.
    pub(crate) changes: Vec<AuditLine>,
    /// The place from which the changes before are read; null: there are none in this file.
    pub(crate) next: Option<u64>,
}

/// A line of the audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AuditLine {
    /// A change.
    Change(AuditedChange),
    /// A line that is none, such as half of one that a full disk has left: a text where it is no JSON.
    Other(Value),
}

/// A change. Its values are those that the operator sent; a key's text is never among them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditedChange {
    /// When, in milliseconds since the Unix epoch.
    pub(crate) time_unix_ms: i64,
    /// Who has asked for it.
    #[serde(flatten)]
    pub(crate) peer: AuditPeer,
    /// The operation: `key.create`, `account.credit` and so on.
    pub(crate) operation: Cow<'static, str>,
    /// The key concerned; empty where none is.
    pub(crate) key_id: String,
    /// The new values of the fields that change.
    pub(crate) values: Value,
}

/// Who changes something, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditPeer {
    /// The user at the other end of the socket, or who has opened the session from there.
    pub(crate) peer_uid: Option<u32>,
    /// The process at the other end of the socket, or the one that has opened the session.
    pub(crate) peer_pid: Option<i32>,
    /// The holder of the certificate at the other end of a TCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_certificate: Option<Arc<str>>,
    /// The person that the OpenID provider has vouched for, by the identifier that it never gives to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_subject: Option<Arc<str>>,
    /// What the provider calls that person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_name: Option<Arc<str>>,
    /// The key whose owner is signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_key: Option<Arc<str>>,
    /// The pages that it was asked for on; none where it was no page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<Door>,
}

/// Starts a process that takes the place of this one, with the program and the configuration as they are now. Answers as soon as
/// that process serves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upgrade {}

question!(Upgrade => Upgraded: POST "/v1/upgrade", Owner; const IS_LONG: bool = true;);

/// Another process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Upgraded {
    /// Its process id.
    pub(crate) pid: u32,
    /// The number of requests that still run in the one before.
    pub(crate) running: usize,
}

/// Copies everything in a store that this process owns. The last line of a whole backup has the number of its items and their
/// SHA-256.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backup {}

question!(Backup => String: GET "/v1/backup", Owner;
    const IS_LONG: bool = true;
    const MEDIA: &'static [&'static str] = &["application/x-ndjson"];
);
