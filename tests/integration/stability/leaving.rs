//! Clients that leave move no figure of the record, at whatever moment; what a provider does before that counts.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use super::http::{SUMMARY, side};
use crate::harness::client::{Client, Piece};
use crate::harness::hours::totals;
use crate::harness::recordings::events;
use crate::harness::request::{ALL_WIRES, Request, Upload, Wire, wire_of};
use crate::harness::rules::RuleFolder;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::rounds;
use crate::harness::wait::DEADLINE;
use crate::harness::{RecordingProvider, Steps, Weir, WeirBuilder, wait_until};

/// How many clients leave at one time.
const CROWD: usize = 16;
/// Requests of each protocol before anybody leaves: nine that succeed, and one that fails.
const STAYING: usize = 10;
/// What the record says of them.
const RATE: f64 = 90.0;

/// How far the provider goes with the answer to a client that will leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    BeforeTheHead,
    /// Behind the head and so many events, none included.
    AfterEvents(usize),
}

/// All moments of a stream: the last is right before its last event.
fn moments(wire: Wire) -> Vec<Moment> {
    let after = (0..events(wire).len()).map(Moment::AfterEvents);
    std::iter::once(Moment::BeforeTheHead).chain(after).collect()
}

/// The requests whose answers have come as far as they will.
type Halted = Arc<Mutex<HashSet<String>>>;

/// What a prompt `leaving NUMBER at PLACE` in a request's body says: its number, and the place among the moments.
fn order(body: &[u8]) -> Option<(String, usize)> {
    let text = String::from_utf8_lossy(body);
    let mut words = text.split_once("leaving ")?.1.split([' ', '"']);
    let number = words.next()?.to_owned();
    Some((number, words.nth(1)?.parse().ok()?))
}

/// A provider that stops at the moment that the prompt names, and waits for weir to leave; that fails where the prompt says
/// "fail"; and otherwise answers.
fn provider() -> (RecordingProvider, Halted) {
    let halted = Halted::default();
    let told = Arc::clone(&halted);
    let provider = RecordingProvider::start(move |request, answer| {
        let wire = wire_of(&request.target);
        let Some((number, place)) = order(&request.body) else {
            match String::from_utf8_lossy(&request.body).contains("fail") {
                true => answer.full(500, &[("content-type", "application/json")], b"{}"),
                false => {
                    answer.sse();
                    events(wire).iter().for_each(|event| answer.chunk(event));
                    answer.end();
                }
            }
            return;
        };
        if let Moment::AfterEvents(count) = moments(wire)[place] {
            answer.sse();
            events(wire)[..count].iter().for_each(|event| answer.chunk(event));
        }
        told.lock().unwrap().insert(number);
        assert!(answer.wait_peer_left(DEADLINE).is_some(), "weir stays with a provider");
    });
    (provider, halted)
}

/// Asks as often as [`STAYING`] says in each protocol, and waits until the record has it.
fn stay(weir: &Weir, key: &str) -> Vec<Json> {
    for wire in ALL_WIRES {
        for _ in 1..STAYING {
            assert_eq!(weir.exchange(&wire.streaming(key, "hi")).status, 200);
        }
        assert_eq!(weir.exchange(&wire.streaming(key, "fail")).status, 500);
    }
    wait_until("the record to have all of it", || {
        let rows = figures(weir);
        rows.iter().all(|row| row["success_rate"] == json!(RATE))
    });
    figures(weir)
}

/// The published rows of the three models.
fn figures(weir: &Weir) -> Vec<Json> {
    let summary = side(weir, &Request::get(SUMMARY)).json();
    let rows = summary["data"].as_array().unwrap().iter();
    let is_asked = |row: &&Json| ALL_WIRES.iter().any(|wire| row["model_name"] == wire.model());
    rows.filter(is_asked).cloned().collect()
}

