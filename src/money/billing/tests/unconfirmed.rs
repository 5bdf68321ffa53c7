//! Unconfirmed holds: they are ended as soon as the ledger is there, and not forgotten before.

use super::*;
use crate::store::contract::until;

/// As many requests as are served on grace, and one more that is refused: its hold is unconfirmed.
async fn one_unconfirmed(fixture: &Fixture, key: &KeyRecord) {
    drop(fixture.admit(key, "seen").await.unwrap());
    fixture.send().await;
    fixture.ledger.is(Way::AnswerLost);
    let mut served = Vec::new();
    while let Ok(bill) = fixture.admit(key, &format!("r{}", served.len())).await {
        served.push(bill);
    }
    drop(served);
    fixture.send().await;
    assert_eq!(fixture.view().await.running, 1);
}

#[tokio::test]
async fn one_that_cannot_be_written_down_stays_unconfirmed() {
    let fixture = fixture(100_000).await;
    one_unconfirmed(&fixture, &record(1)).await;
    fixture.ledger.is(Way::There);
    // No file of the journal can be made any more, and what there is has been promised.
    std::fs::rename(fixture.folder.path(), fixture.folder.path().with_extension("away")).unwrap();
    let mut rooms = Vec::new();
    for bytes in [REQUEST_BYTES, 1_000, 1] {
        while let Ok(room) = fixture.journal.reserve(bytes) {
            rooms.push(room);
        }
    }
    fixture.billing.engine.renew().await;
    assert!(fixture.billing.failures() > 0, "it is said");
    std::fs::rename(fixture.folder.path().with_extension("away"), fixture.folder.path()).unwrap();
    drop(rooms);
    // The journal's thread may have seen that the folder was gone, and sees that it is back a moment later.
    until("the journal has room", async || {
        fixture.journal.unavailability().is_none()
    })
    .await;
    fixture.billing.engine.renew().await;
    fixture.send().await;
    assert_eq!(fixture.view().await.running, 0);
}

#[tokio::test]
async fn one_part_of_the_ledger_that_is_away_keeps_no_hold_of_another() {
    let fixture = fixture(100_000).await;
    let open = Step {
        seq: 1,
        change: AccountChange::Open {
            balance: nanos(100_000),
            at: 1,
            operation: None,
        },
    };
    fixture.ledger.apply(&node(9), "beta", &[open], 0).await.unwrap();
    let beta = KeyRecord {
        account: "beta".into(),
        ..record(2)
    };
    one_unconfirmed(&fixture, &record(1)).await;
    // A request of the part that is away runs, so that its lease cannot be renewed.
    fixture.ledger.is(Way::There);
    let running = fixture.admit(&beta, "b1").await.unwrap();
    fixture.ledger.is(Way::AwayFor("beta"));
    fixture.billing.engine.renew().await;
    fixture.send().await;
    assert_eq!(fixture.view().await.running, 0);
    drop(running);
}
