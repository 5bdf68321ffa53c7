//! Successes that never begin: a provider that answers 200 and then breaks off, says nothing or says an error has failed, as
//! long as the client has nothing of its answer.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::harness::answer::Answer;
use crate::harness::certificates::{Authority, Flaw};
use crate::harness::client::{Client, Piece};
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::http2_provider::{Http2Provider, Plan};
use crate::harness::recordings::{events, unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::rules::{RuleFolder, provider_file};
use crate::harness::shapes::in_band_error;
use crate::harness::tools::{note, rounds};
use crate::harness::{RecordingProvider, Request, Steps, Weir, WeirBuilder, wait_until};

/// A gateway whose model `two` is served by `first` and then by `second`, and whose model `one` by `first` alone.
fn two(first: &str, second: &str) -> (RuleFolder, WeirBuilder) {
    let rules = RuleFolder::new(&[
        ("first", &provider_file("first", first)),
        ("second", &provider_file("second", second)),
    ]);
    let model = |name: &str, providers: &[&str]| {
        let mut table = toml::Table::new();
        table.insert("name".to_owned(), name.into());
        table.insert("providers".to_owned(), providers.to_vec().into());
        toml::Value::from(table)
    };
    let models = vec![model("two", &["first", "second"]), model("one", &["first"])];
    let prices = rules.path().join("prices.list");
    let price = |name: &str, provider: &str, output: u32| {
        format!(
            "[[price]]\nname = \"{name}\"\nprovider = \"{provider}\"\ntiers = [{{ input = \"1\", output = \"{output}\" }}]\n"
        )
    };
    let list = [
        "version = \"tests\"\n".to_owned(),
        price("two", "first", 1000),
        price("two", "second", 2),
        price("one", "first", 1000),
    ];
    std::fs::write(&prices, list.concat()).unwrap();
    let builder = rules
        .weir()
        .variable("SECRET", "secret-in-full")
        .set_top("model", models)
        .set("prices.file", prices.to_str().unwrap())
        .set("prices.shipped", false);
    (rules, builder)
}

fn is_stream(request: &crate::harness::provider::Recorded) -> bool {
    request.target.contains(":stream") || request.body.starts_with(br#"{"stream":true"#)
}

fn answer_well(wire: Wire, stream: bool, answer: &mut Answer<'_>) {
    if stream {
        answer.sse();
        events(wire).iter().for_each(|event| answer.chunk(event));
        answer.end();
    } else {
        answer.json(unary(wire));
    }
}

fn asked(wire: Wire, stream: bool, model: &str, key: &str) -> Request {
    match stream {
        true => wire.streaming_for(model, key, "hi"),
        false => wire.request_for(model, key, "hi"),
    }
}

/// An error that a provider sends as its first event, or as a body, with a status of 500 or above in mind.
fn error_event(wire: Wire) -> String {
    match wire {
        Wire::Messages => "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n".to_owned(),
        Wire::Responses => "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"failed\",\"sequence_number\":0}\n\n".to_owned(),
        Wire::Gemini => "data: {\"error\":{\"code\":503,\"message\":\"overloaded\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n".to_owned(),
    }
}

fn error_body(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        Wire::Responses => r#"{"error":{"type":"server_error","code":"server_error","message":"failed"}}"#,
        Wire::Gemini => r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#,
    }
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delimited {
    /// By a length that is right, or larger than what comes.
    Length,
    Chunked,
    UntilClose,
}

/// One early end: a head, what comes of a body, in pieces, and how it ends.
#[derive(Clone, Debug)]
struct EarlyEnd {
    status: u16,
    content_type: Option<&'static str>,
    delimited: Delimited,
    body: Vec<u8>,
    pieces: usize,
    /// The body ends as its head says, and not by a cut.
    proper: bool,
}

impl EarlyEnd {
    fn random(random: &mut StdRng, wire: Wire, stream: bool) -> EarlyEnd {
        let first = match stream {
            true => events(wire)[0].as_bytes(),
            false => unary(wire).trim().as_bytes(),
        };
        let error = match stream {
            true => error_event(wire).into_bytes(),
            false => error_body(wire).as_bytes().to_vec(),
        };
        let bodies: Vec<Vec<u8>> = vec![
            Vec::new(),
            b" \r\n\n".to_vec(),
            b": keep-alive\n\n".to_vec(),
            // Before its last line end an event is not whole.
            first[..random.random_range(0..first.len() - 2)].to_vec(),
            error,
            b"{}".to_vec(),
            b"null".to_vec(),
            b"<html><body>busy</body></html>".to_vec(),
        ];
        let mut body = bodies.choose(random).unwrap().clone();
        if wire == Wire::Messages && stream && random.random_bool(0.3) {
            body.splice(0..0, events(wire)[1].bytes());
        }
        let types = [
            Some("text/event-stream"),
            Some("application/json"),
            Some("text/html"),
            None,
        ];
        let expected = if stream { types[0] } else { types[1] };
        EarlyEnd {
            status: *[200, 200, 200, 200, 201, 204, 205].choose(random).unwrap(),
            content_type: if random.random_bool(0.8) {
                expected
            } else {
                *types.choose(random).unwrap()
            },
            delimited: *[Delimited::Length, Delimited::Chunked, Delimited::UntilClose]
                .choose(random)
                .unwrap(),
            pieces: random.random_range(1..4),
            proper: random.random_bool(0.5),
            body,
        }
    }

    fn perform(&self, answer: &mut Answer<'_>) {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        if let Some(content_type) = self.content_type {
            head.push_str(&format!("content-type: {content_type}\r\n"));
        }
        let is_bodiless = matches!(self.status, 204 | 205);
        match self.delimited {
            _ if is_bodiless => head.push_str("content-length: 0\r\n"),
            Delimited::Length if self.proper => head.push_str(&format!("content-length: {}\r\n", self.body.len())),
            Delimited::Length => head.push_str(&format!("content-length: {}\r\n", self.body.len() + 100)),
            Delimited::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
            Delimited::UntilClose => head.push_str("connection: close\r\n"),
        }
        answer.raw(format!("{head}\r\n").as_bytes());
        if is_bodiless {
            return;
        }
        let size = self.body.len().div_ceil(self.pieces).max(1);
        for piece in self.body.chunks(size) {
            match self.delimited {
                Delimited::Chunked => answer.chunk(piece),
                Delimited::Length | Delimited::UntilClose => answer.raw(piece),
            }
        }
        match (self.delimited, self.proper) {
            (Delimited::Chunked, true) => answer.end(),
            (Delimited::Length, true) => {}
            _ => answer.cut(),
        }
    }
}

/// The first provider fails at random while nothing has reached the client, and serves well in between, so that it is asked
/// again. Every request is served, and billed at the price of the provider that served it.
#[test]
fn whatever_ends_before_it_begins_is_served_by_the_next_provider() {
    let plan: Arc<Mutex<Option<EarlyEnd>>> = Arc::default();
    let ordered = Arc::clone(&plan);
    let first = RecordingProvider::start(move |request, answer| {
        let early = ordered.lock().unwrap().clone();
        match early {
            Some(early) => early.perform(answer),
            None => answer_well(wire_of(&request.target), is_stream(request), answer),
        }
    });
    let second = RecordingProvider::recorded();
    let (_rules, builder) = two(&first.base_url(), &second.base_url());
    let weir = builder.start();
    let key = weir.key().text;
    let seed = std::env::var("WEIR_TEST_SEED").map_or(28, |seed| seed.parse().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let rounds = rounds(150, 1000);
    for round in 0..rounds {
        let (wire, stream) = (*ALL_WIRES.choose(&mut random).unwrap(), random.random_bool(0.6));
        let request = asked(wire, stream, "two", &key);
        let expected = if stream {
            whole_stream(wire)
        } else {
            unary(wire).to_owned()
        };
        *plan.lock().unwrap() = None;
        let well = weir.exchange(&request);
        assert_eq!((well.status, well.text()), (200, expected.clone()), "round {round}");
        let early = EarlyEnd::random(&mut random, wire, stream);
        *plan.lock().unwrap() = Some(early.clone());
        let answer = match round % 4 {
            0 => h2c::exchange(weir.gateway, &request, EndStream::OnLastFrame, Length::Said),
            1 => weir.connect().exchange_expecting(&request, Upload::Length),
            _ => weir.exchange(&request),
        };
        let what = format!("seed {seed}, round {round}: {wire:?}, {early:?}");
        assert_eq!((answer.status, answer.text()), (200, expected), "{what}");
        let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
        assert_eq!(
            (&line["provider"], &line["outcome"]),
            (&"second".into(), &"ok".into()),
            "{what}: {line}"
        );
        assert_eq!(line["attempts"], 2, "{what}: {line}");
    }
    let books = weir.books(2 * rounds);
    let cost = |provider: &str| {
        let rows = books.rows.iter().filter(|row| row["provider"] == provider);
        let costs: std::collections::BTreeSet<i64> = rows.map(|row| row["cost_nano_usd"].as_i64().unwrap()).collect();
        costs.into_iter().max().unwrap()
    };
    // 15 tokens out at 1000 USD a million, and at 2.
    assert!(
        cost("first") > 15_000_000 && cost("second") < 100_000,
        "{} {}",
        cost("first"),
        cost("second")
    );
    note(&format!(
        "beginnings: {rounds} of {rounds} early ends served by the second provider, seed {seed}"
    ));
}

#[test]
fn a_provider_whose_successes_never_begin_is_passed_over() {
    let first = RecordingProvider::start(|request, answer| {
        let wire = wire_of(&request.target);
        if is_stream(request) {
            answer.sse();
            answer.chunk(error_event(wire));
            answer.end();
        } else {
            answer.json("{}");
        }
    });
    let second = RecordingProvider::recorded();
    let (_rules, builder) = two(&first.base_url(), &second.base_url());
    let weir = builder.start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for stream in [true, false] {
            let (before, began) = (first.count(), Instant::now());
            for _ in 0..100 {
                assert_eq!(weir.exchange(&asked(wire, stream, "two", &key)).status, 200);
            }
            // Three failures in a row, and a probe each five seconds, less often each time.
            let most = 3 + 1 + usize::try_from(began.elapsed().as_secs() / 5).unwrap();
            assert!(
                first.count() - before <= most,
                "{wire:?}: {} of 100 went there",
                first.count() - before
            );
        }
    }
    let metrics = weir.metrics();
    let passed_over = metrics
        .lines()
        .find_map(|line| line.strip_prefix("weir_provider_skipped_requests_total{provider=\"first\"} "));
    assert!(passed_over.unwrap().parse::<u64>().unwrap() >= 500, "{passed_over:?}");
}

#[test]
fn a_success_without_an_answer_is_502_and_costs_nothing() {
    let bodies: Vec<(&str, &str)> = vec![
        ("application/json", ""),
        ("application/json", "{}"),
        ("application/json", " null "),
        ("application/json", "\"text\""),
        ("application/json", "{\"content\": ["),
        ("text/html", "<html>busy</html>"),
        ("text/event-stream", ""),
        ("text/event-stream", ": keep-alive\n\n"),
    ];
    let plan = Arc::new(Mutex::new(("", "", false)));
    let ordered = Arc::clone(&plan);
    let first = RecordingProvider::start(move |_, answer| {
        let (content_type, body, proper) = *ordered.lock().unwrap();
        answer.head(200, &[("content-type", content_type)]);
        if !body.is_empty() {
            answer.chunk(body);
        }
        if proper { answer.end() } else { answer.cut() }
    });
    let (_rules, builder) = two(&first.base_url(), &first.base_url());
    let weir = builder.start();
    let key = weir.key().text;
    let mut asked_for = 0;
    for wire in ALL_WIRES {
        for stream in [true, false] {
            for (content_type, body) in &bodies {
                for proper in [true, false] {
                    *plan.lock().unwrap() = (content_type, body, proper);
                    let answer = weir.exchange(&asked(wire, stream, "one", &key));
                    let what = format!("{wire:?} {stream} {content_type} {body:?} {proper}");
                    assert_eq!(answer.status, 502, "{what}: {}", answer.text());
                    let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
                    assert_eq!(line["outcome"], "provider_cut", "{what}: {line}");
                    asked_for += 1;
                }
            }
        }
    }
    let books = weir.books(asked_for);
    assert!(
        books
            .rows
            .iter()
            .all(|row| row["cost_nano_usd"] == 0 && row["status"] == 502),
        "{:?}",
        books.rows[0]
    );
}

#[test]
fn an_error_in_a_success_in_one_piece_gets_the_status_that_it_stands_for() {
    let first = RecordingProvider::start(|request, answer| answer.json(error_body(wire_of(&request.target))));
    let (_rules, builder) = two(&first.base_url(), &first.base_url());
    let weir = builder.start();
    let key = weir.key().text;
    for (wire, status) in [(Wire::Messages, 529), (Wire::Responses, 500), (Wire::Gemini, 503)] {
        let answer = weir.exchange(&asked(wire, false, "one", &key));
        assert_eq!(answer.status, status, "{wire:?}: {}", answer.text());
        assert!(
            answer.json()["error"]["message"].is_string(),
            "{wire:?}: {}",
            answer.text()
        );
        let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
        assert_eq!(
            (&line["outcome"], &line["status"]),
            (&"provider_error".into(), &status.into()),
            "{line}"
        );
    }
    let books = weir.books(3);
    assert!(
        books.rows.iter().all(|row| row["cost_nano_usd"] == 0),
        "{:?}",
        books.rows
    );
}

#[test]
fn an_error_as_the_first_event_reaches_the_client_when_no_other_provider_is_left() {
    let first = RecordingProvider::start(|request, answer| {
        answer.sse();
        answer.chunk(error_event(wire_of(&request.target)));
        answer.end();
    });
    let (_rules, builder) = two(&first.base_url(), &first.base_url());
    let weir = builder.start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&asked(wire, true, "one", &key));
        let end = if wire == Wire::Responses {
            "data: [DONE]\n\n"
        } else {
            ""
        };
        assert_eq!(
            (answer.status, answer.text()),
            (200, error_event(wire) + end),
            "{wire:?}"
        );
        let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
        assert_eq!(line["outcome"], "in_band_error", "{line}");
    }
    let books = weir.books(3);
    assert!(
        books.rows.iter().all(|row| row["cost_nano_usd"] == 0),
        "{:?}",
        books.rows
    );
}

