//! Keys that nobody was given: what they cost the store, and that real keys do not notice.

use std::collections::BTreeSet;

use super::*;
use crate::domain::keys::secret::{KeyPrefix, ServiceKey};

const SHIPPED: UnknownKeySettings = UnknownKeySettings {
    entries_max: 10_000,
    per_address: RateAllowance {
        per_minute: 600,
        burst: 100,
        clients_max: 100_000,
    },
    in_all: RateAllowance {
        per_minute: 60_000,
        burst: 1000,
        clients_max: 1,
    },
};
const MADE_UP: u32 = 60_000;
/// Real keys in use meanwhile.
const REAL: u8 = 200;

/// A key in this service's form, checksum and all, which is nobody's.
fn made_up(prefix: &KeyPrefix) -> KeyDigest {
    ServiceKey::generate(prefix, &mut rand::rng()).digest()
}

fn few(burst: u32) -> UnknownKeySettings {
    UnknownKeySettings {
        per_address: RateAllowance {
            per_minute: 60,
            burst,
            clients_max: 1000,
        },
        ..SHIPPED
    }
}

/// A node with [`REAL`] keys in its store.
async fn start(unknown: UnknownKeySettings) -> Followed {
    let node = Followed::start(KeyCacheSettings { unknown, ..SETTINGS }).await;
    for number in 2..=REAL {
        node.store.create(&digest(number), &record(number, 100)).await.unwrap();
    }
    node.catch_up().await;
    node
}

/// Asks for made-up keys until the address is refused, and says for how long it is.
async fn exhaust(node: &Followed, asker: u32, now: Instant) -> Duration {
    let prefix = KeyPrefix::new("weir").unwrap();
    for _ in 0..10_000 {
        match node.cache.find(&made_up(&prefix), now, || client(asker)).await {
            Ok(found) => assert!(found.is_none()),
            Err(KeyLookupError::Limited { wait }) => return wait,
            Err(KeyLookupError::Store(error)) => panic!("{error}"),
        }
    }
    panic!("never refused")
}

/// Real keys are used, then made-up keys asked for, by whom `asker` says; how many lookups the made-up keys cost. None for the
/// real ones.
async fn lookups_of_made_up_keys(asker: impl Fn(u32) -> u32) -> usize {
    let node = start(SHIPPED).await;
    let (now, prefix) = (clock::instant(), KeyPrefix::new("weir").unwrap());
    for number in 1..=REAL {
        assert!(node.find(number, now).await.is_some());
    }
    let before = node.store.finds();
    for number in 0..MADE_UP {
        let found = node.cache.find(&made_up(&prefix), now, || client(asker(number))).await;
        let unknown_or_limited = matches!(found, Ok(None) | Err(KeyLookupError::Limited { .. }));
        assert!(unknown_or_limited, "{found:?}");
    }
    let lookups = node.store.finds() - before;
    for number in 1..=REAL {
        assert!(node.find(number, now).await.is_some());
    }
    assert_eq!(node.store.finds(), before + lookups, "no real key was pushed out");
    let (keys, unknown) = node.entries();
    assert_eq!((keys, unknown), (usize::from(REAL), lookups));
    assert_eq!(node.events("unknown"), lookups as u64);
    let limited = node.events("limited_address") + node.events("limited_all");
    assert_eq!(limited, u64::from(MADE_UP) - lookups as u64);
    lookups
}

#[tokio::test]
async fn sixty_thousand_made_up_keys_of_one_address_cost_its_burst() {
    assert_eq!(lookups_of_made_up_keys(|_| 1).await, SHIPPED.per_address.burst as usize);
}

#[tokio::test]
async fn sixty_thousand_made_up_keys_of_as_many_addresses_cost_the_burst_of_all() {
    assert_eq!(
        lookups_of_made_up_keys(|number| number).await,
        SHIPPED.in_all.burst as usize
    );
}

#[tokio::test]
async fn lookups_under_way_exceed_the_limit_by_less_than_there_are_at_one_time() {
    let node = start(few(10)).await;
    let (now, prefix) = (clock::instant(), KeyPrefix::new("weir").unwrap());
    let before = node.store.finds();
    node.store.holds.store(true, Ordering::SeqCst);
    let digests: Vec<KeyDigest> = (0..2000).map(|_| made_up(&prefix)).collect();
    let flights: BTreeSet<_> = digests
        .iter()
        .map(|one| shard_index(&node.cache.flights, one.as_bytes().first()))
        .collect();
    let finds: Vec<_> = digests
        .into_iter()
        .map(|digest| {
            let cache = Arc::clone(&node.cache);
            tokio::spawn(async move { cache.find(&digest, now, somebody).await })
        })
        .collect();
    until("as many are under way as can be", async || {
        node.store.finds() - before == flights.len()
    })
    .await;
    node.store.holds.store(false, Ordering::SeqCst);
    node.store.release.notify_waiters();
    for find in finds {
        let found = find.await.unwrap();
        assert!(
            matches!(found, Ok(None) | Err(KeyLookupError::Limited { .. })),
            "{found:?}"
        );
    }
    let lookups = node.store.finds() - before;
    assert!(lookups < 10 + FLIGHT_LOCKS, "{lookups}");
}

