//! What is told before it is over: to a receiver that fails, is slow or is away, through a `kill -9`, by one node or two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;
use serde_json::Value as Json;

use crate::harness::provider::{Recorded, Welcome};
use crate::harness::redis::RedisServer;
use crate::harness::request::Wire;
use crate::harness::tools::skip;
use crate::harness::wait::DEADLINE;
use crate::harness::{RecordingProvider, WeirBuilder, wait_until};

/// An answer for which any model takes more than a cent.
const DEAR: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":900000,"output_tokens":7}}"#;
const SECRET: &str = "receiver-canary-5Kd8";

fn telling(builder: WeirBuilder, receiver: &RecordingProvider) -> WeirBuilder {
    builder
        .set("notices.url", format!("{}/hook?x=1", receiver.base_url()))
        .set("notices.secret", "env:WEIR_TEST_NOTICES")
        .set("notices.timeout_ms", 500)
        .set("notices.retry_ms", 600)
        .variable("WEIR_TEST_NOTICES", SECRET)
}

/// The messages that have reached a receiver, by their ids; each is signed, and the same each time.
fn messages(receiver: &RecordingProvider) -> BTreeMap<String, Json> {
    let mut messages = BTreeMap::new();
    for request in receiver.requests() {
        assert_eq!((&*request.method, &*request.target), ("POST", "/hook?x=1"));
        let id = request.header("webhook-id").unwrap().to_owned();
        assert_eq!(request.header("webhook-signature"), Some(&*signature(&request, &id)));
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        let before = messages.insert(id, body.clone());
        assert!(before.is_none_or(|before| before == body), "{body}");
    }
    messages
}

/// The signature as a receiver computes it.
fn signature(request: &Recorded, id: &str) -> String {
    let time = request.header("webhook-timestamp").unwrap();
    let mut signed = format!("{id}.{time}.").into_bytes();
    signed.extend_from_slice(&request.body);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &signed);
    format!("v1,{}", BASE64.encode(tag))
}

fn kinds(messages: &BTreeMap<String, Json>) -> Vec<String> {
    let kind = |message: &Json| format!("{} {}", message["type"].as_str().unwrap(), message["data"]["percent"]);
    let mut kinds: Vec<String> = messages.values().map(kind).collect();
    kinds.sort();
    kinds
}

#[test]
fn what_is_reached_is_told_in_the_end_whatever_becomes_of_receiver_and_gateway() {
    let provider = RecordingProvider::answering(DEAR);
    // It is away at first, then fails and is silent in turn; after the crash it works.
    let (asked, is_well) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (asking, well) = (Arc::clone(&asked), Arc::clone(&is_well));
    let door = |connection| if connection < 2 { Welcome::Close } else { Welcome::Serve };
    let receiver = RecordingProvider::start_with(None, door, move |_, answer| {
        match asking.fetch_add(1, Ordering::SeqCst) {
            _ if well.load(Ordering::SeqCst) => answer.least(),
            number if number % 2 == 0 => answer.full(503, &[], b""),
            _ => drop(answer.wait_peer_left(DEADLINE)),
        }
    });
    let mut weir = telling(WeirBuilder::new().all_providers(&provider.base_url()), &receiver).start();
    let key = weir.key_with(&["--quota-usd", "0.01", "--reset", "monthly"]);
    weir.cli_json(&["account", "update", "--id", "tests", "--low-balance-usd", "999.999"]);
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
    wait_until("every message to fail at least once", || {
        asked.load(Ordering::SeqCst) > 3 && messages(&receiver).len() == 3
    });
    weir.process().kill();
    let failed = receiver.requests().len();
    is_well.store(true, Ordering::SeqCst);
    weir.kill_and_restart();
    wait_until("all of them to be told after the crash", || {
        let taken = receiver.requests().split_off(failed);
        let ids: BTreeSet<&str> = taken
            .iter()
            .filter_map(|request| request.header("webhook-id"))
            .collect();
        ids.len() == 3
    });
    let told = messages(&receiver);
    assert_eq!(
        kinds(&told),
        ["balance.low null", "quota.reached 100", "quota.reached 80"]
    );
    let of_quota = told.values().find(|message| message["data"]["percent"] == 80).unwrap();
    let data = &of_quota["data"];
    assert_eq!(
        (&data["account"], &data["key"], &data["quota_usd"]),
        (&"tests".into(), &key.id.into(), &"0.01".into())
    );
    assert!(
        data["period"].as_str().unwrap().starts_with('m') && of_quota["timestamp"].is_string(),
        "{of_quota}"
    );
    // The next refusal of the same key says nothing new.
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 429);
    assert_eq!(messages(&receiver).len(), 3);
    let logs = weir.logs();
    assert!(
        logs.contains("a key has spent a configured percentage of its quota") && logs.contains("has become low"),
        "{logs}"
    );
    assert!(
        !logs.contains(SECRET) && !logs.contains("/hook"),
        "the log has the receiver's secrets"
    );
}

