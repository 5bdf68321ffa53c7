//! Frames: what a client may not send and which code ends its socket then, pings at any time, and messages in fragments.

use serde_json::Value as Json;

use super::stage::{create, create_in, held_until, provider, words};
use crate::harness::websocket::{
    BINARY, CLOSE, LAST, MIDDLE, Message, PING, TEXT, TEXT_BEGIN, Turn, WebSocket, close_payload, frame, frame_head,
    unmasked_frame,
};
use crate::harness::{Steps, Weir, WeirBuilder};

/// The maximum length of a control frame's payload.
const CONTROL_BYTES_MAX: usize = 125;
/// The maximum number of fragments of a message.
const FRAGMENTS_MAX: usize = 4096;

/// Bytes that break the protocol, and the code that ends the socket then.
fn faults() -> Vec<(&'static str, Vec<u8>, u16)> {
    let fragments = |first: &[u8], last: &[u8]| [frame(TEXT_BEGIN, first), frame(LAST, last)].concat();
    let close = |code: u16| frame(CLOSE, &close_payload(code, ""));
    vec![
        ("a binary message", frame(BINARY, b"{}"), 1003),
        ("a frame without a mask", unmasked_frame(TEXT, b"{}"), 1002),
        ("a compressed frame", frame(TEXT | 0x40, b"{}"), 1002),
        ("a frame with RSV2", frame(TEXT | 0x20, b"{}"), 1002),
        ("a frame with RSV3", frame(TEXT | 0x10, b"{}"), 1002),
        ("a compressed ping", frame(PING | 0x40, b""), 1002),
        ("opcode 3", frame(0x83, b"{}"), 1002),
        ("opcode 11", frame(0x8b, b""), 1002),
        ("a last fragment of nothing", frame(LAST, b"{}"), 1002),
        ("a middle fragment of nothing", frame(MIDDLE, b"{}"), 1002),
        (
            "a text within a text",
            [frame(TEXT_BEGIN, b"{"), frame(TEXT, b"{}")].concat(),
            1002,
        ),
        ("a ping in fragments", frame(PING & !LAST, b"x"), 1002),
        (
            "a ping that is too long",
            frame(PING, &[b'x'; CONTROL_BYTES_MAX + 1]),
            1002,
        ),
        ("a text that is not UTF-8", frame(TEXT, b"{\"type\":\"\xff\"}"), 1007),
        ("a text that ends within a character", frame(TEXT, b"\xc3"), 1007),
        (
            "fragments that are not UTF-8 together",
            fragments(b"{\"\xc3", b"\x28"),
            1007,
        ),
        ("a surrogate", frame(TEXT, b"\xed\xa0\x80"), 1007),
        ("a close frame of one byte", frame(CLOSE, b"x"), 1002),
        ("the code 999", close(999), 1002),
        ("the code 1005", close(1005), 1002),
        ("the code 1006", close(1006), 1002),
        ("the code 1016", close(1016), 1002),
        ("the code 5000", close(5000), 1002),
        ("a reason that is not UTF-8", frame(CLOSE, b"\x03\xe8\xff"), 1007),
    ]
}

/// Defect 22 among them: compressed frames are not decoded, so nothing can become more than it was.
#[test]
fn a_client_that_breaks_the_protocol_is_told_by_the_code_and_others_are_served() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut other = WebSocket::open(weir.gateway, &key);
    for (what, bytes, code) in faults() {
        let mut socket = WebSocket::open(weir.gateway, &key);
        socket.write(&bytes);
        assert_eq!(socket.close_code(), Some(code), "{what}");
    }
    // A length that no 64-bit number may have, and that would be too large.
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.write(&frame_head(TEXT, 1 << 63));
    assert!(matches!(socket.close_code(), Some(1002 | 1009)));
    assert_eq!(socket.read(), Message::End, "whether the client closes or not");
    assert_eq!(other.ask(&create("hi")).completed().text(), words("hi"));
    assert_eq!(provider.count(), 1, "nothing of the others was forwarded");
}