#[tokio::test]
async fn one_made_up_key_asked_for_by_many_at_once_is_one_lookup() {
    let node = start(few(1)).await;
    let now = clock::instant();
    let before = node.store.finds();
    node.store.holds.store(true, Ordering::SeqCst);
    let finds: Vec<_> = (0..50)
        .map(|_| {
            let cache = Arc::clone(&node.cache);
            tokio::spawn(async move { cache.find(&digest(255), now, somebody).await })
        })
        .collect();
    node.store.held.notified().await;
    node.catch_up().await;
    node.store.holds.store(false, Ordering::SeqCst);
    node.store.release.notify_one();
    for find in finds {
        assert!(matches!(find.await.unwrap(), Ok(None)));
    }
    assert_eq!(node.store.finds() - before, 1);
}

#[tokio::test]
async fn real_keys_come_cold_from_one_address_as_many_as_like() {
    let node = start(few(1)).await;
    let now = clock::instant();
    for number in 1..=REAL {
        assert!(node.find(number, now).await.is_some());
    }
    assert_eq!(
        exhaust(&node, 0, now).await,
        Duration::from_secs(1),
        "none of them counted"
    );
}

#[tokio::test]
async fn a_cold_key_of_a_limited_address_is_put_off_and_never_called_unknown() {
    let mut settings = KeyCacheSettings {
        unknown: few(3),
        ..SETTINGS
    };
    // Too few to remember whom the feed has told of.
    settings.entries_max = 1;
    let node = Followed::start(settings).await;
    node.store.create(&digest(2), &record(2, 100)).await.unwrap();
    node.catch_up().await;
    let now = clock::instant();
    assert!(node.find(1, now).await.is_some());
    let wait = exhaust(&node, 0, now).await;
    let refused = node.cache.find(&digest(2), now, somebody).await;
    assert!(
        matches!(refused, Err(KeyLookupError::Limited { wait: told }) if told == wait),
        "{refused:?}"
    );
    let elsewhere = node.cache.find(&digest(2), now, || client(1)).await;
    assert!(elsewhere.unwrap().is_some(), "another address is not concerned");
    assert!(node.find(1, now + wait).await.is_some(), "as told");
}

#[tokio::test]
async fn a_key_that_was_found_before_and_made_room_is_looked_up_without_a_limit() {
    let mut settings = KeyCacheSettings {
        unknown: few(3),
        ..SETTINGS
    };
    settings.entries_max = 1;
    let node = Followed::start(settings).await;
    node.store.create(&digest(2), &record(2, 100)).await.unwrap();
    node.catch_up().await;
    let now = clock::instant();
    for number in [1, 2] {
        assert!(node.find(number, now).await.is_some());
    }
    exhaust(&node, 0, now).await;
    let cold = node.cache.find(&digest(1), now, somebody).await;
    assert!(matches!(cold, Err(KeyLookupError::Limited { .. })), "{cold:?}");
    for lookups in [1, 0] {
        let finds = node.store.finds();
        assert!(node.cache.find_known(&digest(1), now).await.unwrap().is_some());
        assert_eq!(node.store.finds(), finds + lookups);
    }
}

#[tokio::test]
async fn what_was_a_key_not_long_ago_is_looked_up_whoever_else_asks() {
    let node = start(few(1)).await;
    let now = clock::instant();
    assert!(node.find(1, now).await.is_some());
    exhaust(&node, 0, now).await;
    let later = now + SETTINGS.lifetime + Duration::from_millis(1);
    for _ in 0..2 {
        exhaust(&node, 0, later).await;
        assert!(node.find(1, later).await.is_some(), "its lifetime has ended");
    }
    node.store.revoke(&id(1), 500).await.unwrap();
    node.catch_up().await;
    let revoked = node.find(1, later).await.unwrap();
    assert_eq!(revoked.state, KeyState::Revoked { at: 500 }, "it was changed");
    node.cache.refetch(&digest(1), later).await.unwrap();
    // A new server, which knows the same keys.
    let (other, flushes) = (Arc::new(ModelStore::new()), node.events("flush"));
    other.create(&digest(1), &record(1, 100)).await.unwrap();
    *node.store.inner.write() = other;
    until("the flush", async || node.events("flush") > flushes).await;
    assert!(node.find(1, later).await.is_some(), "all was flushed");
}

#[tokio::test]
async fn a_key_that_is_created_works_at_once_also_where_too_many_unknown_ones_were_asked_for() {
    let node = start(few(2)).await;
    let now = clock::instant();
    assert!(node.find(250, now).await.is_none());
    exhaust(&node, 0, now).await;
    for number in [250, 251] {
        node.store.create(&digest(number), &record(number, 100)).await.unwrap();
    }
    node.catch_up().await;
    assert!(node.find(250, now).await.is_some(), "it was cached as unknown");
    assert!(node.find(251, now).await.is_some(), "it was never asked for");
    node.store.remove(&id(251)).await.unwrap();
    node.catch_up().await;
    assert!(node.find(251, now).await.is_none(), "a deleted key is read once more");
    let before = node.store.finds();
    assert!(node.find(251, now).await.is_none());
    assert_eq!(node.store.finds(), before, "and is an unknown one then");
}
