//! Who waits for what others hold, and in which order they are asked for again.

use tokio::sync::Notify;

use super::*;
use crate::{domain::ledger::QuotaUse, money::billing::queue::QueuePosition};

const MAX: QueueLimits = MONEY.held_waiting_max;
const QUOTA: Denial = Denial::QuotaHeld(QuotaUse {
    quota: NanoUsd::ZERO,
    spent: NanoUsd::ZERO,
    resets_at: None,
});

/// Whether it is a place's turn already.
async fn is_called(place: &mut QueuePosition) -> bool {
    tokio::time::timeout(Duration::from_millis(1), place.wait_for_turn())
        .await
        .is_ok()
}

fn of(account: &str, number: u8) -> KeyRecord {
    KeyRecord {
        account: account.into(),
        ..record(number)
    }
}

#[tokio::test(start_paused = true)]
async fn who_came_first_is_asked_for_first_and_who_comes_anew_waits_behind() {
    let fixture = fixture(1).await;
    let key = record(1);
    let billing = &fixture.billing;
    assert_eq!(billing.queue_denial(&key), None);
    let join = || billing.enqueue(&key, Denial::BalanceHeld, MAX).unwrap();
    let (mut first, mut second, mut third) = (join(), join(), join());
    assert_eq!(
        (billing.waiting(), billing.queue_denial(&key)),
        (3, Some(Denial::BalanceHeld))
    );
    // The first waits for news or its pause, the others for the first.
    first.wait_for_turn().await;
    assert!(!is_called(&mut second).await && !is_called(&mut third).await);
    // It was served: there may be more, so the next is asked for at once.
    first.leave_answered();
    assert!(!is_called(&mut third).await);
    assert!(is_called(&mut second).await);
    // It leaves without a word: the next has its turn after the pause.
    drop(second);
    third.wait_for_turn().await;
    drop(third);
    assert_eq!((billing.waiting(), billing.queue_denial(&key)), (0, None));
}

#[tokio::test(start_paused = true)]
async fn in_front_one_is_asked_for_when_holds_have_ended_and_else_less_and_less_often() {
    let fixture = fixture(1).await;
    let key = record(1);
    let ended: Arc<Notify> = fixture.journal.acknowledgements(&key.account);
    let mut place = fixture.billing.enqueue(&key, Denial::BalanceHeld, MAX).unwrap();
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let began = tokio::time::Instant::now();
        place.wait_for_turn().await;
        pauses.push(began.elapsed().as_millis());
        place.on_denied(&key.id, Denial::BalanceHeld);
    }
    assert_eq!(pauses, [120, 220, 420, 420]);
    // What ended while the last question was on its way counts.
    let began = tokio::time::Instant::now();
    ended.notify_waiters();
    place.wait_for_turn().await;
    assert_eq!(began.elapsed().as_millis(), 20, "but no queue asks more often");
}

#[tokio::test(start_paused = true)]
async fn a_queue_for_one_keys_quota_holds_up_no_other_key() {
    let fixture = fixture(1).await;
    let (one, other) = (record(1), record(2));
    let billing = &fixture.billing;
    let mut waiting = billing.enqueue(&one, QUOTA, MAX).unwrap();
    assert_eq!(
        (billing.queue_denial(&one), billing.queue_denial(&other)),
        (Some(QUOTA), None)
    );
    // Now it is the balance that is held: for all keys of the account.
    waiting.wait_for_turn().await;
    waiting.on_denied(&one.id, Denial::BalanceHeld);
    for key in [&one, &other] {
        assert_eq!(billing.queue_denial(key), Some(Denial::BalanceHeld));
    }
    assert_eq!(billing.waiting(), 1);
    assert_eq!(billing.queue_denial(&of("else", 3)), None);
}

#[tokio::test]
async fn no_more_wait_than_may() {
    let fixture = fixture(1).await;
    let join = |account: &str| fixture.billing.enqueue(&of(account, 1), Denial::BalanceHeld, MAX);
    let mut places: Vec<_> = (0..3).map(|_| join("a").unwrap()).collect();
    assert!(join("a").is_none(), "of one account");
    places.push(join("b").unwrap());
    assert!(join("b").is_none(), "in all");
    places.remove(0);
    assert!(join("a").is_some());
}
