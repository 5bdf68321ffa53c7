//! Tests of the reference model, rule by rule.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

mod kept;
mod rates;
mod records;

use super::*;
use crate::domain::keys::{KeyRecord, KeyState};
use crate::domain::ledger::{LEASE_MS, QuotaReset, RateLimits};

/// Saturday 2026-11-21, 12:00 UTC.
const NOON: i64 = 1_795_262_400_000;
const MIDNIGHT: i64 = NOON + 12 * 3600 * 1000;

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

fn node(number: u8) -> NodeId {
    NodeId::parse(&format!("node_{number:016}")).unwrap()
}

fn key_id(number: u8) -> KeyId {
    KeyId::parse(&format!("key_{number:016}")).unwrap()
}

fn record(terms: KeyTerms) -> KeyRecord {
    KeyRecord {
        id: key_id(1),
        name: "desk".to_owned(),
        account: "acme".into(),
        created_at: 1,
        expires_at: None,
        models: None,
        state: KeyState::Active,
        hint: "wxyz".to_owned(),
        revision: 1,
        terms,
        former: None,
        text_since: None,
    }
}

fn quota(amount: i64, reset: QuotaReset) -> KeyTerms {
    KeyTerms {
        quota: Some(nanos(amount)),
        reset,
        ..KeyTerms::default()
    }
}

fn rates(rpm: Option<u64>, tpm: Option<u64>, concurrency: Option<u64>) -> KeyTerms {
    let rates = RateLimits { rpm, tpm, concurrency };
    KeyTerms {
        rates,
        ..KeyTerms::default()
    }
}

fn ask(request: &str, estimate: i64, terms: KeyTerms) -> AdmitCall {
    AdmitCall {
        node: node(1),
        request: request.into(),
        key: Arc::new(record(terms)),
        estimate: nanos(estimate),
        tokens: 0,
        ended_key: 0,
        ended_account: 0,
    }
}

/// Puts the changes behind what the node has done so far.
fn apply(account: &mut Account, by: u8, changes: impl IntoIterator<Item = AccountChange>) {
    let first = account.watermark(&node(by)) + 1;
    let steps: Vec<Step> = changes
        .into_iter()
        .zip(first..)
        .map(|(change, seq)| Step { seq, change })
        .collect();
    let (watermark, _) = account.apply(&node(by), &steps, 0);
    assert_eq!(watermark, first + steps.len() as u64 - 1);
}

fn with_balance(balance: i64) -> Account {
    let mut account = Account::default();
    let balance = nanos(balance);
    apply(
        &mut account,
        1,
        [AccountChange::Open {
            balance,
            at: 5,
            operation: None,
        }],
    );
    account
}

fn settle(request: &str, at_ms: i64, cost: i64, estimated: u64, used: u64) -> AccountChange {
    AccountChange::Settle(Box::new(Settlement {
        lease: None,
        request: request.into(),
        key: key_id(1),
        at_ms,
        tokens_estimated: estimated,
        tokens_used: used,
        cost: nanos(cost),
        row: None,
    }))
}

fn hold(admission: &AdmitReply) -> i64 {
    match admission {
        AdmitReply::Granted(grant) => grant.hold.nanos(),
        other => panic!("{other:?}"),
    }
}

