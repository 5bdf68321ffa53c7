//! No table grows beyond its limit, whatever is asked for.

use super::*;

/// How often the store is asked by this.
async fn asked(node: &Followed, number: u8, now: Instant) -> usize {
    let before = node.store.finds();
    node.find(number, now).await;
    node.store.finds() - before
}

#[tokio::test]
async fn there_are_no_more_keys_than_allowed() {
    for entries_max in [0, 1, 7, 40] {
        let node = Followed::start(KeyCacheSettings {
            entries_max,
            ..SETTINGS
        })
        .await;
        for number in 2..=255 {
            node.store.create(&digest(number), &record(number, 100)).await.unwrap();
        }
        node.catch_up().await;
        assert!(node.entries().0 <= entries_max, "what is told of in the feed");
        let now = clock::instant();
        for number in 1..=255 {
            node.find(number, now).await;
            assert!(node.entries().0 <= entries_max);
            node.cache.record_use(&id(number), 1);
            let used = node.cache.uses.len();
            assert!(used <= entries_max, "{used} of {entries_max}");
        }
        assert_eq!(
            asked(&node, 255, now).await,
            usize::from(entries_max == 0),
            "the latest of {entries_max} is there"
        );
    }
}

#[tokio::test]
async fn the_key_that_was_not_used_for_the_longest_time_goes() {
    let one_shard_of_two = KeyCacheSettings {
        entries_max: 2 * SHARDS_MAX,
        ..SETTINGS
    };
    let node = Followed::start(one_shard_of_two).await;
    let shard = |number: &u8| shard_index(&node.cache.shards, digest(*number).as_bytes().last());
    let same: Vec<u8> = (1..=255).filter(|number| shard(number) == shard(&1)).take(3).collect();
    let [used, unused, third] = same[..] else {
        panic!("of 255 digests three are in one shard")
    };
    for number in [unused, third] {
        node.store.create(&digest(number), &record(number, 100)).await.unwrap();
    }
    node.catch_up().await;
    let now = clock::instant();
    for number in [used, unused, used, third] {
        asked(&node, number, now).await;
    }
    assert_eq!([asked(&node, used, now).await, asked(&node, unused, now).await], [0, 1]);
}

#[tokio::test]
async fn no_more_unknown_digests_are_remembered_than_allowed() {
    for entries_max in [0, 1, 7, 40] {
        let mut settings = SETTINGS;
        // One shard, so that the limit is that of one table.
        settings.entries_max = 1;
        settings.unknown.entries_max = entries_max;
        let node = Followed::start(settings).await;
        let now = clock::instant();
        for number in 2..=255 {
            node.find(number, now).await;
            assert!(node.entries().1 <= entries_max);
        }
        assert_eq!(
            asked(&node, 255, now).await,
            usize::from(entries_max == 0),
            "the latest of {entries_max} is there"
        );
    }
}
