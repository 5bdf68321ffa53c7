//! What is counted: each billed request once, whatever ends it and whatever becomes of weir and of its store meanwhile.

use std::collections::BTreeSet;
use std::net::TcpListener;

use serde_json::Value as Json;

use crate::harness::client::{Client, Piece};
use crate::harness::hours::totals;
use crate::harness::load::Load;
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Request, Upload, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skip;
use crate::harness::{DEEPSEEK_MODEL, GEMINI_MODEL, MESSAGES_MODEL, Weir, WeirBuilder, wait_until};

/// What a request counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Success,
    Failure,
    /// It has a row, and its client has left.
    Left,
    Nothing,
}
use Counts::{Failure, Left, Nothing, Success};

/// What the provider does, in the words of the sample provider, and what that counts as, in one piece and streamed.
const ENDS: [(&str, Counts); 15] = [
    ("deltas=3", Success),
    ("status=500", Failure),
    ("status=503", Failure),
    ("status=408", Failure),
    ("status=429", Failure),
    ("status=529", Failure),
    ("status=400", Nothing),
    ("status=404", Nothing),
    ("status=413", Nothing),
    ("status=422", Nothing),
    ("deltas=3 in_band_error_after=1", Failure),
    ("deltas=3 cut_after=1", Failure),
    ("deltas=3 cut_after=1 close=clean", Failure),
    // Last, because the credential rests then.
    ("status=401", Failure),
    ("status=403", Failure),
];

/// A provider that is silent, before its answer and in the middle of it.
const SILENCES: [(&str, Counts); 2] = [("ttfb_ms=60000", Failure), ("deltas=3 stall_after=1", Failure)];

/// The id of the request, and what it has to count as.
type Asked = (String, Counts);

fn id_of(headers: &[(String, String)]) -> String {
    let found = headers.iter().find(|(name, _)| name == "x-weir-request-id");
    found.expect("every answer says its request's id").1.clone()
}

fn ask(weir: &Weir, request: &Request, counts: Counts) -> Asked {
    let answer = weir.exchange(request);
    assert!(
        counts != Success || (answer.status == 200 && answer.complete),
        "{}",
        answer.text()
    );
    (id_of(&answer.headers), counts)
}

/// Everything that a provider may do, in one protocol.
fn all_ends(weir: &Weir, key: &str, wire: Wire, ends: &[(&str, Counts)]) -> Vec<Asked> {
    let mut asked = Vec::new();
    for (order, counts) in ends.iter().copied() {
        let prompt = format!("Tell me of weirs. [[sample: {order}]]");
        asked.push(ask(weir, &wire.request(key, &prompt), counts));
        asked.push(ask(weir, &wire.streaming(key, &prompt), counts));
    }
    asked
}

/// What weir refuses, and what costs nothing.
fn unbilled(weir: &Weir, key: &str, wire: Wire) -> Vec<Asked> {
    let [narrow, broke] = [["--models", DEEPSEEK_MODEL], ["--quota-usd", "0"]].map(|flags| weir.key_with(&flags).text);
    let refusals = [
        (401, wire.request("wrong", "hi")),
        (403, wire.request(&narrow, "hi")),
        (404, wire.request_for("no-such-model", key, "hi")),
        (429, wire.request(&broke, "hi")),
        (400, wire.request(key, "hi").body(b"{")),
    ];
    let mut asked = Vec::new();
    for (status, request) in refusals {
        let answer = weir.exchange(&request);
        assert_eq!(answer.status, status, "{wire:?}: {}", answer.text());
        asked.push((id_of(&answer.headers), Nothing));
    }
    let (header, value) = wire.key_header(key);
    let (list, count) = match wire {
        Wire::Messages => ("/v1/models", Some("/v1/messages/count_tokens".to_owned())),
        Wire::Responses => ("/v1/models", None),
        Wire::Gemini => (
            "/v1beta/models",
            Some(format!("/v1beta/models/{GEMINI_MODEL}:countTokens")),
        ),
    };
    let answer = weir.exchange(&Request::get(list).header(header, &value));
    assert_eq!(answer.status, 200, "{}", answer.text());
    asked.push((id_of(&answer.headers), Nothing));
    if let Some(target) = count {
        let answer = weir.exchange(&Request {
            target,
            ..wire.request(key, "hi")
        });
        assert_eq!(answer.status, 200, "{}", answer.text());
        asked.push((id_of(&answer.headers), Nothing));
    }
    asked
}