#[test]
fn a_client_that_closes_is_answered_and_the_connection_ends() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for code in [1000, 1001, 3000, 4999] {
        let mut socket = WebSocket::open(weir.gateway, &key);
        assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
        // What comes behind a close frame is not read.
        let late = frame(TEXT, create("too late").to_string().as_bytes());
        socket.write(&[frame(CLOSE, &close_payload(code, "")), late].concat());
        assert!(socket.close_code().is_some_and(|answer| [code, 1000].contains(&answer)));
        assert_eq!(socket.read(), Message::End);
    }
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.send_frame(CLOSE, b"");
    assert!(matches!(socket.message(), Message::Close(..)));
    assert_eq!(socket.read(), Message::End);
    assert_eq!(provider.count(), 4);
}

#[test]
fn a_ping_is_answered_with_its_payload_also_between_fragments() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    for length in [0, 1, CONTROL_BYTES_MAX] {
        let payload = vec![b'p'; length];
        socket.send_frame(PING, &payload);
        assert_eq!(socket.read(), Message::Pong(payload));
    }
    let text = create("hi").to_string();
    let (first, last) = text.split_at(10);
    socket.send_frame(TEXT_BEGIN, first.as_bytes());
    socket.send_frame(PING, b"within");
    assert_eq!(socket.read(), Message::Pong(b"within".to_vec()));
    socket.send_frame(LAST, last.as_bytes());
    assert_eq!(socket.turn().completed().text(), words("hi"));
}

/// Defect 11: pings are unanswered while the reader waits for something else, and the peer gives up after its timeout.
#[test]
fn pings_are_answered_while_an_answer_runs_and_while_the_queue_is_full() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("sockets.running_max", 1)
        .start();
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.send(&create_in("first", &held_until(1)));
    let mut events = vec![socket.event(), socket.event()];
    // More than may wait.
    let further = 20;
    for number in 0..further {
        socket.send(&create_in(&format!("lane-{number}"), "hi"));
    }
    events.extend(socket.settle());
    assert_eq!(
        Turn::of_lane(&events, Some("first")).events.len(),
        2,
        "it has not gone on"
    );
    steps.permit();
    let ended = events.iter().filter(|event| event["type"] == "error").count();
    events.extend(socket.events_to_ends(further + 1 - ended));
    let first = Turn::of_lane(&events, Some("first")).completed();
    assert_eq!(first.text(), words(&held_until(1)));
    let mut refused = 0;
    for number in 0..further {
        let turn = Turn::of_lane(&events, Some(&format!("lane-{number}")));
        if turn.last()["type"] == "error" {
            let error = turn.refused(429, "websocket_queue_full");
            assert_eq!(
                error["headers"]["retry-after"], "1",
                "without it Codex gives the turn up: {error}"
            );
            refused += 1;
        } else {
            assert_eq!(turn.completed().text(), words("hi"));
        }
    }
    assert!((1..further).contains(&refused), "{refused} of {further} were refused");
    assert_eq!(socket.settle(), Vec::<Json>::new());
}

#[test]
fn a_message_may_come_in_so_many_fragments_and_no_more() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let prompt = "x".repeat(2 * FRAGMENTS_MAX);
    let text = create(&prompt).to_string();
    let in_fragments = |count: usize| {
        let (small, large) = text.as_bytes().split_at(count - 1);
        let mut bytes = frame(TEXT_BEGIN, &small[..1]);
        small[1..].iter().for_each(|byte| bytes.extend(frame(MIDDLE, &[*byte])));
        bytes.extend(frame(LAST, large));
        bytes
    };
    let mut socket = WebSocket::open(weir.gateway, &key);
    // Fragments may also be empty.
    let (first, second) = text.split_at(text.len() / 2);
    for (opcode, part) in [
        (TEXT_BEGIN, ""),
        (MIDDLE, first),
        (MIDDLE, ""),
        (MIDDLE, second),
        (LAST, ""),
    ] {
        socket.send_frame(opcode, part.as_bytes());
    }
    assert_eq!(socket.turn().completed().text(), words(&prompt));
    socket.write(&in_fragments(FRAGMENTS_MAX));
    assert_eq!(socket.turn().completed().text(), words(&prompt));
    socket.write(&in_fragments(FRAGMENTS_MAX + 1));
    assert_eq!(socket.close_code(), Some(1009));
    assert_eq!(provider.count(), 2);
}
