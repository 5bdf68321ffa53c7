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
fn a_share_is_of_all_threads_and_at_most_half_of_one() {
    for (threads, percent, debt) in [
        (1, 10, 10_000),
        (1, 25, 4000),
        (2, 10, 5000),
        (2, 25, 2000),
        (4, 25, 2000),
        (64, 100, 2000),
        (0, 0, 100_000),
    ] {
        let share = WorkShare::new(threads, percent);
        assert_eq!(
            share.debt(millis(1000)),
            millis(debt),
            "{percent} % of {threads}, for a second of work"
        );
    }
}

#[tokio::test]
async fn large_bodies_of_a_key_take_turns_and_those_of_others_do_not_wait_for_them() {
    let work = BodyWork::new(WorkShare::new(8, 25), LONG);
    let mine = work.for_key(KEY);
    let first = mine.acquire_turn().await.unwrap();
    let second = mine.acquire_turn();
    let mut second = std::pin::pin!(second);
    assert!(futures_now(&mut second).await.is_none(), "one at a time");
    assert!(work.for_key(OTHER).acquire_turn().await.is_ok());
    drop(first);
    let second = second.await;
    assert!(second.is_ok());
    drop(second);
    assert!(
        work.shared.lines.lock().by_key.is_empty(),
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
    let mine = work.for_key(KEY);
    let held = mine.acquire_turn().await.unwrap();
    assert_eq!(mine.acquire_turn().await.unwrap_err(), Refusal::BodyWorkLimited);
    let patient = BodyWork::new(WorkShare::new(1, 100), LONG);
    let mine = Arc::new(patient.for_key(KEY));
    let first = mine.acquire_turn().await.unwrap();
    let waiting: Vec<_> = (1..KEY_BODIES_MAX)
        .map(|_| {
            let mine = Arc::clone(&mine);
            tokio::spawn(async move { mine.acquire_turn().await.map(drop) })
        })
        .collect();
    while patient.shared.lines.lock().by_key[&KEY].bodies < KEY_BODIES_MAX {
        tokio::task::yield_now().await;
    }
    assert_eq!(mine.acquire_turn().await.unwrap_err(), Refusal::BodyWorkLimited);
    drop(first);
    for one in waiting {
        assert_eq!(one.await.unwrap(), Ok(()));
    }
    assert!(patient.shared.lines.lock().by_key.is_empty());
    drop(held);
}

#[tokio::test]
async fn who_gives_up_leaves_the_line() {
    let work = BodyWork::new(WorkShare::new(1, 100), LONG);
    let mine = work.for_key(KEY);
    let held = mine.acquire_turn().await.unwrap();
    {
        let waiting = mine.acquire_turn();
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_now(&mut waiting).await.is_none());
        assert_eq!(work.shared.lines.lock().by_key[&KEY].bodies, 2);
    }
    assert_eq!(work.shared.lines.lock().by_key[&KEY].bodies, 1);
    drop(held);
    assert!(mine.acquire_turn().await.is_ok());
}

#[tokio::test]
async fn a_key_may_owe_a_little_and_then_waits_until_that_is_paid() {
    // Half of a thread: work of 50 ms is a debt of 100 ms from its beginning on.
    let work = BodyWork::new(WorkShare::new(1, 50), LONG);
    let mine = work.for_key(KEY);
    assert!(mine.can_run_now());
    let owed = |work: &KeyWork| {
        let lines = work.shared.lines.lock();
        lines.by_key[&KEY].paid_at.saturating_duration_since(clock::instant())
    };
    mine.charge(millis(50));
    assert!((millis(1)..=millis(50)).contains(&owed(&mine)), "{:?}", owed(&mine));
    assert!(mine.can_run_now(), "less than the most that it may owe");
    mine.charge(millis(100));
    assert!((millis(150)..=millis(250)).contains(&owed(&mine)), "{:?}", owed(&mine));
    assert!(!mine.can_run_now());
    assert!(work.for_key(OTHER).can_run_now());
    let before = clock::instant();
    let turn = mine.acquire_turn().await.unwrap();
    assert!(
        clock::instant() - before >= millis(40),
        "it waits for its turn until it owes no more than that"
    );
    assert!(mine.can_run_now() && owed(&mine) <= DEBT_MAX);
    mine.charge(millis(80));
    let before = clock::instant();
    mine.pause().await;
    assert!(
        clock::instant() - before >= millis(40),
        "and between two pieces of work"
    );
    drop(turn);
}

#[tokio::test]
async fn a_wait_for_a_debt_that_would_be_too_long_is_refused_at_once() {
    let work = BodyWork::new(WorkShare::new(1, 50), millis(200));
    let mine = work.for_key(KEY);
    mine.charge(millis(100));
    assert!(mine.acquire_turn().await.is_ok());
    mine.charge(millis(5000));
    assert_eq!(mine.acquire_turn().await.unwrap_err(), Refusal::BodyWorkLimited);
}

/// At the limit: whatever a key has done, it is at most half of the time, and what it may owe.
#[tokio::test]
async fn all_work_of_a_key_is_no_more_than_half_of_a_thread() {
    let work = BodyWork::new(WorkShare::new(64, 100), LONG);
    let (began, mut worked) = (clock::instant(), Duration::ZERO);
    let mut work_for = |mine: &KeyWork, busy: Duration| {
        std::thread::sleep(busy);
        mine.charge(busy);
        worked += busy;
    };
    while clock::instant() - began < millis(600) {
        let mine = work.for_key(KEY);
        // As a small body, as a large one, and as a compressed one do it.
        if mine.can_run_now() {
            work_for(&mine, millis(3));
        }
        let turn = mine.acquire_turn().await.unwrap();
        work_for(&mine, millis(20));
        mine.pause().await;
        work_for(&mine, millis(5));
        drop(turn);
    }
    let elapsed = clock::instant() - began;
    let most = (elapsed + DEBT_MAX) / 2 + millis(28);
    assert!(worked <= most, "{worked:?} of {elapsed:?}");
    assert!(worked >= elapsed / 4, "{worked:?} of {elapsed:?}: it gets its share");
}

#[test]
fn work_is_timed_by_what_it_takes_of_a_processor() {
    let (_, waited) = timed(|| std::thread::sleep(millis(100)));
    assert!(waited < millis(50), "{waited:?}: a pause is no work");
    let (_, worked) = timed(|| {
        let until = clock::thread_time() + millis(20);
        while clock::thread_time() < until {}
    });
    assert!(worked >= millis(20), "{worked:?}");
}

#[test]
fn keys_that_owe_nothing_any_more_are_forgotten() {
    let work = BodyWork::new(WorkShare::new(1, 50), LONG);
    for index in 0..10 * WORKLOADS_UNSWEPT as u64 {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&index.to_le_bytes());
        work.for_key(KeyDigest::from_bytes(digest)).charge(Duration::ZERO);
    }
    let known = work.shared.lines.lock().by_key.len();
    assert!(known <= 2 * WORKLOADS_UNSWEPT, "{known}");
}