/// Clients that leave, before the first byte and behind it. Returns the ids of the keys, one for each.
fn leave(weir: &Weir) -> Vec<Asked> {
    let mut left = Vec::new();
    for wire in ALL_WIRES {
        let early = weir.key();
        let mut client = weir.connect();
        let prompt = "Tell me. [[sample: ttfb_ms=20000]]";
        client.write(&wire.streaming(&early.text, prompt).bytes(Upload::Length));
        wait_until("the request to run", || weir.account()["running"] == 1);
        drop(client);
        wait_until("the client's leaving to be noticed", || weir.account()["running"] == 0);
        left.push((early.id, Left));

        let late = weir.key();
        let mut client = weir.connect();
        let prompt = "Tell me. [[sample: deltas=5000 gap_ms=20]]";
        client.write(&wire.streaming(&late.text, prompt).bytes(Upload::Length));
        let mut head = client.head_to("POST");
        assert!(matches!(client.piece(&mut head), Piece::Data(_)));
        drop(client);
        wait_until("the client's leaving to be noticed", || weir.account()["running"] == 0);
        left.push((late.id, Left));
    }
    left
}

/// Checks that exactly one row has this in its field, or none, and that it is what was expected.
fn assert_counted(rows: &[Json], field: &str, (id, counts): &Asked) {
    let found: Vec<&Json> = rows.iter().filter(|row| row[field] == id.as_str()).collect();
    let good = |row: &Json| row["status"].as_u64().unwrap() / 100 == 2;
    match (counts, found.as_slice()) {
        (Nothing, []) => {}
        (Success, [row]) => assert!(good(row), "{row}"),
        (Failure, [row]) => assert!(!good(row), "{row}"),
        (Left, [row]) => assert_eq!(row["outcome"], "client_gone", "{row}"),
        _ => panic!("{id} should count as {counts:?}, and is {found:?}"),
    }
}

fn billed(asked: &[Asked]) -> usize {
    asked.iter().filter(|(_, counts)| *counts != Nothing).count()
}

/// What the asked count together: requests and successes.
fn sums<'a>(asked: impl Iterator<Item = &'a Asked>) -> (u64, u64) {
    asked.fold((0, 0), |(requests, successes), (_, counts)| {
        (
            requests + u64::from(*counts != Nothing),
            successes + u64::from(*counts == Success),
        )
    })
}

/// Asks in all protocols at once, and compares rows and record with what was expected.
fn assert_all_count(weir: &Weir, ask: impl Fn(Wire) -> Vec<Asked> + Sync) {
    let asked = std::thread::scope(|scope| {
        let running = ALL_WIRES.map(|wire| {
            let ask = &ask;
            scope.spawn(move || ask(wire))
        });
        running.map(|running| running.join().unwrap())
    });
    let books = weir.books(asked.iter().map(|asked| billed(asked)).sum());
    for of_wire in &asked {
        of_wire
            .iter()
            .for_each(|asked| assert_counted(&books.rows, "request_id", asked));
    }
    let kept = weir.stability_equals_log();
    assert_eq!(kept.rows.len(), books.rows.len());
    for (wire, asked) in ALL_WIRES.iter().zip(&asked) {
        assert_eq!(totals(&kept.hours, wire.model()), sums(asked.iter()), "{wire:?}");
    }
    let models: BTreeSet<&str> = kept.hours.keys().map(|(_, model)| model.as_str()).collect();
    assert_eq!(models, ALL_WIRES.map(Wire::model).into());
}

#[test]
fn every_end_of_a_request_in_every_protocol_counts_as_it_should() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    assert_all_count(&weir, |wire| {
        [unbilled(&weir, &key, wire), all_ends(&weir, &key, wire, &ENDS)].concat()
    });
}

#[test]
fn a_provider_that_is_silent_for_too_long_counts_as_a_failure() {
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.first_byte_seconds", 2)
        .set("upstream.first_byte_unary_seconds", 2)
        .set("upstream.idle_seconds", 1)
        .start();
    let key = weir.key().text;
    assert_all_count(&weir, |wire| all_ends(&weir, &key, wire, &SILENCES));
}

#[test]
fn who_leaves_has_a_row_and_does_not_count_and_an_unreachable_provider_is_a_failure() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let left = leave(&weir);
    let books = weir.books(left.len());
    left.iter().for_each(|left| assert_counted(&books.rows, "key_id", left));
    // One that stays is counted alone.
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.streaming(&key, "hi")).status, 200);
    }
    weir.books(left.len() + ALL_WIRES.len());
    wait_until("those who stay to be counted", || {
        weir.kept().is_some_and(|kept| kept.hours.len() == ALL_WIRES.len())
    });
    let kept = weir.stability_equals_log();
    for wire in ALL_WIRES {
        assert_eq!(totals(&kept.hours, wire.model()), (1, 1), "{wire:?}");
    }

    // The port was just free: nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let weir = Weir::start(&format!("http://{closed}"));
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
            assert_eq!(weir.exchange(&request).status, 503);
        }
    }
    weir.books(6);
    let kept = weir.stability_equals_log();
    for wire in ALL_WIRES {
        assert_eq!(totals(&kept.hours, wire.model()), (2, 0), "{wire:?}");
    }
}

fn on(redis: &RedisServer, provider: &SampleProvider) -> WeirBuilder {
    WeirBuilder::new().all_providers(&provider.base_url()).redis(redis)
}

