//! The reasons for which weir itself refuses a request, and the HTTP answer to a refused request in each protocol.

mod limit;
mod reply;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::domain::{
    keys::KeyInvalid,
    ledger::{Denial, LimitScope, QuotaReset, ids::TagsFault},
    wire::{http1::head::HeadFault, operation, protocol::Protocol, provider_state::StateKind},
};

pub(crate) use crate::domain::faults::refusal::limit::LimitRefusal;
pub(crate) use crate::domain::faults::refusal::reply::RefusalReply;

/// The owner of a share of the memory for request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyShare {
    /// An API key.
    Key,
    /// The network address of a client.
    Address,
}

/// A reason for which weir refuses a request. Strings in it come from the client, and are returned only to the same client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    UnknownPath,
    /// The path exists, but does not support the request's method.
    MethodNotAllowed {
        /// The methods that the path supports, in the form of the header `allow`.
        allow: &'static str,
    },
    /// The client requested a WebSocket that cannot be opened, so it has to use POST (docs/interface.md, WebSocket).
    UpgradeUnavailable,
    /// The request is the handshake of a WebSocket without its header `upgrade`, which a proxy has removed. It is answered like
    /// [`Refusal::UpgradeUnavailable`], because agents continue with POST only after that answer.
    UpgradeRemoved,
    /// The path is that of chat completions, which weir does not offer.
    ChatCompletionsRemoved,
    /// The request has no credential.
    CredentialMissing,
    /// The request has two credentials in the same place, for example in a header that was sent twice.
    CredentialAmbiguous,
    /// The request's only credential is the header `authorization`, whose value does not begin with `Bearer `. It has the label
    /// and code of [`Refusal::KeyUnknown`].
    BearerSchemeMissing,
    /// The key does not exist, or does not have the format of this service's keys.
    KeyUnknown,
    /// The key is not cached, and weir did not look it up in the store. The reason is that too many unknown keys came from the
    /// client's address, or from all addresses together.
    KeyNotLookedUp {
        /// The time after which weir may look the key up.
        wait: Duration,
    },
    /// The client's address requests the usage of its keys too often.
    OwnUsageLimited {
        /// The time after which the address may request the usage again.
        wait: Duration,
    },
    /// The key was revoked.
    KeyRevoked,
    /// The key was rotated, and the presented secret is no longer valid.
    KeyReplaced,
    /// The key has expired.
    KeyExpired,
    /// The key is not allowed to request the model.
    ModelNotAllowed {
        /// The name of the requested model.
        model: String,
    },
    /// The body names a second model for the provider to run, and the key is not allowed to request it.
    NamedModelNotAllowed {
        /// The model's name in the body.
        model: String,
    },
    /// No model has the requested name.
    ModelUnknown {
        /// The name of the requested model.
        model: String,
    },
    /// The model exists, but is not served in this protocol or for this operation.
    ModelNotServed {
        /// The name of the requested model.
        model: String,
        /// The protocols in which the model is served.
        protocols: Vec<Protocol>,
    },
    /// No provider of the model supports counting tokens.
    CountTokensUnsupported {
        /// The name of the requested model.
        model: String,
        /// Models of the same protocol that support counting tokens, as many as fit into the message.
        possible: Vec<String>,
    },
    /// The key has reached its limit of concurrent token counts.
    CountTokensBusy {
        /// The maximum number of concurrent token counts of a key.
        concurrency: usize,
    },
    /// The part of the path that names the model cannot be read.
    ModelPathInvalid,
    /// The body is not valid in the protocol.
    BodyInvalid {
        /// A description of the fault in the body, for the client.
        reason: String,
    },
    /// The body has a content coding that weir does not decode.
    BodyEncodingUnsupported {
        /// The codings in the header `content-encoding`.
        encoding: String,
    },
    /// The body does not conform to its content coding: it is broken, cut off, or followed by other data.
    BodyEncodingInvalid {
        /// The name of the content coding.
        encoding: &'static str,
    },
    /// The decoded body is too large.
    BodyTooLargeDecoded {
        /// The maximum size of a body, in bytes.
        limit_bytes: u64,
    },
    /// The body is too large.
    BodyTooLarge {
        /// The maximum size of a body, in bytes.
        limit_bytes: u64,
    },
    /// The request must declare the length of its body, but does not.
    LengthRequired,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The request's head is too large.
    HeadersTooLarge,
    /// The request's head is ambiguous, or requests something that weir does not support.
    HeadInvalid(HeadFault),
    /// The request's head did not arrive in time.
    HeadTimeout,
    /// The memory for incomplete heads is used up, and this head was the largest of them.
    HeadGaveWay,
    /// The chunked encoding of the body is invalid.
    BodyFramingInvalid,
    /// The header `expect` has a value other than `100-continue`.
    ExpectationUnknown,
    /// The tags of the request cannot be read.
    TagsInvalid(TagsFault),
    /// The body has a member that cannot be translated to the protocol of the model's provider.
    Untranslatable {
        /// The path of the member in the body.
        path: String,
        /// The reason why the member cannot be translated, and what the client can do about it.
        reason: String,
    },
    /// The query is not valid.
    QueryInvalid {
        /// A description of the fault in the query, for the client.
        reason: String,
    },
    /// The request asks for an answer that does not report its usage, or that ends before its usage is known.
    UsageUnseen {
        /// The member of the request body that asks for such an answer.
        place: &'static str,
    },
    /// The account has not created any state with this id at the provider.
    StateUnknown {
        kind: StateKind,
        /// The id in the request.
        id: String,
    },
    /// The limit of running requests is reached.
    TooManyRunning,
    /// The memory for request bodies is used up.
    BodyBudgetExhausted,
    /// One key or one address has used up its share of the memory for request bodies.
    BodyShareUsed {
        /// Whether the share belongs to the key or to the address.
        whose: BodyShare,
        /// The size of the share, in bytes.
        bytes_max: u64,
    },
    /// The key has reached its limit of large bodies that are read concurrently, and weir could not begin to read this body in
    /// time.
    BodyWorkLimited,
    /// A limit of the key or its account is reached.
    Limited(LimitRefusal),
    /// The store does not answer.
    StoreUnavailable,
    /// The journal cannot record the request's cost: it has no room, or its disk has failed.
    JournalFull,
    /// The model's provider is switched off.
    ProviderDisabled {
        /// The name of the requested model.
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
        /// The HTTP status of the provider's answer.
        status: u16,
    },
    /// The provider refused the operator's credential.
    ProviderCredentialRefused,
    /// weir is shutting down, and the time that it grants to running requests is over.
    Stopping,
    /// An error of weir itself, such as a panic.
    Internal,
}

