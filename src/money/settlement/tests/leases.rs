//! What a process that has ended has left of leases.

use super::*;
use crate::{
    domain::ledger::{
        AdmitCall, AdmitReply, Settlement, Step,
        lease::{LeaseCall, LeaseChange, LeaseId, LeaseReply, RateUse},
    },
    journal::tests::scratch,
    store::ledger::contract::{memory, node, record},
};

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

#[tokio::test]
async fn who_starts_again_ends_the_leases_of_the_process_before() {
    let (folder, ledger) = (scratch(), memory::ledger());
    let settings = JournalConfig {
        path: folder.path().to_owned(),
        segment_bytes: 16 * 1024,
        keep: Duration::from_secs(60),
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    };
    let journal = Journal::open(&settings).unwrap().journal;
    let open = Step {
        seq: 1,
        change: AccountChange::Open {
            balance: nanos(100_000),
            at: 1,
            operation: None,
        },
    };
    ledger.apply(&node(9), "acme", &[open], 0).await.unwrap();
    let first = AdmitCall {
        node: node(9),
        request: "first".into(),
        key: Arc::new(record(1)),
        estimate: nanos(10),
        tokens: 0,
        ended_key: 0,
        ended_account: 0,
    };
    assert!(matches!(ledger.admit(&first).await, Ok(AdmitReply::Granted(_))));
    let lease = LeaseId {
        holder: node(7),
        number: 1,
    };
    let ask = LeaseCall {
        lease: lease.clone(),
        node: journal.node().clone(),
        account: "acme".into(),
        key: first.key.id.clone(),
        revision: first.key.revision,
        running: 1,
        used: RateUse::default(),
        free: RateUse::default(),
        places: 0,
        turn: 1,
        change: LeaseChange::Grow(nanos(500)),
    };
    assert!(matches!(ledger.lease(&ask).await, Ok(LeaseReply::Held(_))));
    // One request has ended in it, and is charged.
    let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
    let settlement = Settlement::without_charge("r1".into(), first.key.id.clone(), 1, 0).with_lease(Some(lease));
    let change = AccountChange::Settle(Box::new(settlement));
    journal.append_step("acme", change, 0, &mut room).unwrap();
    drop((room, journal));
    let held = async || ledger.account("acme").await.unwrap().unwrap().held;
    assert_eq!(held().await, nanos(510));
    let opened = Journal::open(&settings).unwrap();
    charge_left_over(opened, &*ledger).await.unwrap();
    assert_eq!(held().await, nanos(10), "only what another node holds");
}
