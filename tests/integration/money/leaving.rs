//! Clients that leave before the end of an answer that is read to its end without them: they pay what the provider bills,
//! and hold nothing of weir's that others need.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value as Json;

use crate::harness::books::cost;
use crate::harness::client::{Client, Head, Piece};
use crate::harness::halting::Halting;
use crate::harness::leaving::{ALL_WAYS, Visit, Way};
use crate::harness::recordings::{events, unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::rounds;
use crate::harness::{Weir, WeirBuilder, wait_until};

/// Output tokens that only the usage at the end tells of: far more than all text together.
const HIDDEN: u64 = 2000;
const SEED: u64 = 10;
/// Places to leave at, of each kind of client and protocol; and in the long form.
const PLACES: usize = 4;
const MANY_PLACES: usize = 20;

fn prompt() -> String {
    format!("Tell me of weirs. [[sample: deltas=24 delta_bytes=24 gap_ms=2 hidden_tokens={HIDDEN}]]")
}

/// Has a client of every kind and protocol leave at random places; what each had read of the answer's body.
fn leave_everywhere(weir: &Weir, key: &str) -> Vec<(Wire, Way, Vec<u8>)> {
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut left = Vec::new();
    for wire in ALL_WIRES {
        let whole = weir.exchange(&wire.streaming(key, &prompt())).body.len();
        for way in ALL_WAYS {
            for _ in 0..rounds(PLACES, MANY_PLACES) {
                let place = random.random_range(0..whole);
                let mut visit = Visit::begin(weir.gateway, &wire.streaming(key, &prompt()), way);
                visit.read_to(place);
                left.push((wire, way, visit.leave()));
            }
        }
    }
    left
}

#[test]
fn who_leaves_early_pays_what_the_provider_bills_for_the_whole_answer() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let left = leave_everywhere(&weir, &key).len();
    let all = left + ALL_WIRES.len();
    wait_until("every answer to be billed", || provider.bills().len() == all);
    let heard: Vec<Json> = provider
        .bills()
        .into_iter()
        .filter(|bill| bill["client_left"] == false)
        .collect();
    assert_eq!(
        heard.len(),
        all,
        "{left} clients left; so many answers were read to their end"
    );
    let books = weir.books_as_billed(&provider, 0);
    for row in &books.rows {
        assert_eq!(row["output_reasoning"], HIDDEN, "{row}");
    }
    let metrics = weir.metrics();
    assert!(metrics.contains("\nweir_detached_answers 0\n"), "places are given back");
}

#[test]
fn who_leaves_where_the_provider_is_cut_off_pays_at_least_what_is_known() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    let left = leave_everywhere(&weir, &key);
    let books = weir.books(left.len() + ALL_WIRES.len());
    let whole = |wire: Wire| {
        let mut rows = books.rows.iter().filter(|row| row["provider"] == wire.provider());
        rows.find(|row| row["outcome"] == "ok").unwrap()
    };
    for row in &books.rows {
        let wire = ALL_WIRES
            .into_iter()
            .find(|wire| row["provider"] == wire.provider())
            .unwrap();
        assert!(0 < cost(row) && cost(row) <= cost(whole(wire)) * 5 / 4, "{row}");
        let input = row["input_uncached"].as_u64().unwrap();
        assert!(
            input * 5 >= whole(wire)["input_uncached"].as_u64().unwrap() * 4,
            "{row}"
        );
    }
    // What one more client has seen of the reasoning's count is billed.
    let mut visit = Visit::begin(weir.gateway, &Wire::Gemini.streaming(&key, &prompt()), Way::Closed);
    visit.read_to(2500);
    let text = String::from_utf8(visit.leave()).unwrap();
    let told = text.rsplit("\"thoughtsTokenCount\":").next().unwrap();
    let told: u64 = told
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let books = weir.books(left.len() + ALL_WIRES.len() + 1);
    let last = books.rows.iter().max_by_key(|row| row["time_ms"].as_i64()).unwrap();
    assert!(
        told > 0 && last["output_reasoning"].as_u64() >= Some(told),
        "{told}: {last}"
    );
}

/// Asks for a stream, and leaves when its first half has come.
fn visit_half(weir: &Weir, key: &str, wire: Wire, way: Way) {
    let mut visit = Visit::begin(weir.gateway, &wire.streaming(key, "hi"), way);
    let stream = events(wire);
    visit.read_to(stream[..stream.len() / 2].iter().map(|event| event.len()).sum());
    visit.leave();
}

fn running(weir: &Weir) -> usize {
    let metrics = weir.metrics();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("weir_detached_answers "));
    line.unwrap().parse().unwrap()
}

