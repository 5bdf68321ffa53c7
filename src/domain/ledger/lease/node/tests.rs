//! Nodes with leases on one account, in any interleaving: what is admitted is held at the store, money adds up, and nothing is
//! refused while there is some.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::domain::ledger::lease::node::tests::world::{BALANCE, NODES, TARGET, World, named, nanos};
use crate::{
    domain::ledger::{AccountChange, AdmitReply, RateLimits, Step, lease::LeaseAllowance},
    edges::clock,
};

mod world;

#[derive(Clone, Debug)]
enum Deed {
    Admit(usize, i64),
    End(usize, usize, i64),
    Enlarge(usize, usize, i64),
    Send(usize, usize),
    Question(usize),
    Deliver(usize, usize, u8),
    Wait(i64),
    Adjust(i64),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => (0..NODES, 0..60_i64).prop_map(|(by, estimate)| Deed::Admit(by, estimate)),
        5 => (0..NODES, 0..50_usize, 0..=100_i64).prop_map(|(by, which, percent)| Deed::End(by, which, percent)),
        1 => (0..NODES, 0..50_usize, 0..90_i64).prop_map(|(by, which, more)| Deed::Enlarge(by, which, more)),
        3 => (0..NODES, 0..9_usize).prop_map(|(by, many)| Deed::Send(by, many)),
        5 => (0..NODES).prop_map(Deed::Question),
        6 => (0..NODES, 0..9_usize, 0..10_u8).prop_map(|(by, which, fate)| Deed::Deliver(by, which, fate)),
        3 => prop_oneof![4 => 0..400_i64, 1 => 400..3_000_i64].prop_map(Deed::Wait),
        1 => (0..2_000_i64).prop_map(Deed::Adjust),
    ]
}

/// An operator suspends the account.
fn suspend(world: &mut World) {
    let from = world.account.record();
    assert!(world.account.set_terms(&from, &from.with_terms(from.terms, true)));
}

