//! Tests of `body_work`.

use super::*;
use crate::edges::clock;

const KEY: KeyDigest = KeyDigest::from_bytes([1; 32]);
const OTHER: KeyDigest = KeyDigest::from_bytes([2; 32]);
const LONG: Duration = Duration::from_secs(600);

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn a_share_is_turns_and_pauses() {
    for (threads, percent, turns, pause) in [
        (1, 25, 1, 3000),
        (2, 25, 1, 1000),
        (4, 25, 1, 0),
        (6, 25, 1, 0),
        (8, 25, 2, 0),
        (16, 25, 4, 0),
        (2, 50, 1, 0),
        (2, 100, 2, 0),
        (3, 10, 1, 2333),
    ] {
        let share = WorkShare::new(threads, percent);
        let paused = share.pause(millis(1000));
        assert_eq!(
            (share.turns(), paused.as_millis()),
            (turns, pause),
            "{percent} % of {threads}"
        );
    }
}

#[tokio::test]
async fn large_bodies_of_a_key_take_turns_and_those_of_others_do_not_wait_for_them() {
    let work = BodyWork::new(WorkShare::new(8, 25), LONG);
    let mine = work.of(KEY);
    let (first, second) = (mine.turn().await, mine.turn().await);
    assert!(first.is_ok() && second.is_ok());
    let third = mine.turn();
    let mut third = std::pin::pin!(third);
    assert!(
        futures_now(&mut third).await.is_none(),
        "two of eight threads are taken"
    );
    assert!(work.of(OTHER).turn().await.is_ok());
    drop(first);
    assert!(third.await.is_ok());
    drop(second);
    assert!(
        work.shared.lines.lock().is_empty(),
        "nothing is left of a key that rests"
    );
}

/// What a future gives without waiting.
async fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = tokio::task::yield_now() => None,
    }
}

#[tokio::test]
async fn a_turn_is_waited_for_within_a_limit_and_by_so_many() {
    let work = BodyWork::new(WorkShare::new(1, 100), millis(20));
    let mine = work.of(KEY);
    let held = mine.turn().await.unwrap();
    assert_eq!(mine.turn().await.unwrap_err(), Refusal::BodyWorkLimited);
    let patient = BodyWork::new(WorkShare::new(1, 100), LONG);
    let mine = Arc::new(patient.of(KEY));
    let first = mine.turn().await.unwrap();
    let waiting: Vec<_> = (1..LINE_MAX)
        .map(|_| {
            let mine = Arc::clone(&mine);
            tokio::spawn(async move { mine.turn().await.map(drop) })
        })
        .collect();
    while patient.shared.lines.lock()[&KEY].bodies < LINE_MAX {
        tokio::task::yield_now().await;
    }
    assert_eq!(mine.turn().await.unwrap_err(), Refusal::BodyWorkLimited);
    drop(first);
    for one in waiting {
        assert_eq!(one.await.unwrap(), Ok(()));
    }
    assert!(patient.shared.lines.lock().is_empty());
    drop(held);
}

#[tokio::test]
async fn who_gives_up_leaves_the_line() {
    let work = BodyWork::new(WorkShare::new(1, 100), LONG);
    let mine = work.of(KEY);
    let held = mine.turn().await.unwrap();
    {
        let waiting = mine.turn();
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_now(&mut waiting).await.is_none());
        assert_eq!(work.shared.lines.lock()[&KEY].bodies, 2);
    }
    assert_eq!(work.shared.lines.lock()[&KEY].bodies, 1);
    drop(held);
    assert!(mine.turn().await.is_ok());
}

#[tokio::test]
async fn work_is_paid_for_with_pauses_that_add_up() {
    let work = BodyWork::new(WorkShare::new(2, 25), LONG);
    let turn = work.of(KEY).turn().await.unwrap();
    let mut worked = Duration::from_micros(900);
    turn.rest(&mut worked).await;
    assert_eq!(worked, Duration::from_micros(900), "too short for a pause");
    worked += millis(20);
    let before = clock::instant();
    turn.rest(&mut worked).await;
    assert!(clock::instant() - before >= millis(20));
    assert_eq!(worked, Duration::ZERO);
}
