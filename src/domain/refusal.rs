//! Every reason for which weir itself says no, and how each is said in the three protocols.

use std::time::Duration;

use crate::domain::{
    protocol::{ErrorForm, Protocol},
    provider_state::StateKind,
};

mod limit;
mod reply;
#[cfg(test)]
mod tests;

pub use limit::Limit;

/// A reason to say no. Texts in it come from the client and are shown to the same client only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such path.
    UnknownPath,
    /// The path exists, not with this method.
    MethodNotAllowed {
        /// The methods it has, as in the `allow` header.
        allow: &'static str,
    },
    /// A WebSocket is asked for, which is not offered (docs/interface.md, Endpoints).
    UpgradeUnavailable,
    /// The chat completions path, which is no longer offered.
    ChatCompletionsRemoved,
    /// No credential came.
    CredentialMissing,
    /// One header came twice.
    CredentialAmbiguous,
    /// The key is not known here, or is not in the format of this service's keys.
    KeyUnknown,
    /// The key is not known yet, and was not looked up: too many that do not exist were asked for, by its address or in all.
    KeyNotLookedUp {
        /// How long until it may be.
        wait: Duration,
    },
    /// The key was revoked.
    KeyRevoked,
    /// The key is past its expiry.
    KeyExpired,
    /// The key may not use the model.
    ModelNotAllowed {
        /// The name that was asked for.
        model: String,
    },
    /// No model has that name.
    ModelUnknown {
        /// The name that was asked for.
        model: String,
    },
    /// The model exists, not through this protocol or for this operation.
    ModelNotServed {
        /// The name that was asked for.
        model: String,
        /// Where it is served.
        protocols: Vec<Protocol>,
    },
    /// The model's provider cannot count tokens.
    CountTokensUnsupported {
        /// The name that was asked for.
        model: String,
        /// Models of the same protocol for which it is possible, as many as fit into a sentence.
        possible: Vec<String>,
    },
    /// The key counts tokens as often at one time as it may.
    CountTokensBusy {
        /// How often that is.
        concurrency: usize,
    },
    /// The model part of the path cannot be read.
    ModelPathInvalid,
    /// The body is not what the protocol wants.
    BodyInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The body has a content encoding that is not taken.
    BodyEncodingUnsupported {
        /// The encoding that it has.
        encoding: String,
    },
    /// The body is not what its content encoding says: broken, cut, or followed by something.
    BodyEncodingInvalid {
        /// The encoding.
        encoding: &'static str,
    },
    /// The body is larger than allowed once it is decoded.
    BodyTooLargeDecoded {
        /// What is allowed, in bytes.
        limit_bytes: u64,
    },
    /// The body is larger than allowed.
    BodyTooLarge {
        /// What is allowed, in bytes.
        limit_bytes: u64,
    },
    /// The body's length has to be declared.
    LengthRequired,
    /// The body did not come in time.
    BodyTimeout,
    /// The head is larger than allowed.
    HeadersTooLarge,
    /// An `expect` header other than `100-continue`.
    ExpectationUnknown,
    /// The query cannot be read.
    QueryInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The answer would come without its usage: it would end before that is known, or leave it out.
    UsageUnseen {
        /// The member of the body that asks for that.
        place: &'static str,
    },
    /// The account has made nothing of that name at the provider.
    StateUnknown {
        /// What is named.
        kind: StateKind,
        /// The name that was sent.
        id: String,
    },
    /// All memory for bodies is in use.
    BodyBudgetExhausted,
    /// A limit of the key or its account is reached.
    Limited(Limit),
    /// The key store does not answer.
    StoreUnavailable,
    /// What the request will cost cannot be recorded.
    JournalFull,
    /// The model's provider is switched off here.
    ProviderDisabled {
        /// The name that was asked for.
        model: String,
    },
    /// No connection to the provider.
    ProviderUnreachable,
    /// The provider did not answer in time.
    ProviderTimeout,
    /// The provider's answer broke off before or within its head.
    ProviderBroken,
    /// The provider answered with a redirect.
    ProviderRedirected {
        /// Its status.
        status: u16,
    },
    /// The provider refused the credential of this service.
    ProviderCredentialRefused,
    /// weir is being stopped, and the time that running requests are given has passed.
    Stopping,
    /// weir failed.
    Internal,
}

