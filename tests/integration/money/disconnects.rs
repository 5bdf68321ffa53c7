//! Clients that leave, wherever in the answer, where the provider is cut off then: each pays once, for what is known.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

use crate::harness::books::{Books, cost};
use crate::harness::client::{Head, Piece};
use crate::harness::recordings::events;
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::rules::RuleFolder;
use crate::harness::tools::rounds;
use crate::harness::wait::DEADLINE;
use crate::harness::{Client, RecordingProvider, Weir, wait_until};

/// How far the provider goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// It has the request and says nothing.
    Request,
    /// So many bytes of the stream, then silence until weir leaves.
    Bytes(usize),
    /// To the end of the answer.
    End,
}

/// A provider of the recorded streams that goes as far as it was told last.
fn provider() -> (RecordingProvider, Arc<Mutex<Until>>) {
    let until = Arc::new(Mutex::new(Until::End));
    let told = Arc::clone(&until);
    let provider = RecordingProvider::start(move |request, answer| {
        let until = *told.lock().unwrap();
        let stream = events(wire_of(&request.target));
        let bytes = match until {
            Until::Request => {
                answer.wait_peer_left(DEADLINE);
                return;
            }
            Until::Bytes(bytes) => bytes,
            Until::End => usize::MAX,
        };
        answer.sse();
        let mut sent = 0;
        for event in stream {
            let part = event.len().min(bytes - sent);
            if part > 0 {
                answer.chunk(&event.as_bytes()[..part]);
            }
            sent += part;
        }
        if until == Until::End {
            answer.end();
        } else {
            assert!(answer.wait_peer_left(DEADLINE).is_some(), "weir stays with a provider");
        }
    });
    (provider, until)
}

/// The places to cut at: every boundary between two events, and bytes of the last two events.
fn places(wire: Wire) -> Vec<usize> {
    let stream = events(wire);
    let mut at = 0;
    let mut places = vec![0];
    for event in stream {
        at += event.len();
        places.push(at);
    }
    let last: usize = stream[stream.len() - 2..].iter().map(|event| event.len()).sum();
    // Every byte, or a few of them: the line ends at the end of the last event among them.
    let step = rounds(41, 1);
    places.extend((at - last..at).step_by(step));
    places.extend([at - 1, at - 2, at - 3]);
    places.sort_unstable();
    places.dedup();
    places
}

/// Reads until `bytes` of the body have come, or the body ends.
fn read(client: &mut Client, head: &mut Head, bytes: usize) {
    let mut read = 0;
    while read < bytes {
        match client.piece(head) {
            Piece::Data(data) => read += data.len(),
            Piece::End | Piece::Cut => return,
        }
    }
}

/// How many of the first `bytes` of the stream reach the client before the next one: a dot at the end of an open event may begin
/// what a masked credential looks like, and waits.
fn passed(wire: Wire, bytes: usize) -> usize {
    let stream = events(wire).concat();
    bytes - usize::from(stream.as_bytes()[..bytes].ends_with(b"."))
}

fn id(head: &Head) -> String {
    head.header("x-weir-request-id").unwrap().to_owned()
}

fn row<'a>(books: &'a Books, id: &str) -> &'a Json {
    books.rows.iter().find(|row| row["request_id"] == id).unwrap()
}

fn output(row: &Json) -> u64 {
    row["output_text"].as_u64().unwrap_or(0)
}

/// What whole answers cost, by protocol.
fn whole(weir: &Weir, key: &str) -> HashMap<&'static str, i64> {
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.streaming(key, "hi")).status, 200);
    }
    let books = weir.books(ALL_WIRES.len());
    let of = |wire: Wire| {
        books
            .rows
            .iter()
            .find(|row| row["provider"] == wire.provider())
            .unwrap()
    };
    ALL_WIRES.map(|wire| (wire.provider(), cost(of(wire)))).into()
}

