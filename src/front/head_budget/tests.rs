//! Who is read on and who gives way, at the limits of all heads and of those of one address.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

const LIMITS: HeadsConfig = HeadsConfig {
    bytes_max: 100_000,
    address_bytes_max: 50_000,
    head_bytes_max: 40_000,
};

fn client(last: u8) -> Option<ClientAddress> {
    Some(ClientAddress::from(IpAddr::from([192, 0, 2, last])))
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn has_gone(lease: &HeadLease) -> bool {
    lease.poll_gave_way(&Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_small_head_is_always_read_and_counts_nothing() {
    let budget = HeadBudget::new(LIMITS);
    let mut full: Vec<HeadLease> = (0..5).map(|last| budget.lease(client(last))).collect();
    for lease in &mut full {
        assert_eq!(lease.set_size(20_000), Ok(()));
    }
    assert_eq!(budget.in_use(), 100_000);
    let mut small: Vec<HeadLease> = (0..100).map(|_| budget.lease(client(1))).collect();
    for lease in &mut small {
        assert_eq!(lease.set_size(SMALL_HEAD_BYTES), Ok(()));
        assert!(!has_gone(lease));
    }
    assert!(full.iter().all(|lease| !has_gone(lease)));
    assert_eq!(budget.in_use(), 100_000);
    // One byte more counts: the largest gives way to it.
    assert_eq!(small[0].set_size(SMALL_HEAD_BYTES + 1), Ok(()));
    assert_eq!(full.iter().filter(|lease| has_gone(lease)).count(), 1);
    assert!(has_gone(&full[0]), "the oldest of those that are as large");
    assert_eq!(budget.in_use(), 80_000 + SMALL_HEAD_BYTES as u64 + 1);
    drop((full, small));
    assert_eq!(budget.in_use(), 0);
    assert!(budget.held.lock().by_address.is_empty());
}

#[test]
fn the_largest_gives_way_and_that_may_be_the_one_that_grows() {
    let budget = HeadBudget::new(LIMITS);
    let (mut large, mut medium, mut other) = (
        budget.lease(client(1)),
        budget.lease(client(1)),
        budget.lease(client(2)),
    );
    assert_eq!(large.set_size(30_000), Ok(()));
    assert_eq!(medium.set_size(20_000), Ok(()));
    assert_eq!(
        other.set_size(50_000),
        Ok(()),
        "of another address, which is full with it"
    );
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(large.poll_gave_way(&Context::from_waker(&waker)).is_pending());
    assert_eq!(medium.set_size(20_001), Ok(()));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(has_gone(&large) && !has_gone(&medium) && !has_gone(&other));
    assert_eq!(large.set_size(30_001), Err(HeadBudgetExhausted));
    assert_eq!(
        other.set_size(50_001),
        Err(HeadBudgetExhausted),
        "it is the only one of its address"
    );
    assert_eq!(budget.in_use(), 20_001);
    // Once it is gone its connection may begin anew.
    other.release();
    assert_eq!(other.set_size(40_000), Ok(()));
    assert_eq!(budget.in_use(), 60_001);
}

#[test]
fn who_speaks_for_many_has_the_whole_budget() {
    let budget = HeadBudget::new(LIMITS);
    let mut proxy: Vec<HeadLease> = (0..3).map(|_| budget.lease(None)).collect();
    assert!(proxy.iter_mut().all(|lease| lease.set_size(30_000).is_ok()));
    assert_eq!(proxy[0].set_size(40_001), Err(HeadBudgetExhausted));
    assert!(!has_gone(&proxy[1]) && !has_gone(&proxy[2]));
}

#[test]
fn what_is_decoded_over_http2_counts_as_what_it_may_become() {
    let budget = HeadBudget::new(LIMITS);
    let mut lease = budget.lease(client(1));
    for (frame, block, counted) in [
        (SMALL_HEAD_BYTES, 0, 0),
        (5000, 0, 5000),
        (0, 36, 0),
        (0, 37, 37 * 112),
        (1000, 10_000, 41_000),
        (0, 0, 0),
    ] {
        assert_eq!(lease.set_http2_size(UnfinishedHead { frame, block }), Ok(()));
        assert_eq!(budget.in_use(), counted, "{frame} and {block}");
    }
}

proptest! {
    /// Whatever grows, shrinks and leaves in any order: no limit is exceeded, sums are those of what is held, and nobody gives
    /// way while there is room.
    #[test]
    fn no_limit_is_ever_exceeded(steps in prop::collection::vec((0..12_usize, 0..45_000_usize), 1..120)) {
        let budget = HeadBudget::new(LIMITS);
        let mut leases: Vec<HeadLease> = (0..12).map(|number| budget.lease(client(number % 3))).collect();
        for (at, bytes) in steps {
            let before = budget.in_use();
            let held = leases[at].set_size(bytes);
            let gone: Vec<usize> = (0..12).filter(|other| has_gone(&leases[*other])).collect();
            let room = before + bytes as u64 <= LIMITS.address_bytes_max;
            prop_assert!(!room || gone.is_empty(), "{gone:?}");
            prop_assert_eq!(held.is_err(), gone.contains(&at));
            for one in gone {
                leases[one].release();
            }
            let state = budget.held.lock();
            let sum = |of: Option<ClientAddress>| -> u64 {
                state.heads.values().filter(|head| of.is_none() || head.address == of).map(|head| head.bytes).sum()
            };
            prop_assert_eq!(state.all.bytes, sum(None));
            prop_assert!(state.all.bytes <= LIMITS.bytes_max);
            for number in 0..3 {
                let of_address = state.by_address.get(&client(number).unwrap()).map_or(0, |heads| heads.bytes);
                prop_assert_eq!(of_address, sum(client(number)));
                prop_assert!(of_address <= LIMITS.address_bytes_max);
            }
            prop_assert!(state.heads.values().all(|head| head.bytes > SMALL_HEAD_BYTES as u64));
        }
    }
}
