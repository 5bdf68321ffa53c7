//! Tests of `limiter`.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
};

use proptest::prelude::*;

use super::*;
use crate::edges::limiter::ClientAddress;

fn allowance(per_minute: u32, burst: u32, clients_max: usize) -> RateAllowance {
    RateAllowance {
        per_minute,
        burst,
        clients_max,
    }
}

fn client(number: u32) -> ClientAddress {
    ClientAddress::from(IpAddr::V4(Ipv4Addr::from(number)))
}

fn known(limiter: &Limiter<ClientAddress>) -> usize {
    limiter.clients.lock().len()
}

#[test]
fn a_burst_then_the_rate_and_no_more() {
    let start = crate::edges::clock::instant();
    let limiter = Limiter::new(allowance(120, 3, 10), start);
    for _ in 0..3 {
        assert_eq!(limiter.try_acquire(client(1), start), Ok(()));
    }
    let half = Duration::from_millis(500);
    assert_eq!(limiter.try_acquire(client(1), start), Err(half), "one each half second");
    assert_eq!(
        limiter.try_acquire(client(2), start),
        Ok(()),
        "another is not concerned"
    );
    let nearly = start + half - Duration::from_nanos(1);
    assert_eq!(limiter.try_acquire(client(1), nearly), Err(Duration::from_nanos(1)));
    assert_eq!(limiter.try_acquire(client(1), start + half), Ok(()));
    assert_eq!(limiter.try_acquire(client(1), start + half), Err(half));
}

#[test]
fn a_client_that_waits_as_told_is_let_in_at_odd_rates_too() {
    let start = crate::edges::clock::instant();
    for rate in [1, 7, 59, 61, 999_983] {
        let limiter = Limiter::new(allowance(rate, 2, 10), start);
        let mut now = start;
        for _ in 0..50 {
            if let Err(wait) = limiter.try_acquire(client(1), now) {
                assert!(wait > Duration::ZERO);
                now += wait;
                assert_eq!(limiter.try_acquire(client(1), now), Ok(()), "{rate}");
            }
        }
    }
}

#[test]
fn the_memory_is_bounded_under_a_million_addresses_and_nobody_new_is_refused() {
    let start = crate::edges::clock::instant();
    let limiter = Limiter::new(allowance(1, 1, 10_000), start);
    for number in 0..1_000_000 {
        assert_eq!(limiter.try_acquire(client(number), start), Ok(()), "{number}");
        if number % 10_000 == 0 {
            assert!(known(&limiter) <= 10_000);
        }
    }
    assert_eq!(known(&limiter), 10_000);
    assert!(
        limiter.try_acquire(client(999_999), start).is_err(),
        "the newest are remembered"
    );
    assert_eq!(limiter.try_acquire(client(0), start), Ok(()), "the oldest are not");
}

#[test]
fn one_who_keeps_asking_stays_refused_in_a_crowd() {
    let start = crate::edges::clock::instant();
    let limiter = Limiter::new(allowance(1, 1, 100), start);
    assert_eq!(limiter.try_acquire(client(0), start), Ok(()));
    for number in 1..10_000 {
        assert_eq!(limiter.try_acquire(client(number), start), Ok(()));
        if number % 50 == 0 {
            assert!(limiter.try_acquire(client(0), start).is_err(), "{number}");
        }
    }
}

#[test]
fn who_is_at_rest_is_forgotten() {
    let start = crate::edges::clock::instant();
    let limiter = Limiter::new(allowance(60, 1, 100_000), start);
    for number in 0..1000 {
        let _ = limiter.try_acquire(client(number), start);
    }
    assert_eq!(known(&limiter), 1000);
    let later = start + Duration::from_secs(1);
    for number in 1000..2000 {
        let _ = limiter.try_acquire(client(number), later);
    }
    assert_eq!(known(&limiter), 1000, "a new one came for each that went");
}

#[test]
fn what_is_checked_is_not_counted_and_what_is_counted_beyond_the_limit_is_waited_for() {
    let start = crate::edges::clock::instant();
    let limiter = Limiter::new(allowance(60, 2, 10), start);
    for _ in 0..10 {
        assert_eq!(limiter.check(client(1), start), Ok(()));
    }
    assert_eq!(known(&limiter), 0, "who has done nothing takes no room");
    for _ in 0..4 {
        limiter.count(client(1), start);
    }
    let second = Duration::from_secs(1);
    assert_eq!(limiter.check(client(1), start), Err(3 * second), "two beyond it");
    assert_eq!(limiter.check(client(2), start), Ok(()));
    assert_eq!(limiter.check(client(1), start + 3 * second), Ok(()));
    assert_eq!(limiter.try_acquire(client(1), start + 3 * second), Ok(()));
    assert_eq!(limiter.check(client(1), start + 3 * second), Err(second));
}

#[test]
fn one_limit_may_be_everybodys() {
    let start = crate::edges::clock::instant();
    let limiter = Limiter::new(allowance(60, 2, 1), start);
    assert_eq!(
        [limiter.try_acquire((), start), limiter.try_acquire((), start)],
        [Ok(()), Ok(())]
    );
    assert_eq!(limiter.try_acquire((), start), Err(Duration::from_secs(1)));
}

proptest! {
    /// The bucket of tokens that it stands for, in exact whole numbers: a token is `MINUTE_NANOS` units, and each
    /// nanosecond brings `rate` of them.
    #[test]
    fn it_decides_as_a_bucket_of_tokens_does(
        rate in 1_u32..500,
        burst in 1_u32..20,
        asks in proptest::collection::vec((0_u32..3, 0_u64..2_000_000_000), 1..200),
    ) {
        let start = crate::edges::clock::instant();
        let limiter = Limiter::new(allowance(rate, burst, 100), start);
        let full = u128::from(burst) * MINUTE_NANOS;
        let mut buckets: HashMap<u32, (u128, Duration)> = HashMap::new();
        let mut now = Duration::ZERO;
        for (number, gap) in asks {
            now += Duration::from_nanos(gap);
            let (tokens, seen) = buckets.get(&number).copied().unwrap_or((full, now));
            let tokens = full.min(tokens + (now - seen).as_nanos() * u128::from(rate));
            let admitted = limiter.try_acquire(client(number), start + now).is_ok();
            prop_assert_eq!(admitted, tokens >= MINUTE_NANOS);
            let left = if admitted { tokens - MINUTE_NANOS } else { tokens };
            buckets.insert(number, (left, now));
        }
    }
}
