//! Tests of rows in a store that keeps them: how rows are read, restored and removed, while their sums do not change.

use std::sync::Arc;

use crate::{
    domain::{
        keys::terms::{AccountTerms, ProviderState, RateLimits, Thresholds},
        ledger::{
            AccountChange, AccountRecord, LogDay, Settlement, Step,
            consumption::Row,
            daily_sums::{DailySum, SumSelector, SumSubject},
        },
        money::NanoUsd,
    },
    store::ledger::{
        LedgerStore, LogLists, PUT_ROWS_MAX,
        contract::{Fixture, node, row},
    },
};

const DAY_MS: i64 = 24 * 3600 * 1000;

fn some(requests: std::ops::Range<u64>, time_ms: i64) -> Vec<Row> {
    let cost = NanoUsd::from_nanos(7);
    let rows = requests.map(|request| row("acme", 1, &format!("r{request}"), time_ms, cost));
    rows.collect()
}

/// Charges these rows; the step of the first one has the number `first`.
async fn charge(fixture: &Fixture, rows: &[Row], first: u64) {
    let changes = rows
        .iter()
        .map(|row| AccountChange::Settle(Box::new(Settlement::of(row.clone(), 0))));
    let steps: Vec<Step> = changes.zip(first..).map(|(change, seq)| Step { seq, change }).collect();
    fixture.store.apply(&node(1), "acme", &steps, 0).await.unwrap();
}

fn lists(fixture: &Fixture) -> &dyn LogLists {
    fixture.lists.as_deref().expect("an engine that keeps rows")
}

async fn sums(store: &dyn LedgerStore, day: i64) -> Vec<DailySum> {
    let of_account = SumSelector::One(SumSubject::Account);
    store.sums("acme", day - 9..=day + 1, &of_account).await.unwrap()
}

