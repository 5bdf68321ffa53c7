//! Tests of the hourly buckets in Redis, against a real server.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::store::archive::Archive;
use crate::store::contract::until;
use crate::store::ledger::contract::node;
use crate::store::ledger::stability_contract::{Fixture, counters, share, stability_suite, this_hour};
use crate::store::redis::test_server::{Joined, TestServer};

async fn open() -> Option<Fixture> {
    let server = TestServer::start().await?;
    let joined = server.join("weir").await;
    Some(Fixture {
        store: joined.store.clone(),
        kept: Box::new((joined, server)),
    })
}

stability_suite!(open);

fn key(hour: Hour) -> String {
    format!("{{weir:keys}}:stability:{}", hour.number())
}

#[tokio::test]
async fn an_hour_expires_180_days_after_its_end() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let hour = this_hour();
    joined
        .store
        .put_shares(&node(1), &[share(hour, &[("a", 1)])])
        .await
        .unwrap();
    let at: i64 = server.ask(&["EXPIRETIME", &key(hour)]).await;
    assert_eq!(at, hour.start_seconds() + 3600 + 180 * 86_400);
    // What has ended that long ago is not kept, and no hour is too far away to be told.
    for number in [0, i64::MIN, i64::MAX, hour.number() - 24 * 180 - 1] {
        let hour = Hour::from_number(number);
        joined
            .store
            .put_shares(&node(1), &[share(hour, &[("a", 1)])])
            .await
            .unwrap();
        let is_kept: u64 = server.ask(&["EXISTS", &key(hour)]).await;
        assert_eq!(is_kept == 1, number == i64::MAX, "hour {number}");
    }
}

#[tokio::test]
async fn a_share_is_the_watermark_and_a_field_for_each_model() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let hour = this_hour();
    joined
        .store
        .put_shares(&node(1), &[share(hour, &[("a/b:c", 3)])])
        .await
        .unwrap();
    let fields: BTreeMap<String, String> = server.ask(&["HGETALL", &key(hour)]).await;
    let name = node(1);
    let expected = [
        (name.to_string(), "3".to_owned()),
        (format!("{name}:a/b:c"), "3 2 3000 300 1 210 2700".to_owned()),
    ];
    assert_eq!(fields, expected.into());
}

#[tokio::test]
async fn an_emptied_redis_is_refused_and_stays_empty() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let (store, hour) = (&joined.store, this_hour());
    let told = share(hour, &[("a", 1)]);
    store.put_shares(&node(1), std::slice::from_ref(&told)).await.unwrap();
    let () = server.ask(&["FLUSHALL"]).await;
    let refused = |outcome: Result<(), StoreError>| matches!(outcome, Err(StoreError::Unavailable(_)));
    assert!(refused(store.put_shares(&node(1), std::slice::from_ref(&told)).await));
    assert!(refused(store.buckets(hour, hour).await.map(drop)));
    // One that is set up for others, too.
    let () = server.ask(&["SET", "{weir:keys}:generation", "another"]).await;
    assert!(refused(store.put_shares(&node(1), std::slice::from_ref(&told)).await));
    assert!(refused(store.buckets(hour, hour).await.map(drop)));
    assert_eq!(server.ask::<u64>(&["DBSIZE"]).await, 1);
}

#[tokio::test]
async fn what_weir_has_not_written_is_passed_over() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let (store, hour) = (&joined.store, this_hour());
    let good = share(hour, &[("a", 7)]);
    store.put_shares(&node(1), std::slice::from_ref(&good)).await.unwrap();
    let name = node(1);
    let own = |model: &str| format!("{name}:{model}");
    for (field, value) in [
        ("", ""),
        ("junk", "1 2 3"),
        ("node_1:a", "1 1 1 1 1 1 1"),
        (&own("words"), "not seven numbers at all but words"),
        (&own("short"), "1 2 3 4 5 6"),
        (&own("negative"), "1 2 3 4 5 6 -7"),
        (&own("huge"), "1 2 3 4 5 6 99999999999999999999"),
        (&own("empty"), ""),
    ] {
        let () = server.ask(&["HSET", &key(hour), field, value]).await;
    }
    // A later weir may count more.
    let () = server
        .ask(&["HSET", &key(hour), &own("later"), "9 8 9000 900 4 630 8100 11"])
        .await;
    let seen = store.buckets(hour, hour).await.unwrap();
    assert_eq!(seen[&hour], share(hour, &[("a", 7), ("later", 9)]).bucket);
    assert!(store.junk.load(Ordering::Relaxed));
    // A watermark that is no number is none.
    for junk in ["many", "", "-5", "007", "1e9"] {
        let () = server.ask(&["HSET", &key(hour), name.as_str(), junk]).await;
        store.put_shares(&name, std::slice::from_ref(&good)).await.unwrap();
        let watermark: String = server.ask(&["HGET", &key(hour), name.as_str()]).await;
        assert_eq!(watermark, "7");
    }
    assert_eq!(store.buckets(hour, hour).await.unwrap()[&hour], good.bucket);
}

