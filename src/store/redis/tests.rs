//! Tests of the Redis store, against a real server.

use std::collections::BTreeSet;
use std::time::Duration;

use super::test_server::{Joined, TestServer};
use super::{AdoptPolicy, InitOutcome};
use crate::domain::keys::Rotation;
use crate::domain::keys::secret::{KeyPrefix, ServiceKey};
use crate::edges::clock;
use crate::store::archive::Archive;
use crate::store::contract::{Changing, Fixture, digest, id, record, suite, to, until};
use crate::store::{FEED_CHANGES_MAX, KeyHealer, KeyStore, StoreError};

mod cluster;
mod former;
mod least;
mod queue;
mod reconnecting;
mod rights;
mod runtime_connections;
mod sentinel;
mod settings;
mod trouble;

const BUDGET: Duration = Duration::from_millis(100);
/// How much later than its budget a call may end on a busy machine: less than any time limit that it could be mistaken for.
const SLACK: Duration = Duration::from_millis(800);

async fn open() -> Option<Fixture> {
    let server = TestServer::start().await?;
    let joined = server.join("weir").await;
    Some(Fixture {
        store: joined.store.clone(),
        kept: Box::new((joined, server)),
    })
}

suite!(open);

#[tokio::test]
async fn sessions_are_remembered_by_their_latest_word() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let now = clock::unix_seconds();
    crate::store::sessions::contract::sessions_are_remembered_by_their_latest_word(&*joined.store, now).await;
}

#[tokio::test]
async fn the_contract_of_sign_ins_holds() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    use crate::store::sessions::sign_ins_contract;
    let store = async |namespace| server.join(namespace).await;
    sign_ins_contract::documents_change_all_at_once_or_not_at_all(&*store("atomic").await.store).await;
    sign_ins_contract::a_document_ends_with_its_time(&*store("short").await.store).await;
    sign_ins_contract::an_access_token_is_found_until_it_ends(&*store("token").await.store).await;
}

#[tokio::test]
async fn web_sessions_are_kept() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    crate::store::sessions::web_sessions_contract::web_sessions_are_kept(&*joined.store).await;
}

/// How long it takes until a change is acknowledged.
async fn until_written(store: &dyn KeyStore, number: u8) -> Duration {
    let start = clock::instant();
    until("a change is acknowledged", async || {
        let done = store.create(&digest(number), &record(number, 100)).await;
        // One whose answer was lost has been made.
        matches!(done, Ok(()) | Err(StoreError::Duplicate))
    })
    .await;
    start.elapsed()
}

async fn is_found(store: &dyn KeyStore, number: u8) -> bool {
    let lookup = store.find(&digest(number)).await;
    assert!(
        !matches!(&lookup, Ok(lookup) if lookup.record.is_none()),
        "a key that exists is never unknown"
    );
    lookup.is_ok()
}

#[tokio::test]
async fn an_emptied_redis_is_unavailable_and_not_without_keys() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = &joined.store;
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let () = server.ask(&["FLUSHALL"]).await;
    let unavailable = |error| matches!(error, Some(StoreError::Unavailable(_)));
    assert!(unavailable(store.find(&digest(1)).await.err()));
    assert!(unavailable(store.find(&digest(2)).await.err()));
    assert!(unavailable(store.list(None, 10).await.err()));
    assert!(unavailable(store.changes_since(1).await.err()));
    // Writing into it would make the loss final.
    assert!(unavailable(store.create(&digest(2), &record(2, 100)).await.err()));
    assert!(unavailable(store.revoke(&id(1), 1).await.err()));
    assert_eq!(server.ask::<u64>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn a_redis_that_is_not_set_up_is_unavailable_and_setting_up_is_for_once() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    joined.store.create(&digest(1), &record(1, 100)).await.unwrap();
    assert_eq!(joined.store.init(AdoptPolicy::Refuse).await, Ok(InitOutcome::Already));
    drop(joined);
    // A node that has seen no generation yet, at a Redis that has lost it.
    let () = server.ask(&["DEL", "{weir:keys}:generation"]).await;
    let late = Joined::begin(&server.settings("weir", Duration::from_secs(10)));
    let store = &late.store;
    for lookup in [store.find(&digest(1)).await, store.find(&digest(2)).await] {
        assert!(
            matches!(&lookup, Err(StoreError::Unavailable(why)) if why.contains("weir store init")),
            "{lookup:?}"
        );
    }
    let created = store.create(&digest(2), &record(2, 100)).await;
    assert!(matches!(created, Err(StoreError::Unavailable(_))), "{created:?}");
    assert_eq!(store.init(AdoptPolicy::Refuse).await, Ok(InitOutcome::HasData));
    assert!(store.find(&digest(1)).await.is_err());
    assert_eq!(store.init(AdoptPolicy::Data).await, Ok(InitOutcome::Made));
    assert!(is_found(&**store, 1).await);
}

