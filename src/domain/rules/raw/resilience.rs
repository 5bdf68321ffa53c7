//! Credentials, backends, errors and retries of a provider file as written.

use serde::Deserialize;
use toml::Spanned;

use crate::domain::{rules::secret_ref::SecretRef, wire::protocol::Protocol};

/// `[[credential]]`: one of several secrets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCredential {
    /// Its name in logs and metrics.
    pub name: String,
    /// Where the secret is.
    pub secret: SecretRef,
    /// Its share of the requests; without it, 1.
    pub weight: Option<u16>,
}

/// `[[origin]]`: one of several backends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOrigin {
    /// `scheme://host[:port]`
    pub url: String,
    /// Its share of the requests; without it, 1.
    pub weight: Option<u16>,
    /// A path that is free to request and answers 200 while the backend works. Without it, the backend counts as healthy when a
    /// connection can be established.
    pub health_path: Option<String>,
}

/// `[retry]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRetry {
    /// Statuses after which the request is sent again. Without it, 500, 502 to 504, 520 to 524, 527 and 529.
    pub statuses: Option<Spanned<Vec<u16>>>,
    /// How many times one request is sent to this provider, the first included. Without it, 2.
    pub attempts: Option<Spanned<u8>>,
    /// The pause before the second attempt, in milliseconds; it doubles each time and is jittered. Without it, 250.
    pub backoff_ms: Option<Spanned<u32>>,
    /// The longest such pause, in milliseconds. Without it, 4000.
    pub backoff_max_ms: Option<Spanned<u32>>,
    /// How much all attempts after the first may add to the provider's load, in percent. Without it, 10.
    pub budget_percent: Option<Spanned<u16>>,
}

/// The shape of errors and of weir's own refusals at this provider (docs/interface.md, Errors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalShape {
    /// That of the protocol.
    #[default]
    Protocol,
    /// `code`, `message` and `type` at the root, without a wrapper (docs/interface.md, Errors: provider 3).
    NativeRoot,
}

/// What an error of the provider means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorMeaning {
    /// The credential that weir sent was refused, or its account has no money. The client gets a refusal of weir's own.
    CredentialRefused,
    /// The request was refused because of its content: the client gets the error, and the credential is not blamed.
    RequestRefused,
}

/// `[[error]]`: an error whose status does not show its meaning.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawErrorRule {
    pub status: u16,
    /// A machine-readable word of the error: its code, type or status, or a reason in its details.
    pub code: Option<String>,
    /// Its message; `*` matches any text.
    pub message: Option<String>,
    /// A text that its body contains.
    pub contains: Option<String>,
    /// The meaning of the error.
    pub means: ErrorMeaning,
}

/// `[fallback]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFallback {
    /// Names of the family; `*` matches any text.
    pub patterns: Vec<String>,
    /// The model that answers for them, one of this file.
    pub model: String,
    /// Only for requests of these protocols; without it, for all.
    pub protocols: Option<Vec<Protocol>>,
}