pub(crate) async fn rows_are_paged_by_account_and_day(fixture: &Fixture) {
    let (lists, now) = (lists(fixture), fixture.clock.now_ms());
    let (today, tomorrow) = (some(0..25, now), some(25..26, now + DAY_MS));
    charge(fixture, &[today.clone(), tomorrow.clone()].concat(), 1).await;
    let day = now / DAY_MS;
    let mut seen = Vec::new();
    loop {
        let page = lists.rows("acme", day, seen.len(), 10).await.unwrap();
        assert!(page.len() <= 10);
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    assert_eq!(seen, today);
    assert_eq!(lists.rows("acme", day + 1, 0, 10).await, Ok(tomorrow));
    for (account, day, limit) in [("acme", day - 1, 10), ("acm", day, 10), ("acme", day, 0)] {
        assert_eq!(lists.rows(account, day, 0, limit).await, Ok(vec![]));
    }
    let days = [(day, 25), (day + 1, 1)].map(|(day, rows)| LogDay { day, rows });
    assert_eq!(lists.log_days("acme", day - 5..=day + 1).await, Ok(days.to_vec()));
    assert_eq!(lists.log_days("acme", day - 5..=day - 1).await, Ok(vec![]));
    assert_eq!(lists.log_days("acm", day..=day).await, Ok(vec![]));
}

pub(crate) async fn rows_that_were_lost_are_put_back(fixture: &Fixture) {
    let (store, lists, now) = (&*fixture.store, lists(fixture), fixture.clock.now_ms());
    let day = now / DAY_MS - 2;
    let rows = some(0..9, day * DAY_MS + 5);
    assert_eq!(lists.put_rows("acme", day, &rows).await, Ok(false), "of no account");
    assert_eq!(lists.log_days("acme", day..=day).await, Ok(vec![]));
    charge(fixture, &rows[..4], 1).await;
    let before = (store.account("acme").await, sums(store, day).await);
    assert_eq!(lists.put_rows("acme", day, &rows[4..]).await, Ok(true));
    assert_eq!(lists.rows("acme", day, 0, 100).await, Ok(rows.clone()));
    // A day that has lost all of them: as many as one call restores.
    let many = some(20..20 + PUT_ROWS_MAX as u64, (day - 1) * DAY_MS);
    assert_eq!(lists.put_rows("acme", day - 1, &many).await, Ok(true));
    assert_eq!(lists.rows("acme", day - 1, 0, 1000).await, Ok(many));
    assert_eq!((store.account("acme").await, sums(store, day).await), before);
    assert_eq!(store.watermark(&node(1), "acme").await, Ok(4));
    let next = some(9..10, day * DAY_MS + 6);
    charge(fixture, &next, 5).await;
    let behind = lists.rows("acme", day, 9, 100).await;
    assert_eq!(behind, Ok(next), "the next one comes behind them");
}

pub(crate) async fn the_rows_of_a_day_are_removed_as_they_were_seen(fixture: &Fixture) {
    let (store, lists, now) = (&*fixture.store, lists(fixture), fixture.clock.now_ms());
    let (today, day) = (now / DAY_MS, now / DAY_MS - 3);
    let (old, other) = (some(0..6, day * DAY_MS + 5), some(6..9, now));
    let seen = |rows| LogDay { day, rows };
    charge(fixture, &old, 1).await;
    charge(fixture, &other, 7).await;
    let before = (store.account("acme").await, sums(store, today).await);
    for rows in [5, 7] {
        assert_eq!(lists.remove("acme", &seen(rows)).await, Ok(false), "{rows} were seen");
        assert_eq!(lists.rows("acme", day, 0, 100).await, Ok(old.clone()));
    }
    assert_eq!(lists.remove("beta", &seen(6)).await, Ok(false), "of no account");
    assert_eq!(lists.remove("acme", &seen(6)).await, Ok(true));
    assert_eq!(lists.rows("acme", day, 0, 100).await, Ok(vec![]));
    assert_eq!(lists.rows("acme", today, 0, 100).await, Ok(other));
    let left = LogDay { day: today, rows: 3 };
    assert_eq!(lists.log_days("acme", day..=today).await, Ok(vec![left]));
    assert_eq!((store.account("acme").await, sums(store, today).await), before);
    assert_eq!(lists.remove("acme", &seen(6)).await, Ok(false), "they are gone already");
    // A late row is in its own list.
    let late = some(9..10, day * DAY_MS + 9);
    charge(fixture, &late, 10).await;
    assert_eq!(lists.rows("acme", day, 0, 100).await, Ok(late));
}

async fn open(fixture: &Fixture) {
    let change = AccountChange::Open {
        balance: NanoUsd::from_nanos(100),
        at: 50,
        operation: None,
    };
    let opened = fixture
        .store
        .apply(&node(1), "acme", &[Step { seq: 1, change }], 0)
        .await;
    assert_eq!(opened, Ok(1));
}

async fn record(fixture: &Fixture) -> AccountRecord {
    fixture.store.account("acme").await.unwrap().unwrap().record
}

fn rpm(limit: u64) -> AccountTerms {
    AccountTerms {
        rates: RateLimits {
            rpm: Some(limit),
            ..RateLimits::default()
        },
        ..AccountTerms::default()
    }
}

pub(crate) async fn a_record_is_replaced_by_one_that_was_made_from_it(fixture: &Fixture) {
    open(fixture).await;
    let store = &fixture.store;
    let none = AccountRecord::default();
    assert_eq!(record(fixture).await, none);
    let all = AccountTerms {
        low_balance: Some(NanoUsd::from_nanos(-7)),
        provider_state: ProviderState::Any,
        notify: Thresholds::of([50, 100]).ok(),
        rates: RateLimits {
            rpm: Some(1),
            tpm: Some(2),
            concurrency: Some(3),
        },
    };
    let first = none.with_terms(all, true);
    // A call that is repeated because its answer was lost has only one effect.
    for _ in 0..2 {
        assert_eq!(store.set_terms("acme", &none, &first).await, Ok(true));
        assert_eq!(record(fixture).await, first);
    }
    for from in others(&first).into_iter().chain([none]) {
        let to = from.with_terms(rpm(60), false);
        assert_eq!(store.set_terms("acme", &from, &to).await, Ok(false), "{from:?}");
        assert_eq!(record(fixture).await, first);
    }
    let second = first.with_terms(AccountTerms::default(), false);
    assert_eq!(store.set_terms("acme", &first, &second).await, Ok(true));
    assert_eq!(record(fixture).await, second);
    let view = store.account("acme").await.unwrap().unwrap();
    assert_eq!((view.balance, view.created_at), (NanoUsd::from_nanos(100), 50));
    assert_eq!(store.accounts(None, 9).await, Ok(vec![view]));
    // An account that does not exist has the default record. The first other record creates the account.
    assert_eq!(store.set_terms("beta", &first, &second).await, Ok(false));
    assert_eq!(store.account("beta").await, Ok(None));
    assert_eq!(store.set_terms("beta", &none, &first).await, Ok(true));
    let made = store.account("beta").await.unwrap().unwrap();
    assert_eq!((made.record, made.balance, made.created_at), (first, NanoUsd::ZERO, 0));
    let all: Vec<String> = store
        .accounts(None, 9)
        .await
        .unwrap()
        .into_iter()
        .map(|view| view.id)
        .collect();
    assert_eq!(all, ["acme", "beta"]);
}

/// Returns one record for each field, including the revision. The record for a field differs from `record` only in that field.
fn others(record: &AccountRecord) -> Vec<AccountRecord> {
    let all = record.terms;
    let terms = [
        AccountTerms {
            low_balance: None,
            ..all
        },
        AccountTerms {
            provider_state: ProviderState::Own,
            ..all
        },
        AccountTerms { notify: None, ..all },
        AccountTerms {
            rates: RateLimits {
                rpm: Some(9),
                ..all.rates
            },
            ..all
        },
        AccountTerms {
            rates: RateLimits { tpm: None, ..all.rates },
            ..all
        },
        AccountTerms {
            rates: RateLimits {
                concurrency: None,
                ..all.rates
            },
            ..all
        },
    ];
    let mut others = terms.map(|terms| AccountRecord { terms, ..*record }).to_vec();
    others.push(AccountRecord {
        suspended: !record.suspended,
        ..*record
    });
    others.push(AccountRecord {
        revision: record.revision + 1,
        ..*record
    });
    others
}

pub(crate) async fn of_two_records_from_one_only_one_holds(fixture: &Fixture) {
    open(fixture).await;
    for round in 0..20 {
        let from = record(fixture).await;
        let set = [rpm(1_000 + round), rpm(2_000 + round)].map(|terms| {
            let (store, to) = (Arc::clone(&fixture.store), from.with_terms(terms, false));
            tokio::spawn(async move { (store.set_terms("acme", &from, &to).await.unwrap(), to) })
        });
        let mut held = Vec::new();
        for set in set {
            let (holds, to) = set.await.unwrap();
            held.extend(holds.then_some(to));
        }
        assert_eq!(held, [record(fixture).await], "round {round}");
    }
}

pub(crate) async fn what_a_store_forgot_of_an_account_is_told_again(fixture: &Fixture) {
    let store = &fixture.store;
    let tell = async |record: AccountRecord| store.heal_terms("acme", &record).await.unwrap();
    let at = |revision, limit, suspended| AccountRecord {
        revision,
        suspended,
        terms: rpm(limit),
    };
    // This also works for an account that the store has lost; the account's steps are sent afterwards.
    for _ in 0..2 {
        tell(at(3, 30, false)).await;
        assert_eq!(record(fixture).await, at(3, 30, false));
    }
    open(fixture).await;
    tell(at(2, 20, true)).await;
    tell(at(3, 31, false)).await;
    assert_eq!(record(fixture).await, at(3, 30, false), "the higher revision wins");
    for _ in 0..2 {
        tell(at(3, 32, true)).await;
        assert_eq!(record(fixture).await, at(4, 30, true), "at the same one a suspension");
    }
    tell(at(5, 50, false)).await;
    assert_eq!(record(fixture).await, at(5, 50, false));
    let balance = store.account("acme").await.unwrap().unwrap().balance;
    assert_eq!(balance, NanoUsd::from_nanos(100));
}
