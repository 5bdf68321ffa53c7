//! Tests of operations on a balance: each has only one effect, whichever node sends it and however often.

use super::{Fixture, node};
use crate::domain::{
    ledger::{AccountChange, OperationId, Step, account::operations::OPERATIONS_MAX},
    money::NanoUsd,
};
use crate::store::ledger::APPLY_STEPS_MAX;

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

fn id(text: &str) -> OperationId {
    OperationId::parse(text).unwrap()
}

fn credit(amount: i64, operation: &str) -> AccountChange {
    AccountChange::Credit {
        amount: nanos(amount),
        at: 0,
        operation: Some(id(operation)),
    }
}

fn steps(first: u64, changes: impl IntoIterator<Item = AccountChange>) -> Vec<Step> {
    let numbered = changes.into_iter().zip(first..);
    numbered.map(|(change, seq)| Step { seq, change }).collect()
}

pub(crate) async fn an_operation_counts_once_whoever_brings_it(fixture: &Fixture) {
    let store = &fixture.store;
    let balance = async || store.account("acme").await.unwrap().map(|view| view.balance);
    assert_eq!(store.operation_amount("acme", &id("a")).await, Ok(None));
    let open = |balance| AccountChange::Open {
        balance: nanos(balance),
        at: 50,
        operation: Some(id("made")),
    };
    let adjust = AccountChange::Adjust {
        amount: nanos(-3),
        at: 0,
        operation: Some(id("b")),
    };
    let first = steps(1, [open(100), credit(5, "a"), adjust.clone(), credit(5, "a")]);
    assert_eq!(store.apply(&node(1), "acme", &first, 0).await, Ok(4));
    assert_eq!(balance().await, Some(nanos(102)));
    // Again, by another node, one of them with another amount.
    let second = steps(1, [open(100), credit(5, "a"), adjust, credit(7, "a"), credit(7, "c")]);
    assert_eq!(store.apply(&node(2), "acme", &second, 0).await, Ok(5));
    assert_eq!(balance().await, Some(nanos(109)));
    for (operation, amount) in [
        ("made", Some(100)),
        ("a", Some(5)),
        ("b", Some(-3)),
        ("c", Some(7)),
        ("d", None),
    ] {
        let known = store.operation_amount("acme", &id(operation)).await;
        assert_eq!(known, Ok(amount.map(nanos)), "{operation}");
    }
    assert_eq!(store.operation_amount("beta", &id("a")).await, Ok(None));
    assert_eq!(store.account("acme").await.unwrap().unwrap().created_at, 50);
}

pub(crate) async fn so_many_operations_are_remembered(fixture: &Fixture) {
    let store = &fixture.store;
    let changes = (0..OPERATIONS_MAX).map(|number| credit(1, &format!("op{number}")));
    let all = steps(1, changes);
    for part in all.chunks(APPLY_STEPS_MAX) {
        store.apply(&node(1), "acme", part, 0).await.unwrap();
    }
    let most = i64::try_from(OPERATIONS_MAX).unwrap();
    let balance = async || store.account("acme").await.unwrap().unwrap().balance;
    // One more operation makes the ledger drop the first one. The first, which is new again, makes it drop the second.
    let again = ["op0", "one-more", "op0", "op2"].map(|operation| credit(1, operation));
    let again = steps(1, again);
    store.apply(&node(2), "acme", &again, 0).await.unwrap();
    assert_eq!(balance().await, nanos(most + 2));
    for (operation, known) in [("op0", true), ("op1", false), ("op2", true), ("one-more", true)] {
        let amount = store.operation_amount("acme", &id(operation)).await.unwrap();
        assert_eq!(amount.is_some(), known, "{operation}");
    }
}