#[tokio::test]
async fn a_backup_is_put_back_under_the_word_that_nodes_know() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = &joined.store;
    for number in [1, 2, 3] {
        store.create(&digest(number), &record(number, 100)).await.unwrap();
    }
    store.record_uses(&[(id(2), 700)]).await.unwrap();
    store.rotate(&id(1), &to(11, "abcd", Some(900))).await.unwrap();
    store.remove(&id(3)).await.unwrap();
    let keys = store.list(None, 10).await.unwrap();
    let generation = store.known_generation().await.unwrap().unwrap();
    let (to, mut items) = tokio::sync::mpsc::channel(10);
    store.dump(to).await.unwrap();
    let mut backup = Vec::new();
    while let Some(item) = items.recv().await {
        backup.push(item);
    }
    assert_eq!(backup.len(), 3);
    assert!(!store.is_empty().await.unwrap());
    assert!(
        store.load(&backup).await.is_err(),
        "only into a store that nobody believes"
    );

    let () = server.ask(&["FLUSHALL"]).await;
    assert!(store.is_empty().await.unwrap());
    store.load(&backup).await.unwrap();
    assert!(store.list(None, 10).await.is_err(), "a part is not taken for all");
    assert_eq!(store.finish_restore(Some(&generation)).await, Ok(InitOutcome::Made));
    assert_eq!(store.list(None, 10).await.unwrap(), keys);
    for text in [1, 11] {
        assert!(is_found(&**store, text).await, "both texts are put back");
    }
    store.heal(&digest(3), &record(3, 100)).await.unwrap();
    assert_eq!(store.by_id(&id(3)).await, Ok(None));
}

#[tokio::test]
async fn a_redis_that_lost_part_of_its_data_knows_no_unknown_keys() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    for number in [1, 2] {
        joined
            .store
            .create(&digest(number), &record(number, 100))
            .await
            .unwrap();
    }
    let () = server.ask(&["DEL", "{weir:keys}:ids"]).await;
    let answer = joined.store.find(&digest(1)).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn a_redis_that_hangs_costs_no_more_than_the_budget_and_recovers() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join_within("weir", BUDGET).await;
    let store = &joined.store;
    until("the key is created", async || {
        !matches!(
            store.create(&digest(1), &record(1, 100)).await,
            Err(StoreError::Unavailable(_))
        )
    })
    .await;
    server.signal("-STOP");
    let mut quickest = Duration::MAX;
    for _ in 0..6 {
        let start = clock::instant();
        let answer = store.find(&digest(1)).await;
        let took = start.elapsed();
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        assert!(took < BUDGET + SLACK, "{took:?}");
        quickest = quickest.min(took);
    }
    assert!(
        quickest < BUDGET / 2,
        "a server known to hang is not waited for: {quickest:?}"
    );
    server.signal("-CONT");
    until("the key is found again", async || is_found(&**store, 1).await).await;
}

