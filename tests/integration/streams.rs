//! Streams: every byte in the same order, none held back, and no failure that looks like success.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::client::{Head, Piece};
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::recordings::{GEMINI_ARRAY, events, unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Upload, Wire, array_request, wire_of};
use crate::harness::rules::RuleFolder;
use crate::harness::shapes::assert_unauthorized;
use crate::harness::tools::rounds;
use crate::harness::{Client, RecordingProvider, Steps, Weir, WeirBuilder, wait_for};

/// Reads pieces until `seen` has grown to `length` bytes.
fn read_to(client: &mut Client, head: &mut Head, seen: &mut Vec<u8>, length: usize) {
    while seen.len() < length {
        match client.piece(head) {
            Piece::Data(data) => seen.extend_from_slice(&data),
            other => panic!("{other:?} after {} of {length} bytes", seen.len()),
        }
    }
}

#[test]
fn each_event_arrives_before_the_provider_sends_the_next() {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |request, answer| {
        let before = gate.permitted();
        answer.sse();
        for (sent, event) in events(wire_of(&request.target)).iter().enumerate() {
            if !gate.wait(before + sent) {
                return answer.cut();
            }
            answer.chunk(event);
        }
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
        let mut head = client.head_to("POST");
        assert_eq!(head.status, 200);
        assert!(
            head.header("content-type").unwrap().starts_with("text/event-stream"),
            "{wire:?}"
        );
        let (mut seen, mut sent) = (Vec::new(), String::new());
        for event in events(wire) {
            sent.push_str(event);
            // The provider sends nothing more before this has arrived.
            read_to(&mut client, &mut head, &mut seen, sent.len());
            assert!(String::from_utf8_lossy(&seen).starts_with(&sent), "{wire:?}");
            assert!(whole_stream(wire).as_bytes().starts_with(&seen), "{wire:?}");
            steps.permit();
        }
        read_to(&mut client, &mut head, &mut seen, whole_stream(wire).len());
        assert_eq!(String::from_utf8_lossy(&seen), whole_stream(wire), "{wire:?}");
        assert_eq!(client.piece(&mut head), Piece::End, "{wire:?}");
    }
}

#[test]
fn single_bytes_arrive_one_by_one_too() {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |_, answer| {
        answer.sse();
        for (sent, byte) in events(Wire::Gemini)[2].as_bytes().iter().enumerate() {
            gate.wait(sent);
            answer.raw(&[b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
        }
        answer.end();
    });
    let builder = WeirBuilder::new().provider("gemini", &provider.base_url());
    let weir = builder.unlike_credential(&["gemini"]).start();
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Gemini.streaming(&key, "hi").bytes(Upload::Length));
    let mut head = client.head_to("POST");
    let mut seen = Vec::new();
    for length in 1..=events(Wire::Gemini)[2].len() {
        read_to(&mut client, &mut head, &mut seen, length);
        steps.permit();
    }
    assert_eq!(client.piece(&mut head), Piece::End);
    assert_eq!(seen, events(Wire::Gemini)[2].as_bytes());
}

#[test]
fn whole_answers_pass_byte_for_byte() {
    let provider = RecordingProvider::start(|request, answer| {
        let wire = wire_of(&request.target);
        match (request.target.contains("alt=sse"), wire) {
            (false, Wire::Gemini) if request.target.contains(":stream") => {
                answer.head(200, &[("content-type", "application/json; charset=UTF-8")]);
                GEMINI_ARRAY.iter().for_each(|piece| answer.chunk(piece));
                answer.end();
            }
            _ if request.body.starts_with(br#"{"stream":true"#)
                || wire == Wire::Gemini && request.target.contains(":stream") =>
            {
                answer.sse();
                events(wire).iter().for_each(|event| answer.chunk(event));
                answer.end();
            }
            _ => answer.json(unary(wire)),
        }
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert!(answer.complete);
        assert_eq!(answer.text(), unary(wire), "{wire:?}");
        assert_eq!(
            answer.header("content-length"),
            Some(unary(wire).len().to_string().as_str()),
            "{wire:?}"
        );
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        assert!(answer.complete);
        assert_eq!(answer.text(), whole_stream(wire), "{wire:?}");
    }
    let answer = weir.exchange(&array_request(&key));
    assert!(answer.complete);
    assert_eq!(answer.text(), GEMINI_ARRAY.concat());
}

/// Within what time a provider is left with the client; a loaded machine gets more.
fn noticed_within() -> Duration {
    Duration::from_secs(rounds(5, 1) as u64)
}

#[test]
fn a_client_that_leaves_is_gone_at_the_provider_within_a_second() {
    let left = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&left);
    let provider = RecordingProvider::start(move |request, answer| {
        answer.sse();
        answer.chunk(events(wire_of(&request.target))[0]);
        if answer.wait_peer_left(Duration::from_secs(20)).is_some() {
            *seen.lock().unwrap() = Some(Instant::now());
        }
    });
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
        let mut head = client.head_to("POST");
        read_to(&mut client, &mut head, &mut Vec::new(), 10);
        drop(client);
        let gone = Instant::now();
        let noticed = wait_for("the provider to see that the client left", || {
            left.lock().unwrap().take()
        });
        let took = noticed.saturating_duration_since(gone);
        assert!(took < noticed_within(), "{wire:?}: {took:?}");
    }
    let lines = weir.access_lines_at_least(3);
    assert!(lines.iter().all(|line| line["outcome"] == "client_gone"), "{lines:?}");
}

