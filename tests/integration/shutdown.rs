//! SIGTERM: what runs is finished, nothing new is taken, and the process ends soon after.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::answer::Answer;
use crate::harness::client::{Client, Piece};
use crate::harness::h2_frames::{GOAWAY, H2Frames};
use crate::harness::leaving::{Visit, Way};
use crate::harness::provider::Recorded;
use crate::harness::recordings::{events, unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::shapes::{assert_refusal, in_band_error};
use crate::harness::wait::DEADLINE;
use crate::harness::{RecordingProvider, Request, Steps, Weir, WeirBuilder, wait_until};

#[test]
fn sigterm_lets_a_running_stream_finish_and_takes_no_new_connection() {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |_, answer| {
        answer.sse();
        let events = events(Wire::Messages);
        answer.chunk(events[0]);
        gate.wait(1);
        events[1..].iter().for_each(|event| answer.chunk(event));
        answer.end();
    });
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let mut head = client.head_to("POST");
    let Piece::Data(first) = client.piece(&mut head) else {
        panic!("no first event")
    };
    let address = weir.gateway;
    weir.process().signal("TERM");
    wait_until("new connections to be refused", || TcpStream::connect(address).is_err());
    assert!(weir.process().ended().is_none(), "it ended under a running stream");
    steps.permit();
    let rest = client.rest(head);
    let finished = Instant::now();
    assert!(rest.complete);
    assert_eq!(
        format!("{}{}", String::from_utf8_lossy(&first), rest.text()),
        events(Wire::Messages).concat()
    );
    let status = weir.process().wait_ended();
    assert!(status.success(), "{status}");
    assert!(
        finished.elapsed() < Duration::from_secs(5),
        "it ended {:?} after its last stream",
        finished.elapsed()
    );
    assert_eq!(
        weir.access_lines().len(),
        1,
        "the line of the last stream is written before the end"
    );
}

#[test]
fn sigterm_without_work_ends_at_once_although_idle_connections_are_open() {
    let provider = RecordingProvider::least();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut idle = weir.connect();
    assert_eq!(idle.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    weir.process().signal("TERM");
    let asked = Instant::now();
    assert!(weir.process().wait_ended().success());
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[test]
fn at_the_deadline_every_stream_ends_with_its_protocols_error_and_is_accounted_for() {
    let provider = RecordingProvider::start(silent_after_the_first_event);
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.drain_seconds", 1)
        .start();
    let key = weir.key().text;
    let wires = ALL_WIRES.into_iter().cycle().take(10);
    let visits: Vec<(Wire, Visit)> = wires
        .enumerate()
        .map(|(number, wire)| {
            let way = if number % 2 == 0 { Way::Closed } else { Way::H2Closed };
            let mut visit = Visit::begin(weir.gateway, &wire.streaming(&key, "hi"), way);
            visit.read_to(events(wire)[0].len());
            (wire, visit)
        })
        .collect();
    weir.process().signal("TERM");
    let told = read_to_their_ends(visits);
    let ended = Instant::now();
    assert!(weir.process().wait_ended().success());
    assert!(
        ended.elapsed() < Duration::from_secs(5),
        "it ended {:?} after its last stream",
        ended.elapsed()
    );
    for (wire, text) in &told {
        let error = in_band_error(*wire, text).unwrap_or_else(|| panic!("{wire:?}: no in-band error: {text}"));
        let kind = match wire {
            Wire::Messages => &error["type"],
            Wire::Responses => &error["code"],
            Wire::Gemini => &error["status"],
        };
        assert!(
            ["overloaded_error", "server_error", "UNAVAILABLE"].contains(&kind.as_str().unwrap()),
            "{wire:?}: {error}"
        );
        assert!(
            error["message"].as_str().unwrap().contains("restarted"),
            "{wire:?}: {error}"
        );
    }
    assert_eq!(told.len(), 10);
    let lines = weir.access_lines();
    assert_eq!(lines.len(), 10);
    assert!(lines.iter().all(|line| line["outcome"] == "stopped"), "{lines:?}");
    weir.kill_and_restart();
    let books = weir.books(10);
    for row in &books.rows {
        assert_eq!(
            (&row["outcome"], &row["status"]),
            (&"stopped".into(), &503.into()),
            "{row}"
        );
    }
}

#[test]
fn at_the_deadline_a_request_without_an_answer_is_refused_in_its_protocols_shape() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.wait_peer_left(Duration::from_secs(60));
    });
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.drain_seconds", 1)
        .start();
    let key = weir.key().text;
    let ask = |wire: Wire, bytes: &[u8]| {
        let mut client = weir.connect();
        client.write(bytes);
        (wire, client)
    };
    let mut waiting: Vec<(Wire, Client)> = ALL_WIRES
        .map(|wire| ask(wire, &wire.request(&key, "hi").bytes(Upload::Length)))
        .into();
    wait_until("the requests at the provider", || provider.count() == 3);
    // Three more have not sent all of their bodies.
    for wire in ALL_WIRES {
        let whole = wire.request(&key, "hi").bytes(Upload::Length);
        waiting.push(ask(wire, &whole[..whole.len() - 1]));
    }
    wait_until("all six under way", || {
        weir.metrics().contains("\nweir_requests_in_flight 6\n")
    });
    weir.process().signal("TERM");
    for (wire, mut client) in waiting {
        let answer = client.response_to("POST");
        let kind = match wire {
            Wire::Messages => "api_error",
            Wire::Responses => "stopping",
            Wire::Gemini => "UNAVAILABLE",
        };
        assert_refusal(wire, &answer, 503, kind);
        assert_eq!(answer.header("retry-after"), Some("1"), "{wire:?}");
        assert_eq!(answer.header("connection"), Some("close"), "{wire:?}");
    }
    assert!(weir.process().wait_ended().success());
    weir.kill_and_restart();
    let books = weir.books(3);
    assert!(
        books.rows.iter().all(|row| row["outcome"] == "stopped"),
        "{:?}",
        books.rows
    );
}