impl Refusal {
    /// Whether the request or its key is at fault rather than the service. Such a refusal is counted against the key's rate
    /// limits.
    pub(crate) fn is_client_fault(&self) -> bool {
        (400..500).contains(&self.status())
    }

    /// Returns the refusal's HTTP status.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::ModelPathInvalid
            | Self::BodyInvalid { .. }
            | Self::BodyEncodingUnsupported { .. }
            | Self::BodyEncodingInvalid { .. }
            | Self::BodyFramingInvalid
            | Self::Untranslatable { .. }
            | Self::QueryInvalid { .. }
            | Self::TagsInvalid(_)
            | Self::UsageUnseen { .. } => 400,
            Self::HeadInvalid(fault) => fault.status(),
            // The vendor of the protocol answers 400 for responses, too, and 404 for all other kinds of state.
            Self::StateUnknown { kind, .. } if *kind == StateKind::Response => 400,
            Self::CredentialMissing
            | Self::CredentialAmbiguous
            | Self::BearerSchemeMissing
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
            Self::UpgradeUnavailable | Self::UpgradeRemoved => 426,
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

    /// Returns the refusal's label for metrics and the access log. There is a fixed set of labels.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPath => "unknown_path",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::UpgradeUnavailable | Self::UpgradeRemoved => "upgrade_unavailable",
            Self::ChatCompletionsRemoved => "chat_completions_removed",
            Self::CredentialMissing => "credential_missing",
            Self::CredentialAmbiguous => "credential_ambiguous",
            Self::KeyUnknown | Self::BearerSchemeMissing => "key_unknown",
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
            Self::Untranslatable { .. } => "untranslatable",
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

impl Refusal {
    /// Returns the refusal for a denial. `reset` is the period of the key's quota, and `now_unix` is in seconds since the Unix
    /// epoch.
    pub(crate) fn from_denial(denial: Denial, reset: QuotaReset, now_unix: i64) -> Self {
        Self::Limited(match denial {
            Denial::KeyRevoked => return Self::KeyRevoked,
            Denial::KeyExpired => return Self::KeyExpired,
            Denial::AccountUnknown => LimitRefusal::NoAccount,
            Denial::AccountSuspended => LimitRefusal::Suspended,
            Denial::BalanceExhausted => LimitRefusal::Balance,
            Denial::BalanceHeld => LimitRefusal::Held {
                scope: LimitScope::Account,
            },
            Denial::QuotaExhausted(standing) => LimitRefusal::Quota {
                standing,
                reset,
                resets_in: standing
                    .resets_at
                    .map(|at| u64::try_from(at.saturating_sub(now_unix)).unwrap_or(0).max(1)),
            },
            Denial::QuotaHeld(_) => LimitRefusal::Held { scope: LimitScope::Key },
            Denial::Concurrency { scope, limit, .. } => LimitRefusal::Concurrency { scope, limit },
            Denial::RateLimited {
                scope,
                counted,
                limit,
                retry_after_ms,
                ..
            } => {
                let seconds = retry_after_ms.div_ceil(1000).max(1);
                LimitRefusal::Rate {
                    scope,
                    counted,
                    limit,
                    retry_after_seconds: seconds,
                    retry_at: now_unix.saturating_add_unsigned(seconds),
                }
            }
        })
    }
}

impl From<KeyInvalid> for Refusal {
    fn from(denied: KeyInvalid) -> Self {
        match denied {
            KeyInvalid::Revoked => Self::KeyRevoked,
            KeyInvalid::Replaced => Self::KeyReplaced,
            KeyInvalid::Expired => Self::KeyExpired,
        }
    }
}

/// Returns the message for a refused request body. It states what is wrong, which part is affected, and what to do. The last arm
/// is for [`Refusal::BodyBudgetExhausted`].
pub(crate) fn body_message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::BodyTooLarge { limit_bytes } => {
            format!("The request body is larger than the {limit_bytes} bytes that are allowed. Send a smaller request.")
        }
        Refusal::BodyTooLargeDecoded { limit_bytes } => format!(
            "The decoded request body is larger than the {limit_bytes} bytes that are allowed. Send a smaller request."
        ),
        Refusal::BodyInvalid { reason } => {
            format!("The request body cannot be used: {}.", reason.trim_end_matches('.'))
        }
        Refusal::Untranslatable { path, reason } => format!(
            "`{}` cannot be translated to the protocol of this model's provider: {}.",
            shortened(path),
            reason.trim_end_matches('.')
        ),
        Refusal::BodyEncodingUnsupported { encoding } => format!(
            "The content encoding `{}` is not supported for request bodies. Send the body without content-encoding, or in \
             one of gzip, deflate, br and zstd.",
            shortened(encoding)
        ),
        Refusal::BodyEncodingInvalid { encoding } => format!(
            "The request body is not complete and valid {encoding}, which its content-encoding declares. Send complete \
             {encoding} data with nothing after it, or the body without content-encoding."
        ),
        Refusal::BodyShareUsed { whose, bytes_max } => {
            let whose = match whose {
                BodyShare::Key => "with this API key",
                BodyShare::Address => "from your network",
            };
            format!(
                "Request bodies {whose} have reached their limit of {bytes_max} bytes at one time. Try again in a second, and \
                 send fewer large requests at once."
            )
        }
        Refusal::BodyWorkLimited => {
            "Too many large request bodies with this API key wait to be read. Try again in a second, and \
             send fewer large requests at once."
                .to_owned()
        }
        _ => "The service has no room for another request body now. Try again shortly.".to_owned(),
    }
}

