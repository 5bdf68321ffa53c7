//! The life of a key, by the command line and on the wire.

mod rotation;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::at_end::SetAtEnd;
use crate::harness::redis::RedisServer;
use crate::harness::request::Wire;
use crate::harness::shapes::assert_unauthorized;
use crate::harness::tools::{rounds, skip};
use crate::harness::weir::Key;
use crate::harness::{RecordingProvider, Weir, WeirBuilder, wait_until};

fn status_of(weir: &Weir, key: &str) -> u16 {
    weir.exchange(&Wire::Messages.request(key, "hi")).status
}

/// `name` anywhere in a JSON answer.
fn holds(value: &serde_json::Value, text: &str) -> bool {
    value.to_string().contains(text)
}

fn life_of_a_key(weir: &Weir) {
    let key = weir.key_with(&["--models", Wire::Messages.model()]);
    assert_eq!(status_of(weir, &key.text), 200);
    for words in [vec!["key", "list"], vec!["key", "show", key.id.as_str()]] {
        let told = weir.cli_json(&words);
        assert!(
            holds(&told, &key.id) && holds(&told, "a test's key") && holds(&told, "tests"),
            "{told}"
        );
        assert!(!holds(&told, &key.text), "the full key is shown once only");
    }
    weir.cli_json(&["key", "update", &key.id, "--name", "renamed"]);
    assert!(holds(&weir.cli_json(&["key", "show", &key.id]), "renamed"));
    assert_eq!(status_of(weir, &key.text), 200, "a renamed key still works");

    let rotated = weir.cli_json(&["key", "rotate", &key.id, "--overlap", "0"]);
    let new_text = rotated["key"].as_str().unwrap().to_owned();
    assert_ne!(new_text, key.text);
    assert_eq!(status_of(weir, &new_text), 200);
    wait_until("the text before the rotation to be refused", || {
        status_of(weir, &key.text) == 401
    });

    let id = rotated["id"].as_str().unwrap_or(&key.id).to_owned();
    weir.cli_json(&["key", "revoke", &id]);
    wait_until("the revoked key to be refused", || status_of(weir, &new_text) == 401);
    assert!(
        holds(&weir.cli_json(&["key", "list"]), &id),
        "a revoked key is still listed"
    );
    weir.cli_json(&["key", "delete", &id]);
    assert!(!holds(&weir.cli_json(&["key", "list"]), &id), "a deleted key is gone");
    assert_eq!(status_of(weir, &new_text), 401);
    assert!(
        !weir.cli(&["key", "show", &id], &["--json"]).status.success(),
        "a deleted key cannot be shown"
    );
}

#[test]
fn a_key_lives_its_life_with_the_embedded_store() {
    let provider = RecordingProvider::least();
    life_of_a_key(&Weir::start(&provider.base_url()));
}

#[test]
fn a_key_lives_its_life_with_redis() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = RecordingProvider::least();
    life_of_a_key(
        &WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .start(),
    );
}

#[test]
fn a_key_expires_by_itself() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let soon = jiff::Timestamp::now() + Duration::from_secs(2);
    let key = weir.key_with(&["--expires", &soon.to_string()]).text;
    assert_eq!(status_of(&weir, &key), 200);
    wait_until("the key to expire", || status_of(&weir, &key) == 401);
    assert!(
        jiff::Timestamp::now() >= soon - Duration::from_secs(1),
        "not before its time"
    );
    assert_unauthorized(Wire::Messages, &weir.exchange(&Wire::Messages.request(&key, "hi")));
}

#[test]
fn a_key_refused_as_unknown_works_as_soon_as_it_exists() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = RecordingProvider::least();
    let node = || {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .start()
    };
    let (one, two) = (node(), node());
    for _ in 0..5 {
        let key = one.key().text;
        wait_until("a new key to work on the other node", || status_of(&two, &key) == 200);
    }
}

#[test]
fn keys_survive_kill_9_with_the_embedded_store() {
    let provider = RecordingProvider::least();
    let mut weir = Weir::start(&provider.base_url());
    let mut alive: Vec<Key> = Vec::new();
    let mut revoked: Vec<Key> = Vec::new();
    for _ in 0..rounds(3, 40) {
        alive.push(weir.key());
        revoked.push(weir.key());
        weir.cli_json(&["key", "revoke", &revoked.last().unwrap().id]);
        // The last change was acknowledged a moment ago: it must be there.
        weir.kill_and_restart();
        assert!(
            alive.iter().all(|key| status_of(&weir, &key.text) == 200),
            "a key is lost"
        );
        assert!(
            revoked.iter().all(|key| status_of(&weir, &key.text) == 401),
            "a revocation is lost"
        );
    }
}