#[test]
fn a_key_is_told_of_as_it_says_or_else_its_account_or_else_the_configuration() {
    let mut weirs = vec![None];
    weirs.extend(RedisServer::start().map(Some));
    for redis in weirs {
        let provider = RecordingProvider::answering(DEAR);
        let receiver = RecordingProvider::least();
        let builder = WeirBuilder::new().all_providers(&provider.base_url());
        let builder = match &redis {
            Some(redis) => builder.redis(redis),
            None => builder,
        };
        let weir = telling(builder, &receiver).start();
        let told_of = |key: &crate::harness::weir::Key| {
            let of_key = |message: &&Json| message["data"]["key"] == key.id.as_str();
            let told = messages(&receiver);
            let mut percents: Vec<u64> = told
                .values()
                .filter(of_key)
                .map(|message| message["data"]["percent"].as_u64().unwrap())
                .collect();
            percents.sort_unstable();
            percents
        };
        let spent = |flags: &[&str]| {
            let key = weir.key_with(&[&["--quota-usd", "0.01", "--reset", "daily"][..], flags].concat());
            assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
            key
        };
        let own = spent(&["--notify", "50,95"]);
        wait_until("what the key says", || told_of(&own) == [50, 95]);
        let default = spent(&[]);
        wait_until("what the configuration says", || told_of(&default) == [80, 100]);
        let account = weir.cli_json(&["account", "update", "--id", "tests", "--notify", "90"]);
        assert_eq!(account["notify_percent"], serde_json::json!([90]));
        let shown = weir.cli_json(&["account", "show", "--id", "tests"]);
        assert_eq!(shown["notify_percent"], account["notify_percent"], "the store keeps it");
        let (silent, of_account) = (spent(&["--notify", "none"]), spent(&[]));
        wait_until("what the account says", || told_of(&of_account) == [90]);
        // Notices of one account are taken in their order: those of the silent key came first.
        assert_eq!(told_of(&silent), [0; 0]);
        weir.cli_json(&["account", "update", "--id", "tests", "--notify", "default"]);
        let changed = weir.cli_json(&["key", "update", &silent.id, "--notify", "default"]);
        assert!(changed["notify_percent"].is_null(), "{changed}");
        let refused = weir.cli(&["key", "update", &silent.id, "--notify", "60"], &[]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(why.contains("50, 75, 80, 90, 95, 100"), "{why}");
        assert_eq!(told_of(&own), [50, 95], "once");
    }
}

#[test]
fn two_nodes_tell_each_step_under_one_id() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not there: tests/run installs it");
    };
    let provider = RecordingProvider::answering(DEAR);
    let receiver = RecordingProvider::least();
    let node = || {
        telling(
            WeirBuilder::new().all_providers(&provider.base_url()).redis(&redis),
            &receiver,
        )
        .start()
    };
    let (one, other) = (node(), node());
    let key = one.key_with(&["--quota-usd", "20", "--reset", "daily"]);
    // Each costs some dollars: both come past each part of the quota together.
    let mut spent = 0;
    wait_until("the quota to be spent", || {
        let weir = if spent % 2 == 0 { &one } else { &other };
        spent += 1;
        weir.exchange(&Wire::Messages.request(&key.text, "hi")).status == 429
    });
    assert!(spent > 3, "{spent} requests are too few to come past 80 % before 100 %");
    wait_until("both parts", || messages(&receiver).len() >= 2);
    assert_eq!(kinds(&messages(&receiver)), ["quota.reached 100", "quota.reached 80"]);
    let said = format!("{}{}", one.logs(), other.logs());
    let lines: BTreeSet<&str> = said
        .lines()
        .filter(|line| line.contains("spent a configured percentage of its quota"))
        .collect();
    assert_eq!(lines.len(), 2, "a line each, by one of the nodes: {lines:?}");
}
