//! Refusals because a limit is reached, in the form of each protocol. If waiting helps, an agent should retry later. If only an
//! operator or a new period can help, the agent should stop and display the reason. ARCHITECTURE.md describes how agents react.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::domain::{
    ledger::{LimitScope, QuotaReset, QuotaUse, RateKind, period},
    wire::protocol::Protocol,
};

#[cfg(test)]
mod tests;

/// The limit that a request has reached. It is a limit of the request's key or of the key's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitRefusal {
    /// The account's balance is used up.
    Balance,
    /// The account is suspended.
    Suspended,
    /// The key's account does not exist.
    NoAccount,
    /// The key's quota is used up.
    Quota {
        /// The quota and the amount that was spent.
        standing: QuotaUse,
        /// The period after which the quota resets.
        reset: QuotaReset,
        /// The number of seconds until the next period, at least 1; `None` if the quota does not reset.
        resets_in: Option<u64>,
    },
    /// Running requests hold the rest of the key's quota or of the account's balance.
    Held {
        /// Whether the key's quota or the account's balance is held.
        scope: LimitScope,
    },
    /// The limit of concurrent requests is reached.
    Concurrency {
        /// Whether the limit belongs to the key or to the account.
        scope: LimitScope,
        /// The maximum number of concurrent requests.
        limit: u64,
    },
    /// A limit per minute is reached.
    Rate {
        /// Whether the limit belongs to the key or to the account.
        scope: LimitScope,
        /// Whether the limit counts requests or tokens.
        counted: RateKind,
        /// The maximum number of requests or tokens per minute.
        limit: u64,
        /// The number of seconds until a retry can succeed, at least 1.
        retry_after_seconds: u64,
        /// The time at which a retry can succeed, in seconds since the Unix epoch.
        retry_at: i64,
    },
}

/// The number of seconds after which a client should retry if running requests are the cause of the refusal. One of them may have
/// ended by that time. Some agents wait exactly this long.
const CONCURRENCY_RETRY_SECONDS: u64 = 1;