/// Within what time a revocation holds; a loaded machine gets more.
fn revoked_within() -> Duration {
    Duration::from_secs(rounds(5, 1) as u64)
}

/// Revokes on one node and watches both.
fn revocation_reaches_every_node(times: usize, one: &Weir, two: &Weir) {
    for round in 0..times {
        let key = one.key();
        let statuses = || (status_of(one, &key.text), status_of(two, &key.text));
        wait_until("the key to work on both nodes", || statuses() == (200, 200));
        one.cli_json(&["key", "revoke", &key.id]);
        let revoked = Instant::now();
        wait_until("both nodes to refuse the key", || statuses() == (401, 401));
        let took = revoked.elapsed();
        assert!(took <= revoked_within(), "round {round}: refused after {took:?} only");
    }
}

#[test]
fn a_revoked_key_is_refused_on_every_node_within_a_second() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = RecordingProvider::least();
    let node = || {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .start()
    };
    revocation_reaches_every_node(rounds(5, 200), &node(), &node());
}

/// Ends, again and again, every connection on which Redis could push something.
fn cut_push_connections(redis: &RedisServer, stop: &AtomicBool) -> usize {
    let mut cut = 0;
    while !stop.load(Ordering::SeqCst) {
        for line in redis.command(&["CLIENT", "LIST"]).lines() {
            let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
            let (Some(id), Some(flags)) = (field("id="), field("flags=")) else {
                continue;
            };
            // b: blocked in a read; P: subscribed; t: client-side caching.
            if flags.contains(['b', 'P', 't']) {
                redis.command(&["CLIENT", "KILL", "ID", id]);
                cut += 1;
            }
        }
        std::thread::yield_now();
    }
    cut
}

#[test]
fn a_revoked_key_is_refused_within_a_second_also_while_the_push_connection_is_being_cut() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let redis = Arc::new(redis);
    let provider = RecordingProvider::least();
    let node = || {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .start()
    };
    let (one, two) = (node(), node());
    let stop = Arc::new(AtomicBool::new(false));
    let _stop = SetAtEnd([&stop]);
    let cutter = std::thread::spawn({
        let (redis, stop) = (Arc::clone(&redis), Arc::clone(&stop));
        move || cut_push_connections(&redis, &stop)
    });
    revocation_reaches_every_node(rounds(5, 200), &one, &two);
    stop.store(true, Ordering::SeqCst);
    let cut = cutter.join().unwrap();
    assert!(cut > 0, "no push connection was there to be cut");
}

#[test]
fn a_key_is_changed_from_the_version_that_was_seen_or_not_at_all() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    let version = || {
        let shown = weir.cli_json(&["key", "show", &key.id]);
        shown["version"].as_str().unwrap().to_owned()
    };
    let old = version();
    weir.cli_json(&["key", "update", &key.id, "--rpm", "60", "--if-version", &old]);
    let now = version();
    let (id, records) = (&key.id, || {
        std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap()
    });
    let before = records();
    for words in [
        &["key", "update", id, "--rpm", "30"][..],
        &["key", "rotate", id],
        &["key", "revoke", id],
        &["key", "delete", id],
    ] {
        let late = weir.cli(words, &["--if-version", &old]);
        let said = String::from_utf8_lossy(&late.stderr).into_owned();
        let expected = format!(
            "nothing was changed, because key {id} now has version {now} and not version {old}; `weir key show {id}` prints the current values"
        );
        assert_eq!(late.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(&expected), "{words:?}: {said}");
    }
    assert_eq!(
        (version(), records()),
        (now, before),
        "nothing was changed, and nothing recorded"
    );
    for words in [
        &["key", "rotate", id, "--overlap", "1h"][..],
        &["key", "end-overlap", id],
        &["key", "revoke", id],
        &["key", "delete", id],
    ] {
        let now = version();
        weir.cli_json(&[words, &["--if-version", &now]].concat());
    }
    let again = weir.cli_json(&["key", "delete", id, "--if-version", &old]);
    assert_eq!(again["deleted"], true, "a key that is deleted already is deleted");
}

#[test]
fn nobody_but_owner_and_group_reaches_the_admin_socket_and_every_change_is_in_the_audit_file() {
    use std::os::unix::fs::PermissionsExt;
    let weir = Weir::start("http://127.0.0.1:9");
    let mode = std::fs::metadata(weir.admin_socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0, "{mode:o}");
    let key = weir.key();
    weir.cli_json(&["key", "revoke", &key.id]);
    let audit = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    assert!(
        audit.lines().filter(|line| line.contains(&key.id)).count() >= 2,
        "{audit}"
    );
    assert!(!audit.contains(&key.text));
}
