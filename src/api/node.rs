//! Questions about the answering node: its audit record, its process, and the store that it owns.

use std::{borrow::Cow, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{question, sessions::Door};

/// Reads the audit record of this node, the latest change first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAuditedChanges {
    /// The `next` of the previous page: only changes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<u64>,
}

question!(ListAuditedChanges => AuditPage: GET "/v1/audit", Viewer);

/// A page of the audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditPage {
    /// The changes, the latest first.
    pub(crate) changes: Vec<AuditLine>,
    /// The position of earlier changes; null: this file has none.
    pub(crate) next: Option<u64>,
}

/// A line of the audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AuditLine {
    /// A change.
    Change(AuditedChange),
    /// Any other line, such as half of one that a full disk left: a text if it is not JSON.
    Other(Value),
}

/// A change. Its values are those that the caller sent; they never include a key's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditedChange {
    /// The time, in milliseconds since the Unix epoch.
    pub(crate) time_unix_ms: i64,
    /// The caller.
    #[serde(flatten)]
    pub(crate) peer: AuditPeer,
    /// The operation, such as `key.create` or `account.credit`.
    pub(crate) operation: Cow<'static, str>,
    /// The key; empty if the change is not about a key.
    pub(crate) key_id: String,
    /// The new values of the changed fields.
    pub(crate) values: Value,
}

/// The author of a change, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditPeer {
    /// The user at the other end of the socket, or the one who opened the session from there.
    pub(crate) peer_uid: Option<u32>,
    /// The process at the other end of the socket, or the one that opened the session from there.
    pub(crate) peer_pid: Option<i32>,
    /// The holder of the certificate at the other end of a TCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_certificate: Option<Arc<str>>,
    /// The OpenID provider's identifier of the person, which it never gives to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_subject: Option<Arc<str>>,
    /// The person's name at the OpenID provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_name: Option<Arc<str>>,
    /// The key whose owner is signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_key: Option<Arc<str>>,
    /// The site on which the change was made; omitted if it was not made on a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<Door>,
}

/// Starts a process that replaces this one, with the present program and configuration. Answers as soon as that process serves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upgrade {}

question!(Upgrade => UpgradedProcess: POST "/v1/upgrade", Owner; const IS_LONG: bool = true;);

/// The new process, which serves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UpgradedProcess {
    /// Its process id.
    pub(crate) pid: u32,
    /// The number of requests that are still running in the old process.
    pub(crate) running: usize,
}

/// Copies everything in the store that this process owns. The last line of a complete backup has the number of its items and
/// their SHA-256.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backup {}

question!(Backup => String: GET "/v1/backup", Owner;
    const IS_LONG: bool = true;
    const MEDIA: &'static [&'static str] = &["application/x-ndjson"];
);