fn ended(weir: &Weir, end: &str) -> usize {
    let metrics = weir.metrics();
    let name = format!("weir_detached_answers_total{{end=\"{end}\"}} ");
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(name.as_str()))
        .unwrap()
        .parse()
        .unwrap()
}

/// The sockets of clients that the gateway has open.
fn client_sockets(weir: &mut Weir) -> usize {
    let port = format!(":{:04X}", weir.gateway.port());
    let pid = weir.process().id();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let of_clients: Vec<String> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].ends_with(&port) && fields[3] != "0A")
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|file| std::fs::read_link(file.path()).ok())
        .filter(|target| of_clients.iter().any(|socket| target.to_str() == Some(socket.as_str())))
        .count()
}

#[test]
fn the_connection_of_a_client_that_left_is_free_while_its_answer_is_read() {
    let halting = Halting::start();
    let mut weir = Weir::start(&halting.provider.base_url());
    let key = weir.key().text;
    let mut left = 0;
    for wire in ALL_WIRES {
        for way in ALL_WAYS {
            visit_half(&weir, &key, wire, way);
            left += 1;
            wait_until("the client's leaving to be noticed", || running(&weir) == left);
            assert_eq!(client_sockets(&mut weir), 0, "{wire:?} {way:?}");
        }
    }
    assert_eq!(halting.dropped(), 0);
    halting.go_on.permit();
    let books = weir.books(left);
    for row in &books.rows {
        let facts = (&row["usage_source"], &row["outcome"], &row["status"]);
        assert_eq!(facts, (&"reported".into(), &"client_gone".into(), &200.into()), "{row}");
    }
    assert_eq!((running(&weir), ended(&weir, "complete")), (0, left));
}

#[test]
fn more_than_may_run_on_are_cut_off_and_pay_what_is_known() {
    for way in [Way::Closed, Way::H2Cancelled] {
        let halting = Halting::start();
        let weir = WeirBuilder::new()
            .all_providers(&halting.provider.base_url())
            .set("upstream.client_gone_finish_max", 1)
            .start();
        let key = weir.key().text;
        // A place is for who has left: those who listen take none.
        let mut listener = weir.connect();
        listener.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
        let head = listener.head_to("POST");
        visit_half(&weir, &key, Wire::Messages, way);
        wait_until("the first to have a place", || running(&weir) == 1);
        visit_half(&weir, &key, Wire::Messages, way);
        wait_until("the second to be cut off", || halting.dropped() == 1);
        halting.go_on.permit();
        assert!(listener.rest(head).complete);
        let books = weir.books(3);
        let of = |source: &str| books.rows.iter().filter(|row| row["usage_source"] == source).count();
        assert_eq!((of("reported"), of("partial")), (2, 1), "{way:?}: {:?}", books.rows);
        assert!(books.rows.iter().all(|row| cost(row) > 0));
        assert_eq!((ended(&weir, "no_permit"), ended(&weir, "complete")), (1, 1), "{way:?}");
    }
}

#[test]
fn an_answer_that_runs_on_for_too_long_is_cut_off_and_paid_as_far_as_it_is_known() {
    for way in [Way::Reset, Way::H2Closed] {
        let halting = Halting::start();
        let weir = WeirBuilder::new()
            .all_providers(&halting.provider.base_url())
            .set("upstream.client_gone_finish_seconds", 1)
            .start();
        let key = weir.key().text;
        visit_half(&weir, &key, Wire::Messages, way);
        let gone = Instant::now();
        wait_until("the provider to be cut off", || halting.dropped() == 1);
        let took = gone.elapsed();
        assert!(
            took > Duration::from_millis(900) && took < Duration::from_secs(10),
            "{way:?}: {took:?}"
        );
        let books = weir.books(1);
        let row = &books.rows[0];
        let facts = (&row["usage_source"], &row["outcome"]);
        assert_eq!(facts, (&"partial".into(), &"client_gone".into()), "{way:?}: {row}");
        assert!(cost(row) > 0);
        wait_until("its place to be free", || running(&weir) == 0);
        assert_eq!(ended(&weir, "broken"), 1, "{way:?}");
    }
}

#[test]
fn an_answer_that_runs_on_counts_among_those_at_one_time() {
    let halting = Halting::start();
    let weir = Weir::start(&halting.provider.base_url());
    let key = weir.key_with(&["--concurrency", "1"]).text;
    visit_half(&weir, &key, Wire::Messages, Way::Closed);
    wait_until("the client's leaving to be noticed", || running(&weir) == 1);
    let next = || weir.exchange(&Wire::Messages.request(&key, "hi")).status;
    assert_eq!(next(), 429, "leaving early is no way around a limit");
    halting.go_on.permit();
    wait_until("the place to be free again", || next() == 200);
}

