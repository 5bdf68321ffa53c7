//! The text before a key's present one, in Redis.

use super::*;

#[tokio::test]
async fn a_node_of_an_older_version_ends_the_old_text_of_a_key_that_it_changes() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = &joined.store;
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.rotate(&id(1), &to(2, "abcd", Some(900))).await.unwrap();
    // It knows no former text: it writes the record without, and looks keys up by `ids` alone, which it counts.
    let written = serde_json::to_string(&store.by_id(&id(1)).await.unwrap().unwrap().record.overlap_ended()).unwrap();
    let () = server
        .ask(&["HSET", "{weir:keys}:records", id(1).as_str(), &written])
        .await;
    let count = async |of: &str| server.ask::<u64>(&["HLEN", &format!("{{weir:keys}}:{of}")]).await;
    assert_eq!((count("ids").await, count("records").await), (1, 1));
    assert_eq!(store.find(&digest(1)).await.unwrap().record, None);
    assert!(is_found(&**store, 2).await);
    store.remove(&id(1)).await.unwrap();
    assert_eq!(store.find(&digest(1)).await.unwrap().record, None);
}
