//! The limits that a request runs into, and how each is said (design.md section 7, protocols.md 6.4).

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::domain::{
    ledger::{Counted, Denied, Reset, Scope},
    money::NanoUsd,
    protocol::Protocol,
};

/// A limit of a key or of its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The account has no money left.
    Balance,
    /// The account was suspended.
    Suspended,
    /// The key's account does not exist.
    NoAccount,
    /// The key has spent its quota.
    Quota {
        /// The quota.
        quota: NanoUsd,
        /// Its period.
        reset: Reset,
        /// When the period ends, in seconds since the Unix epoch.
        resets_at: Option<i64>,
    },
    /// Too many requests are running.
    Concurrency {
        /// Whose limit it is.
        scope: Scope,
        /// The limit.
        limit: u64,
    },
    /// Too much in a minute.
    Rate {
        /// Whose limit it is.
        scope: Scope,
        /// What is counted.
        counted: Counted,
        /// The limit, per minute.
        limit: u64,
        /// After how many seconds it is worth trying again, at least 1.
        retry_after_seconds: u64,
        /// When that is, in seconds since the Unix epoch.
        retry_at: i64,
    },
}

/// Seconds until a running request may have ended. Some agents wait exactly as long as they are told.
const CONCURRENCY_RETRY_SECONDS: u64 = 1;

impl Limit {
    /// What a store's refusal means to the client; `None` for what is wrong with the key itself. `now` is in seconds since
    /// the Unix epoch, `reset` the key's.
    pub fn of(denied: Denied, reset: Reset, now: i64) -> Option<Self> {
        Some(match denied {
            Denied::KeyRevoked | Denied::KeyExpired => return None,
            Denied::AccountUnknown => Self::NoAccount,
            Denied::AccountSuspended => Self::Suspended,
            Denied::BalanceExhausted => Self::Balance,
            Denied::QuotaExhausted { quota, resets_at } => Self::Quota {
                quota,
                reset,
                resets_at,
            },
            Denied::Concurrency { scope, limit } => Self::Concurrency { scope, limit },
            Denied::RateLimited {
                scope,
                counted,
                limit,
                retry_after_ms,
            } => {
                let seconds = retry_after_ms.div_ceil(1000).max(1);
                Self::Rate {
                    scope,
                    counted,
                    limit,
                    retry_after_seconds: seconds,
                    retry_at: now.saturating_add_unsigned(seconds),
                }
            }
        })
    }

    /// Whether waiting a moment helps. Otherwise somebody has to act, or a period to end.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::Concurrency { .. } | Self::Rate { .. })
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Balance => "balance_exhausted",
            Self::Suspended => "account_suspended",
            Self::NoAccount => "account_unknown",
            Self::Quota { .. } => "quota_exhausted",
            Self::Concurrency { .. } => "concurrency_limited",
            Self::Rate { counted, .. } => match counted {
                Counted::Requests => "requests_limited",
                Counted::Tokens => "tokens_limited",
            },
        }
    }

    /// The `code` of the Responses protocol: SDKs and Codex stop at `insufficient_quota` and wait at the other.
    pub(super) fn responses_code(&self) -> &'static str {
        if self.passes() {
            "rate_limit_exceeded"
        } else {
            "insufficient_quota"
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::Balance => {
                "The account of this API key has no balance left. Have credit added to it, then send the request \
                again."
                    .to_owned()
            }
            Self::Suspended => "The account of this API key is suspended. Ask the operator of this service.".to_owned(),
            Self::NoAccount => {
                "The account of this API key does not exist. Ask the operator of this service.".to_owned()
            }
            Self::Quota {
                quota,
                reset,
                resets_at,
            } => {
                let period = match reset {
                    Reset::None => "",
                    Reset::Daily => " for the day",
                    Reset::Weekly => " for the week",
                    Reset::Monthly => " for the month",
                };
                let next = match resets_at.and_then(time) {
                    Some(time) => format!("It begins anew at {time}; until then have it raised or cleared."),
                    None => "It does not reset: have it raised or cleared.".to_owned(),
                };
                format!("This API key has used up its quota of {quota} USD{period}. {next}")
            }
            Self::Concurrency { scope, limit } => format!(
                "{} has {limit} requests running, which is all it may have at one time. Try again when one has ended.",
                whose(*scope)
            ),
            Self::Rate {
                scope,
                counted,
                limit,
                retry_after_seconds,
                ..
            } => format!(
                "{} has reached its limit of {limit} {} per minute. Please try again in {retry_after_seconds}s.",
                whose(*scope),
                match counted {
                    Counted::Requests => "requests",
                    Counted::Tokens => "tokens",
                }
            ),
        }
    }

    /// The headers that say when to come back. Never a long `retry-after`: Codex waits it out in silence.
    pub(super) fn headers(&self, protocol: Protocol) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        match self {
            Self::Concurrency { .. } => headers.push(("retry-after", CONCURRENCY_RETRY_SECONDS.to_string())),
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
            }
        }
        headers
    }

    /// `error.details` of the Gemini shape: google.rpc's `RetryInfo` or `QuotaFailure`.
    pub(super) fn gemini_details(&self) -> Value {
        let violations = json!({
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{ "subject": self.reason(), "description": self.message() }],
        });
        match self {
            Self::Rate {
                retry_after_seconds, ..
            } => json!([violations, retry_info(*retry_after_seconds)]),
            Self::Concurrency { .. } => json!([violations, retry_info(CONCURRENCY_RETRY_SECONDS)]),
            Self::Balance | Self::Suspended | Self::NoAccount | Self::Quota { .. } => json!([violations]),
        }
    }
}