#[test]
fn bytes_that_are_no_stream_of_the_protocol_pass_unchanged_behind_its_beginning() {
    const BODIES: [(&str, &str, &str); 3] = [
        (
            "text/event-stream",
            "",
            "BEGINNINGdata: {not json\n\ndata: \u{1}\u{2}\n\nevent: x\r\rdata\n\n",
        ),
        (
            "application/json",
            "",
            "\n\n {\"a\":1e400,\"model\":\"any\",\"modelVersion\":\"any\"}",
        ),
        ("text/event-stream", "gzip", "\u{1f}not really gzip"),
    ];
    let turn = Arc::new(Mutex::new(0_usize));
    let now = Arc::clone(&turn);
    let provider = RecordingProvider::start(move |request, answer| {
        let (kind, encoding, body) = BODIES[*now.lock().unwrap()];
        let mut headers = vec![("content-type", kind)];
        if !encoding.is_empty() {
            headers.push(("content-encoding", encoding));
        }
        let body = body.replace("BEGINNING", events(wire_of(&request.target))[0]);
        answer.full(200, &headers, body.as_bytes());
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (number, (kind, encoding, body)) in BODIES.iter().enumerate() {
        *turn.lock().unwrap() = number;
        for wire in ALL_WIRES {
            let answer = weir.exchange(&wire.streaming(&key, "hi"));
            let body = body.replace("BEGINNING", events(wire)[0]);
            assert!(answer.text().starts_with(&body), "{wire:?} {kind}: {}", answer.text());
            assert_eq!(answer.header("content-type"), Some(*kind), "{wire:?}");
            assert_eq!(answer.header("content-encoding").unwrap_or(""), *encoding, "{wire:?}");
        }
    }
}

#[test]
fn whole_answers_pass_over_h2c_too() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for length in [Length::Said, Length::Unsaid] {
            let request = wire.streaming(&key, "hi");
            let answer = h2c::exchange(weir.gateway, &request, EndStream::OnItsOwn, length);
            assert!(answer.complete, "{wire:?}");
            assert_eq!(answer.text(), whole_stream(wire), "{wire:?}");
        }
        let answer = h2c::exchange(
            weir.gateway,
            &wire.request(&key, "hi"),
            EndStream::OnLastFrame,
            Length::Said,
        );
        assert_eq!(answer.text(), unary(wire), "{wire:?}");
        let refused = wire.request("wrong", "hi");
        let answer = h2c::exchange(weir.gateway, &refused, EndStream::OnLastFrame, Length::Said);
        assert_unauthorized(wire, &answer);
    }
}

#[test]
fn a_client_that_leaves_before_the_first_byte_of_a_stream_is_gone_at_the_provider_within_a_second() {
    let left = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&left);
    let asked = Steps::default();
    let got = asked.clone();
    let provider = RecordingProvider::start(move |_, answer| {
        got.permit();
        if answer.wait_peer_left(Duration::from_secs(20)).is_some() {
            *seen.lock().unwrap() = Some(Instant::now());
        }
    });
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    for (turn, wire) in ALL_WIRES.into_iter().enumerate() {
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
        assert!(asked.wait(turn + 1), "the request did not reach the provider");
        drop(client);
        let gone = Instant::now();
        let noticed = wait_for("the provider to see that the client left", || {
            left.lock().unwrap().take()
        });
        let took = noticed.saturating_duration_since(gone);
        assert!(took < noticed_within(), "{wire:?}: {took:?}");
    }
}
