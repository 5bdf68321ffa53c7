//! Tests of the ledger's contract, each of one behaviour.

use std::sync::Arc;

use super::{Fixture, key_id, node, record, row};
use crate::domain::{
    ledger::{AccountChange, AdmitCall, AdmitReply, Denial, KeySpend, OperationId, Settlement, Step},
    money::NanoUsd,
};
use crate::store::ledger::APPLY_STEPS_MAX;

const DAY_MS: i64 = 24 * 3600 * 1000;

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

fn steps(first: u64, changes: impl IntoIterator<Item = AccountChange>) -> Vec<Step> {
    let numbered = changes.into_iter().zip(first..);
    numbered.map(|(change, seq)| Step { seq, change }).collect()
}

fn open(balance: i64, at: i64) -> AccountChange {
    let balance = nanos(balance);
    AccountChange::Open {
        balance,
        at,
        operation: None,
    }
}

fn credit(amount: i64) -> AccountChange {
    AccountChange::Credit {
        amount: nanos(amount),
        at: 0,
        operation: None,
    }
}

fn ask(request: &str, estimate: i64) -> AdmitCall {
    AdmitCall {
        node: node(1),
        request: request.into(),
        key: Arc::new(record(1)),
        estimate: nanos(estimate),
        tokens: 0,
        ended_key: 0,
        ended_account: 0,
    }
}

fn settled(request: &str, at_ms: i64, end_ms: i64, cost: i64) -> AccountChange {
    AccountChange::Settle(Box::new(Settlement {
        lease: None,
        request: request.into(),
        key: key_id(1),
        at_ms,
        tokens_estimated: 0,
        tokens_used: 0,
        cost: nanos(cost),
        row: Some(row("acme", 1, request, end_ms, nanos(cost)).into()),
    }))
}

pub(crate) async fn an_account_comes_into_being_with_its_first_step(fixture: &Fixture) {
    let store = &fixture.store;
    assert_eq!(store.account("acme").await, Ok(None));
    assert_eq!(
        store.admit(&ask("r1", 5)).await,
        Ok(AdmitReply::Refused(Denial::AccountUnknown))
    );
    store.release(&node(1), "acme").await.unwrap();
    store.renew(&node(1), &["acme".to_owned()]).await.unwrap();
    assert_eq!(store.apply(&node(1), "acme", &[], 0).await, Ok(0));
    assert_eq!(store.apply(&node(1), "acme", &steps(2, [open(7, 50)]), 0).await, Ok(0));
    assert_eq!(store.account("acme").await, Ok(None));
    assert_eq!(
        store
            .apply(&node(1), "acme", &steps(1, [credit(3), open(7, 50)]), 0)
            .await,
        Ok(2)
    );
    let view = store.account("acme").await.unwrap().unwrap();
    assert_eq!(
        (view.id.as_str(), view.balance, view.created_at),
        ("acme", nanos(10), 50)
    );
    // Opening again adds the money and changes nothing else.
    assert_eq!(store.apply(&node(2), "acme", &steps(1, [open(7, 60)]), 0).await, Ok(1));
    let view = store.account("acme").await.unwrap().unwrap();
    assert_eq!((view.balance, view.created_at), (nanos(17), 50));
    assert_eq!(store.account("acm").await, Ok(None));
}

pub(crate) async fn what_was_paid_in_is_told_by_day_and_month(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    let today = now.div_euclid(DAY_MS) * DAY_MS / 1000;
    let at = |amount, at| AccountChange::Credit {
        amount: nanos(amount),
        at,
        operation: None,
    };
    let once = AccountChange::Adjust {
        amount: nanos(-2),
        at: today + 1,
        operation: OperationId::parse("once"),
    };
    let far = today - 40 * 24 * 3600;
    let all = [
        open(5, today),
        at(3, today + 1),
        once.clone(),
        once,
        at(100, far),
        at(1000, 0),
    ];
    let all = steps(1, all);
    for _ in 0..2 {
        assert_eq!(store.apply(&node(1), "acme", &all, 0).await, Ok(6));
        let view = store.account("acme").await.unwrap().unwrap();
        assert_eq!(view.balance, nanos(1106));
        assert_eq!((view.paid_today, view.paid_this_month), (nanos(6), nanos(6)));
        assert_eq!(store.accounts(None, 10).await, Ok(vec![view]));
    }
}

pub(crate) async fn a_step_is_applied_once_and_in_order(fixture: &Fixture) {
    let store = &fixture.store;
    let changes = (0..APPLY_STEPS_MAX + 5).map(|_| credit(1));
    let all = steps(1, changes);
    let most = u64::try_from(APPLY_STEPS_MAX).unwrap();
    assert_eq!(store.apply(&node(1), "acme", &all[..3], 0).await, Ok(3));
    assert_eq!(store.apply(&node(1), "acme", &all[..3], 0).await, Ok(3));
    assert_eq!(store.apply(&node(1), "acme", &all[5..8], 0).await, Ok(3));
    assert_eq!(
        store
            .apply(&node(1), "acme", &[all[1].clone(), all[3].clone(), all[5].clone()], 0)
            .await,
        Ok(4)
    );
    assert_eq!(store.apply(&node(1), "acme", &all, 0).await, Ok(most));
    assert_eq!(
        store.apply(&node(1), "acme", &all[APPLY_STEPS_MAX - 9..], 0).await,
        Ok(most + 5)
    );
    assert_eq!(store.watermark(&node(1), "acme").await, Ok(most + 5));
    assert_eq!(store.watermark(&node(2), "acme").await, Ok(0));
    assert_eq!(store.watermark(&node(1), "beta").await, Ok(0));
    let balance = store.account("acme").await.unwrap().unwrap().balance;
    assert_eq!(balance, nanos(i64::try_from(most).unwrap() + 5));
}