/// Sends a head, and the first event once that is permitted; then goes on or breaks off.
fn slow(steps: &Steps, goes_on: bool) -> RecordingProvider {
    let steps = steps.clone();
    RecordingProvider::start(move |request, answer| {
        let wire = wire_of(&request.target);
        if is_stream(request) {
            answer.sse();
        } else {
            answer.head(200, &[("content-type", "application/json"), ("x-provider", "slow")]);
        }
        steps.wait(1);
        match (goes_on, is_stream(request)) {
            (false, _) => answer.cut(),
            (true, true) => {
                events(wire).iter().for_each(|event| answer.chunk(event));
                answer.end();
            }
            (true, false) => {
                answer.chunk(unary(wire));
                answer.end();
            }
        }
    })
}

#[test]
fn a_head_waits_for_its_body_for_the_time_that_is_set_and_then_goes_out() {
    for wire in ALL_WIRES {
        for stream in [true, false] {
            for goes_on in [true, false] {
                let steps = Steps::default();
                let first = slow(&steps, goes_on);
                let second = RecordingProvider::recorded();
                let (_rules, builder) = two(&first.base_url(), &second.base_url());
                let weir = builder.set("upstream.head_wait_seconds", 1).start();
                let key = weir.key().text;
                let request = asked(wire, stream, "two", &key);
                let mut client: Client = weir.connect();
                let sent = Instant::now();
                client.write(&request.bytes(Upload::Length));
                let mut head = client.head_to("POST");
                let waited = sent.elapsed();
                let what = format!("{wire:?}, stream {stream}, goes on {goes_on}: head after {waited:?}");
                assert_eq!(head.status, 200, "{what}");
                assert!(waited >= Duration::from_millis(900), "{what}");
                assert_eq!(second.count(), 0, "{what}");
                let id = head.header("x-weir-request-id").unwrap().to_owned();
                steps.permit();
                let mut body = Vec::new();
                let complete = loop {
                    match client.piece(&mut head) {
                        Piece::Data(data) => body.extend_from_slice(&data),
                        Piece::End => break true,
                        Piece::Cut => break false,
                    }
                };
                let text = String::from_utf8(body).unwrap();
                let line = weir.access_line(&id);
                assert_eq!(line["attempts"], 1, "{what}: {line}");
                if goes_on {
                    let expected = if stream {
                        whole_stream(wire)
                    } else {
                        unary(wire).to_owned()
                    };
                    assert_eq!((complete, text), (true, expected), "{what}");
                    assert_eq!(line["outcome"], "ok", "{what}: {line}");
                } else {
                    assert_eq!(in_band_error(wire, &text).is_some(), stream, "{what}: {text}");
                    assert_eq!(
                        (complete, &line["outcome"]),
                        (stream, &"provider_cut".into()),
                        "{what}: {line}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_held_head_goes_out_in_time_over_http2_too() {
    let steps = Steps::default();
    let first = slow(&steps, true);
    let second = RecordingProvider::recorded();
    let (_rules, builder) = two(&first.base_url(), &second.base_url());
    let weir = builder.set("upstream.head_wait_seconds", 1).start();
    let key = weir.key().text;
    let mut requests = h2c::Requests::connect(weir.gateway);
    let sent = Instant::now();
    // Its head is there although its first event is not permitted yet.
    assert_eq!(requests.send(&asked(Wire::Messages, true, "two", &key)), Some(200));
    assert!(sent.elapsed() >= Duration::from_millis(900));
    steps.permit();
    let whole = h2c::exchange(
        weir.gateway,
        &asked(Wire::Messages, true, "two", &key),
        EndStream::OnLastFrame,
        Length::Said,
    );
    assert_eq!((whole.status, whole.text()), (200, whole_stream(Wire::Messages)));
    assert_eq!(second.count(), 0);
}

#[test]
fn an_error_whose_body_breaks_or_hangs_keeps_its_status() {
    let plan = Arc::new(Mutex::new((0_u16, false)));
    let ordered = Arc::clone(&plan);
    let first = RecordingProvider::start(move |_, answer| {
        let (status, hangs) = *ordered.lock().unwrap();
        answer.head(status, &[("content-type", "application/json"), ("retry-after", "7")]);
        answer.chunk(r#"{"error":{"message":"half"#);
        match hangs {
            true => {
                answer.wait_peer_left(Duration::from_secs(60));
            }
            false => answer.cut(),
        }
    });
    let (_rules, builder) = two(&first.base_url(), &first.base_url());
    let weir = builder.set("upstream.error_body_seconds", 1).start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for status in [400, 429, 500] {
            for hangs in [false, true] {
                *plan.lock().unwrap() = (status, hangs);
                let sent = Instant::now();
                let answer = weir.exchange(&asked(wire, true, "one", &key));
                let what = format!(
                    "{wire:?} {status} {hangs}: {} after {:?}",
                    answer.text(),
                    sent.elapsed()
                );
                assert_eq!(
                    (answer.status, answer.header("retry-after")),
                    (status, Some("7")),
                    "{what}"
                );
                assert!(
                    answer.complete && answer.json()["error"]["message"].is_string(),
                    "{what}"
                );
                assert!(sent.elapsed() < Duration::from_secs(20), "{what}");
                let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
                assert_eq!(
                    (&line["outcome"], &line["status"]),
                    (&"provider_error".into(), &status.into()),
                    "{line}"
                );
            }
        }
    }
    // A client's own mistake has no row.
    let books = weir.books(12);
    assert!(
        books
            .rows
            .iter()
            .all(|row| row["cost_nano_usd"] == 0 && row["status"] != 400),
        "{:?}",
        books.rows
    );
}

#[test]
fn over_http2_an_answer_that_is_only_a_head_is_none() {
    let authority = Authority::new();
    let first = Http2Provider::start(&authority.server(Flaw::None), |_| Plan::HeadOnly(200));
    let second = RecordingProvider::recorded();
    let (_rules, builder) = two(&first.base_url(), &second.base_url());
    let weir = builder
        .set("upstream.ca_file", authority.ca_file().to_str().unwrap())
        .set("upstream.http2", true)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for stream in [true, false] {
            let expected = if stream {
                whole_stream(wire)
            } else {
                unary(wire).to_owned()
            };
            let answer = weir.exchange(&asked(wire, stream, "two", &key));
            assert_eq!((answer.status, answer.text()), (200, expected), "{wire:?} {stream}");
            let alone = weir.exchange(&asked(wire, stream, "one", &key));
            assert_eq!(alone.status, 502, "{wire:?} {stream}: {}", alone.text());
        }
    }
    wait_until("it is passed over", || {
        weir.metrics()
            .contains("weir_provider_circuits_open{provider=\"first\"}")
    });
}

#[test]
fn over_http2_an_error_that_is_only_a_head_and_an_answer_that_ends_with_trailers_are_whole() {
    let authority = Authority::new();
    let first = Http2Provider::start(&authority.server(Flaw::None), |received| {
        let wire = wire_of(received.head.uri().path());
        match String::from_utf8_lossy(&received.body).contains("only a head") {
            true => Plan::HeadOnly(429),
            false => Plan::Trailers(unary(wire).to_owned()),
        }
    });
    let (_rules, builder) = two(&first.base_url(), &first.base_url());
    let weir: Weir = builder
        .set("upstream.ca_file", authority.ca_file().to_str().unwrap())
        .set("upstream.http2", true)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request_for("one", &key, "only a head"));
        assert_eq!(answer.status, 429, "{wire:?}: {}", answer.text());
        assert!(answer.json()["error"]["message"].is_string());
        let answer = weir.exchange(&wire.request_for("one", &key, "trailers"));
        assert_eq!((answer.status, answer.text().as_str()), (200, unary(wire)), "{wire:?}");
        let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
        assert_eq!(line["outcome"], "ok", "{wire:?}: {line}");
    }
}
