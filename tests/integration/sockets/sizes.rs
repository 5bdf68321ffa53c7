//! Sizes of messages: what is too large is refused while the socket stays, far beyond it the socket ends, and what has arrived
//! counts like the body of a POST.

use serde_json::{Value as Json, json};

use super::stage::{create, provider, words};
use crate::harness::request::Wire;
use crate::harness::websocket::{LAST, MIDDLE, Message, TEXT, TEXT_BEGIN, WebSocket, frame, frame_head};
use crate::harness::{Steps, Weir, WeirBuilder, wait_until};

const BODY_BYTES_MAX: usize = 300_000;

/// A request whose message has so many bytes.
fn create_of(bytes: usize) -> (String, String) {
    let prompt = "x".repeat(bytes - create("").to_string().len());
    (create(&prompt).to_string(), prompt)
}

fn limited() -> WeirBuilder {
    WeirBuilder::new().set("gateway.body_bytes_max", BODY_BYTES_MAX as i64)
}

/// The error of a POST that is too large.
fn too_large(weir: &Weir, key: &str) -> Json {
    let (text, _) = create_of(BODY_BYTES_MAX + 1);
    let post = Wire::Responses.request(key, "hi").body(text.as_bytes());
    let refused = weir.exchange(&post);
    assert_eq!(refused.status, 413);
    refused.json()["error"].clone()
}

#[test]
fn a_message_is_as_large_as_the_body_of_a_post_and_the_socket_outlives_one_that_is_larger() {
    let provider = provider(&Steps::default());
    let weir = limited().all_providers(&provider.base_url()).start();
    let key = weir.key().text;
    let expected = too_large(&weir, &key);
    let mut socket = WebSocket::open(weir.gateway, &key);
    let (largest, prompt) = create_of(BODY_BYTES_MAX);
    socket.send_text(&largest);
    assert_eq!(socket.turn().completed().text(), words(&prompt));
    for bytes in [BODY_BYTES_MAX + 1, 2 * BODY_BYTES_MAX] {
        socket.send_text(&create_of(bytes).0);
        let error = socket.turn().refused(413, expected["code"].as_str().unwrap());
        assert_eq!(error["error"], expected, "the words of a POST");
        assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
    }
    // In fragments, none of which is too large.
    let (text, _) = create_of(BODY_BYTES_MAX + 1000);
    let parts: Vec<&[u8]> = text.as_bytes().chunks(100_000).collect();
    for (at, part) in parts.iter().enumerate() {
        let first = match at {
            0 => TEXT_BEGIN,
            at if at + 1 == parts.len() => LAST,
            _ => MIDDLE,
        };
        socket.send_frame(first, part);
    }
    socket.turn().refused(413, expected["code"].as_str().unwrap());
    assert_eq!(socket.ask(&create("ho")).completed().text(), words("ho"));
}

/// Defect 20: messages with images, or with a conversation that is to be compacted, end the socket.
#[test]
fn a_message_of_many_megabytes_is_served() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let image = format!("data:image/png;base64,{}", "A".repeat(20 << 20));
    let mut frame = create("");
    frame["input"] = json!([{"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": image},
    ]}]);
    assert_eq!(socket.ask(&frame).completed().text(), words("hi"));
    assert!(provider.last().body.len() > 20 << 20);
}

#[test]
fn far_beyond_the_limit_the_socket_ends_before_the_message_has_come() {
    let provider = provider(&Steps::default());
    let weir = limited().all_providers(&provider.base_url()).start();
    let key = weir.key().text;
    for bytes in [2 * BODY_BYTES_MAX as u64 + 1, 1 << 40] {
        let mut socket = WebSocket::open(weir.gateway, &key);
        socket.write(&frame_head(TEXT, bytes));
        // An error in band may come first.
        let mut message = socket.message();
        if matches!(message, Message::Text(_)) {
            message = socket.message();
        }
        assert!(matches!(message, Message::Close(1009, _)), "{message:?}");
    }
    let mut socket = WebSocket::open(weir.gateway, &key);
    let part = "x".repeat(BODY_BYTES_MAX);
    socket.send_frame(TEXT_BEGIN, part.as_bytes());
    socket.send_frame(MIDDLE, part.as_bytes());
    socket.send_frame(LAST, b"x");
    let mut message = socket.message();
    if matches!(message, Message::Text(_)) {
        message = socket.message();
    }
    assert!(matches!(message, Message::Close(1009, _)), "{message:?}");
    assert_eq!(provider.count(), 0);
}

#[test]
fn what_has_arrived_of_a_message_counts_in_the_share_of_its_key() {
    const ARRIVED: usize = 200_000;
    let provider = provider(&Steps::default());
    let weir = limited()
        .all_providers(&provider.base_url())
        .set("gateway.body_budget_bytes", 1_200_000)
        .set("gateway.body_address_bytes", 1_200_000)
        .set("gateway.body_key_bytes", 2 * ARRIVED as i64)
        .start();
    let (key, other) = (weir.key().text, weir.key().text);
    let (text, prompt) = create_of(BODY_BYTES_MAX);
    let bytes = frame(TEXT, text.as_bytes());
    let (arrived, rest) = bytes.split_at(bytes.len() - (text.len() - ARRIVED));
    let begin = || {
        let mut socket = WebSocket::open(weir.gateway, &key);
        socket.write(arrived);
        socket
    };
    let held = |bytes: usize| {
        wait_until(&format!("{bytes} bytes of bodies"), || {
            weir.figure("weir_body_bytes_buffered") == bytes as i64
        });
    };
    let mut first = begin();
    let second = begin();
    held(2 * ARRIVED);
    // The key's requests are refused, by POST and on a socket; another key's are served.
    let post = weir.exchange(&Wire::Responses.request(&key, "hi"));
    assert_eq!((post.status, post.header("retry-after")), (429, Some("1")));
    let mut third = WebSocket::open(weir.gateway, &key);
    let error = third.ask(&create("hi")).refused(429, "rate_limit_exceeded");
    assert_eq!(error["headers"]["retry-after"], "1", "{error}");
    assert_eq!(error["error"], post.json()["error"]);
    let mut others = WebSocket::open(weir.gateway, &other);
    assert_eq!(others.ask(&create("hi")).completed().text(), words("hi"));
    // One leaves in the middle of its message, and there is room for the rest of the other.
    drop(second);
    held(ARRIVED);
    first.write(rest);
    assert_eq!(first.turn().completed().text(), words(&prompt));
    held(0);
    assert_eq!(third.ask(&create("ho")).completed().text(), words("ho"));
}