pub(crate) async fn what_was_settled_is_charged_logged_and_no_longer_held(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    store
        .apply(&node(1), "acme", &steps(1, [open(100, 50)]), 0)
        .await
        .unwrap();
    let Ok(AdmitReply::Granted(grant)) = store.admit(&ask("r1", 30)).await else {
        panic!("there is money")
    };
    assert_eq!((grant.hold, grant.at_ms), (nanos(30), now));
    assert_eq!((grant.balance, grant.watermark), (nanos(100), 1));
    let view = store.account("acme").await.unwrap().unwrap();
    assert_eq!((view.held, view.running), (nanos(30), 1));
    let end = steps(2, [settled("r1", now, now + 9, 42)]);
    for _ in 0..2 {
        assert_eq!(store.apply(&node(1), "acme", &end, 0).await, Ok(2));
        let view = store.account("acme").await.unwrap().unwrap();
        assert_eq!((view.balance, view.spent, view.held), (nanos(58), nanos(42), nanos(0)));
        assert_eq!(view.running, 0);
        if let Some(rows) = fixture.rows("acme", now / DAY_MS).await {
            assert_eq!(rows, [row("acme", 1, "r1", now + 9, nanos(42))]);
        }
    }
    let spent = KeySpend {
        all: nanos(42),
        day: nanos(42),
        week: nanos(42),
        month: nanos(42),
        ..KeySpend::default()
    };
    assert_eq!(store.key_spend("acme", &key_id(1)).await, Ok(spent));
    assert_eq!(store.key_spend("acme", &key_id(2)).await, Ok(KeySpend::default()));
    assert_eq!(store.key_spend("beta", &key_id(1)).await, Ok(KeySpend::default()));
}

/// The settlement is first sent in a call whose answer is lost. Then five concurrent calls send it again. Each call contains only
/// this settlement.
pub(crate) async fn a_settlement_that_is_sent_five_times_has_one_effect(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    store
        .apply(&node(1), "acme", &steps(1, [open(100, 50)]), 0)
        .await
        .unwrap();
    for (request, watermark) in [("r1", 2), ("r2", 3)] {
        assert!(matches!(
            store.admit(&ask(request, 30)).await,
            Ok(AdmitReply::Granted(_))
        ));
        let end = steps(watermark, [settled(request, now, now, 10)]);
        let by = node(1);
        let mut lost = store.apply(&by, "acme", &end, 0);
        // The settlement is sent, and its answer is lost.
        let _ = std::future::poll_fn(|context| std::task::Poll::Ready(lost.as_mut().poll(context))).await;
        drop(lost);
        let calls = (0..5).map(|_| {
            let (store, end) = (Arc::clone(store), end.clone());
            tokio::spawn(async move { store.apply(&node(1), "acme", &end, 0).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap(), Ok(watermark));
        }
    }
    let view = store.account("acme").await.unwrap().unwrap();
    assert_eq!((view.balance, view.spent, view.held), (nanos(80), nanos(20), nanos(0)));
    assert_eq!(view.running, 0);
    let spend = store.key_spend("acme", &key_id(1)).await.unwrap();
    assert_eq!((spend.all, spend.day), (nanos(20), nanos(20)));
    if let Some(rows) = fixture.rows("acme", now / DAY_MS).await {
        let requests: Vec<&str> = rows.iter().map(|row| row.request_id.as_str()).collect();
        assert_eq!(requests, ["r1", "r2"]);
    }
}

pub(crate) async fn accounts_are_listed_by_name(fixture: &Fixture) {
    let store = &fixture.store;
    assert_eq!(store.accounts(None, 10).await, Ok(vec![]));
    for name in ["b", "a-c", "ab", "c", "B"] {
        store.apply(&node(1), name, &steps(1, [open(1, 1)]), 0).await.unwrap();
    }
    let names = async |after: Option<&str>, limit| {
        let views = store.accounts(after, limit).await.unwrap();
        views.into_iter().map(|view| view.id).collect::<Vec<_>>()
    };
    assert_eq!(names(None, usize::MAX).await, ["B", "a-c", "ab", "b", "c"]);
    assert_eq!(names(None, 2).await, ["B", "a-c"]);
    assert_eq!(names(Some("a-c"), 2).await, ["ab", "b"]);
    assert_eq!(names(Some("aa"), 9).await, ["ab", "b", "c"]);
    assert_eq!(names(Some("c"), 9).await, Vec::<String>::new());
    assert_eq!(names(None, 0).await, Vec::<String>::new());
}

pub(crate) async fn admissions_at_once_never_hold_more_than_is_left(fixture: &Fixture) {
    let store = &fixture.store;
    store
        .apply(&node(1), "acme", &steps(1, [open(100, 1)]), 0)
        .await
        .unwrap();
    let asked = (0..200).map(|number| {
        let store = Arc::clone(store);
        let by = node(number % 4);
        tokio::spawn(async move {
            let ask = AdmitCall {
                node: by,
                ..ask(&format!("r{number}"), 10)
            };
            store.admit(&ask).await.unwrap()
        })
    });
    let mut granted = 0;
    for admission in asked.collect::<Vec<_>>() {
        match admission.await.unwrap() {
            AdmitReply::Granted(_) => granted += 1,
            other => assert_eq!(other, AdmitReply::Refused(Denial::BalanceHeld)),
        }
    }
    assert_eq!(granted, 10);
    let view = store.account("acme").await.unwrap().unwrap();
    assert_eq!((view.held, view.running), (nanos(100), 10));
}