/// An answer of weir's own, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Header names (lower case) and values; `content-length` is the writer's.
    pub headers: Vec<(&'static str, String)>,
    /// The body, JSON.
    pub body: Vec<u8>,
}

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::ModelPathInvalid
            | Self::BodyInvalid { .. }
            | Self::BodyEncodingUnsupported { .. }
            | Self::BodyEncodingInvalid { .. }
            | Self::QueryInvalid { .. }
            | Self::UsageUnseen { .. } => 400,
            // As the vendor says it of a response; of everything else it says 404.
            Self::StateUnknown { kind, .. } if *kind == StateKind::Response => 400,
            Self::CredentialMissing
            | Self::CredentialAmbiguous
            | Self::KeyUnknown
            | Self::KeyRevoked
            | Self::KeyExpired => 401,
            Self::ModelNotAllowed { .. } => 403,
            Self::UnknownPath
            | Self::ChatCompletionsRemoved
            | Self::ModelUnknown { .. }
            | Self::ModelNotServed { .. }
            | Self::CountTokensUnsupported { .. }
            | Self::StateUnknown { .. } => 404,
            Self::MethodNotAllowed { .. } => 405,
            Self::BodyTimeout => 408,
            Self::LengthRequired => 411,
            Self::BodyTooLarge { .. } | Self::BodyTooLargeDecoded { .. } => 413,
            Self::ExpectationUnknown => 417,
            Self::UpgradeUnavailable => 426,
            Self::CountTokensBusy { .. } | Self::KeyNotLookedUp { .. } | Self::Limited(_) => 429,
            Self::HeadersTooLarge => 431,
            Self::Internal => 500,
            Self::ProviderBroken | Self::ProviderRedirected { .. } => 502,
            Self::BodyBudgetExhausted
            | Self::StoreUnavailable
            | Self::JournalFull
            | Self::ProviderDisabled { .. }
            | Self::ProviderUnreachable
            | Self::ProviderCredentialRefused
            | Self::Stopping => 503,
            Self::ProviderTimeout => 504,
        }
    }

    /// The bounded label for metrics and the access log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPath => "unknown_path",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::UpgradeUnavailable => "upgrade_unavailable",
            Self::ChatCompletionsRemoved => "chat_completions_removed",
            Self::CredentialMissing => "credential_missing",
            Self::CredentialAmbiguous => "credential_ambiguous",
            Self::KeyUnknown => "key_unknown",
            Self::KeyNotLookedUp { .. } => "key_not_looked_up",
            Self::KeyRevoked => "key_revoked",
            Self::KeyExpired => "key_expired",
            Self::ModelNotAllowed { .. } => "model_not_allowed",
            Self::ModelUnknown { .. } => "model_unknown",
            Self::ModelNotServed { .. } => "model_not_served",
            Self::CountTokensUnsupported { .. } => "count_tokens_unsupported",
            Self::CountTokensBusy { .. } => "count_tokens_busy",
            Self::ModelPathInvalid => "model_path_invalid",
            Self::BodyInvalid { .. } => "body_invalid",
            Self::BodyEncodingUnsupported { .. } => "body_encoding_unsupported",
            Self::BodyEncodingInvalid { .. } => "body_encoding_invalid",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::BodyTooLargeDecoded { .. } => "body_too_large_decoded",
            Self::LengthRequired => "length_required",
            Self::BodyTimeout => "body_timeout",
            Self::HeadersTooLarge => "headers_too_large",
            Self::ExpectationUnknown => "expectation_unknown",
            Self::QueryInvalid { .. } => "query_invalid",
            Self::UsageUnseen { .. } => "usage_unseen",
            Self::StateUnknown { .. } => "state_unknown",
            Self::BodyBudgetExhausted => "body_budget_exhausted",
            Self::Limited(limit) => limit.reason(),
            Self::StoreUnavailable => "store_unavailable",
            Self::JournalFull => "journal_full",
            Self::ProviderDisabled { .. } => "provider_disabled",
            Self::ProviderUnreachable => "provider_unreachable",
            Self::ProviderTimeout => "provider_timeout",
            Self::ProviderBroken => "provider_broken",
            Self::ProviderRedirected { .. } => "provider_redirected",
            Self::ProviderCredentialRefused => "provider_credential_refused",
            Self::Stopping => "stopping",
            Self::Internal => "internal",
        }
    }

    /// The answer in this form, carrying the request id as its protocol does.
    pub fn reply(&self, form: impl Into<ErrorForm>, request_id: &str) -> Reply {
        reply::render(self, form.into(), request_id)
    }
}
