//! The tests that every store of hourly stability counters must pass. Each engine runs them with the macro `stability_suite!`.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::{HOURS_MAX, SHARES_MAX, StabilityStore};
use crate::domain::faults::stability::{Hour, ModelCounters, NodeHourCounters, StabilityCounters};
use crate::edges::clock;
use crate::store::ledger::contract::node;

/// The number of random programs that are run.
const PROGRAMS: i64 = 24;

/// A new, empty, connected store, and everything that must not be dropped before the store.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn StabilityStore>,
    pub(crate) kept: Box<dyn Any + Send>,
}

/// Declares the tests for one engine. `$open` is an async function that returns a [`Fixture`], or `None` to skip the tests with a
/// message. With `in_turn $join`, a single test checks all behaviours in turn. For each behaviour, the async closure `$join` gets
/// the behaviour's name and returns a fixture with the store.
macro_rules! stability_suite {
    ($open:path) => {
        $crate::store::ledger::stability_contract::stability_suite! { @all tests $open }
    };
    (in_turn $join:expr) => {
        $crate::store::ledger::stability_contract::stability_suite! { @all in_turn $join }
    };
    (@all $how:ident $with:expr) => {
        $crate::store::ledger::stability_contract::stability_suite! { @$how $with =>
            what_is_told_is_read_by_hour_and_model
            the_greatest_share_holds_whenever_and_however_often_it_is_told
            a_greater_share_takes_the_place_of_all_before
            the_shares_of_all_nodes_are_added_up
            names_are_kept_as_they_are
            watermarks_and_counters_are_exact_to_the_last
            many_shares_are_told_and_many_hours_read_at_once
            any_order_of_telling_leaves_the_sum_of_the_greatest
        }
    };
    (@tests $open:expr => $($behaviour:ident)*) => {
        $(#[tokio::test]
        async fn $behaviour() {
            if let Some(fixture) = $open().await {
                $crate::store::ledger::stability_contract::$behaviour(fixture.store.clone()).await;
                drop(fixture.kept);
            }
        })*
    };
    (@in_turn $join:expr => $($behaviour:ident)*) => {
        $({
            let joined = $join(stringify!($behaviour)).await;
            $crate::store::ledger::stability_contract::$behaviour(joined.store.clone()).await;
        })*
    };
}
pub(crate) use stability_suite;

/// Returns the current hour. Tests use it because Redis would remove the counters of an old hour at once.
pub(crate) fn this_hour() -> Hour {
    Hour::from_unix_ms(clock::unix_millis())
}

/// Returns counters that differ in every field.
pub(crate) fn counters(requests: u64) -> StabilityCounters {
    StabilityCounters {
        requests,
        successes: requests.saturating_sub(1),
        latency_ms: requests.saturating_mul(1000),
        ttft_ms: requests.saturating_mul(100),
        ttft_count: requests / 2,
        output_tokens: requests.saturating_mul(70),
        generation_ms: requests.saturating_mul(900),
    }
}

pub(crate) fn share(hour: Hour, models: &[(&str, u64)]) -> NodeHourCounters {
    let bucket = models
        .iter()
        .map(|(model, requests)| ((*model).to_owned(), counters(*requests)));
    NodeHourCounters {
        hour,
        bucket: bucket.collect(),
    }
}

async fn window(store: &dyn StabilityStore) -> BTreeMap<Hour, ModelCounters> {
    store.buckets(this_hour().plus(-23), this_hour().plus(1)).await.unwrap()
}

async fn of_hour(store: &dyn StabilityStore, hour: Hour) -> ModelCounters {
    store
        .buckets(hour, hour)
        .await
        .unwrap()
        .remove(&hour)
        .unwrap_or_default()
}

