//! Clients that leave an open socket: while an answer runs, before it begins, and right behind its end. Each pays once, for what is
//! known.

use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::stage::{create, create_in, held_until, provider, turn_lines};
use crate::harness::books::cost;
use crate::harness::recordings::events;
use crate::harness::request::Wire;
use crate::harness::rules::RuleFolder;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::rounds;
use crate::harness::wait::DEADLINE;
use crate::harness::websocket::{Message, WebSocket};
use crate::harness::{RecordingProvider, Steps, Weir, wait_until};

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It sends a close frame and ends the connection.
    Closed,
    /// It ends the connection.
    Dropped,
    /// It resets the connection.
    Reset,
    /// It sends nothing more, and ends the connection when the server does.
    HalfClosed,
}

const ALL_WAYS: [Way; 4] = [Way::Closed, Way::Dropped, Way::Reset, Way::HalfClosed];

impl Way {
    fn leave(self, mut socket: WebSocket) {
        match self {
            Way::Closed => socket.send_close(1000),
            Way::Dropped => {}
            Way::Reset => return socket.reset(),
            Way::HalfClosed => {
                socket.half_close();
                socket.read_to_end();
            }
        }
        drop(socket);
    }
}

/// Defect 6: an answer that is complete is recorded as one that its client did not wait for, without tokens, because the client
/// closes right behind its last event.
#[test]
fn who_leaves_right_behind_the_last_event_has_a_complete_answer() {
    let sample = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&sample.base_url()).start();
    let key = weir.key().text;
    let mut left = 0;
    for _ in 0..rounds(5, 100) {
        for way in ALL_WAYS {
            let mut socket = WebSocket::open(weir.gateway, &key);
            socket.ask(&create("Tell me. [[sample: deltas=3]]")).completed();
            way.leave(socket);
            left += 1;
        }
    }
    let books = weir.books_as_billed(&sample, 0);
    assert_eq!(books.rows.len(), left);
    for row in &books.rows {
        assert_eq!((&row["outcome"], &row["status"]), (&"ok".into(), &200.into()), "{row}");
    }
    for line in turn_lines(&weir, left) {
        assert_eq!(
            (&line["outcome"], &line["status"]),
            (&"ok".into(), &200.into()),
            "{line}"
        );
    }
}

/// Defect 5: a client that left before the first token is charged for a whole answer.
#[test]
fn who_leaves_before_the_answer_begins_pays_for_the_input_only() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.wait_peer_left(DEADLINE);
    });
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    for (number, way) in ALL_WAYS.into_iter().enumerate() {
        let mut socket = WebSocket::open(weir.gateway, &key);
        socket.send(&create("Tell me of weirs."));
        wait_until("the provider to have the request", || provider.count() == number + 1);
        way.leave(socket);
    }
    let books = weir.books(ALL_WAYS.len());
    for row in &books.rows {
        assert_eq!(
            (&row["outcome"], &row["status"]),
            (&"client_gone".into(), &499.into()),
            "{row}"
        );
        assert_eq!(row["usage_source"], "estimated", "{row}");
        assert_eq!(row["output_text"].as_u64().unwrap_or(0), 0, "{row}");
        assert!(cost(row) > 0 && row["input_uncached"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn who_leaves_in_the_middle_pays_what_the_provider_bills_where_it_is_read_to_its_end() {
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let key = weir.key().text;
    let prompt = "Tell me of weirs. [[sample: deltas=24 delta_bytes=24 gap_ms=2 hidden_tokens=2000]]";
    let mut left = 0;
    for way in ALL_WAYS {
        for place in [1, 4, 20] {
            let mut socket = WebSocket::open(weir.gateway, &key);
            socket.send(&create(prompt));
            for _ in 0..place {
                socket.event();
            }
            way.leave(socket);
            left += 1;
        }
    }
    wait_until("every answer to be billed", || sample.bills().len() == left);
    let bills = sample.bills();
    assert!(bills.iter().all(|bill| bill["client_left"] == false), "{bills:?}");
    let books = weir.books_as_billed(&sample, 0);
    assert!(books.rows.iter().all(|row| row["output_reasoning"] == 2000));
    wait_until("the places to be given back", || {
        weir.metrics().contains("\nweir_detached_answers 0\n")
    });
}

#[test]
fn who_leaves_at_any_event_pays_once_and_never_more_than_for_the_whole() {
    let stream = events(Wire::Responses);
    let provider = RecordingProvider::start(move |request, answer| {
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        let place: usize = body["input"].as_str().unwrap().parse().unwrap();
        answer.sse();
        stream[..place].iter().for_each(|event| answer.chunk(event));
        if place < stream.len() {
            answer.wait_peer_left(DEADLINE);
        } else {
            answer.end();
        }
    });
    let rules = RuleFolder::aborting();
    let builder = rules.weir_at(&provider.base_url());
    let weir = builder.unlike_credential(&["openai"]).start();
    let key = weir.key().text;
    let mut left = 0;
    for way in ALL_WAYS {
        for place in 1..=stream.len() {
            let mut socket = WebSocket::open(weir.gateway, &key);
            socket.send(&create(&place.to_string()));
            // A comment is no event.
            let shown = stream[..place].iter().filter(|event| !event.starts_with(':')).count();
            for _ in 0..shown {
                socket.event();
            }
            way.leave(socket);
            left += 1;
        }
    }
    let books = weir.books(left);
    let whole = books.rows.iter().find(|row| row["usage_source"] == "reported").unwrap();
    for row in &books.rows {
        assert!(0 < cost(row) && cost(row) <= cost(whole), "{row}");
        let is_whole = row["usage_source"] == "reported";
        assert_eq!(row["outcome"], if is_whole { "ok" } else { "client_gone" }, "{row}");
    }
    let complete = books.rows.iter().filter(|row| row["usage_source"] == "reported");
    assert_eq!(complete.count(), ALL_WAYS.len());
}

#[test]
fn a_client_that_closes_while_answers_run_is_not_waited_for() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    for lane in ["a", "b"] {
        socket.send(&create_in(lane, &held_until(1)));
    }
    wait_until("both at the provider", || provider.count() == 2);
    // One that waits in its lane will never run.
    socket.send(&create_in("a", "never"));
    socket.settle();
    socket.send_close(1000);
    let closed = Instant::now();
    while !matches!(socket.read(), Message::Close(..) | Message::End) {}
    socket.read_to_end();
    assert!(closed.elapsed() < Duration::from_secs(10), "{:?}", closed.elapsed());
    steps.permit();
    let books = weir.books(2);
    assert!(books.rows.iter().all(|row| row["usage_source"] == "reported"));
    assert_eq!(provider.count(), 2);
}