/// The maximum number of characters of a client's text that a message repeats.
const ECHO_CHARS_MAX: usize = 128;

/// A text may be a key if it has at least this many consecutive letters and digits.
const KEY_RUN_CHARS_MIN: usize = 32;

/// Returns the words that refer to a model in a message. The model's name is left out if it is not a possible name of a model, or
/// if it may be a key.
pub(crate) fn model_phrase(model: &str) -> String {
    let like_a_key = model
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|run| run.len() >= KEY_RUN_CHARS_MIN);
    if operation::is_plausible(model) && !like_a_key {
        format!("model `{model}`")
    } else {
        "model with the name that was sent".to_owned()
    }
}

/// Removes the control characters from a client's text, and truncates it to [`ECHO_CHARS_MAX`] characters.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(ECHO_CHARS_MAX).collect()
}

#[cfg(test)]
mod denial_tests {
    use super::*;
    use crate::domain::{
        ledger::{QuotaUse, RateKind},
        money::NanoUsd,
    };

    #[test]
    fn each_denial_has_a_refusal_of_its_own() {
        let quota = QuotaUse {
            quota: NanoUsd::from_nanos(2),
            spent: NanoUsd::from_nanos(2),
            resets_at: Some(160),
        };
        let concurrency = |scope| Denial::Concurrency {
            scope,
            limit: 4,
            lent: false,
        };
        let rate = |counted| Denial::RateLimited {
            scope: LimitScope::Key,
            counted,
            limit: 9,
            retry_after_ms: 1_001,
            lent: true,
        };
        let limited_rate = |counted| LimitRefusal::Rate {
            scope: LimitScope::Key,
            counted,
            limit: 9,
            retry_after_seconds: 2,
            retry_at: 102,
        };
        for (denial, limit, reason) in [
            (Denial::AccountUnknown, LimitRefusal::NoAccount, "account_unknown"),
            (Denial::AccountSuspended, LimitRefusal::Suspended, "account_suspended"),
            (Denial::BalanceExhausted, LimitRefusal::Balance, "balance_exhausted"),
            (
                Denial::BalanceHeld,
                LimitRefusal::Held {
                    scope: LimitScope::Account,
                },
                "funds_held",
            ),
            (
                Denial::QuotaExhausted(quota),
                LimitRefusal::Quota {
                    standing: quota,
                    reset: QuotaReset::Daily,
                    resets_in: Some(60),
                },
                "quota_exhausted",
            ),
            (
                Denial::QuotaHeld(quota),
                LimitRefusal::Held { scope: LimitScope::Key },
                "funds_held",
            ),
            (
                concurrency(LimitScope::Account),
                LimitRefusal::Concurrency {
                    scope: LimitScope::Account,
                    limit: 4,
                },
                "concurrency_limited",
            ),
            (
                rate(RateKind::Requests),
                limited_rate(RateKind::Requests),
                "requests_limited",
            ),
            (rate(RateKind::Tokens), limited_rate(RateKind::Tokens), "tokens_limited"),
        ] {
            let refusal = Refusal::from_denial(denial, QuotaReset::Daily, 100);
            assert_eq!((refusal.reason(), refusal.status()), (reason, 429), "{denial:?}");
            assert_eq!(refusal, Refusal::Limited(limit));
        }
    }

    #[test]
    fn a_key_that_is_not_valid_is_refused_alike_by_its_record_and_by_the_ledger() {
        for (denial, denied, refusal) in [
            (Denial::KeyRevoked, KeyInvalid::Revoked, Refusal::KeyRevoked),
            (Denial::KeyExpired, KeyInvalid::Expired, Refusal::KeyExpired),
        ] {
            assert_eq!(Refusal::from_denial(denial, QuotaReset::None, 0), refusal);
            assert_eq!(Refusal::from(denied), refusal);
        }
        assert_eq!(Refusal::from(KeyInvalid::Replaced), Refusal::KeyReplaced);
    }
}