#[test]
fn who_leaves_at_any_place_of_a_stream_pays_once_and_never_more_than_for_the_whole() {
    let (provider, until) = provider();
    let rules = RuleFolder::aborting();
    let builder = rules.weir_at(&provider.base_url());
    let weir = builder.unlike_credential(&ALL_WIRES.map(Wire::provider)).start();
    let key = weir.key().text;
    let whole = whole(&weir, &key);
    let mut cases = Vec::new();
    for wire in ALL_WIRES {
        for bytes in places(wire) {
            *until.lock().unwrap() = Until::Bytes(bytes);
            let mut client = weir.connect();
            client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
            let mut head = client.head_to("POST");
            read(&mut client, &mut head, passed(wire, bytes));
            cases.push((wire, bytes, id(&head)));
        }
    }
    let books = weir.books(ALL_WIRES.len() + cases.len());
    for (wire, bytes, id) in cases {
        let row = row(&books, &id);
        let what = format!("{wire:?} after {bytes} bytes: {row}");
        assert_eq!(row["status"], 200, "{what}");
        let (cost, whole) = (cost(row), whole[wire.provider()]);
        assert!(0 < cost && cost <= whole, "{what}, whole {whole}");
        let stream = events(wire).concat();
        if bytes == stream.len() {
            assert_eq!((&row["usage_source"], cost), (&"reported".into(), whole), "{what}");
        }
        let text = stream.find("Hello").unwrap() + "Hello".len();
        assert!(bytes < text + 80 || output(row) > 0, "{what}");
        // As soon as the provider's last event is whole it is final, whether its blank line has come or not.
        if bytes < stream.len() - 4 {
            assert_eq!(row["outcome"], "client_gone", "{what}");
            assert_ne!(row["usage_source"], "reported", "{what}");
        }
    }
}

#[test]
fn who_leaves_before_the_first_byte_pays_for_the_input_only() {
    let (provider, until) = provider();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    *until.lock().unwrap() = Until::Request;
    for (number, wire) in ALL_WIRES.into_iter().enumerate() {
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, "Tell me of weirs.").bytes(Upload::Length));
        wait_until("the provider to have the request", || provider.count() == number + 1);
    }
    let books = weir.books(ALL_WIRES.len());
    for row in &books.rows {
        assert_eq!(
            (&row["outcome"], &row["status"]),
            (&"client_gone".into(), &499.into()),
            "{row}"
        );
        assert_eq!((&row["usage_source"], output(row)), (&"estimated".into(), 0), "{row}");
        assert!(cost(row) > 0 && row["input_uncached"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn who_leaves_while_everything_comes_pays_once_and_the_whole_where_it_was_reported() {
    let (provider, _until) = provider();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    let whole = whole(&weir, &key);
    let mut left = 0;
    for wire in ALL_WIRES {
        let bytes = events(wire).concat().len();
        for place in (0..bytes).step_by(rounds(97, 1)) {
            let mut client = weir.connect();
            client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
            if let Some(mut head) = client.try_head_to("POST") {
                read(&mut client, &mut head, place);
            }
            left += 1;
        }
    }
    let books = weir.books(ALL_WIRES.len() + left);
    for row in &books.rows {
        let whole = whole[row["provider"].as_str().unwrap()];
        assert!(0 < cost(row) && cost(row) <= whole, "{row}, whole {whole}");
        assert!(row["usage_source"] != "reported" || cost(row) == whole, "{row}");
        assert!(matches!(row["outcome"].as_str(), Some("ok" | "client_gone")), "{row}");
    }
}

#[test]
fn who_says_no_more_but_listens_has_one_row() {
    let (provider, until) = provider();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    let whole = whole(&weir, &key);
    let mut rows = ALL_WIRES.len();
    for until_now in [Until::End, Until::Bytes(events(Wire::Messages).concat().len() / 2)] {
        *until.lock().unwrap() = until_now;
        for wire in ALL_WIRES {
            let mut client = weir.connect();
            client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
            let head = client.head_to("POST");
            client.half_close();
            client.rest(head);
            rows += 1;
        }
    }
    let books = weir.books(rows);
    for row in &books.rows {
        assert!(
            0 < cost(row) && cost(row) <= whole[row["provider"].as_str().unwrap()],
            "{row}"
        );
    }
}

#[test]
fn a_unary_answer_is_charged_whole_whenever_its_client_leaves() {
    let steps = crate::harness::Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |request, answer| {
        assert!(gate.wait(1));
        answer.json(crate::harness::recordings::unary(wire_of(&request.target)));
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (number, wire) in ALL_WIRES.into_iter().enumerate() {
        let mut client = weir.connect();
        client.write(&wire.request(&key, "hi").bytes(Upload::Length));
        wait_until("the provider to have the request", || provider.count() == number + 1);
    }
    steps.permit();
    let books = weir.books(ALL_WIRES.len());
    for row in &books.rows {
        // It is read to its end, as the providers' files have it: its usage is known.
        assert_eq!((&row["usage_source"], output(row)), (&"reported".into(), 15), "{row}");
    }
}