#[test]
fn a_second_sigterm_and_sigint_end_what_runs_at_once_and_in_band() {
    for signals in [&["TERM", "TERM"][..], &["INT"]] {
        let provider = RecordingProvider::start(silent_after_the_first_event);
        // Nobody waits for as long as this.
        let mut weir = WeirBuilder::new()
            .all_providers(&provider.base_url())
            .set("gateway.drain_seconds", 3600)
            .start();
        let key = weir.key().text;
        let mut visits = Vec::new();
        for wire in ALL_WIRES {
            let mut visit = Visit::begin(weir.gateway, &wire.streaming(&key, "hi"), Way::Closed);
            visit.read_to(events(wire)[0].len());
            visits.push((wire, visit));
        }
        let address = weir.gateway;
        for signal in signals {
            weir.process().signal(signal);
            wait_until("the signal to be heard", || TcpStream::connect(address).is_err());
        }
        for (wire, text) in read_to_their_ends(visits) {
            assert!(in_band_error(wire, &text).is_some(), "{signals:?}, {wire:?}: {text}");
        }
        assert!(weir.process().wait_ended().success());
        let lines = weir.access_lines();
        assert!(lines.iter().all(|line| line["outcome"] == "stopped"), "{lines:?}");
        weir.kill_and_restart();
        assert_eq!(weir.books(3).rows[0]["outcome"], "stopped");
    }
}

#[test]
fn a_client_that_takes_no_bytes_keeps_neither_the_process_nor_its_own_row() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.sse();
        let delta = events(Wire::Messages)[3];
        answer.chunk(events(Wire::Messages)[0]);
        // More than any socket buffers.
        while answer.is_open() {
            answer.chunk(delta.repeat(1000));
        }
    });
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.drain_seconds", 1)
        .start();
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let _head = client.head_to("POST");
    weir.process().signal("TERM");
    assert!(weir.process().wait_ended().success());
    assert_eq!(weir.access_lines()[0]["outcome"], "stopped");
    weir.kill_and_restart();
    assert_eq!(weir.books(1).rows[0]["outcome"], "stopped");
}

#[test]
fn metrics_health_and_administration_answer_while_streams_drain() {
    let steps = Steps::default();
    let provider = RecordingProvider::start(waiting_before_the_last_events(steps.clone()));
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let head = client.head_to("POST");
    assert_eq!(weir.ops_get("/readyz").status, 200);
    let address = weir.gateway;
    weir.process().signal("TERM");
    wait_until("new connections to be refused", || TcpStream::connect(address).is_err());
    for _ in 0..20 {
        let ready = weir.ops_get("/readyz");
        assert_eq!(ready.status, 503);
        assert_eq!(ready.json()["reasons"], json!(["draining"]));
        assert_eq!(weir.ops_get("/livez").status, 200);
        assert!(weir.metrics().contains("\nweir_requests_in_flight 1\n"));
    }
    assert_eq!(
        Client::connect(weir.stability)
            .exchange(&Request::get("/status"))
            .status,
        200
    );
    let _ = weir.key();
    steps.permit();
    assert!(client.rest(head).complete);
    assert!(weir.process().wait_ended().success());
}