pub(super) fn retry_info(seconds: u64) -> Value {
    json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s") })
}

/// Limit, remaining and reset, by the name the protocol has for them; Gemini says it in the body.
fn rate_headers(protocol: Protocol, counted: Counted) -> Option<[&'static str; 3]> {
    match (protocol, counted) {
        (Protocol::Messages, Counted::Requests) => Some([
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ]),
        (Protocol::Messages, Counted::Tokens) => Some([
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ]),
        (Protocol::Responses, Counted::Requests) => Some([
            "x-ratelimit-limit-requests",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
        ]),
        (Protocol::Responses, Counted::Tokens) => Some([
            "x-ratelimit-limit-tokens",
            "x-ratelimit-remaining-tokens",
            "x-ratelimit-reset-tokens",
        ]),
        (Protocol::Gemini, _) => None,
    }
}

fn whose(scope: Scope) -> &'static str {
    match scope {
        Scope::Key => "This API key",
        Scope::Account => "The account of this API key",
    }
}

/// RFC 3339, in UTC.
fn time(unix_seconds: i64) -> Option<String> {
    Timestamp::from_second(unix_seconds).ok().map(|time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::refusal::{Refusal, Reply};

    fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
        let found = reply.headers.iter().find(|(found, _)| *found == name);
        found.map(|(_, value)| value.as_str())
    }

    fn body(reply: &Reply) -> Value {
        serde_json::from_slice(&reply.body).unwrap()
    }

    const QUOTA: Limit = Limit::Quota {
        quota: NanoUsd::from_nanos(5_000_000_000),
        reset: Reset::Daily,
        resets_at: Some(1_795_305_600),
    };

    #[test]
    fn a_used_up_quota_is_not_to_be_tried_again() {
        for protocol in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
            for limit in [QUOTA, Limit::Balance, Limit::Suspended, Limit::NoAccount] {
                let reply = Refusal::Limited(limit).reply(protocol, "req_1");
                assert_eq!(reply.status, 429);
                assert_eq!(header(&reply, "x-should-retry"), Some("false"));
                assert_eq!(header(&reply, "retry-after"), None);
            }
        }
        let reply = Refusal::Limited(QUOTA).reply(Protocol::Messages, "req_1");
        assert_eq!(body(&reply)["error"]["type"], "rate_limit_error");
        let message = body(&reply)["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(
            message,
            "This API key has used up its quota of 5.00 USD for the day. It begins anew at 2026-11-22T00:00:00Z; until then \
             have it raised or cleared."
        );
        let reply = Refusal::Limited(QUOTA).reply(Protocol::Responses, "req_1");
        assert_eq!(body(&reply)["error"]["code"], "insufficient_quota");
        assert_eq!(body(&reply)["error"]["type"], "insufficient_quota");
        let reply = Refusal::Limited(QUOTA).reply(Protocol::Gemini, "req_1");
        assert_eq!(body(&reply)["error"]["status"], "RESOURCE_EXHAUSTED");
        assert_eq!(
            body(&reply)["error"]["details"][0]["@type"],
            "type.googleapis.com/google.rpc.QuotaFailure"
        );
    }

    #[test]
    fn a_rate_limit_says_when_to_come_back() {
        let denied = Denied::RateLimited {
            scope: Scope::Account,
            counted: Counted::Tokens,
            limit: 1000,
            retry_after_ms: 6001,
        };
        let limit = Limit::of(denied, Reset::None, 100).unwrap();
        let messages = Refusal::Limited(limit).reply(Protocol::Messages, "req_1");
        assert_eq!(header(&messages, "retry-after"), Some("7"));
        assert_eq!(header(&messages, "x-should-retry"), None);
        assert_eq!(header(&messages, "anthropic-ratelimit-tokens-limit"), Some("1000"));
        assert_eq!(
            header(&messages, "anthropic-ratelimit-tokens-reset"),
            Some("1970-01-01T00:01:47Z")
        );
        let responses = Refusal::Limited(limit).reply(Protocol::Responses, "req_1");
        assert_eq!(body(&responses)["error"]["code"], "rate_limit_exceeded");
        assert_eq!(header(&responses, "x-ratelimit-reset-tokens"), Some("7s"));
        let gemini = Refusal::Limited(limit).reply(Protocol::Gemini, "req_1");
        assert_eq!(body(&gemini)["error"]["details"][1]["retryDelay"], "7s");
    }

    #[test]
    fn what_is_wrong_with_the_key_itself_is_no_limit() {
        assert_eq!(Limit::of(Denied::KeyRevoked, Reset::None, 0), None);
        assert_eq!(Limit::of(Denied::KeyExpired, Reset::None, 0), None);
    }
}