#[test]
fn two_nodes_count_together() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let nodes = [(); 2].map(|()| on(&redis, &provider).start());
    let key = nodes[0].key().text;
    for (weir, rounds) in nodes.iter().zip([2, 3]) {
        for wire in ALL_WIRES {
            for _ in 0..rounds {
                assert_eq!(weir.exchange(&wire.streaming(&key, "hi")).status, 200);
                let failing = wire.request(&key, "[[sample: status=500]]");
                assert_eq!(weir.exchange(&failing).status, 500);
            }
        }
    }
    nodes[0].books(30);
    let kept = nodes[1].stability_equals_log();
    assert_eq!(kept.nodes.len(), 2);
    for wire in ALL_WIRES {
        assert_eq!(totals(&kept.hours, wire.model()), (10, 5), "{wire:?}");
    }
}

/// Opens streams that run for long, and waits until all of them do.
fn open_streams(weir: &Weir, key: &str, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count)
        .map(|number| {
            let mut client = weir.connect();
            let prompt = "Tell me. [[sample: deltas=2000 delta_bytes=40 gap_ms=10]]";
            client.write(&ALL_WIRES[number % 3].streaming(key, prompt).bytes(Upload::Length));
            client
        })
        .collect();
    for client in &mut clients {
        let _ = client.head_to("POST");
    }
    wait_until("the streams to run", || {
        weir.account()["running"].as_u64() == Some(count as u64)
    });
    clients
}

fn killed_under_streams(mut weir: Weir, rounds: usize) {
    let key = weir.key().text;
    for round in 1..=rounds {
        for wire in ALL_WIRES {
            assert_eq!(weir.exchange(&wire.streaming(&key, "hi")).status, 200);
        }
        let _clients = open_streams(&weir, &key, 3);
        weir.kill_and_restart();
        weir.books(round * 6);
        let kept = weir.stability_equals_log();
        let requests: u64 = kept.hours.values().map(|counted| counted[0]).sum();
        assert_eq!(requests, 6 * round as u64);
        assert_eq!(kept.nodes.len(), 1, "it is the same node after a restart");
    }
}

#[test]
fn a_killed_gateway_loses_no_request_of_the_record() {
    let provider = SampleProvider::start();
    killed_under_streams(Weir::start(&provider.base_url()), 2);
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    killed_under_streams(on(&redis, &provider).start(), 1);
}

#[test]
fn the_last_requests_before_an_orderly_end_are_in_the_record() {
    let provider = SampleProvider::start();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.streaming(&key, "hi")).status, 200);
    }
    weir.process().signal("TERM");
    assert!(weir.process().wait_ended().success());
    let kept = weir.stability_equals_log();
    assert_eq!(kept.rows.len(), 3);
}

/// Takes the store away under load, gives it back, and compares.
fn away_under_load(take: impl Fn(&mut RedisServer), give: impl Fn(&mut RedisServer)) {
    let Some(mut redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let weir = on(&redis, &provider).set("money.grace_usd", "0.02").start();
    let key = weir.key().text;
    let load = Load::start(&weir, &[&key], 6);
    load.serve(30);
    take(&mut redis);
    weir.wait_for_store(false);
    load.refuse();
    wait_until("the record to be behind", || {
        weir.figure("weir_stability_unpublished_hours") > 0
    });
    give(&mut redis);
    weir.wait_for_store(true);
    load.serve(30);
    let served = load.end();
    let books = weir.books_as_billed(&provider, 0);
    assert_eq!(books.rows.len(), served);
    let kept = weir.stability_equals_log();
    assert_eq!(kept.rows.len(), served);
    wait_until("the record to be up to date", || {
        weir.figure("weir_stability_unpublished_hours") == 0
    });
}

#[test]
fn a_redis_that_was_killed_has_every_request_in_the_end() {
    away_under_load(RedisServer::down, |redis| assert!(redis.up()));
}

#[test]
fn a_redis_that_hung_has_every_request_in_the_end() {
    away_under_load(|redis| redis.signal("STOP"), |redis| redis.signal("CONT"));
}

#[test]
fn hours_are_put_back_from_a_backup() {
    let provider = SampleProvider::start();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    assert_eq!(weir.exchange(&Wire::Messages.streaming(&key, "hi")).status, 200);
    weir.books(1);
    let before = weir.stability_equals_log();
    weir.process().signal("TERM");
    assert!(weir.process().wait_ended().success());
    let backup = weir.folder().join("backup.jsonl");
    let backup = backup.to_str().unwrap();
    assert!(weir.store_command(&["backup", "--out", backup]).status.success());
    std::fs::remove_dir_all(weir.folder().join("store")).unwrap();
    std::fs::remove_dir_all(weir.folder().join("journal")).unwrap();
    let restored = weir.store_command(&["restore", "--from", backup]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(weir.kept().unwrap().hours, before.hours);
    assert_eq!(totals(&before.hours, MESSAGES_MODEL), (1, 1));
}
