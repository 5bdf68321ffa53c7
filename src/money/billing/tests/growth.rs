//! How holds grow with their answers, and when an answer is ended.

use std::time::Instant;

use super::*;
use crate::domain::{
    ledger::{FinishFactor, OnExhausted},
    wire::protocol::Break,
};

/// Looks at a running answer of so many tokens of output, and waits until the store has answered what was asked then.
/// Returns when it is to be looked at again.
async fn look(bill: &Bill, output: u64, at: Instant) -> NextSample {
    let next = bill.sample(at, SERVED, consumed(tokens(400, output)), (output, 0));
    until("the store to answer", async || !bill.running.is_asking()).await;
    next
}

#[tokio::test]
async fn a_hold_grows_with_its_answer_by_what_its_output_needs() {
    let fixture = fixture(10_000).await;
    let key = record(1);
    let bill = fixture.admit(&key, "r1").await.unwrap();
    let held = async || {
        let held = fixture.view().await.held;
        assert_eq!(bill.running.hold(), held, "what is known here");
        held
    };
    let start = clock::instant();
    // A quarter of a usual answer is left.
    look(&bill, 449, start).await;
    assert_eq!(held().await, nanos(1_000));
    look(&bill, 450, start).await;
    assert_eq!(held().await, nanos(1_600), "one usual answer more");
    look(&bill, 1_000, start).await;
    assert_eq!(held().await, nanos(2_800), "twice that");
    // A prompt that is not in the cache after all: what is used already, and more.
    look(&bill, 5_000, start).await;
    assert_eq!(held().await, nanos(5_400 + 2_400));
}

#[tokio::test]
async fn an_answer_is_cut_when_it_has_used_its_hold_and_not_before() {
    let fixture = fixture(3_000).await;
    let mut key = record(1);
    key.terms.on_exhausted = OnExhausted::Cut;
    let bill = fixture.admit(&key, "r1").await.unwrap();
    let start = clock::instant();
    for output in [600, 1_300, 2_500] {
        look(&bill, output, start).await;
        assert!(!bill.must_stop(), "{output}");
    }
    // Nothing is left, and the hold is not used up.
    let next = look(&bill, 2_590, start).await;
    assert_eq!((bill.running.hold(), bill.must_stop()), (nanos(3_000), false));
    assert!(!next.should_sample(start, 2_590, 0) && !next.must_stop());
    // The closer the end, the closer the looks.
    let text = (2_590..).find(|text| next.should_sample(start, *text, 0));
    assert!((2_591..2_600).contains(&text.unwrap()), "{text:?}, whatever the time");
    let next = look(&bill, 2_600, start).await;
    assert!(bill.must_stop() && next.must_stop());
    bill.close(
        &End::Broken(Break::LimitReached),
        SERVED,
        consumed(tokens(400, 2_600)),
        clock::instant(),
    );
    fixture.send().await;
    let view = fixture.view().await;
    assert_eq!((view.balance, view.held), (nanos(0), nanos(0)));
    assert_eq!(fixture.billing.excess_max(), nanos(0));
}

#[tokio::test]
async fn the_cost_so_far_is_computed_once_for_each_checkpoint_and_more_often_while_a_usage_may_be_reported() {
    let fixture = fixture(10_000).await;
    let bill = fixture.admit(&record(1), "r1").await.unwrap();
    let start = clock::instant();
    let after = |millis| start + Duration::from_millis(millis);
    assert!(NextSample::first(start).should_sample(start, 0, 0), "at first");
    let running = &fixture.billing.engine.running;
    running.on_checkpoint(start);
    let next = look(&bill, 1, after(10)).await;
    assert!(!next.should_sample(after(109), 2, 1));
    assert!(next.should_sample(after(110), 2, 1), "an event said more than text");
    assert!(!next.should_sample(after(549), 2, 0), "only text came");
    assert!(next.should_sample(after(550), 2, 0), "the next checkpoint comes");
    let next = look(&bill, 2, after(560)).await;
    assert!(
        !next.should_sample(after(1_249), 3, 0),
        "this one has been looked at for"
    );
    assert!(next.should_sample(after(1_250), 3, 0));
    running.on_checkpoint(after(700));
    let next = look(&bill, 3, after(720)).await;
    assert!(next.should_sample(after(1_250), 4, 0) && !next.should_sample(after(1_249), 4, 0));
    // Checkpoints are late.
    let next = look(&bill, 4, after(9_000)).await;
    assert!(!next.should_sample(after(9_149), 5, 0) && next.should_sample(after(9_150), 5, 0));
}

#[tokio::test]
async fn what_others_held_counts_again_when_they_have_ended() {
    let fixture = fixture(2_000).await;
    let mut key = record(1);
    key.terms.on_exhausted = OnExhausted::Cut;
    let bill = fixture.admit(&key, "r1").await.unwrap();
    let other = fixture.admit(&key, "r2").await.unwrap();
    let start = clock::instant();
    look(&bill, 590, start).await;
    assert_eq!(bill.running.hold(), nanos(1_000), "the other has the rest");
    drop(other);
    fixture.send().await;
    look(&bill, 595, start + Duration::from_secs(2)).await;
    assert!(bill.running.hold() > nanos(1_000));
    look(&bill, 601, start + Duration::from_secs(2)).await;
    assert!(!bill.must_stop());
}

#[tokio::test]
async fn an_answer_that_may_finish_ends_at_its_keys_factor() {
    for (factor, quota, end) in [
        // Twice the quota.
        (FinishFactor::default(), Some(1_500), Some(3_000)),
        (FinishFactor::new(4).unwrap(), Some(1_500), Some(6_000)),
        (FinishFactor::NONE, Some(1_500), None),
        // Without a quota, twice the balance.
        (FinishFactor::default(), None, Some(4_000)),
    ] {
        let fixture = fixture(2_000).await;
        let mut key = record(1);
        (key.terms.finish_factor, key.terms.quota) = (factor, quota.map(nanos));
        let bill = fixture.admit(&key, "r1").await.unwrap();
        let mut at = clock::instant();
        let end_at = end.unwrap_or(20_000);
        for cost in (600..end_at).step_by(200) {
            at += Duration::from_secs(2);
            look(&bill, cost - 400, at).await;
            assert!(!bill.must_stop(), "{cost} of {end:?}");
        }
        look(&bill, end_at - 400, at).await;
        assert_eq!(bill.must_stop(), end.is_some(), "{factor:?} {quota:?}");
    }
}

#[tokio::test]
async fn the_last_cents_of_a_balance_let_an_answer_finish_that_is_as_long_as_usual() {
    let fixture = fixture(10).await;
    let key = record(1);
    let bill = fixture.admit(&key, "r1").await.unwrap();
    let start = clock::instant();
    for (output, is_cut) in [(600, false), (1_599, false), (1_600, true)] {
        look(&bill, output, start).await;
        assert_eq!(bill.must_stop(), is_cut, "{output}: the estimate was 1000");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_for_ends_no_answer_of_a_key_that_is_cut_at_its_limit() {
    let fixture = fixture(10_000).await;
    let mut key = record(1);
    key.terms.on_exhausted = OnExhausted::Cut;
    let bill = fixture.admit(&key, "r1").await.unwrap();
    fixture.ledger.is(Way::Away);
    let start = clock::instant();
    for output in [500, 700, 9_000] {
        bill.sample(start, SERVED, consumed(tokens(400, output)), (output, 0));
        until("the question to fail", async || !bill.running.is_asking()).await;
        assert!(!bill.must_stop(), "{output}");
    }
}
