//! Limits on how much at a time.

use super::*;
use crate::domain::{
    keys::terms::AccountTerms,
    ledger::{LimitScope, RateKind},
};

#[test]
fn requests_running_count_without_those_of_the_asking_node_that_have_ended() {
    let mut account = with_balance(100);
    let two = rates(None, None, Some(2));
    let by = |number: u8, request: &str, ended_key| AdmitCall {
        node: node(number),
        ended_key,
        ..ask(request, 1, two)
    };
    account.admit(&by(1, "a", 0), NOON);
    account.admit(&by(2, "b", 0), NOON);
    let full = Denial::Concurrency {
        scope: LimitScope::Key,
        limit: 2,
        lent: false,
    };
    assert_eq!(denied(account.admit(&by(1, "c", 0), NOON)), full);
    // A third node's ended requests are not those of the first two.
    assert_eq!(denied(account.admit(&by(3, "c", 9), NOON)), full);
    assert_eq!(hold(&account.admit(&by(1, "c", 9), NOON)), 1);
    apply(
        &mut account,
        1,
        [settle("a", NOON, 0, 0, 0), settle("c", NOON, 0, 0, 0)],
    );
    assert_eq!(hold(&account.admit(&by(1, "d", 0), NOON)), 1);
}

#[test]
fn requests_per_minute_fill_up_by_the_millisecond() {
    let mut account = with_balance(100);
    let two = rates(Some(2), None, None);
    let limited = |retry_after_ms| Denial::RateLimited {
        scope: LimitScope::Key,
        counted: RateKind::Requests,
        limit: 2,
        retry_after_ms,
        lent: false,
    };
    account.admit(&ask("a", 0, two), NOON);
    account.admit(&ask("b", 0, two), NOON);
    assert_eq!(denied(account.admit(&ask("c", 0, two), NOON)), limited(30_000));
    assert_eq!(denied(account.admit(&ask("c", 0, two), NOON + 29_999)), limited(1));
    assert_eq!(hold(&account.admit(&ask("c", 0, two), NOON + 30_000)), 0);
    // A clock that goes back fills nothing, and what is filled is not filled twice.
    assert_eq!(denied(account.admit(&ask("d", 0, two), NOON)), limited(30_000));
    assert_eq!(hold(&account.admit(&ask("d", 0, two), NOON + 60_000)), 0);
    assert_eq!(denied(account.admit(&ask("e", 0, two), NOON + 60_000)), limited(30_000));
    assert_eq!(
        denied(account.admit(&ask("e", 0, rates(Some(0), None, None)), NOON)),
        limited(30_000)
    );
}

#[test]
fn tokens_are_taken_as_estimated_and_corrected_by_what_was_used() {
    let mut account = with_balance(100);
    let hundred = rates(None, Some(100), None);
    let tokens = |request: &str, tokens| AdmitCall {
        tokens,
        ..ask(request, 0, hundred)
    };
    let retry = |admission| match denied(admission) {
        Denial::RateLimited {
            counted: RateKind::Tokens,
            retry_after_ms,
            ..
        } => retry_after_ms,
        other => panic!("{other:?}"),
    };
    // More than the limit takes the limit, or nothing so large could ever pass.
    assert_eq!(hold(&account.admit(&tokens("a", u64::MAX), NOON)), 0);
    assert_eq!(retry(account.admit(&tokens("b", 10), NOON)), 6_000);
    apply(&mut account, 1, [settle("a", NOON, 0, u64::MAX, 40)]);
    assert_eq!(hold(&account.admit(&tokens("b", 60), NOON)), 0);
    // Used without end: at most two minutes to wait.
    apply(&mut account, 1, [settle("b", NOON, 0, 60, u64::MAX)]);
    assert_eq!(retry(account.admit(&tokens("c", 100), NOON)), 120_000);
    assert_eq!(hold(&account.admit(&tokens("c", 100), NOON + 120_000)), 0);
    assert_eq!(account.view("acme", NOON).unwrap().balance, nanos(100));
}

#[test]
fn a_refusal_uses_up_no_limit() {
    let mut account = with_balance(100);
    let terms = AccountTerms {
        rates: RateLimits {
            tpm: Some(10),
            ..RateLimits::default()
        },
        ..AccountTerms::default()
    };
    let from = account.record();
    assert!(account.set_terms(&from, &from.with_terms(terms, false)));
    let one = |request: &str| AdmitCall {
        tokens: 10,
        ..ask(request, 7, rates(Some(2), None, None))
    };
    account.admit(&one("a"), NOON);
    let before = account.clone();
    for _ in 0..5 {
        let refused = denied(account.admit(&one("b"), NOON));
        let of_account = matches!(
            refused,
            Denial::RateLimited {
                scope: LimitScope::Account,
                counted: RateKind::Tokens,
                ..
            }
        );
        assert!(of_account, "{refused:?}");
    }
    assert_eq!(account, before);
}