#[tokio::test]
async fn a_killed_redis_is_reached_again_with_its_data() {
    let Some(mut server) = TestServer::start_durable().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = joined.store.clone();
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.revoke(&id(1), 700).await.unwrap();
    let before = store.by_id(&id(1)).await.unwrap();
    let version = store.find(&digest(1)).await.unwrap().version;
    server.kill();
    until("the loss is noticed", async || !is_found(&*store, 1).await).await;
    server.restart().await;
    until("the key is found again", async || is_found(&*store, 1).await).await;
    assert_eq!(store.by_id(&id(1)).await.unwrap(), before);
    assert_eq!(store.find(&digest(1)).await.unwrap().version, version);
    until("changes are pushed again", async || {
        server.push_clients().await.len() == 1
    })
    .await;
    store.rename(&id(1), "desk").await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_away_at_the_start_is_reached_when_it_comes() {
    let Some(mut server) = TestServer::start_durable().await else {
        return;
    };
    let first = server.join("weir").await;
    first.store.create(&digest(1), &record(1, 100)).await.unwrap();
    drop(first);
    server.kill();
    let joined = Joined::begin(&server.settings("weir", BUDGET));
    assert!(!is_found(&*joined.store, 1).await);
    server.restart().await;
    until("the key is found", async || is_found(&*joined.store, 1).await).await;
}

#[tokio::test]
async fn a_find_is_one_round_trip() {
    const FINDS: usize = 10;
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    joined.store.create(&digest(1), &record(1, 100)).await.unwrap();
    until("the push connection is up", async || {
        server.push_clients().await.len() == 1
    })
    .await;
    let () = server.ask(&["CONFIG", "RESETSTAT"]).await;
    for number in 0..FINDS {
        joined.store.find(&digest(u8::from(number % 2 == 0))).await.unwrap();
    }
    let stats: String = server.ask(&["INFO", "commandstats"]).await;
    let calls: Vec<(&str, usize)> = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .map(|(name, rest)| (name, rest.split(',').next().unwrap().parse().unwrap()))
        .collect();
    assert!(calls.contains(&("evalsha", FINDS)), "{calls:?}");
    // The rest is what the script itself does, the test's own questions and the push connection's signs of life.
    let others = [
        "evalsha",
        "get",
        "hget",
        "hlen",
        "zcard",
        "config|resetstat",
        "info",
        "client|setinfo",
        "ping",
        "hello",
    ];
    let names: BTreeSet<&str> = calls.iter().map(|(name, _)| *name).collect();
    assert!(names.is_subset(&BTreeSet::from(others)), "{calls:?}");
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_given_again() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    joined.store.create(&digest(1), &record(1, 100)).await.unwrap();
    let () = server.ask(&["SCRIPT", "FLUSH"]).await;
    assert!(is_found(&*joined.store, 1).await);
}

#[tokio::test]
async fn the_key_itself_is_never_in_redis() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("shop").await;
    let prefix = KeyPrefix::new("weir").unwrap();
    let [first, second] = [(); 2].map(|()| ServiceKey::generate(&prefix, &mut rand::rng()));
    joined.store.create(&first.digest(), &record(1, 100)).await.unwrap();
    let rotation = Rotation {
        digest: second.digest(),
        hint: second.hint(),
        at: 150,
        overlap_until: Some(900),
    };
    joined.store.rotate(&id(1), &rotation).await.unwrap();
    joined.store.record_uses(&[(id(1), 7)]).await.unwrap();
    let names: Vec<String> = server.ask(&["KEYS", "*"]).await;
    assert_eq!(names.len(), 9, "{names:?}");
    let records: Vec<u8> = server.ask(&["DUMP", "{shop:keys}:records"]).await;
    assert!(
        records.windows(4).any(|window| window == b"acme"),
        "a text that is there is seen"
    );
    for name in names {
        let data: Vec<u8> = server.ask(&["DUMP", &name]).await;
        let texts = [first.as_str(), second.as_str()].map(|text| text.get(5..17).unwrap());
        for text in texts.into_iter().chain(["weir-"]) {
            let shown = data.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!shown && !name.contains(text), "{name} holds a key's text");
        }
    }
}

#[tokio::test]
async fn namespaces_do_not_see_each_other() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let (one, two) = (server.join("one").await, server.join("two").await);
    one.store.create(&digest(1), &record(1, 100)).await.unwrap();
    assert_eq!(two.store.find(&digest(1)).await.unwrap().record, None);
    two.store.create(&digest(1), &record(1, 200)).await.unwrap();
    one.store.remove(&id(1)).await.unwrap();
    assert_eq!(two.store.find(&digest(1)).await.unwrap().record, Some(record(1, 200)));
}

#[tokio::test]
async fn the_feed_is_bounded() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = &joined.store;
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    for change in 0..FEED_CHANGES_MAX {
        store.rename(&id(1), &change.to_string()).await.unwrap();
    }
    assert_eq!(
        server.ask::<usize>(&["LLEN", "{weir:keys}:feed"]).await,
        FEED_CHANGES_MAX
    );
    assert_eq!(store.changes_since(0).await.unwrap().digests, None);
    let whole = store.changes_since(1).await.unwrap().digests.unwrap();
    assert_eq!(whole.len(), FEED_CHANGES_MAX);
}
