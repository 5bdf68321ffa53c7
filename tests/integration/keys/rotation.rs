//! A key gets a new text, and the one before works on for a while.

use super::*;
use crate::harness::request::ALL_WIRES;

/// Weir with a provider that answers, with the store that the redis is, or with the embedded one.
fn served(provider: &RecordingProvider, redis: Option<&RedisServer>) -> Weir {
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    match redis {
        Some(redis) => builder.redis(redis).start(),
        None => builder.start(),
    }
}

fn rotated(weir: &Weir, key: &Key, overlap: &str) -> serde_json::Value {
    weir.cli_json(&["key", "rotate", &key.id, "--overlap", overlap])
}

fn text(of: &serde_json::Value, field: &str) -> String {
    of[field].as_str().unwrap().to_owned()
}

/// One node changes the key, and the other one serves it.
fn both_texts_work_until_the_overlap_ends(changing: &Weir, serving: &Weir) {
    let key = changing.key();
    wait_until("the key to work", || status_of(serving, &key.text) == 200);
    let made = changing.cli_json(&["key", "rotate", &key.id]);
    let second = text(&made, "key");
    let until: jiff::Timestamp = text(&made["former"], "until").parse().unwrap();
    let left = until.as_second() - jiff::Timestamp::now().as_second();
    assert!((80_000..=86_401).contains(&left), "a day unless it is said: {made}");
    wait_until("the new text to work", || status_of(serving, &second) == 200);
    assert_eq!(status_of(serving, &key.text), 200, "and the old one");
    let shown = changing.cli(&["key", "show", &key.id], &[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("former") && shown.contains("works until"), "{shown}");

    let third = text(&rotated(changing, &key, "1h"), "key");
    wait_until("the first of three to be refused", || {
        status_of(serving, &key.text) == 401
    });
    wait_until("the third to work", || status_of(serving, &third) == 200);
    assert_eq!(status_of(serving, &second), 200);

    let ended = changing.cli_json(&["key", "end-overlap", &key.id]);
    assert!(ended["former"].is_null(), "{ended}");
    wait_until("the second to be refused", || status_of(serving, &second) == 401);
    assert_eq!(status_of(serving, &third), 200);
    changing.cli_json(&["key", "end-overlap", &key.id]);

    let fourth = text(&rotated(changing, &key, "30d"), "key");
    wait_until("the fourth to work", || status_of(serving, &fourth) == 200);
    assert_eq!(status_of(serving, &third), 200);
    changing.cli_json(&["key", "revoke", &key.id]);
    for text in [&third, &fourth] {
        wait_until("both texts of a revoked key to be refused", || {
            status_of(serving, text) == 401
        });
    }
    let audit = std::fs::read_to_string(changing.folder().join("audit.jsonl")).unwrap();
    assert!(
        audit.contains("key.end_overlap") && audit.contains("old_until"),
        "{audit}"
    );
    assert!(
        [&key.text, &second, &third, &fourth]
            .iter()
            .all(|text| !audit.contains(*text))
    );
}

#[test]
fn both_texts_of_a_rotated_key_work_until_the_overlap_ends_with_the_embedded_store() {
    let provider = RecordingProvider::least();
    let weir = served(&provider, None);
    both_texts_work_until_the_overlap_ends(&weir, &weir);
}

#[test]
fn both_texts_of_a_rotated_key_work_at_every_node_until_the_overlap_ends() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = RecordingProvider::least();
    let [one, two] = [(); 2].map(|()| served(&provider, Some(&redis)));
    both_texts_work_until_the_overlap_ends(&one, &two);
}

#[test]
fn an_old_text_ends_by_itself_and_says_so_in_each_protocol() {
    let provider = RecordingProvider::least();
    let weir = served(&provider, None);
    let key = weir.key();
    let made = rotated(&weir, &key, "2s");
    let second = text(&made, "key");
    wait_until("the old text to end", || status_of(&weir, &key.text) == 401);
    let until: jiff::Timestamp = text(&made["former"], "until").parse().unwrap();
    assert!(jiff::Timestamp::now() >= until, "not before its time");
    for wire in ALL_WIRES {
        let refused = weir.exchange(&wire.request(&key.text, "hi"));
        assert_unauthorized(wire, &refused);
        assert!(refused.text().contains("was rotated"), "{}", refused.text());
    }
    assert_eq!(status_of(&weir, &second), 200);
    assert!(weir.cli_json(&["key", "show", &key.id])["former"].is_null());
}

#[test]
fn both_texts_survive_kill_9_with_the_embedded_store() {
    let provider = RecordingProvider::least();
    let mut weir = served(&provider, None);
    let key = weir.key();
    let second = text(&rotated(&weir, &key, "1h"), "key");
    weir.kill_and_restart();
    for text in [&key.text, &second] {
        assert_eq!(status_of(&weir, text), 200);
    }
    weir.cli_json(&["key", "end-overlap", &key.id]);
    weir.kill_and_restart();
    assert_eq!((status_of(&weir, &key.text), status_of(&weir, &second)), (401, 200));
}

#[test]
fn an_overlap_has_a_limit() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    for overlap in ["31d", "2592001s", "1w", "soon"] {
        let refused = weir.cli(&["key", "rotate", &key.id, "--overlap", overlap], &[]);
        assert!(!refused.status.success(), "{overlap}");
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(why.contains("at most 30d"), "{why}");
    }
    assert!(
        weir.cli_json(&["key", "show", &key.id])["former"].is_null(),
        "nothing was rotated"
    );
}