#[tokio::test]
async fn a_flush_is_one_call_and_so_is_a_window() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let now = this_hour();
    let calls = async || {
        let stats: String = server.ask(&["INFO", "commandstats"]).await;
        let line = stats
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha:"))
            .unwrap_or("=0,");
        let (_, rest) = line.split_once('=').unwrap();
        rest.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let shares: Vec<NodeHourCounters> = (0..24)
        .map(|ago| share(now.plus(-ago), &[("a", 1), ("b", 2)]))
        .collect();
    let before = calls().await;
    joined.store.put_shares(&node(1), &shares).await.unwrap();
    assert_eq!(calls().await, before + 1);
    joined.store.buckets(now.plus(-23), now).await.unwrap();
    assert_eq!(calls().await, before + 2);
}

#[tokio::test]
async fn hours_go_through_a_backup_from_redis_to_redis() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let (from, now) = (&joined.store, this_hour());
    let (long_ago, first) = (now.plus(-24 * 179), now.plus(-100));
    for number in [1, 2] {
        let shares = [
            share(now, &[("a/b:c", u64::MAX), ("d", 2)]),
            share(long_ago, &[("a", 5)]),
        ];
        from.put_shares(&node(number), &shares).await.unwrap();
    }
    let dumped = async |store: &RedisStore| {
        let (to, mut items) = mpsc::channel(64);
        let take = async {
            let mut all = Vec::new();
            while let Some(item) = items.recv().await {
                all.push(item);
            }
            all
        };
        let (outcome, all) = tokio::join!(store.dump(to), take);
        outcome.unwrap();
        all
    };
    let items = dumped(from).await;
    assert_eq!(items.len(), 4);

    let other = TestServer::start().await.unwrap();
    let into = Joined::begin(&other.settings("weir", Duration::from_secs(10)));
    until("it is connected", async || into.store.is_empty().await.is_ok()).await;
    into.store.load(&items).await.unwrap();
    assert!(into.store.is_empty().await.unwrap(), "hours alone are no store");
    assert!(into.store.buckets(first, now).await.is_err(), "it is not set up yet");
    into.store.finish_restore(None).await.unwrap();
    assert_eq!(dumped(&into.store).await, items);
    let ttl: i64 = other.ask(&["TTL", &key(now)]).await;
    assert!(ttl > 179 * 86_400);
    // Once it is set up, it is told only.
    assert!(into.store.load(&items).await.is_err());
    into.store
        .put_shares(&node(1), &[share(now, &[("d", 9)])])
        .await
        .unwrap();
    let bucket = into.store.buckets(now, now).await.unwrap().remove(&now).unwrap();
    assert_eq!(bucket["d"], {
        let mut twice = counters(2);
        twice.add(&counters(2));
        twice
    });
}

#[test]
fn shares_are_sent_in_parts_that_no_script_takes_long_for() {
    let named = |models: usize| {
        let bucket = (0..models).map(|number| (number.to_string(), StabilityCounters::default()));
        NodeHourCounters {
            hour: Hour::from_number(1),
            bucket: bucket.collect(),
        }
    };
    let sizes = |models: &[usize]| {
        let (node, shares) = (node(1), models.iter().map(|models| named(*models)).collect::<Vec<_>>());
        let shares: Vec<_> = shares.iter().map(|share| (&node, share)).collect();
        parts(&shares).map(<[_]>::len).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&[]), [0; 0]);
    assert_eq!(sizes(&[0, 0, 3]), [3]);
    assert_eq!(sizes(&[1000, 1000, 1]), [2, 1]);
    assert_eq!(sizes(&[5000, 5000, 1, 1]), [1, 1, 2]);
    let empty = Arc::new(named(0));
    assert_eq!(
        parts(&vec![(&node(1), &*empty); 2001])
            .map(<[_]>::len)
            .collect::<Vec<_>>(),
        [2000, 1]
    );
}
