//! What a start waits for before it serves.

use super::*;
use crate::money::settlement::account::{BALANCES_WAIT, wait_for_balances, wait_until_settled};

#[tokio::test]
async fn a_start_has_waited_when_the_store_has_again_what_it_forgot() {
    let folder = crate::journal::tests::scratch();
    let store = Store::new();
    let bench = Bench::start(folder.path(), &store);
    for amount in 1..=300 {
        bench.credit("acme", amount);
        bench.credit("other", amount);
    }
    bench.drained().await;
    let whole = store.amounts("acme");
    bench.stop().await;
    store.forget("acme", 7, false);
    store.forget("other", 0, false);

    let bench = Bench::start(folder.path(), &store);
    bench.credit("acme", 301);
    let journals = [Arc::clone(&bench.journal)];
    let settled = tokio::time::timeout(WAIT_MAX, wait_until_settled(&journals, &*store)).await;
    assert!(settled.is_ok(), "waited in vain");
    assert_eq!(store.amounts("acme").len(), 301);
    assert_eq!(store.amounts("other"), whole);
    drop(journals);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_goes_on_after_a_while_when_the_store_takes_no_steps() {
    let folder = crate::journal::tests::scratch();
    let store = Store::new();
    let settings = JournalConfig {
        path: folder.path().to_owned(),
        segment_bytes: 16 * 1024,
        keep: Duration::from_secs(86_400),
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    };
    let journals = [Journal::open(&settings).unwrap().journal];
    let began = tokio::time::Instant::now();
    wait_for_balances(&journals, &*store).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "there is nothing to wait for");
    let mut room = journals[0].reserve(STEP_BYTES_MAX).unwrap();
    journals[0]
        .append_step("acme", AccountChange::nothing(), 0, &mut room)
        .unwrap();
    wait_for_balances(&journals, &*store).await;
    assert!(began.elapsed() >= BALANCES_WAIT);
}