/// Asks for a stream, has it come as far as the moment says, and leaves.
fn leave(weir: &Weir, halted: &Halted, key: &str, number: usize) {
    let wire = ALL_WIRES[number % ALL_WIRES.len()];
    let all = moments(wire);
    let place = number / ALL_WIRES.len() % all.len();
    let mut client = weir.connect();
    let request = wire.streaming(key, &format!("leaving {number} at {place}"));
    client.write(&request.bytes(Upload::Length));
    wait_until("the provider to have come as far as it does", || {
        halted.lock().unwrap().contains(&number.to_string())
    });
    if let Moment::AfterEvents(count @ 1..) = all[place] {
        let bytes = events(wire)[..count].iter().map(|event| event.len()).sum();
        read(&mut client, bytes);
    }
    // Half of them say so, and half just go.
    if number.is_multiple_of(2) {
        client.reset();
    }
}

fn read(client: &mut Client, bytes: usize) {
    let mut head = client.head_to("POST");
    let mut seen = 0;
    while seen < bytes {
        let Piece::Data(data) = client.piece(&mut head) else {
            panic!("the stream ends after {seen} of {bytes} bytes")
        };
        seen += data.len();
    }
}

/// Has `count` clients do something, [`CROWD`] at a time.
fn crowd(count: usize, act: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    act(number);
                }
            });
        }
    });
}

fn read_often(builder: WeirBuilder) -> Weir {
    builder
        .set("stability.refresh_seconds", 1)
        .set("stability.requests_per_minute", 1_000_000)
        .set("stability.burst", 1_000_000)
        .start()
}

/// The moment at which the record was read from the store.
fn updated_at(weir: &Weir) -> i64 {
    let detail = Request::get(&format!("/web/v1/model-stability/{}", Wire::Messages.model()));
    side(weir, &detail).json()["data"]["updated_at"].as_i64().unwrap()
}

/// The published rows, once the record was read after now.
fn figures_from_now_on(weir: &Weir) -> Vec<Json> {
    let before = updated_at(weir);
    wait_until("the record to be read again", || updated_at(weir) > before + 1);
    figures(weir)
}

#[test]
fn who_leaves_a_thousand_streams_at_every_moment_moves_no_figure() {
    let (provider, halted) = provider();
    let rules = RuleFolder::aborting();
    let weir = read_often(rules.weir_at(&provider.base_url()));
    let key = weir.key().text;
    let before = stay(&weir, &key);
    assert!(before.iter().all(|row| row["confidence"] == "medium"), "{before:?}");
    let leavers = rounds(120, 1000);
    crowd(leavers, |number| leave(&weir, &halted, &key, number));

    let books = weir.books(ALL_WIRES.len() * STAYING + leavers);
    let left: Vec<&Json> = books
        .rows
        .iter()
        .filter(|row| row["outcome"] == "client_gone")
        .collect();
    assert_eq!(left.len(), leavers);
    // Each pays all the same, and the log says whether an answer had begun.
    assert!(left.iter().all(|row| row["cost_nano_usd"].as_i64() > Some(0)));
    assert!(left.iter().any(|row| row["status"] == 499) && left.iter().any(|row| row["status"] == 200));
    let kept = weir.stability_equals_log();
    for wire in ALL_WIRES {
        assert_eq!(totals(&kept.hours, wire.model()), (10, 9), "{wire:?}");
    }
    assert_eq!(figures_from_now_on(&weir), before);
}

#[test]
fn who_leaves_answers_that_are_read_to_their_end_moves_no_figure() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let prompt = "Tell me of weirs. [[sample: deltas=24 gap_ms=20]]";
    // Fewer than the answers that may run on without their clients at a time.
    let leavers = rounds(30, 240);
    crowd(leavers, |number| {
        let wire = ALL_WIRES[number % ALL_WIRES.len()];
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, prompt).bytes(Upload::Length));
        read(&mut client, 1);
    });
    let books = weir.books(leavers);
    let is_whole = |row: &Json| row["outcome"] == "client_gone" && row["usage_source"] == "reported";
    assert!(books.rows.iter().all(is_whole), "{:?}", books.rows);
    assert_eq!(weir.exchange(&Wire::Messages.streaming(&key, "hi")).status, 200);
    assert_only_counted(&weir, leavers + 1, (1, 1));
}