#[test]
fn a_client_that_takes_no_more_bytes_pays_the_whole() {
    let provider = SampleProvider::start();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.write_seconds", 1)
        .start();
    let key = weir.key().text;
    let prompt = format!("Tell me. [[sample: deltas=24 delta_bytes=1048576 hidden_tokens={HIDDEN}]]");
    for way in [Way::Closed, Way::H2Closed] {
        let bills = provider.bills().len();
        let mut visit = Visit::begin(weir.gateway, &Wire::Messages.streaming(&key, &prompt), way);
        visit.read_to(1);
        wait_until("the answer to be billed", || provider.bills().len() == bills + 1);
        if way == Way::Closed {
            assert_eq!(client_sockets(&mut weir), 0);
        }
        visit.leave();
    }
    let books = weir.books(2);
    for row in &books.rows {
        let facts = (&row["usage_source"], &row["outcome"], &row["output_reasoning"]);
        assert_eq!(
            facts,
            (&"reported".into(), &"client_gone".into(), &HIDDEN.into()),
            "{row}"
        );
    }
}

#[test]
fn a_client_that_talks_into_its_answer_gets_and_pays_the_whole() {
    let halting = Halting::start();
    let weir = Weir::start(&halting.provider.base_url());
    let key = weir.key().text;
    let talking = ALL_WIRES.map(|wire| {
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
        let head = client.head_to("POST");
        client.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        (client, head)
    });
    assert_eq!(halting.dropped(), 0);
    halting.go_on.permit();
    // What it says is a request of its own, whose turn comes then.
    for (mut client, head) in talking {
        assert!(client.rest(head).complete);
        assert_eq!(client.response_to("GET").status, 404);
    }
    let books = weir.books(ALL_WIRES.len());
    assert!(
        books.rows.iter().all(|row| row["usage_source"] == "reported"),
        "{:?}",
        books.rows
    );
}

#[test]
fn who_stops_sending_gets_an_answer_in_one_piece_and_has_left_a_stream() {
    let halting = Halting::start();
    let weir = Weir::start(&halting.provider.base_url());
    let key = weir.key().text;
    let ask = |bytes: Vec<u8>| {
        let mut client: Client = weir.connect();
        client.write(&bytes);
        client.half_close();
        client
    };
    let mut waiting: Vec<(Wire, Client)> = Vec::new();
    for (number, wire) in ALL_WIRES.into_iter().enumerate() {
        let mut stream = ask(wire.streaming(&key, "hi").bytes(Upload::Length));
        if let Some(mut head) = stream.try_head_to("POST") {
            while client_piece_comes(&mut stream, &mut head) {}
        }
        waiting.push((wire, ask(wire.request(&key, "hi").bytes(Upload::Length))));
        wait_until("both requests at the provider", || {
            halting.provider.count() == 2 * (number + 1)
        });
    }
    assert_eq!(halting.dropped(), 0);
    halting.go_on.permit();
    for (wire, mut client) in waiting {
        assert_eq!(client.response_to("POST").text(), unary(wire), "{wire:?}");
    }
    let books = weir.books(2 * ALL_WIRES.len());
    assert!(
        books.rows.iter().all(|row| row["usage_source"] == "reported"),
        "{:?}",
        books.rows
    );
}

fn client_piece_comes(client: &mut Client, head: &mut Head) -> bool {
    matches!(client.piece(head), Piece::Data(_))
}

#[test]
fn a_gateway_that_is_told_to_end_reads_the_answers_of_those_who_left_first() {
    let halting = Halting::start();
    let mut weir = Weir::start(&halting.provider.base_url());
    let key = weir.key().text;
    for way in ALL_WAYS {
        visit_half(&weir, &key, Wire::Messages, way);
    }
    wait_until("the clients' leaving to be noticed", || {
        running(&weir) == ALL_WAYS.len()
    });
    weir.process().signal("TERM");
    let address = weir.gateway;
    wait_until("the listener to be closed", || {
        std::net::TcpStream::connect(address).is_err()
    });
    assert_eq!(halting.dropped(), 0);
    halting.go_on.permit();
    assert!(weir.process().wait_ended().success());
    assert_eq!(halting.dropped(), 0);
    let lines = weir.access_lines();
    let bytes = whole_stream(Wire::Messages).len();
    let whole = lines
        .iter()
        .filter(|line| line["outcome"] == "client_gone" && line["response_bytes"] == bytes);
    assert_eq!(whole.count(), ALL_WAYS.len(), "{lines:?}");
}