#[test]
fn connections_that_nobody_uses_are_closed_soon_while_streams_drain() {
    let steps = Steps::default();
    let provider = RecordingProvider::start(waiting_before_the_last_events(steps.clone()));
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut streaming = weir.connect();
    streaming.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let head = streaming.head_to("POST");
    let mut used = weir.connect();
    assert_eq!(used.exchange(&Request::get("/api/hello")).status, 200);
    let mut half_a_head = weir.connect();
    half_a_head.write(b"POST /v1/messages HTTP/1.1\r\nhost: weir.test\r\n");
    let mut unused = weir.connect();
    let mut h2 = H2Frames::connect(weir.gateway);
    // Whoever connects is taken in turn: when this one has been answered, so have those before it been taken.
    assert_eq!(weir.exchange(&Request::get("/api/hello")).status, 200);
    weir.process().signal("TERM");
    for (what, client) in [
        ("used", &mut used),
        ("unused", &mut unused),
        ("half a head", &mut half_a_head),
    ] {
        assert!(client.closed_within(DEADLINE), "{what}");
    }
    assert!(h2.frames_to_the_end().contains(&GOAWAY));
    assert!(weir.process().ended().is_none(), "a stream still runs");
    steps.permit();
    assert!(streaming.rest(head).complete);
    assert!(weir.process().wait_ended().success());
}

#[test]
fn who_has_just_connected_is_served_although_the_gateway_drains() {
    let steps = Steps::default();
    let provider = RecordingProvider::start(waiting_before_the_last_events(steps.clone()));
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut streaming = weir.connect();
    streaming.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let head = streaming.head_to("POST");
    let mut client = weir.connect();
    // Whoever connects is taken in turn: when this one has been answered, so has the one before it been taken.
    assert_eq!(weir.exchange(&Request::get("/api/hello")).status, 200);
    weir.process().signal("TERM");
    let answer = client.exchange(&Request::get("/api/hello"));
    assert_eq!(answer.status, 200);
    steps.permit();
    assert!(streaming.rest(head).complete);
    assert!(weir.process().wait_ended().success());
}

#[test]
fn an_answer_that_begins_while_the_gateway_drains_says_that_its_connection_closes() {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |request, answer| {
        gate.wait(1);
        answer.json(unary(wire_of(&request.target)));
    });
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.request(&key, "hi").bytes(Upload::Length));
    wait_until("the request at the provider", || provider.count() == 1);
    let address = weir.gateway;
    weir.process().signal("TERM");
    wait_until("new connections to be refused", || TcpStream::connect(address).is_err());
    steps.permit();
    let answer = client.response_to("POST");
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(client.closed_within(DEADLINE));
    assert!(weir.process().wait_ended().success());
}

#[test]
fn sigterm_over_http2_lets_a_running_stream_finish_on_a_connection_that_is_going_away() {
    let steps = Steps::default();
    let provider = RecordingProvider::start(waiting_before_the_last_events(steps.clone()));
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let visits: Vec<(Wire, Visit)> = ALL_WIRES
        .map(|wire| {
            (
                wire,
                Visit::begin(weir.gateway, &wire.streaming(&key, "hi"), Way::H2Closed),
            )
        })
        .into();
    let address = weir.gateway;
    weir.process().signal("TERM");
    wait_until("new connections to be refused", || TcpStream::connect(address).is_err());
    steps.permit();
    for (wire, text) in read_to_their_ends(visits) {
        assert_eq!(text, whole_stream(wire), "{wire:?}");
    }
    assert!(weir.process().wait_ended().success());
}

/// A provider whose streams begin and never end.
fn silent_after_the_first_event(request: &Recorded, answer: &mut Answer<'_>) {
    answer.sse();
    answer.chunk(events(wire_of(&request.target))[0]);
    answer.wait_peer_left(Duration::from_secs(60));
}

/// A provider whose streams begin, and go on when a step is permitted.
fn waiting_before_the_last_events(gate: Steps) -> impl Fn(&Recorded, &mut Answer<'_>) + Send + Sync + 'static {
    move |request, answer| {
        let events = events(wire_of(&request.target));
        answer.sse();
        answer.chunk(events[0]);
        gate.wait(1);
        events[1..].iter().for_each(|event| answer.chunk(event));
        answer.end();
    }
}

/// Reads all of them at the same time; what each client has got in the end.
fn read_to_their_ends(visits: Vec<(Wire, Visit)>) -> Vec<(Wire, String)> {
    std::thread::scope(|scope| {
        let readers: Vec<_> = visits
            .into_iter()
            .map(|(wire, mut visit)| {
                scope.spawn(move || {
                    visit.read_to(usize::MAX);
                    (wire, String::from_utf8(visit.leave()).unwrap())
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    })
}

#[test]
fn sigint_without_work_ends_it_at_once() {
    let mut weir = Weir::start("http://127.0.0.1:9");
    weir.process().signal("INT");
    weir.process().wait_ended();
}
