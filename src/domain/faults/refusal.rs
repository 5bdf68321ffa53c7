//! All reasons for which weir itself refuses a request, and their form in the three protocols.

use std::time::Duration;

use crate::domain::ledger::tag::TagsFault;
use crate::domain::wire::{http1::head::HeadFault, protocol::Protocol, provider_state::StateKind};

mod denial;
mod limit;
mod reply;
#[cfg(test)]
mod tests;

pub(crate) use crate::domain::faults::refusal::limit::LimitRefusal;
pub(crate) use crate::domain::faults::refusal::reply::RefusalReply;

/// The owner of a share of the memory for request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyShare {
    /// An API key.
    Key,
    /// A client's address.
    Address,
}

/// A reason to refuse a request. Texts in it come from the client and are shown only to the same client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    UnknownPath,
    /// The path exists, but not with this method.
    MethodNotAllowed {
        /// The allowed methods, as in the `allow` header.
        allow: &'static str,
    },
    /// The client requested a WebSocket, which is not offered (docs/interface.md, Endpoints).
    UpgradeUnavailable,
    /// The chat completions path, which weir does not offer.
    ChatCompletionsRemoved,
    /// The request has no credential.
    CredentialMissing,
    /// One place has two credentials, such as a header that was sent twice.
    CredentialAmbiguous,
    /// The key does not exist, or does not have the format of this service's keys.
    KeyUnknown,
    /// The key is not cached and was not looked up, because its address, or all addresses together, sent too many unknown keys.
    KeyNotLookedUp {
        /// The time until it may be looked up.
        wait: Duration,
    },
    /// The address requests the usage of its keys too often.
    OwnUsageLimited {
        /// The time until the next request is allowed.
        wait: Duration,
    },
    /// The key was revoked.
    KeyRevoked,
    /// The key was rotated, and the presented text has ended.
    KeyReplaced,
    /// The key has expired.
    KeyExpired,
    /// The key may not use the model.
    ModelNotAllowed {
        /// The requested model name.
        model: String,
    },
    /// The body names a second model for the provider to run, and the key may not use it.
    NamedModelNotAllowed {
        /// The name in the body.
        model: String,
    },
    /// No model has this name.
    ModelUnknown {
        /// The requested model name.
        model: String,
    },
    /// The model exists, but not in this protocol or for this operation.
    ModelNotServed {
        /// The requested model name.
        model: String,
        /// The protocols in which it is served.
        protocols: Vec<Protocol>,
    },
    /// No provider of the model counts tokens.
    CountTokensUnsupported {
        /// The requested model name.
        model: String,
        /// Models of the same protocol that support token counting, as many as fit into the message.
        possible: Vec<String>,
    },
    /// The key has reached its limit of concurrent token counts.
    CountTokensBusy {
        /// Maximum number of concurrent token counts of a key.
        concurrency: usize,
    },
    /// The model part of the path cannot be read.
    ModelPathInvalid,
    /// The body is not valid for the protocol.
    BodyInvalid {
        /// What is wrong with it, for the client.
        reason: String,
    },
    /// The body has a content coding that weir does not decode.
    BodyEncodingUnsupported {
        /// The codings that `content-encoding` names.
        encoding: String,
    },
    /// The body does not conform to its content coding: it is broken, cut off, or followed by other data.
    BodyEncodingInvalid {
        /// The content coding.
        encoding: &'static str,
    },
    /// The decoded body is too large.
    BodyTooLargeDecoded {
        /// Maximum size of a body, in bytes.
        limit_bytes: u64,
    },
    /// The body is too large.
    BodyTooLarge {
        /// Maximum size of a body, in bytes.
        limit_bytes: u64,
    },
    /// The body needs a declared length.
    LengthRequired,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The request's head is too large.
    HeadersTooLarge,
    /// The request's head is ambiguous, or asks for something that is not offered.
    HeadInvalid(HeadFault),
    /// The request's head did not arrive in time.
    HeadTimeout,
    /// The memory for incomplete heads is used up, and this head was the largest.
    HeadGaveWay,
    /// The chunked framing of the body is invalid.
    BodyFramingInvalid,
    /// An `expect` header other than `100-continue`.
    ExpectationUnknown,
    /// The tags of the request cannot be read.
    TagsInvalid(TagsFault),
    /// The query is not valid.
    QueryInvalid {
        /// What is wrong with it, for the client.
        reason: String,
    },
    /// The answer would end before its usage is known, or would not report it.
    UsageUnseen {
        /// The member of the body that causes this.
        place: &'static str,
    },
    /// The account has not created any state of this name at the provider.
    StateUnknown {
        kind: StateKind,
        /// The name in the request.
        id: String,
    },
    /// The limit of running requests is reached.
    TooManyRunning,
    /// The memory for request bodies is used up.
    BodyBudgetExhausted,
    /// The share of that memory for one key or one address is used up.
    BodyShareUsed {
        /// The owner of the share.
        whose: BodyShare,
        /// The share, in bytes.
        bytes_max: u64,
    },
    /// The limit of the key's large bodies that are read at the same time is reached, and this body waited too long for its
    /// turn.
    BodyWorkLimited,
    /// A limit of the key or its account is reached.
    Limited(LimitRefusal),
    /// The store does not answer.
    StoreUnavailable,
    /// The journal cannot record the request's cost: it has no room, or its disk has failed.
    JournalFull,
    /// The model's provider is switched off.
    ProviderDisabled {
        /// The requested model name.
        model: String,
    },
    /// No connection to the provider could be established.
    ProviderUnreachable,
    /// The provider did not answer in time.
    ProviderTimeout,
    /// The provider's answer broke off before the end of its head.
    ProviderBroken,
    /// The provider answered with a redirect.
    ProviderRedirected {
        /// The provider's status.
        status: u16,
    },
    /// The provider refused weir's credential.
    ProviderCredentialRefused,
    /// weir is shutting down, and the time given to running requests has passed.
    Stopping,
    /// An error of weir's own, such as a panic.
    Internal,
}

