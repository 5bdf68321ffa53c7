//! A store whose clock is not this node's: the ledger of these tests stands at one moment for ever.

use std::time::Duration;

use super::*;
use crate::store::ledger::contract::START_MS;

/// The time in a row is that of the end, some way behind the admission.
const LATER: Duration = Duration::from_secs(90);

async fn closed_later(fixture: &Fixture, request: &str) -> Arc<Row> {
    let key = record(1);
    let bill = fixture.admit(&key, request).await.unwrap();
    let end = bill.running.granted.at + LATER;
    bill.close(&End::Complete, SERVED, consumed(tokens(1, 1)), end);
    let settlement = fixture.settlements().pop().unwrap();
    settlement.row.unwrap()
}

#[tokio::test]
async fn a_row_has_the_time_of_the_stores_clock() {
    let fixture = fixture(10_000).await;
    let row = closed_later(&fixture, "r1").await;
    assert_eq!(row.admitted_ms, START_MS);
    assert_eq!(row.time_ms, START_MS + 90_000);
    // So has what a crash leaves.
    let Some(Record::Admit(admitted)) = fixture.records().into_iter().next() else {
        panic!("no admission")
    };
    assert_eq!(admitted.row.admitted_ms, START_MS);
}

#[tokio::test]
async fn while_the_store_is_away_its_clock_goes_on() {
    let fixture = fixture(10_000).await;
    closed_later(&fixture, "r1").await;
    fixture.ledger.is(Way::Away);
    let row = closed_later(&fixture, "r2").await;
    // The machine may be busy between the two.
    assert!((START_MS..START_MS + 60_000).contains(&row.admitted_ms), "{row:?}");
    assert_eq!(row.time_ms, row.admitted_ms + 90_000);
}

#[tokio::test]
async fn a_node_learns_the_time_before_anything_is_admitted() {
    let fixture = fixture(10_000).await;
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(fixture.billing.clone().run(stopped));
    until("the store has told the time", async || {
        fixture.billing.time().offset_ms(clock::instant()).is_some()
    })
    .await;
    assert!(crate::store::time::is_off(
        fixture.billing.time().offset_ms(clock::instant()).unwrap()
    ));
    stop.send_replace(true);
    running.await.unwrap();
}
