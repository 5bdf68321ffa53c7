//! Questions about the answering node: its audit record, its process, and the store that it owns.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::{question, sessions::Door},
    domain::{money::price::Price, wire::Protocol},
};

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

/// Lists the served models. A model whose providers are all switched off is left out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListModels {}

question!(ListModels => ModelList: GET "/v1/models", Viewer);

/// The served models.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelList {
    /// The models, in the order of their names.
    pub(crate) models: Vec<ModelView>,
}

/// A model.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelView {
    /// The public name.
    pub(crate) name: String,
    /// The human-readable name.
    pub(crate) display_name: String,
    /// Other names that clients may request.
    pub(crate) aliases: Vec<String>,
    /// The preferred provider.
    pub(crate) provider: String,
    /// Its providers, the preferred one first.
    pub(crate) providers: Vec<String>,
    /// The protocols in which it is served.
    pub(crate) protocols: Vec<Protocol>,
    /// The maximum number of input tokens, if known.
    pub(crate) context_tokens: Option<u64>,
    /// Its prices by provider.
    pub(crate) prices: BTreeMap<String, Arc<Price>>,
}

/// Lists all providers, whether they are on or off.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListProviders {}

question!(ListProviders => ProviderList: GET "/v1/providers", Viewer);

/// The providers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProviderList {
    /// The providers, in the order of their names.
    pub(crate) providers: Vec<ProviderView>,
}

/// A provider.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProviderView {
    /// The name in the configuration.
    pub(crate) name: String,
    /// The human-readable name.
    pub(crate) display_name: String,
    /// Whether the configuration has it on and one of its secrets is available.
    pub(crate) configured: bool,
    /// Why it is off by its configuration; null if it is not.
    pub(crate) why_off: Option<String>,
    /// False if an operator has switched it off.
    pub(crate) enabled: bool,
    /// Its credentials, with their cooldowns.
    pub(crate) credentials: Vec<CredentialView>,
    /// The number of addresses that are skipped after consecutive failures.
    pub(crate) places_ejected: usize,
    /// Its addresses, in their order; empty until its names are resolved.
    pub(crate) places: Vec<PlaceView>,
    /// Its hosts without a known address.
    pub(crate) unresolved: Vec<String>,
    /// Models for which the provider is skipped after consecutive failures.
    pub(crate) passed_over: Vec<PassedOverView>,
}

/// A credential of a provider, without the secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CredentialView {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Seconds until its cooldown ends; 0 if it is in use.
    pub(crate) rests_seconds: u64,
}

/// An address of a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlaceView {
    /// The address and its port.
    pub(crate) address: String,
    /// Scheme, host and port as configured.
    pub(crate) origin: String,
    /// Seconds until it is tried again after consecutive failures; 0 if it is in use.
    pub(crate) ejected_seconds: u64,
}

/// A model for which a provider is skipped now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PassedOverView {
    /// The provider's name for the model.
    pub(crate) model: String,
    /// Seconds until a request may probe it.
    pub(crate) asked_again_seconds: u64,
}

/// Switches a provider on: this node sends requests to it again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnableProvider {
    /// Its name in the configuration.
    pub(crate) name: String,
}

question!(EnableProvider => SwitchedProvider: POST "/v1/providers/{name}/enable", Operator);

/// Switches a provider off: this node sends no further requests to it. Running requests continue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DisableProvider {
    /// Its name in the configuration.
    pub(crate) name: String,
}

question!(DisableProvider => SwitchedProvider: POST "/v1/providers/{name}/disable", Operator);

/// A provider's switch on this node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SwitchedProvider {
    /// The provider's name.
    pub(crate) provider: String,
    /// Whether it is on now.
    pub(crate) enabled: bool,
    /// Whether this call changed it.
    pub(crate) changed: bool,
}