impl Refusal {
    /// Whether the request or its key is at fault, not the service. Such a refusal counts against the key's rate limits.
    pub(crate) fn is_client_fault(&self) -> bool {
        (400..500).contains(&self.status())
    }

    /// The refusal's HTTP status.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::ModelPathInvalid
            | Self::BodyInvalid { .. }
            | Self::BodyEncodingUnsupported { .. }
            | Self::BodyEncodingInvalid { .. }
            | Self::BodyFramingInvalid
            | Self::QueryInvalid { .. }
            | Self::TagsInvalid(_)
            | Self::UsageUnseen { .. } => 400,
            Self::HeadInvalid(fault) => fault.status(),
            // As at the vendor, which answers 404 for all other kinds of state.
            Self::StateUnknown { kind, .. } if *kind == StateKind::Response => 400,
            Self::CredentialMissing
            | Self::CredentialAmbiguous
            | Self::KeyUnknown
            | Self::KeyRevoked
            | Self::KeyReplaced
            | Self::KeyExpired => 401,
            Self::ModelNotAllowed { .. } | Self::NamedModelNotAllowed { .. } => 403,
            Self::UnknownPath
            | Self::ChatCompletionsRemoved
            | Self::ModelUnknown { .. }
            | Self::ModelNotServed { .. }
            | Self::CountTokensUnsupported { .. }
            | Self::StateUnknown { .. } => 404,
            Self::MethodNotAllowed { .. } => 405,
            Self::BodyTimeout | Self::HeadTimeout => 408,
            Self::LengthRequired => 411,
            Self::BodyTooLarge { .. } | Self::BodyTooLargeDecoded { .. } => 413,
            Self::ExpectationUnknown => 417,
            Self::UpgradeUnavailable => 426,
            Self::CountTokensBusy { .. }
            | Self::KeyNotLookedUp { .. }
            | Self::OwnUsageLimited { .. }
            | Self::BodyShareUsed { .. }
            | Self::BodyWorkLimited
            | Self::Limited(_) => 429,
            Self::HeadersTooLarge => 431,
            Self::Internal => 500,
            Self::ProviderBroken | Self::ProviderRedirected { .. } => 502,
            Self::TooManyRunning
            | Self::BodyBudgetExhausted
            | Self::HeadGaveWay
            | Self::StoreUnavailable
            | Self::JournalFull
            | Self::ProviderDisabled { .. }
            | Self::ProviderUnreachable
            | Self::ProviderCredentialRefused
            | Self::Stopping => 503,
            Self::ProviderTimeout => 504,
        }
    }

    /// The label in metrics and access log: one of a fixed set.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPath => "unknown_path",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::UpgradeUnavailable => "upgrade_unavailable",
            Self::ChatCompletionsRemoved => "chat_completions_removed",
            Self::CredentialMissing => "credential_missing",
            Self::CredentialAmbiguous => "credential_ambiguous",
            Self::KeyUnknown => "key_unknown",
            Self::KeyNotLookedUp { .. } => "key_not_looked_up",
            Self::OwnUsageLimited { .. } => "own_usage_limited",
            Self::KeyRevoked => "key_revoked",
            Self::KeyReplaced => "key_replaced",
            Self::KeyExpired => "key_expired",
            Self::ModelNotAllowed { .. } => "model_not_allowed",
            Self::NamedModelNotAllowed { .. } => "named_model_not_allowed",
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
            Self::HeadInvalid(fault) => fault.reason(),
            Self::HeadTimeout => "head_timeout",
            Self::HeadGaveWay => "head_budget_exhausted",
            Self::BodyFramingInvalid => "body_framing_invalid",
            Self::ExpectationUnknown => "expectation_unknown",
            Self::QueryInvalid { .. } => "query_invalid",
            Self::TagsInvalid(_) => "tags_invalid",
            Self::UsageUnseen { .. } => "usage_unseen",
            Self::StateUnknown { .. } => "state_unknown",
            Self::TooManyRunning => "too_many_running",
            Self::BodyBudgetExhausted => "body_budget_exhausted",
            Self::BodyShareUsed { whose, .. } => match whose {
                BodyShare::Key => "key_bodies_limited",
                BodyShare::Address => "address_bodies_limited",
            },
            Self::BodyWorkLimited => "key_body_work_limited",
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
}
