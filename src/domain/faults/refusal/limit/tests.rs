//! Tests of `limit`.

use super::*;
use crate::domain::faults::refusal::{Refusal, RefusalReply};
use crate::domain::ledger::Denial;
use crate::domain::money::NanoUsd;
use crate::domain::wire::protocol::ErrorForm;

fn header<'a>(reply: &'a RefusalReply, name: &str) -> Option<&'a str> {
    let found = reply.headers.iter().find(|(found, _)| *found == name);
    found.map(|(_, value)| value.as_str())
}

fn body(reply: &RefusalReply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn limit(denial: Denial, reset: QuotaReset, now: i64) -> LimitRefusal {
    match Refusal::from_denial(denial, reset, now) {
        Refusal::Limited(limit) => limit,
        other => panic!("{other:?}"),
    }
}

const DAY: i64 = 1_795_305_600;

/// A spent quota of 5 USD, refused an hour before it is reset.
fn quota(reset: QuotaReset, resets_at: Option<i64>) -> LimitRefusal {
    let standing = QuotaUse {
        quota: NanoUsd::from_nanos(5_000_000_000),
        spent: NanoUsd::from_nanos(5_050_000_001),
        resets_at,
    };
    limit(Denial::QuotaExhausted(standing), reset, DAY - 3600)
}

fn spent() -> [LimitRefusal; 5] {
    [
        quota(QuotaReset::Daily, Some(DAY)),
        quota(QuotaReset::None, None),
        LimitRefusal::Balance,
        LimitRefusal::Suspended,
        LimitRefusal::NoAccount,
    ]
}

#[test]
fn a_limit_of_one_is_named_in_the_singular() {
    let rate = |counted, limit| LimitRefusal::Rate {
        scope: LimitScope::Key,
        counted,
        limit,
        retry_after_seconds: 7,
        retry_at: DAY,
    };
    let concurrency = |limit| LimitRefusal::Concurrency {
        scope: LimitScope::Account,
        limit,
    };
    for (limit, words) in [
        (rate(RateKind::Requests, 1), "its limit of 1 request per minute. Please"),
        (
            rate(RateKind::Requests, 2),
            "its limit of 2 requests per minute. Please",
        ),
        (rate(RateKind::Tokens, 1), "its limit of 1 token per minute. Please"),
        (
            rate(RateKind::Tokens, 1_000),
            "its limit of 1000 tokens per minute. Please",
        ),
        (
            concurrency(1),
            "its limit of 1 concurrent request. Try again when that request has ended.",
        ),
        (
            concurrency(2),
            "its limit of 2 concurrent requests. Try again when one of them has ended.",
        ),
    ] {
        assert!(limit.message().contains(words), "{}", limit.message());
    }
}

#[test]
fn what_is_spent_is_not_to_be_tried_again_in_any_protocol() {
    for limit in spent() {
        for protocol in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
            let reply = Refusal::Limited(limit).reply(protocol, "req_1");
            assert_eq!((reply.status, header(&reply, "x-should-retry")), (429, Some("false")));
            // A client of another protocol would wait as long as that.
            let waits = protocol == Protocol::Messages && limit.resets_at().is_some();
            assert_eq!(header(&reply, "retry-after"), waits.then_some("3600"), "{limit:?}");
            let is_told = |name: &str| reply.headers.iter().any(|(found, _)| found.starts_with(name));
            let unified = is_told("anthropic-ratelimit-unified-");
            assert_eq!(unified, protocol == Protocol::Messages, "{limit:?}");
            assert_eq!(is_told("x-codex-"), protocol == Protocol::Responses, "{limit:?}");
        }
    }
}