fn denied(admission: AdmitReply) -> Denial {
    match admission {
        AdmitReply::Refused(denied) => denied,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hold_is_the_estimate_or_what_is_left_of_the_balance() {
    let mut account = with_balance(100);
    assert_eq!(hold(&account.admit(&ask("a", 70, KeyTerms::default()), NOON)), 70);
    assert_eq!(hold(&account.admit(&ask("b", 0, KeyTerms::default()), NOON)), 0);
    assert_eq!(hold(&account.admit(&ask("c", 70, KeyTerms::default()), NOON)), 30);
    let refused = account.admit(&ask("d", 0, KeyTerms::default()), NOON);
    assert_eq!(denied(refused), Denial::BalanceHeld);
    // A charge may go below zero: what was used is owed.
    apply(&mut account, 1, [settle("a", NOON, 150, 0, 0)]);
    let refused = account.admit(&ask("d", 0, KeyTerms::default()), NOON);
    assert_eq!(denied(refused), Denial::BalanceExhausted);
    let view = account.view("acme", NOON).unwrap();
    assert_eq!((view.balance, view.held, view.running), (nanos(-50), nanos(30), 2));
}

#[test]
fn a_quota_counts_the_spending_and_the_holds_of_its_own_period() {
    let mut account = with_balance(10_000);
    let daily = quota(100, QuotaReset::Daily);
    let before = MIDNIGHT - 1;
    assert_eq!(hold(&account.admit(&ask("a", 60, daily), before)), 60);
    assert_eq!(hold(&account.admit(&ask("b", 60, daily), before)), 40);
    let standing = |spent| QuotaUse {
        quota: nanos(100),
        spent: nanos(spent),
        resets_at: Some(MIDNIGHT / 1000),
    };
    let refused = denied(account.admit(&ask("c", 1, daily), before));
    assert_eq!(refused, Denial::QuotaHeld(standing(0)));
    apply(&mut account, 1, [settle("b", before, 99, 0, 0)]);
    let refused = denied(account.admit(&ask("c", 1, daily), before));
    assert_eq!(refused, Denial::QuotaHeld(standing(99)));
    let mut spent = account.clone();
    apply(&mut spent, 1, [settle("c", before, 1, 0, 0)]);
    let refused = denied(spent.admit(&ask("d", 1, daily), before));
    assert_eq!(refused, Denial::QuotaExhausted(standing(100)));
    // A new day: neither what runs since yesterday nor its settlement counts.
    assert_eq!(hold(&account.admit(&ask("d", 60, daily), MIDNIGHT)), 60);
    apply(&mut account, 1, [settle("a", before, 1, 0, 0)]);
    assert_eq!(hold(&account.admit(&ask("e", 60, daily), MIDNIGHT)), 40);
    let spend = account.key_spend(&key_id(1), MIDNIGHT);
    assert_eq!((spend.all, spend.day, spend.week), (nanos(100), nanos(0), nanos(100)));
    assert_eq!((spend.month, spend.held, spend.running), (nanos(100), nanos(100), 2));
    // The balance knows no days.
    assert_eq!(account.view("acme", MIDNIGHT).unwrap().held, nanos(100));
}

#[test]
fn a_changed_reset_finds_its_period_counted_already() {
    let mut account = with_balance(10_000);
    apply(&mut account, 1, [settle("x", NOON - 24 * 3600 * 1000, 70, 0, 0)]);
    assert_eq!(
        hold(&account.admit(&ask("a", 100, quota(100, QuotaReset::Monthly)), NOON)),
        30
    );
    let changed = |reset, revision| {
        let mut ask = ask("b", 100, quota(100, reset));
        Arc::make_mut(&mut ask.key).revision = revision;
        ask
    };
    let mut daily = account.clone();
    assert_eq!(hold(&daily.admit(&changed(QuotaReset::Daily, 2), NOON)), 70);
    let never = denied(account.admit(&changed(QuotaReset::None, 2), NOON));
    // What the first request holds comes back; what was spent does not.
    assert!(
        matches!(never, Denial::QuotaHeld(standing) if standing.spent == nanos(70) && standing.resets_at.is_none())
    );
}

#[test]
fn a_later_revision_is_taken_over_also_by_a_refusal_and_an_earlier_one_is_stale() {
    let mut account = with_balance(100);
    let mut revoked = ask("a", 1, KeyTerms::default());
    Arc::make_mut(&mut revoked.key).revision = 3;
    Arc::make_mut(&mut revoked.key).state = KeyState::Revoked { at: 9 };
    assert_eq!(denied(account.admit(&revoked, NOON)), Denial::KeyRevoked);
    assert_eq!(
        account.admit(&ask("b", 1, KeyTerms::default()), NOON),
        AdmitReply::StaleKey
    );
    // Of the same revision the account's own knowledge counts.
    Arc::make_mut(&mut revoked.key).state = KeyState::Active;
    assert_eq!(denied(account.admit(&revoked, NOON)), Denial::KeyRevoked);
    Arc::make_mut(&mut revoked.key).revision = 4;
    Arc::make_mut(&mut revoked.key).expires_at = Some(NOON / 1000);
    assert_eq!(denied(account.admit(&revoked, NOON)), Denial::KeyExpired);
    assert_eq!(hold(&account.admit(&revoked, NOON - 1)), 1);
}

#[test]
fn an_account_that_is_not_there_keeps_nothing() {
    let mut account = Account::default();
    assert_eq!(
        denied(account.admit(&ask("a", 1, KeyTerms::default()), NOON)),
        Denial::AccountUnknown
    );
    account.renew(&node(1), NOON);
    account.release(&node(1));
    assert_eq!(account, Account::default());
    assert_eq!(account.view("acme", NOON), None);
    apply(&mut account, 1, [settle("a", NOON, 7, 0, 0)]);
    let view = account.view("acme", NOON).unwrap();
    assert_eq!((view.balance, view.spent, view.created_at), (nanos(-7), nanos(7), 0));
}

#[test]
fn a_request_that_is_held_already_gets_its_hold_again_and_nothing_changes() {
    let mut account = with_balance(100);
    account.admit(&ask("a", 30, rates(Some(1), None, Some(1))), NOON);
    let before = account.clone();
    let mut again = ask("a", 99, KeyTerms::default());
    Arc::make_mut(&mut again.key).revision = 7;
    let AdmitReply::Granted(grant) = account.admit(&again, NOON + 5) else {
        panic!("it is held")
    };
    assert_eq!((grant.hold, grant.at_ms), (nanos(30), NOON));
    assert_eq!(account, before);
}

#[test]
fn a_top_up_gets_what_is_left_in_the_period_of_the_admission() {
    let mut account = with_balance(1_000);
    let daily = quota(100, QuotaReset::Daily);
    account.admit(&ask("a", 60, daily), MIDNIGHT - 1);
    account.admit(&ask("b", 90, daily), MIDNIGHT + 1);
    let top_up = |request: &str, more| TopUp {
        node: node(1),
        request: request.into(),
        account: "acme".into(),
        key: key_id(1),
        at_ms: MIDNIGHT - 1,
        more: nanos(more),
    };
    assert_eq!(
        account.top_up(&top_up("a", 30), MIDNIGHT + 2),
        TopUpReply::Granted(nanos(30))
    );
    assert_eq!(
        account.top_up(&top_up("a", 30), MIDNIGHT + 2),
        TopUpReply::Granted(nanos(10))
    );
    assert_eq!(account.top_up(&top_up("a", 30), MIDNIGHT + 2), TopUpReply::Refused);
    assert_eq!(account.top_up(&top_up("b", 0), MIDNIGHT + 2), TopUpReply::Refused);
    assert_eq!(account.top_up(&top_up("x", 30), MIDNIGHT + 2), TopUpReply::NoHold);
    assert_eq!(account.view("acme", MIDNIGHT).unwrap().held, nanos(190));
    apply(&mut account, 1, [settle("a", MIDNIGHT - 1, 100, 0, 0)]);
    assert_eq!(account.view("acme", MIDNIGHT).unwrap().held, nanos(90));
    assert_eq!(account.top_up(&top_up("a", 30), MIDNIGHT + 2), TopUpReply::NoHold);
}

#[test]
fn the_holds_of_a_node_that_is_not_heard_of_stop_counting() {
    let mut account = with_balance(100);
    account.admit(&ask("a", 100, KeyTerms::default()), NOON);
    account.renew(&node(1), NOON + 10);
    let end = NOON + 10 + LEASE_MS;
    assert_eq!(account.view("acme", end - 1).unwrap().running, 1);
    assert_eq!(account.view("acme", end).unwrap().running, 0);
    let other = AdmitCall {
        node: node(2),
        ..ask("b", 100, KeyTerms::default())
    };
    assert_eq!(denied(account.admit(&other, end - 1)), Denial::BalanceHeld);
    assert_eq!(hold(&account.admit(&other, end)), 100);
    // It is gone for good, and its settlement is charged all the same.
    account.renew(&node(1), end);
    apply(&mut account, 1, [settle("a", NOON, 30, 0, 0)]);
    let view = account.view("acme", end).unwrap();
    assert_eq!((view.balance, view.held), (nanos(70), nanos(100)));
    account.release(&node(2));
    assert_eq!(account.view("acme", end).unwrap().held, nanos(0));
}

#[test]
fn counters_of_the_past_go_after_a_week_and_the_sum_stays() {
    let mut account = with_balance(1_000);
    let day = 24 * 3600 * 1000;
    let costs = (0..60).map(|back| settle("x", NOON - back * day, 1, 0, 0));
    apply(&mut account, 1, costs);
    account.admit(&ask("a", 1, KeyTerms::default()), NOON);
    let key = account.key(&key_id(1)).unwrap();
    assert_eq!(key.spent(Period::All), nanos(60));
    let spent = |name: &str| key.spent(name.parse().unwrap());
    assert_eq!((spent("d20261114"), spent("d20261113")), (nanos(1), nanos(0)));
    assert_eq!((spent("w2026W46"), spent("w2026W45")), (nanos(7), nanos(0)));
    assert_eq!((spent("m202611"), spent("m202610")), (nanos(21), nanos(0)));
}

#[test]
fn amounts_stay_within_what_a_double_counts_exactly() {
    let mut account = with_balance(i64::MAX);
    assert_eq!(account.view("acme", NOON).unwrap().balance, NanoUsd::MAX);
    apply(
        &mut account,
        1,
        [settle("a", NOON, i64::MAX, 0, 0), settle("b", NOON, i64::MAX, 0, 0)],
    );
    apply(
        &mut account,
        1,
        [settle("c", NOON, 9, 0, 0), settle("d", NOON, -9, 0, 0)],
    );
    let view = account.view("acme", NOON).unwrap();
    assert_eq!(
        (view.balance.nanos(), view.spent),
        (-NanoUsd::MAX.nanos(), NanoUsd::MAX)
    );
}

#[derive(Clone, Debug)]
enum Deed {
    Admit { by: u8, request: u8, estimate: i64 },
    Settle { by: u8, request: u8, cost: i64 },
    Adjust(i64),
    Wait(i64),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        (0..3_u8, 0..12_u8, 0..50_i64).prop_map(|(by, request, estimate)| Deed::Admit { by, request, estimate }),
        (0..3_u8, 0..12_u8, 0..60_i64).prop_map(|(by, request, cost)| Deed::Settle { by, request, cost }),
        (-30..90_i64).prop_map(Deed::Adjust),
        prop_oneof![0..20_000_i64, Just(12 * 3600 * 1000)].prop_map(Deed::Wait),
    ]
}

proptest! {
    #[test]
    fn money_adds_up(deeds in vec(deed(), 0..80)) {
        let (mut account, mut now) = (with_balance(100), NOON);
        let (mut credits, mut costs, mut by_day) = (100, 0, BTreeMap::<Period, i64>::new());
        for deed in deeds {
            match deed {
                Deed::Admit { by, request, estimate } => {
                    let ask = AdmitCall { node: node(by), ..ask(&request.to_string(), estimate, quota(400, QuotaReset::Daily)) };
                    account.admit(&ask, now);
                }
                Deed::Settle { by, request, cost } => {
                    apply(&mut account, by, [settle(&request.to_string(), now, cost, 0, 0)]);
                    costs += cost;
                    *by_day.entry(Period::of(QuotaReset::Daily, now)).or_default() += cost;
                }
                Deed::Adjust(amount) => {
                    apply(&mut account, 1, [AccountChange::Adjust { amount: nanos(amount), at: 0, operation: None }]);
                    credits += amount;
                }
                Deed::Wait(ms) => now += ms,
            }
            let view = account.view("acme", now).unwrap();
            prop_assert_eq!((view.balance.nanos(), view.spent.nanos()), (credits - costs, costs));
            let spend = account.key_spend(&key_id(1), now);
            prop_assert_eq!(spend.all.nanos(), costs);
            let today = by_day.get(&Period::of(QuotaReset::Daily, now)).copied().unwrap_or(0);
            prop_assert_eq!(spend.day.nanos(), today);
            prop_assert_eq!((view.held, view.running), account.holds.counted(now));
            prop_assert_eq!((spend.held, spend.running), (view.held, view.running));
        }
    }
}
