//! Credentials, places, errors and retries of a provider file as written.

use serde::Deserialize;
use toml::Spanned;

use crate::domain::{rules::secret_ref::SecretRef, wire::protocol::Protocol};

/// `[[credential]]`: one of several secrets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCredential {
    /// Its name in logs and metrics.
    pub name: String,
    /// Where it is.
    pub secret: SecretRef,
    /// Its share of the requests; without it, 1.
    pub weight: Option<u16>,
}

/// `[[origin]]`: one of several places.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOrigin {
    /// `scheme://host[:port]`
    pub url: String,
    /// Its share of the requests; without it, 1.
    pub weight: Option<u16>,
    /// A path that costs nothing and answers 200 while the place works. Without it, health is a connection that stands.
    pub health_path: Option<String>,
}

/// `[retry]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRetry {
    /// Statuses after which the request is sent again; without it, 500, 502 to 504, 520 to 524, 527 and 529.
    pub statuses: Option<Spanned<Vec<u16>>>,
    /// How often one request is sent to this provider in all; without it, 2.
    pub attempts: Option<Spanned<u8>>,
    /// The pause before the second attempt, in milliseconds; it doubles each time and is jittered. Without it, 250.
    pub backoff_ms: Option<Spanned<u32>>,
    /// The longest such pause, in milliseconds; without it, 4000.
    pub backoff_max_ms: Option<Spanned<u32>>,
    /// How much all attempts after the first may add to the provider's load, in percent; without it, 10.
    pub budget_percent: Option<Spanned<u16>>,
}

/// The shape of errors and of weir's own refusals at this provider (docs/interface.md, Errors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalShape {
    /// The protocol's own.
    #[default]
    Protocol,
    /// `code`, `message` and `type` at the root, without a wrapper (docs/interface.md, Errors: provider 3).
    NativeRoot,
}

/// What an error of the provider means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorMeaning {
    /// The credential weir sent was refused, or its account has no money: never the client's business.
    CredentialRefused,
    /// The request was refused for what it names or holds: the client's business, and nothing against the credential.
    RequestRefused,
}

/// `[[error]]`: an error that does not mean what its status says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawErrorRule {
    pub status: u16,
    /// A word that it has for machines: its code, its type, its status, or what its details name.
    pub code: Option<String>,
    /// Its text for people; `*` stands for any text.
    pub message: Option<String>,
    /// A text that its body has anywhere.
    pub contains: Option<String>,
    /// What it means.
    pub means: ErrorMeaning,
}

/// `[fallback]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFallback {
    /// Names of the family; `*` stands for any text.
    pub patterns: Vec<String>,
    /// The model that answers for them: one of this file's.
    pub model: String,
    /// Only for requests of these protocols; without it, for all.
    pub protocols: Option<Vec<Protocol>>,
}
