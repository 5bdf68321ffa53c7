//! Tests of operations on a balance: each has only one effect, whichever node sends it and however often.

use std::sync::Arc;

use crate::{
    domain::{
        ledger::{
            AccountChange, AccountTerms, AdmitCall, OperationId, QuotaReset, Settlement, Step,
            account::{
                notices::{NOTICES_MAX, NoticeId, TakenNotices},
                operations::OPERATIONS_MAX,
            },
        },
        money::NanoUsd,
    },
    store::ledger::{
        APPLY_STEPS_MAX,
        contract::{Fixture, key_id, limit, node, record},
    },
};

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

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Creates an account with a low-balance limit. The first step of the account sets its balance.
async fn open_with(fixture: &Fixture, balance: i64, low: i64) {
    let open = AccountChange::Open {
        balance: nanos(balance),
        at: 1,
        operation: None,
    };
    let terms = AccountTerms {
        low_balance: Some(nanos(low)),
        ..AccountTerms::default()
    };
    limit(&*fixture.store, "acme", terms).await;
    fixture
        .store
        .apply(&node(1), "acme", &steps(1, [open]), 0)
        .await
        .unwrap();
}

fn charge(at_ms: i64, cost: i64) -> AccountChange {
    AccountChange::Settle(Box::new(Settlement {
        lease: None,
        request: "r".into(),
        key: key_id(1),
        at_ms,
        tokens_estimated: 0,
        tokens_used: 0,
        cost: nanos(cost),
        row: None,
    }))
}

/// Returns a request whose key has a daily quota of 1000.
fn ask() -> AdmitCall {
    let mut key = record(1);
    (key.terms.quota, key.terms.reset) = (Some(nanos(1_000)), QuotaReset::Daily);
    AdmitCall {
        node: node(1),
        request: "first".into(),
        key: Arc::new(key),
        estimate: NanoUsd::ZERO,
        tokens: 0,
        ended_key: 0,
        ended_account: 0,
    }
}

/// Returns, for each notice, the first three parts of its name, the value that was reached, the limit, and how often the notice
/// was taken.
fn notice_fields(taken: &TakenNotices) -> Vec<(String, i64, i64, u32)> {
    let told = taken.notices.iter().map(|one| {
        let name: Vec<String> = one.id.store_name().split(':').take(3).map(str::to_owned).collect();
        (name.join(":"), one.reached.nanos(), one.limit.nanos(), one.tries)
    });
    told.collect()
}

pub(crate) async fn what_is_reached_is_noted_once_and_waits_until_it_is_told(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    let take = async || store.take_notices("acme", 10).await.unwrap();
    assert_eq!(take().await, TakenNotices::default(), "of an account that is not there");
    open_with(fixture, 1_400, 500).await;
    store.admit(&ask()).await.unwrap();
    let charges = [charge(now, 499), charge(now, 1), charge(now, 399), charge(now, 1)];
    let first = steps(2, charges);
    // Sent again, they are applied once.
    for _ in 0..2 {
        store.apply(&node(1), "acme", &first, 0).await.unwrap();
    }
    store
        .apply(&node(2), "acme", &steps(1, [charge(now, 100), charge(now, 50)]), 0)
        .await
        .unwrap();
    let noted = |tries| {
        [
            ("b:5:node_0000000000000001", 500, 500),
            ("q:100:d20261121", 1_000, 1_000),
            ("q:50:d20261121", 500, 1_000),
            ("q:75:d20261121", 899, 1_000),
            ("q:80:d20261121", 899, 1_000),
            ("q:90:d20261121", 900, 1_000),
            ("q:95:d20261121", 1_000, 1_000),
        ]
        .map(|(name, reached, limit)| (name.to_owned(), reached, limit, tries))
    };
    let taken = take().await;
    assert_eq!(
        (notice_fields(&taken), taken.next_in_ms, taken.lost),
        (noted(1).to_vec(), Some(10), 0)
    );
    assert!(taken.notices.iter().all(|one| one.at_ms == now));
    fixture.clock.advance(9);
    let held = take().await;
    assert_eq!(
        (notice_fields(&held), held.next_in_ms),
        (Vec::new(), Some(1)),
        "nobody else takes it"
    );
    fixture.clock.advance(1);
    let again = take().await;
    assert_eq!(
        (notice_fields(&again), again.next_in_ms),
        (noted(2).to_vec(), Some(20)),
        "twice as long"
    );
    let all: Vec<NoticeId> = again.notices.into_iter().map(|one| one.id).collect();
    for _ in 0..2 {
        store.acknowledge_notices("acme", &all[1..]).await.unwrap();
    }
    fixture.clock.advance(20);
    assert_eq!(
        notice_fields(&take().await),
        [("b:5:node_0000000000000001".to_owned(), 500, 500, 3)]
    );
    store.acknowledge_notices("acme", &all[..1]).await.unwrap();
    assert_eq!(take().await, TakenNotices::default());
    // The next day has its own quota; the balance is low already.
    let next_day = steps(6, [charge(now + DAY_MS, 500)]);
    store.apply(&node(1), "acme", &next_day, 0).await.unwrap();
    assert_eq!(
        notice_fields(&take().await),
        [("q:50:d20261122".to_owned(), 500, 1_000, 1)]
    );
}

pub(crate) async fn notices_that_find_no_room_are_counted(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    let credit = || AccountChange::Credit {
        amount: nanos(10),
        at: 0,
        operation: None,
    };
    let lows = (0..=NOTICES_MAX).flat_map(|_| [charge(now, 10), credit()]);
    open_with(fixture, 10, 5).await;
    let all = steps(2, lows);
    for part in all.chunks(APPLY_STEPS_MAX) {
        store.apply(&node(1), "acme", part, 0).await.unwrap();
    }
    let mut seen = 0;
    for round in 0.. {
        let taken = store.take_notices("acme", 1_000_000).await.unwrap();
        assert_eq!(taken.lost, u64::from(round == 0), "said once");
        if taken.notices.is_empty() {
            break;
        }
        seen += taken.notices.len();
    }
    assert_eq!(seen, NOTICES_MAX);
}