/// Checks that of so many rows the last one alone is counted, a Messages request, as these requests and successes.
fn assert_only_counted(weir: &Weir, rows: usize, counted: (u64, u64)) {
    weir.books(rows);
    // What was told of the hour before it is there with it.
    wait_until("the last request to be counted", || {
        weir.kept().is_some_and(|kept| !kept.hours.is_empty())
    });
    let kept = weir.stability_equals_log();
    assert_eq!(kept.hours.len(), 1, "{:?}", kept.hours);
    assert_eq!(totals(&kept.hours, Wire::Messages.model()), counted);
}

/// A provider that answers unary requests with this status once it is let, and three clients that have left by then.
fn answered_when_gone(status: u16) -> (RecordingProvider, Weir, String) {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |_, answer| {
        assert!(gate.wait(1));
        answer.full(status, &[("content-type", "application/json")], b"{}");
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (number, wire) in ALL_WIRES.into_iter().enumerate() {
        let mut client = weir.connect();
        client.write(&wire.request(&key, "hi").bytes(Upload::Length));
        wait_until("the provider to have the request", || provider.count() == number + 1);
        // A connection that is only closed may be one whose client says no more and still listens.
        client.reset();
    }
    wait_until("the clients' leaving to be noticed", || {
        weir.figure("weir_detached_answers") == 3
    });
    steps.permit();
    (provider, weir, key)
}

#[test]
fn a_failure_that_nobody_waits_for_is_not_asked_again_and_does_not_count() {
    let (provider, weir, key) = answered_when_gone(503);
    let books = weir.books(3);
    for row in &books.rows {
        assert_eq!(
            (&row["outcome"], &row["status"]),
            (&"client_gone".into(), &503.into()),
            "{row}"
        );
        assert_eq!(row["cost_nano_usd"], 0, "{row}");
    }
    assert_eq!(provider.count(), 3);
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 503);
    assert_only_counted(&weir, 4, (1, 0));
}

#[test]
fn a_mistake_whose_client_has_left_is_not_billed() {
    let (_provider, weir, _key) = answered_when_gone(400);
    wait_until("the requests to end", || weir.account()["running"] == 0);
    assert!(weir.rows().is_empty(), "{:?}", weir.rows());
}

#[test]
fn an_error_that_the_provider_has_sent_counts_although_the_client_leaves_then() {
    // Gemini's streams go on after an error, so the client leaves an answer that has not ended.
    let error = "data: {\"error\":{\"code\":503,\"message\":\"overloaded\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n";
    let provider = RecordingProvider::start(move |_, answer| {
        answer.sse();
        answer.chunk(events(Wire::Gemini)[0]);
        answer.chunk(error);
        answer.wait_peer_left(DEADLINE);
    });
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let mut client = weir.connect();
    client.write(&Wire::Gemini.streaming(&weir.key().text, "hi").bytes(Upload::Length));
    read(&mut client, events(Wire::Gemini)[0].len() + error.len());
    drop(client);
    let row = &weir.books(1).rows[0];
    assert_eq!(
        (&row["outcome"], &row["status"]),
        (&"in_band_error".into(), &502.into()),
        "{row}"
    );
    let kept = weir.stability_equals_log();
    assert_eq!(totals(&kept.hours, Wire::Gemini.model()), (1, 0));
}

#[test]
fn an_error_whose_head_has_come_counts_although_the_client_leaves_then() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.head(429, &[("content-type", "application/json"), ("retry-after", "3600")]);
        answer.wait_peer_left(DEADLINE);
    });
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let mut client = weir.connect();
    client.write(&Wire::Gemini.streaming(&weir.key().text, "hi").bytes(Upload::Length));
    // Its credential rests as soon as the head has come.
    wait_until("the error's head to have come", || {
        let line = "weir_provider_credentials_cooling_down{provider=\"gemini\"} 1";
        weir.metrics().contains(line)
    });
    drop(client);
    let row = &weir.books(1).rows[0];
    assert_eq!(
        (&row["outcome"], &row["status"]),
        (&"provider_error".into(), &429.into()),
        "{row}"
    );
    let kept = weir.stability_equals_log();
    assert_eq!(totals(&kept.hours, Wire::Gemini.model()), (1, 0));
}