pub(crate) async fn what_is_told_is_read_by_hour_and_model(store: Arc<dyn StabilityStore>) {
    let now = this_hour();
    assert_eq!(window(&*store).await, BTreeMap::new());
    store.put_shares(&node(1), &[]).await.unwrap();
    let shares = [
        share(now, &[("a", 3), ("b", 4)]),
        share(now.plus(-1), &[("a", 5)]),
        share(now.plus(-24), &[("a", 9)]),
    ];
    store.put_shares(&node(1), &shares).await.unwrap();
    let told: BTreeMap<Hour, ModelCounters> = shares.iter().map(|share| (share.hour, share.bucket.clone())).collect();
    let mut seen = window(&*store).await;
    seen.retain(|_, bucket| !bucket.is_empty());
    let in_window: BTreeMap<_, _> = told
        .clone()
        .into_iter()
        .filter(|(hour, _)| *hour > now.plus(-24))
        .collect();
    assert_eq!(seen, in_window);
    for (hour, bucket) in told {
        assert_eq!(of_hour(&*store, hour).await, bucket);
    }
    assert_eq!(store.buckets(now, now.plus(-1)).await.unwrap(), BTreeMap::new());
}

pub(crate) async fn the_greatest_share_holds_whenever_and_however_often_it_is_told(store: Arc<dyn StabilityStore>) {
    let now = this_hour();
    let [small, middle, great] = [
        share(now, &[("a", 1)]),
        share(now, &[("a", 2), ("b", 1)]),
        share(now, &[("a", 2), ("b", 12)]),
    ];
    for (told, held) in [
        (&middle, &middle),
        (&middle, &middle),
        (&small, &middle),
        (&great, &great),
        (&middle, &great),
        (&great, &great),
        (&small, &great),
    ] {
        store.put_shares(&node(1), std::slice::from_ref(told)).await.unwrap();
        assert_eq!(of_hour(&*store, now).await, held.bucket);
    }
    // In one call, too.
    let hour = now.plus(-2);
    let shares: Vec<NodeHourCounters> = [&middle, &great, &small]
        .map(|share| NodeHourCounters { hour, ..share.clone() })
        .into();
    store.put_shares(&node(1), &shares).await.unwrap();
    assert_eq!(of_hour(&*store, hour).await, great.bucket);
    // The same number of requests is not greater.
    let other = share(now, &[("c", 14)]);
    store.put_shares(&node(1), &[other]).await.unwrap();
    assert_eq!(of_hour(&*store, now).await, great.bucket);
}

pub(crate) async fn a_greater_share_takes_the_place_of_all_before(store: Arc<dyn StabilityStore>) {
    let now = this_hour();
    store
        .put_shares(&node(1), &[share(now, &[("a", 1), ("gone", 1)])])
        .await
        .unwrap();
    store.put_shares(&node(2), &[share(now, &[("gone", 5)])]).await.unwrap();
    store.put_shares(&node(1), &[share(now, &[("a", 3)])]).await.unwrap();
    assert_eq!(of_hour(&*store, now).await, share(now, &[("a", 3), ("gone", 5)]).bucket);
}

pub(crate) async fn the_shares_of_all_nodes_are_added_up(store: Arc<dyn StabilityStore>) {
    let now = this_hour();
    for number in 1..=3 {
        let own = format!("own-{number}");
        let models = [("a", u64::from(number)), (own.as_str(), 7)];
        store.put_shares(&node(number), &[share(now, &models)]).await.unwrap();
    }
    let mut a = StabilityCounters::default();
    for requests in 1..=3 {
        a.add(&counters(requests));
    }
    let own = |number: u8| (format!("own-{number}"), counters(7));
    let expected: ModelCounters = [("a".to_owned(), a), own(1), own(2), own(3)].into();
    assert_eq!(of_hour(&*store, now).await, expected);
}

pub(crate) async fn names_are_kept_as_they_are(store: Arc<dyn StabilityStore>) {
    let now = this_hour();
    let long = "m".repeat(300);
    let names = [
        "",
        " ",
        "vendor/model:free",
        ":",
        "a:b:c d",
        "a",
        "modèle ünï ✓",
        "node_0000000000000001",
        "node_0000000000000001:a",
        "{x}",
        "\"<b>&\n\t\0",
        long.as_str(),
    ];
    let models: Vec<(&str, u64)> = names.into_iter().zip(1..).collect();
    for number in [1, 2] {
        store.put_shares(&node(number), &[share(now, &models)]).await.unwrap();
    }
    let expected = models.iter().map(|(name, requests)| {
        let mut twice = counters(*requests);
        twice.add(&counters(*requests));
        ((*name).to_owned(), twice)
    });
    assert_eq!(of_hour(&*store, now).await, expected.collect::<ModelCounters>());
}