proptest! {
    #[test]
    fn what_is_admitted_is_held_and_nothing_is_refused_while_money_is_left(
        quota in prop_oneof![Just(None), (2_000..9_000_i64).prop_map(Some)],
        deeds in vec(deed(), 0..300),
    ) {
        let mut world = World::new(quota);
        // An account knows a key by its first request.
        world.admit(0, 1);
        for deed in deeds {
            match deed {
                Deed::Admit(by, estimate) => drop(world.admit(by, estimate)),
                Deed::End(by, which, percent) => world.end(by, which, percent),
                Deed::Enlarge(by, which, more) => world.enlarge(by, which, more),
                Deed::Send(by, many) => world.send(by, many),
                Deed::Question(by) => world.question(by),
                Deed::Deliver(by, which, fate) => world.deliver(by, which, fate),
                Deed::Wait(ms) => world.ms += ms,
                Deed::Adjust(amount) => {
                    let seq = world.account.watermark(&named(9)) + 1;
                    let change = AccountChange::Credit { amount: nanos(amount), at: 0, operation: None };
                    world.account.apply(&named(9), &[Step { seq, change }], 0);
                    world.credits += amount;
                }
            }
            world.check();
        }
        // One node uses up all there is: it gets all but what others run.
        let mut refused = 0;
        while refused < 12 {
            let got = world.admit(0, 500);
            if got { refused = 0 } else { refused += 1; world.round() }
            world.check();
        }
        let left = world.credits - world.costs - world.committed_by_running();
        let of_quota = quota.map_or(left, |quota| quota - world.costs - world.committed_by_running());
        prop_assert_eq!(left.min(of_quota), 0, "nothing is stranded");
        // All ends, and nothing is held any more.
        for by in 0..NODES {
            while !world.nodes[by].running.is_empty() {
                world.end(by, 0, 50);
            }
        }
        for _ in 0..60 {
            world.round();
            world.check();
        }
        world.ms += 3_000;
        for _ in 0..60 { world.round() }
        let view = world.account.view("acme", world.now_ms()).unwrap();
        prop_assert_eq!((view.balance.nanos(), view.spent.nanos()), (world.credits - world.costs, world.costs));
        prop_assert_eq!(view.running, 0);
        for node in &world.nodes {
            for (id, lease) in &node.leases {
                prop_assert!(lease.is_done() || !lease.is_over(), "{id}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_more_is_admitted_than_rates_and_places_allow_and_nothing_of_them_is_stranded(
        rpm in prop_oneof![Just(None), (60..4_000_u64).prop_map(Some)],
        tpm in prop_oneof![Just(None), (4_000..90_000_u64).prop_map(Some)],
        concurrency in prop_oneof![Just(None), (20..300_u64).prop_map(Some)],
        deeds in vec(deed(), 0..300),
    ) {
        let mut world = World::paced(RateLimits { rpm, tpm, concurrency });
        world.admit(0, 1);
        for deed in deeds {
            match deed {
                Deed::Admit(by, estimate) => for _ in 0..4 { world.admit(by, estimate); },
                Deed::End(by, which, _) => for _ in 0..4 { world.end(by, which, 100) },
                Deed::Enlarge(..) | Deed::Adjust(_) => {}
                Deed::Send(by, many) => world.send(by, many),
                Deed::Question(by) => world.question(by),
                Deed::Deliver(by, which, fate) => world.deliver(by, which, fate),
                Deed::Wait(ms) => world.ms += ms,
            }
            world.check();
        }
        world.check_pace();
        for by in 0..NODES {
            while !world.nodes[by].running.is_empty() {
                world.end(by, 0, 100);
            }
            if let Some((_, lease)) = world.nodes[by].leases.last_mut() { lease.end() }
        }
        for _ in 0..60 { world.round(); for node in &mut world.nodes { node.leases.iter_mut().for_each(|(_, lease)| lease.end()) } }
        world.ms += 125_000;
        // All is there again for one who asks the store.
        let all = rpm.unwrap_or(u64::MAX).min(concurrency.unwrap_or(u64::MAX)).min(400);
        for request in 0..all {
            let answer = world.ask(0, &format!("last {request}"), 0);
            prop_assert!(matches!(answer, AdmitReply::Granted(_)), "{} of {}: {:?}", request, all, answer);
        }
    }
}

#[test]
fn a_key_with_rates_is_admitted_in_its_lease_as_far_as_that_has_some_of_them() {
    let mut world = World::paced(RateLimits {
        rpm: Some(320),
        ..RateLimits::default()
    });
    world.admit(0, 1);
    world.question(0);
    world.deliver(0, 0, 9);
    for _ in 0..20 {
        assert!(world.admit(0, 10));
    }
    assert_eq!(world.leased, 12, "as many as were wanted");
    world.ms += 20;
    world.question(0);
    world.deliver(0, 0, 9);
    for _ in 0..20 {
        assert!(world.admit(0, 10));
    }
    assert_eq!(world.leased, 24);
    // Another node asks for all that is left: what the lease still has is not among it, and comes back.
    let mut refused = 0;
    while refused == 0 {
        refused += usize::from(!world.admit(1, 0));
    }
    assert_eq!(world.admitted.len(), 320);
    world.ms += 250;
    world.question(0);
    world.deliver(0, 0, 9);
    assert!(world.nodes[0].leases[0].1.is_over(), "all of it is to come back");
}

#[test]
fn requests_far_from_the_limit_are_admitted_in_the_lease_alone() {
    let mut world = World::new(None);
    world.admit(0, 1);
    world.question(0);
    world.deliver(0, 0, 9);
    for _ in 0..20 {
        assert!(world.admit(0, 10));
    }
    assert_eq!(world.leased, 20);
    let view = world.account.view("acme", world.now_ms()).unwrap();
    assert_eq!((view.held, view.running), (nanos(301), 1));
}

#[test]
fn a_lease_that_was_not_confirmed_within_a_second_is_not_used() {
    let mut world = World::new(None);
    world.admit(0, 1);
    world.question(0);
    world.deliver(0, 0, 9);
    world.ms += 999;
    world.admit(0, 10);
    assert_eq!(world.leased, 1);
    world.ms += 1;
    world.admit(0, 10);
    assert_eq!(world.leased, 1);
}

#[test]
fn a_lease_ends_with_its_day() {
    let mut world = World::new(None);
    world.ms = 12 * 3600 * 1000 - 300;
    world.admit(0, 1);
    world.question(0);
    world.deliver(0, 0, 9);
    world.admit(0, 10);
    world.ms += 299;
    world.admit(0, 10);
    assert_eq!(world.leased, 2);
    world.ms += 1;
    world.admit(0, 10);
    assert_eq!(world.leased, 2);
    assert!(world.nodes[0].leases[0].1.is_over());
}

#[test]
fn suspension_takes_leases_back_with_the_next_question() {
    let mut world = World::new(None);
    world.admit(0, 1);
    world.question(0);
    world.deliver(0, 0, 9);
    suspend(&mut world);
    world.ms += 250;
    world.question(0);
    world.deliver(0, 0, 9);
    assert!(!world.admit(0, 10));
    world.round();
    let view = world.account.view("acme", world.now_ms()).unwrap();
    assert_eq!(view.held, nanos(1), "all of it came back");
}

#[test]
fn a_suspension_behind_a_lost_first_answer_takes_the_lease_back_too() {
    let mut world = World::new(None);
    world.admit(0, 1);
    world.question(0);
    world.deliver(0, 0, 1);
    suspend(&mut world);
    world.ms += 250;
    world.question(0);
    world.deliver(0, 0, 9);
    assert!(!world.admit(0, 10), "what the first question brought is not used");
    world.round();
    let view = world.account.view("acme", world.now_ms()).unwrap();
    assert_eq!(view.held, nanos(1), "all of it came back");
}

#[test]
fn a_store_that_does_not_answer_is_asked_four_times_a_second() {
    let (mut lease, began) = (NodeLease::default(), clock::instant());
    let mut asked = Vec::new();
    for ms in (0..1_000).step_by(10) {
        let now = began + Duration::from_millis(ms);
        if lease.next_request(TARGET, now).is_some() {
            lease.on_store_reply(None, now, now);
            asked.push(ms);
        }
    }
    assert_eq!(asked, [0, 250, 500, 750]);
}

#[test]
fn the_store_hears_within_a_quarter_of_a_second_how_many_run_in_a_lease_that_ends() {
    let mut world = World::new(None);
    world.admit(0, 1);
    world.question(0);
    world.deliver(0, 0, 9);
    for _ in 0..10 {
        assert!(world.admit(0, 30));
    }
    world.nodes[0].leases[0].1.end();
    for running in [11, 6, 1] {
        world.ms += 250;
        world.question(0);
        while !world.nodes[0].questions.is_empty() {
            world.deliver(0, 0, 9);
        }
        let view = world.account.view("acme", world.now_ms()).unwrap();
        assert_eq!(view.running, running);
        // Each costs all of its part, so nothing is free of the lease.
        for _ in 0..5 {
            world.end(0, 1, 100);
        }
    }
}

#[test]
fn costs_beyond_those_remembered_one_by_one_count_all_the_same() {
    let mut lease = NodeLease {
        amount: nanos(10_000),
        ..NodeLease::default()
    };
    let many = OWED_MAX as u64 + 10;
    for number in 1..=many {
        lease.allocations.insert(number, nanos(1));
        lease.allocated = lease.allocated.saturating_add(nanos(1));
        lease.on_request_ended(number, nanos(1), Some(number));
    }
    assert_eq!(
        (lease.owed.len(), lease.free()),
        (OWED_MAX, nanos(10_000 - many as i64))
    );
}

#[test]
fn where_a_limit_is_near_more_is_asked_for_seldom() {
    let (mut lease, began) = (NodeLease::default(), clock::instant());
    let account = World::new(None);
    let grant = |hold| Grant {
        hold: nanos(hold),
        at_ms: account.now_ms(),
        balance: nanos(BALANCE),
        low_balance: None,
        quota: None,
        provider_state: crate::domain::ledger::ProviderState::Own,
        account_rates: RateLimits::default(),
        watermark: 1,
    };
    let mut asks = |ms: u64, hold: i64| {
        let now = began + Duration::from_millis(ms);
        let asked = lease.next_request(TARGET, now).map(|question| question.change);
        let held = LeaseReply::Held(LeaseGrant {
            since_ms: account.now_ms(),
            recall: 0,
            allowance: LeaseAllowance::default(),
            grant: grant(hold),
        });
        if asked.is_some() {
            lease.on_store_reply(Some(&held), now, now);
        }
        asked
    };
    let grow = |amount| Some(LeaseChange::Grow(nanos(amount)));
    assert_eq!(asks(0, 20), grow(300));
    assert_eq!(asks(19, 20), None);
    assert_eq!(asks(20, 20), grow(280));
    assert_eq!(asks(249, 20), None, "it did not grow");
    assert_eq!(asks(270, 60), grow(280));
    assert_eq!(asks(290, 60), grow(240), "it has grown");
}
