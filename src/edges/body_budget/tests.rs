//! Tests of `body_budget`.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

const KEY: [u8; 32] = [1; 32];

fn budget(bytes_max: u64, key_bytes_max: u64, address_bytes_max: u64) -> BodyBudget {
    BodyBudget::new(BodyLimits {
        bytes_max,
        key_bytes_max,
        address_bytes_max,
    })
}

/// A budget without shares.
fn whole(bytes_max: u64) -> BodyBudget {
    budget(bytes_max, bytes_max, bytes_max)
}

fn holder(key: u8, address: u8) -> BodyHolder {
    BodyHolder {
        key: [key; 32],
        address: Some(ClientAddress::from(IpAddr::V4(Ipv4Addr::new(192, 0, 2, address)))),
    }
}

const ANYBODY: BodyHolder = BodyHolder {
    key: KEY,
    address: None,
};

#[test]
fn the_limit_is_exact_and_everything_comes_back() {
    let budget = whole(10);
    let mut lease = budget.reservation(ANYBODY);
    assert_eq!((lease.grow(4), lease.grow(6)), (Ok(()), Ok(())));
    assert_eq!((lease.grow(1), lease.grow(0)), (Err(NoRoom::All), Ok(())));
    assert_eq!((lease.bytes(), budget.in_use()), (10, 10));
    drop(lease);
    assert_eq!(budget.in_use(), 0);
    assert_eq!(budget.reservation(ANYBODY).grow(11), Err(NoRoom::All));
    assert_eq!(budget.in_use(), 0);
}

#[test]
fn a_lease_takes_nothing_before_it_grows() {
    let budget = whole(10);
    let leases: Vec<BodyReservation> = (0..1000).map(|_| budget.reservation(ANYBODY)).collect();
    assert_eq!(budget.in_use(), 0);
    assert_eq!(budget.reservation(ANYBODY).grow(10), Ok(()));
    drop(leases);
    let held = budget.inner.held.lock();
    assert!(held.by_key.is_empty() && held.by_address.is_empty());
}

#[test]
fn a_key_has_its_share_whatever_addresses_it_comes_from() {
    let budget = budget(100, 30, 100);
    let mut leases: Vec<BodyReservation> = (1..=3).map(|address| budget.reservation(holder(1, address))).collect();
    assert!(leases.iter_mut().all(|lease| lease.grow(10).is_ok()));
    assert_eq!(leases[0].grow(1), Err(NoRoom::Key));
    let mut other = budget.reservation(holder(2, 1));
    assert_eq!((other.grow(30), other.grow(1)), (Ok(()), Err(NoRoom::Key)));
    leases.pop();
    assert_eq!((leases[0].grow(10), leases[0].grow(1)), (Ok(()), Err(NoRoom::Key)));
}

#[test]
fn an_address_has_its_share_whatever_keys_it_has() {
    let budget = budget(100, 100, 30);
    let mut leases: Vec<BodyReservation> = (1..=3).map(|key| budget.reservation(holder(key, 7))).collect();
    assert!(leases.iter_mut().all(|lease| lease.grow(10).is_ok()));
    assert_eq!(budget.reservation(holder(4, 7)).grow(1), Err(NoRoom::Address));
    let mut other = budget.reservation(holder(1, 8));
    assert_eq!((other.grow(30), other.grow(1)), (Ok(()), Err(NoRoom::Address)));
    // Who speaks for many has no share of its own.
    let mut proxy = budget.reservation(ANYBODY);
    assert_eq!((proxy.grow(40), proxy.grow(1)), (Ok(()), Err(NoRoom::All)));
    drop((leases, other, proxy));
    let held = budget.inner.held.lock();
    assert!(held.all == 0 && held.by_key.is_empty() && held.by_address.is_empty());
}

#[test]
fn what_is_refused_takes_nothing_of_any_count() {
    let budget = budget(100, 20, 10);
    let mut lease = budget.reservation(holder(1, 1));
    assert_eq!(lease.grow(11), Err(NoRoom::Address));
    assert_eq!(lease.grow(21), Err(NoRoom::Key));
    assert_eq!(lease.grow(101), Err(NoRoom::All));
    assert_eq!((budget.in_use(), lease.grow(10)), (0, Ok(())));
}

#[test]
fn absurd_sizes_do_not_wrap_around() {
    let budget = whole(u64::MAX);
    let mut most = budget.reservation(ANYBODY);
    assert_eq!(most.grow(u64::MAX - 1), Ok(()));
    assert_eq!(budget.reservation(ANYBODY).grow(2), Err(NoRoom::All));
    drop(most);
    assert_eq!(budget.in_use(), 0);
}

#[test]
fn threads_together_never_exceed_a_limit_and_leave_nothing_behind() {
    let budget = budget(1000, 600, 700);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let budget = budget.clone();
            scope.spawn(move || {
                for round in 0..2000_u64 {
                    let mut lease = budget.reservation(holder(thread % 2, thread % 3));
                    let _first = lease.grow((u64::from(thread) * 97 + round * 31) % 400);
                    let _second = lease.grow(round % 200);
                    let held = budget.inner.held.lock();
                    assert!(held.all <= 1000);
                    assert!(held.by_key.values().all(|bytes| *bytes <= 600));
                    assert!(held.by_address.values().all(|bytes| *bytes <= 700));
                }
            });
        }
    });
    let held = budget.inner.held.lock();
    assert!(held.all == 0 && held.by_key.is_empty() && held.by_address.is_empty());
}