#[test]
fn a_spent_quota_is_said_with_amount_period_and_reset() {
    let daily = Refusal::Limited(quota(QuotaReset::Daily, Some(DAY)));
    let told = "This API key has used up its quota of 5.00 USD for the day. Have it raised or removed, or wait until it resets \
                at 2026-11-22T00:00:00Z.";
    let messages = daily.reply(Protocol::Messages, "req_1");
    assert_eq!(
        body(&messages)["error"],
        json!({ "type": "billing_error", "message": told })
    );
    for (name, value) in [
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-reset", "1795305600"),
        ("anthropic-ratelimit-unified-overage-utilization", "1.01"),
        ("anthropic-ratelimit-unified-overage-period", "daily"),
    ] {
        assert_eq!(header(&messages, name), Some(value), "{name}");
    }
    let responses = daily.reply(Protocol::Responses, "req_1");
    assert_eq!(
        body(&responses)["error"],
        json!({
            "type": "usage_limit_reached", "code": "insufficient_quota", "message": told, "param": null, "resets_at": DAY,
        })
    );
    assert_eq!(
        header(&responses, "x-codex-promo-message"),
        Some("This API key has used up its quota of 5.00 USD for the day. Have it raised or removed")
    );
    let gemini = body(&daily.reply(Protocol::Gemini, "req_1"));
    assert_eq!(gemini["error"]["status"], "RESOURCE_EXHAUSTED");
    assert_eq!(gemini["error"]["message"], format!("{told} Remaining limit: 0 USD."));
    assert_eq!(
        gemini["error"]["details"][0]["@type"],
        "type.googleapis.com/google.rpc.QuotaFailure"
    );
    for (reset, period) in [(QuotaReset::Weekly, "week"), (QuotaReset::Monthly, "month")] {
        let message = quota(reset, Some(DAY)).message();
        assert!(message.contains(&format!("5.00 USD for the {period}. ")), "{message}");
    }
}

#[test]
fn what_does_not_reset_names_no_time() {
    for (limit, told) in [
        (
            quota(QuotaReset::None, None),
            "This API key has used up its quota of 5.00 USD, which does not reset. Have it raised or removed.",
        ),
        (
            LimitRefusal::Balance,
            "The account of this API key has no balance left. Have credit added to it.",
        ),
        (
            LimitRefusal::Suspended,
            "The account of this API key is suspended. Ask the operator of this service.",
        ),
        (
            LimitRefusal::NoAccount,
            "The account of this API key does not exist. Ask the operator of this service.",
        ),
    ] {
        let messages = Refusal::Limited(limit).reply(Protocol::Messages, "req_1");
        assert_eq!(body(&messages)["error"]["message"], told);
        assert_eq!(body(&messages)["error"]["type"], "billing_error");
        assert_eq!(header(&messages, "anthropic-ratelimit-unified-reset"), None);
        let responses = Refusal::Limited(limit).reply(Protocol::Responses, "req_1");
        assert_eq!(body(&responses)["error"].get("resets_at"), None);
    }
}

#[test]
fn a_refusal_in_a_providers_native_shape_has_the_same_type() {
    let reply = Refusal::Limited(LimitRefusal::Balance).reply(ErrorForm::NativeRoot, "req_1");
    assert_eq!(body(&reply)["type"], "billing_error");
}

#[test]
fn a_reset_that_has_just_passed_is_a_second_away() {
    let standing = QuotaUse {
        quota: NanoUsd::from_nanos(1),
        spent: NanoUsd::from_nanos(1),
        resets_at: Some(DAY),
    };
    for now in [DAY, DAY + 5, i64::MAX] {
        let limit = limit(Denial::QuotaExhausted(standing), QuotaReset::Daily, now);
        let reply = Refusal::Limited(limit).reply(Protocol::Messages, "req_1");
        assert_eq!(header(&reply, "retry-after"), Some("1"));
    }
}

#[test]
fn a_rate_limit_says_when_to_come_back() {
    let denied = Denial::RateLimited {
        scope: LimitScope::Account,
        counted: RateKind::Tokens,
        limit: 1000,
        retry_after_ms: 6001,
        lent: false,
    };
    let limit = limit(denied, QuotaReset::None, 100);
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
fn what_is_only_held_is_worth_a_short_wait() {
    let standing = QuotaUse {
        quota: NanoUsd::from_nanos(2),
        spent: NanoUsd::from_nanos(1),
        resets_at: None,
    };
    for denied in [Denial::QuotaHeld(standing), Denial::BalanceHeld] {
        let limit = limit(denied, QuotaReset::None, 100);
        for protocol in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
            let reply = Refusal::Limited(limit).reply(protocol, "req_1");
            assert_eq!((reply.status, header(&reply, "retry-after")), (429, Some("1")));
            assert_eq!(header(&reply, "x-should-retry"), None);
        }
        let responses = Refusal::Limited(limit).reply(Protocol::Responses, "req_1");
        assert_eq!(body(&responses)["error"]["code"], "rate_limit_exceeded");
        let messages = Refusal::Limited(limit).reply(Protocol::Messages, "req_1");
        assert_eq!(body(&messages)["error"]["type"], "rate_limit_error");
    }
}
