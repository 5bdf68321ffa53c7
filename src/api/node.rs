//! Requests of the admin API about the answering node: its audit record, its process, its models and providers, and the store
//! that it owns.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::{question, sessions::Door},
    domain::{money::price::Price, wire::Protocol},
};

/// Returns a page of this node's audit record, the most recent change first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAuditedChanges {
    /// The `next` of the previous page. Only earlier changes are returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<u64>,
}

question!(ListAuditedChanges => AuditPage: GET "/v1/audit", Viewer);

/// A page of the audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditPage {
    /// The changes that are listed on this page, the most recent first.
    pub(crate) changes: Vec<AuditLine>,
    /// The value to send as `before` to get earlier changes; null: the audit record has no earlier changes.
    pub(crate) next: Option<u64>,
}

/// A line of the audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AuditLine {
    /// A line that records a change.
    Change(AuditedChange),
    /// Any other line, such as a line that was cut off because the disk was full. A line that is not JSON becomes a string.
    Other(Value),
}

/// A recorded change. Its values are as the caller sent them, and never include a key in clear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditedChange {
    /// The time of the change, in milliseconds since the Unix epoch.
    pub(crate) time_unix_ms: i64,
    /// The caller that made the change.
    #[serde(flatten)]
    pub(crate) peer: AuditPeer,
    /// The operation, such as `key.create` or `account.credit`.
    pub(crate) operation: Cow<'static, str>,
    /// The id of the changed key; empty if the change is not about a key.
    pub(crate) key_id: String,
    /// The new values of the changed fields.
    pub(crate) values: Value,
}

/// The caller that made a change, as far as it is known. Fields that do not apply are null or left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditPeer {
    /// The user id of the process that called the admin socket. For a console session, this process is the one that requested the
    /// session's link.
    pub(crate) peer_uid: Option<u32>,
    /// The process id of the process that called the admin socket. For a console session, this process is the one that requested
    /// the session's link.
    pub(crate) peer_pid: Option<i32>,
    /// The subject and the SHA-256 of the client certificate, for a caller over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_certificate: Option<Arc<str>>,
    /// The OpenID provider's identifier (`sub`) of the user. The provider never reassigns it to another user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_subject: Option<Arc<str>>,
    /// The user's name at the OpenID provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_name: Option<Arc<str>>,
    /// The id of the key whose owner is signed in at the portal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_key: Option<Arc<str>>,
    /// The site on which the change was made: console or portal; left out if it was not made on a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<Door>,
}

/// Starts a process that replaces this one, with the program and the configuration that are on disk now. The answer arrives as
/// soon as the new process serves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upgrade {}

question!(Upgrade => UpgradedProcess: POST "/v1/upgrade", Owner; const IS_LONG: bool = true;);

/// The answer after a new process has replaced the old one and serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UpgradedProcess {
    /// The process id of the new process.
    pub(crate) pid: u32,
    /// The number of requests that are still running in the old process.
    pub(crate) running: usize,
}

/// Returns a backup of everything in the store that this process owns. The last line of a complete backup contains the number of
/// its items and their SHA-256 digest.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backup {}

question!(Backup => String: GET "/v1/backup", Owner;
    const IS_LONG: bool = true;
    const MEDIA: &'static [&'static str] = &["application/x-ndjson"];
);

/// Lists the served models. A model is left out if all its providers are switched off.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListModels {}

question!(ListModels => ModelList: GET "/v1/models", Viewer);

/// The served models.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelList {
    /// The models, sorted by name.
    pub(crate) models: Vec<ModelView>,
}

/// A served model.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelView {
    /// The model's public name, which clients send.
    pub(crate) name: String,
    /// The model's human-readable name.
    pub(crate) display_name: String,
    /// Other names by which clients can request the model.
    pub(crate) aliases: Vec<String>,
    /// The name of the model's preferred provider.
    pub(crate) provider: String,
    /// The names of the model's providers, the preferred one first.
    pub(crate) providers: Vec<String>,
    /// The protocols in which the model is served.
    pub(crate) protocols: Vec<Protocol>,
    /// The maximum number of input tokens; null: unknown.
    pub(crate) context_tokens: Option<u64>,
    /// The model's prices by the name of the provider.
    pub(crate) prices: BTreeMap<String, Arc<Price>>,
}

/// Lists all configured providers, whether they are switched on or off.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListProviders {}

question!(ListProviders => ProviderList: GET "/v1/providers", Viewer);

/// The configured providers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProviderList {
    /// The providers, sorted by name.
    pub(crate) providers: Vec<ProviderView>,
}

/// A configured provider and its current condition on this node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProviderView {
    /// The provider's name in the configuration.
    pub(crate) name: String,
    /// The provider's human-readable name.
    pub(crate) display_name: String,
    /// Whether the configuration enables the provider and at least one of its secrets is available.
    pub(crate) configured: bool,
    /// The reason why `configured` is false; null: `configured` is true.
    pub(crate) why_off: Option<String>,
    /// Whether the provider is switched on; false if an operator has switched it off.
    pub(crate) enabled: bool,
    /// The provider's credentials, with their cooldowns.
    pub(crate) credentials: Vec<CredentialView>,
    /// The number of network addresses that are currently skipped after consecutive failures.
    pub(crate) backends_ejected: usize,
    /// The provider's network addresses, sorted; empty until its host names are resolved.
    pub(crate) backends: Vec<BackendView>,
    /// The provider's hosts whose addresses are unknown.
    pub(crate) unresolved: Vec<String>,
    /// The models for which the provider is currently skipped after consecutive failures.
    pub(crate) open_circuits: Vec<OpenCircuitView>,
}

/// A credential of a provider, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CredentialView {
    /// The credential's name in the configuration.
    pub(crate) name: String,
    /// The number of seconds until the credential's cooldown ends; 0 if the credential has no cooldown.
    pub(crate) cooldown_seconds: u64,
}

/// A network address of a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BackendView {
    /// The IP address and port.
    pub(crate) address: String,
    /// The scheme, host and port in the configuration.
    pub(crate) origin: String,
    /// The number of seconds until the address is tried again after consecutive failures; 0 if it is in use.
    pub(crate) ejected_seconds: u64,
}

/// A model for which a provider is currently skipped after consecutive failures.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OpenCircuitView {
    /// The model's name at the provider.
    pub(crate) model: String,
    /// The number of seconds until a request may probe the model at this provider.
    pub(crate) probe_seconds: u64,
}

/// Switches a provider on: this node sends requests to it again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnableProvider {
    /// The provider's name in the configuration.
    pub(crate) name: String,
}

question!(EnableProvider => SwitchedProvider: POST "/v1/providers/{name}/enable", Operator);

/// Switches a provider off: this node sends no further requests to it. Running requests continue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DisableProvider {
    /// The provider's name in the configuration.
    pub(crate) name: String,
}

question!(DisableProvider => SwitchedProvider: POST "/v1/providers/{name}/disable", Operator);

/// The answer after a provider was switched on or off on this node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SwitchedProvider {
    /// The provider's name.
    pub(crate) provider: String,
    /// Whether the provider is switched on now.
    pub(crate) enabled: bool,
    /// Whether this request has changed the provider's state.
    pub(crate) changed: bool,
}