pub(crate) async fn watermarks_and_counters_are_exact_to_the_last(store: Arc<dyn StabilityStore>) {
    let now = this_hour();
    let beyond_doubles = 1_u64 << 53;
    for requests in [9, 10, beyond_doubles, beyond_doubles + 1, u64::MAX - 1, u64::MAX] {
        let told = share(now, &[("a", requests)]);
        store.put_shares(&node(1), std::slice::from_ref(&told)).await.unwrap();
        store
            .put_shares(&node(1), &[share(now, &[("a", requests - 1)])])
            .await
            .unwrap();
        assert_eq!(of_hour(&*store, now).await, told.bucket, "{requests} requests");
    }
    // Sums are limited to the greatest number.
    let two = share(now, &[("a", u64::MAX), ("b", u64::MAX)]);
    assert_eq!(two.watermark(), u64::MAX);
    store.put_shares(&node(2), &[two]).await.unwrap();
    let all = of_hour(&*store, now).await;
    assert_eq!((all["a"].requests, all["b"].requests), (u64::MAX, u64::MAX));
}

pub(crate) async fn many_shares_are_told_and_many_hours_read_at_once(store: Arc<dyn StabilityStore>) {
    let now = this_hour();
    let first = now.plus(1 - i64::try_from(SHARES_MAX).unwrap());
    // One share has so many models that a careless script would run out of stack.
    let names: Vec<String> = (0..5_000).map(|number| format!("model-{number}")).collect();
    let models: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut shares = vec![share(first, &models)];
    shares.extend((1..SHARES_MAX).map(|hours| share(first.plus(i64::try_from(hours).unwrap()), &models[..20])));
    store.put_shares(&node(1), &shares).await.unwrap();
    let read = store.buckets(first, now).await.unwrap();
    assert_eq!(read.len(), SHARES_MAX);
    for share in &shares {
        assert_eq!(read[&share.hour], share.bucket);
    }
    // If there are more hours than the maximum, the last ones are returned.
    assert_eq!(i64::try_from(SHARES_MAX).unwrap(), HOURS_MAX);
    let read = store.buckets(Hour::from_number(i64::MIN), now.plus(1)).await.unwrap();
    assert_eq!(read.keys().next(), Some(&first.plus(1)));
    let read = store.buckets(now, Hour::from_number(i64::MAX)).await.unwrap();
    assert_eq!(read, BTreeMap::new());
}

/// A share to be stored: the node, how many hours ago the hour is, and how many requests the node has counted.
type Telling = (u8, i64, u64);

pub(crate) async fn any_order_of_telling_leaves_the_sum_of_the_greatest(store: Arc<dyn StabilityStore>) {
    let mut runner = TestRunner::default();
    let tellings = vec((1_u8..=3, 0_i64..3, 0_u64..12), 1..40);
    for number in 0..PROGRAMS {
        let tellings = tellings.new_tree(&mut runner).unwrap().current();
        // Each program has its own hours.
        program(&*store, this_hour().plus(-3 * number), &tellings).await;
    }
}

async fn program(store: &dyn StabilityStore, latest: Hour, tellings: &[Telling]) {
    // The counters of a node that has counted this many requests: first those of `a`, then those of `b` as well.
    let counted = |hour, to: u64| match to {
        0 => share(hour, &[]),
        1..=3 => share(hour, &[("a", to)]),
        _ => share(hour, &[("a", 3), ("b", to - 3)]),
    };
    let mut greatest: BTreeMap<(i64, u8), u64> = BTreeMap::new();
    for (number, ago, to) in tellings {
        store
            .put_shares(&node(*number), &[counted(latest.plus(-ago), *to)])
            .await
            .unwrap();
        let held = greatest.entry((*ago, *number)).or_default();
        *held = (*held).max(*to);
    }
    for ago in 0..3 {
        let mut expected = ModelCounters::new();
        for (_, to) in greatest.range((ago, 0)..=(ago, u8::MAX)) {
            for (model, counters) in counted(latest, *to).bucket {
                expected.entry(model).or_default().add(&counters);
            }
        }
        assert_eq!(
            of_hour(store, latest.plus(-ago)).await,
            expected,
            "{ago} hours ago after {tellings:?}"
        );
    }
}