impl LimitRefusal {
    /// Whether the request can succeed soon without any action. Otherwise an operator has to act, or a period has to end.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Concurrency { .. } | Self::Rate { .. })
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Balance => "balance_exhausted",
            Self::Suspended => "account_suspended",
            Self::NoAccount => "account_unknown",
            Self::Quota { .. } => "quota_exhausted",
            Self::Held { .. } => "funds_held",
            Self::Concurrency { .. } => "concurrency_limited",
            Self::Rate { counted, .. } => match counted {
                RateKind::Requests => "requests_limited",
                RateKind::Tokens => "tokens_limited",
            },
        }
    }

    /// Returns `error.type` for the Messages protocol.
    pub(super) fn messages_type(&self) -> &'static str {
        if self.is_temporary() {
            "rate_limit_error"
        } else {
            "billing_error"
        }
    }

    /// Returns `error.type` for the Responses protocol. If the type is `usage_limit_reached`, Codex stops and displays the value
    /// of a header ([`LimitRefusal::headers`]). Without this type, Codex would also stop because of the code
    /// `insufficient_quota`, but would display a message of its own
    /// (<https://github.com/openai/codex/blob/main/codex-rs/codex-api/src/api_bridge.rs>).
    pub(super) fn responses_type(&self) -> &'static str {
        if self.is_temporary() {
            "rate_limit_error"
        } else {
            "usage_limit_reached"
        }
    }

    /// Returns `error.code` for the Responses protocol. SDKs do not retry after `insufficient_quota`, but do retry after
    /// `rate_limit_exceeded`.
    pub(super) fn responses_code(&self) -> &'static str {
        if self.is_temporary() {
            "rate_limit_exceeded"
        } else {
            "insufficient_quota"
        }
    }

    /// Returns the value of `error.resets_at` in the Responses protocol: the time at which a used-up quota resets, in seconds
    /// since the Unix epoch. Codex displays it in the user's time zone. `None` for other limits and for a quota that does not
    /// reset.
    pub(super) fn resets_at(&self) -> Option<i64> {
        match self {
            Self::Quota { standing, .. } => standing.resets_at,
            _ => None,
        }
    }

    /// Returns the message for the client: what is wrong, and what to do.
    pub(super) fn message(&self) -> String {
        match (self.remedy(), self.resets_at().and_then(time)) {
            (Some(act), Some(time)) => format!("{act}, or wait until it resets at {time}."),
            (Some(act), None) => format!("{act}."),
            (None, _) => self.wait_message(),
        }
    }

    /// Returns the message in the Gemini form. After a 429, Gemini CLI repeats a request several times unless the message states
    /// that the limit is zero. A retry delay above five minutes would also make Gemini CLI stop, but only a quota that resets has
    /// such a delay (<https://github.com/google-gemini/gemini-cli/blob/main/packages/core/src/utils/googleQuotaErrors.ts>).
    pub(super) fn gemini_message(&self) -> String {
        let message = self.message();
        if self.is_temporary() {
            message
        } else {
            format!("{message} Remaining limit: 0 USD.")
        }
    }

    /// Returns a text that states why the request is refused and what to do about it, without a final full stop. `None` if
    /// waiting helps.
    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Balance => "The account of this API key has no balance left. Have credit added to it".to_owned(),
            Self::Suspended => "The account of this API key is suspended. Ask the operator of this service".to_owned(),
            Self::NoAccount => {
                "The account of this API key does not exist. Ask the operator of this service".to_owned()
            }
            Self::Quota {
                standing: QuotaUse { quota, .. },
                reset,
                ..
            } => {
                let period = match reset {
                    QuotaReset::None => ", which does not reset",
                    QuotaReset::Daily => " for the day",
                    QuotaReset::Weekly => " for the week",
                    QuotaReset::Monthly => " for the month",
                };
                format!("This API key has used up its quota of {quota} USD{period}. Have it raised or removed")
            }
            Self::Held { .. } | Self::Concurrency { .. } | Self::Rate { .. } => return None,
        })
    }

    /// Returns a sentence that states which limit is reached and when to retry; an empty string if waiting does not help.
    fn wait_message(&self) -> String {
        match self {
            Self::Held { scope } => format!(
                "Running requests hold the rest of {}. Try again when one of them has ended.",
                match scope {
                    LimitScope::Key => "the quota of this API key",
                    LimitScope::Account => "the balance of the account of this API key",
                }
            ),
            Self::Concurrency { scope, limit } => format!(
                "{} has reached its limit of {}. Try again when {} has ended.",
                scope_subject(*scope),
                with_noun(*limit, "concurrent request"),
                if *limit == 1 { "that request" } else { "one of them" }
            ),
            Self::Rate {
                scope,
                counted,
                limit,
                retry_after_seconds,
                ..
            } => format!(
                "{} has reached its limit of {} per minute. Please try again in {retry_after_seconds}s.",
                scope_subject(*scope),
                match counted {
                    RateKind::Requests => with_noun(*limit, "request"),
                    RateKind::Tokens => with_noun(*limit, "token"),
                }
            ),
            Self::Balance | Self::Suspended | Self::NoAccount | Self::Quota { .. } => String::new(),
        }
    }

    /// Returns the headers that tell the client whether and when to retry. Only Messages clients get a long `retry-after`,
    /// because other clients would wait that long without notifying their users.
    pub(super) fn headers(&self, protocol: Protocol) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        match self {
            Self::Held { .. } | Self::Concurrency { .. } => {
                headers.push(("retry-after", CONCURRENCY_RETRY_SECONDS.to_string()));
            }
            Self::Rate {
                counted,
                limit,
                retry_after_seconds,
                retry_at,
                ..
            } => {
                headers.push(("retry-after", retry_after_seconds.to_string()));
                if let Some(names) = rate_headers(protocol, *counted) {
                    let reset = match protocol {
                        Protocol::Messages => time(*retry_at).unwrap_or_default(),
                        Protocol::Responses | Protocol::Gemini => format!("{retry_after_seconds}s"),
                    };
                    let [limit_name, remaining, reset_name] = names;
                    headers.push((limit_name, limit.to_string()));
                    headers.push((remaining, "0".to_owned()));
                    headers.push((reset_name, reset));
                }
            }
            Self::Balance | Self::Suspended | Self::NoAccount | Self::Quota { .. } => {
                headers.push(("x-should-retry", "false".to_owned()));
                match protocol {
                    Protocol::Messages => headers.extend(self.spend_limit()),
                    // Codex inserts this value into its own message: "You've hit your usage limit. ..., or try again at ...".
                    Protocol::Responses => headers.extend(self.remedy().map(|act| ("x-codex-promo-message", act))),
                    Protocol::Gemini => {}
                }
            }
        }
        headers
    }

    /// Returns the headers by which Claude Code recognises that a spend limit is reached.
    fn spend_limit(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Quota {
                standing,
                reset,
                resets_in,
            } => {
                let mut headers = period::spent_quota_headers(standing, *reset);
                headers.extend(resets_in.map(|seconds| ("retry-after", seconds.to_string())));
                headers
            }
            Self::Balance => period::spent_balance_headers(),
            Self::Suspended | Self::NoAccount => period::disabled_account_headers(),
            Self::Held { .. } | Self::Concurrency { .. } | Self::Rate { .. } => Vec::new(),
        }
    }

    /// Returns `error.details` in the Gemini form: the messages `RetryInfo` and `QuotaFailure` of google.rpc.
    pub(super) fn gemini_details(&self) -> Value {
        let violations = json!({
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{ "subject": self.reason(), "description": self.message() }],
        });
        match self {
            Self::Rate {
                retry_after_seconds, ..
            } => json!([violations, retry_info(*retry_after_seconds)]),
            Self::Held { .. } | Self::Concurrency { .. } => {
                json!([violations, retry_info(CONCURRENCY_RETRY_SECONDS)])
            }
            Self::Balance | Self::Suspended | Self::NoAccount | Self::Quota { .. } => json!([violations]),
        }
    }
}

pub(super) fn retry_info(seconds: u64) -> Value {
    json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s") })
}

/// Returns the names of the protocol's headers for the limit, the remaining number and the reset. `None` for Gemini, whose error
/// body contains these values.
fn rate_headers(protocol: Protocol, counted: RateKind) -> Option<[&'static str; 3]> {
    match (protocol, counted) {
        (Protocol::Messages, RateKind::Requests) => Some([
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ]),
        (Protocol::Messages, RateKind::Tokens) => Some([
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ]),
        (Protocol::Responses, RateKind::Requests) => Some([
            "x-ratelimit-limit-requests",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
        ]),
        (Protocol::Responses, RateKind::Tokens) => Some([
            "x-ratelimit-limit-tokens",
            "x-ratelimit-remaining-tokens",
            "x-ratelimit-reset-tokens",
        ]),
        (Protocol::Gemini, _) => None,
    }
}

/// Formats a number with its noun, in singular or plural.
fn with_noun(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

fn scope_subject(scope: LimitScope) -> &'static str {
    match scope {
        LimitScope::Key => "This API key",
        LimitScope::Account => "The account of this API key",
    }
}

/// Formats a time according to RFC 3339, in UTC.
fn time(unix_seconds: i64) -> Option<String> {
    Timestamp::from_second(unix_seconds).ok().map(|time| time.to_string())
}
