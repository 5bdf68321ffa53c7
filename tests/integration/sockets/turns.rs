//! One request on a socket: what the provider gets of it, what the client gets of the answer, and what stays open after a failure.

use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use super::stage::{continuation, create, create_in, provider, turn_lines, words};
use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;
use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::websocket::{Turn, WebSocket, handshake};
use crate::harness::{RESPONSES_MODEL, RecordingProvider, Request, Steps, Weir, WeirBuilder};

/// What clients send with their requests, whichever way these take.
const CLIENT_FIELDS: [(&str, &str); 3] = [
    ("user-agent", "codex_exec/0.169.0"),
    ("originator", "codex_exec"),
    ("session-id", "0b7c-4"),
];
/// What Codex sends with a handshake only.
const BETA: (&str, &str) = ("openai-beta", "responses_websockets=2026-02-06");
/// The maximum length of an event that becomes a frame: more than Codex takes in one.
const EVENT_BYTES_MAX: usize = 16 << 20;

fn with_client_fields(request: Request) -> Request {
    let add = |request: Request, (name, value): (&str, &str)| request.header(name, value);
    CLIENT_FIELDS.into_iter().fold(request, add)
}

/// A streaming POST with the members of a frame.
fn post_of(frame: &Json, key: &str) -> Request {
    let mut body = frame.clone();
    body.as_object_mut().unwrap().shift_remove("type");
    body["stream"] = true.into();
    Wire::Responses.request(key, "hi").body(body.to_string().as_bytes())
}

/// Defects 16 and 17: fields of the handshake, or members that only a socket knows, reach the provider.
#[test]
fn the_provider_gets_what_it_gets_by_a_post() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let input = r#"[ {"role":"user", "content":"h\u00e9 \u2028 \"x\""} ]"#;
    let kept = format!(
        r#""model":"{RESPONSES_MODEL}","input": {input},"temperature":1e0,"metadata":{{"type":"kept","stream_id":"kept"}},"store":false"#
    );
    let post = with_client_fields(Wire::Responses.request(&key, "hi"));
    let post = post.body(format!(r#"{{"stream":true,{kept}}}"#).as_bytes());
    assert_eq!(weir.exchange(&post).status, 200);
    let opening = with_client_fields(handshake(&key)).header(BETA.0, BETA.1);
    let mut socket = WebSocket::open_with(weir.gateway, &opening);
    for frame in [
        format!(r#"{{"type":"response.create",{kept}}}"#),
        format!(r#"{{ {kept} , "stream":false, "generate":true, "background":false, "type":"response.create" }}"#),
        format!(r#"{{"stream_id":"lane-1",{kept},"stream":true,"type":"response.create"}}"#),
    ] {
        socket.send_text(&frame);
        socket.turn().completed();
    }
    let requests = provider.requests();
    let [by_post, by_socket @ ..] = requests.as_slice() else {
        panic!("nothing was forwarded");
    };
    assert_eq!(by_socket.len(), 3);
    let body = |request: &Recorded| serde_json::from_slice::<Json>(&request.body).unwrap();
    let fields = |request: &Recorded| {
        let mut fields = request.headers.clone();
        fields.retain(|(name, _)| name != "content-length");
        fields.sort();
        fields
    };
    for request in by_socket {
        assert_eq!(request.target, by_post.target);
        assert_eq!(body(request), body(by_post));
        let text = String::from_utf8(request.body.clone()).unwrap();
        assert!(text.contains(input) && text.contains("1e0"), "byte for byte: {text}");
        assert_eq!(fields(request), fields(by_post));
    }
}

/// The texts of the events in a stream of odd form, and the stream.
fn odd_stream() -> (Vec<String>, String) {
    let event = |name: &str, more: &str| format!(r#"{{"type":"{name}",{more}}}"#);
    let id = r#""response":{"id":"resp_1","model":"gpt","status":"in_progress","output":[]}"#;
    let usage = r#""usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}"#;
    let end = format!(r#""response":{{"id":"resp_1","model":"gpt","status":"completed","output":[],{usage}}}"#);
    let texts = vec![
        event("response.created", id),
        event("response.output_text.delta", r#" "delta" : "a\u2028b" "#),
        event("response.output_text.delta", "\"delta\":\"h\u{e9} \u{2028}\u{1f600}\""),
        event("response.odd", r#""of":"data: [DONE]""#),
        event("response.completed", &end),
    ];
    let stream = [
        format!(": a comment\n\nevent: response.created\ndata: {}\n\n", texts[0]),
        format!("data:{}\n\n: another\n\n", texts[1]),
        format!("id: 7\r\nretry: 10\r\nevent: x\r\ndata: {}\r\n\r\n", texts[2]),
        format!("data: {}\nevent: y\n\n", texts[3]),
        format!("data: {}\n\ndata: [DONE]\n\n", texts[4]),
    ];
    (texts, stream.concat())
}

#[test]
fn each_event_is_one_frame_wherever_the_provider_splits_its_stream() {
    let chunks: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let sent = Arc::clone(&chunks);
    let provider = RecordingProvider::start(move |_, answer: &mut Answer<'_>| {
        answer.sse();
        sent.lock().unwrap().iter().for_each(|chunk| answer.chunk(chunk));
        answer.end();
    });
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    let weir = builder.unlike_credential(&["openai"]).start();
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let (texts, stream) = odd_stream();
    let expected: Vec<Json> = texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let bytes = stream.as_bytes();
    let halves = (1..bytes.len()).step_by(13).map(|at| {
        let (first, second) = bytes.split_at(at);
        vec![first.to_vec(), second.to_vec()]
    });
    let mut plans: Vec<Vec<Vec<u8>>> = halves.collect();
    plans.push(vec![bytes.to_vec()]);
    plans.push(bytes.iter().map(|byte| vec![*byte]).collect());
    for plan in plans {
        let pieces = plan.len();
        *chunks.lock().unwrap() = plan;
        assert_eq!(socket.ask(&create("hi")).events, expected, "in {pieces} pieces");
    }
    // Data in several lines is one event.
    *chunks.lock().unwrap() = vec![stream.replace(",\"delta\"", ",\ndata: \"delta\"").into_bytes()];
    assert_eq!(socket.ask(&create("hi")).events, expected);
    // The text of an event is not written anew.
    *chunks.lock().unwrap() = vec![bytes.to_vec()];
    socket.send(&create("hi"));
    for text in &texts {
        assert_eq!(socket.message(), crate::harness::websocket::Message::Text(text.clone()));
    }
}

#[test]
fn a_compressed_answer_is_decoded_and_a_large_event_is_one_frame() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let coded = socket
        .ask(&create("Tell me. [[sample: deltas=5 encoding=gzip]]"))
        .completed();
    assert!(coded.text().starts_with("You said"), "{}", coded.text());
    let large = socket
        .ask(&create("Tell me. [[sample: deltas=2 delta_bytes=1000000]]"))
        .completed();
    assert_eq!(large.text().len(), 2_000_000);
}

#[test]
fn an_event_that_no_client_takes_ends_its_answer_and_not_the_socket() {
    let provider = RecordingProvider::start(|request, answer| {
        let is_large = String::from_utf8_lossy(&request.body).contains("large");
        let delta = "x".repeat(if is_large { EVENT_BYTES_MAX + 1000 } else { 10 });
        let response = json!({"id": "resp_1", "model": "gpt", "status": "completed", "output": [],
            "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}});
        answer.sse();
        for event in [
            json!({"type": "response.created", "response": {"id": "resp_1", "model": "gpt", "output": []}}),
            json!({"type": "response.output_text.delta", "delta": delta}),
            json!({"type": "response.completed", "response": response}),
        ] {
            answer.chunk(format!("data: {event}\n\n"));
        }
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let cut = socket.ask(&create("large"));
    let end = cut.last()["type"].as_str().unwrap();
    assert!(["response.failed", "error"].contains(&end), "{end}");
    assert!(cut.text().is_empty());
    socket.ask(&create("small")).completed();
}

/// Defect 18: the second turn on a socket hangs.
#[test]
fn many_requests_follow_each_other_on_one_socket() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    for number in 1..=30 {
        let prompt = format!("the request {number}");
        let turn = socket.ask(&create(&prompt)).completed();
        assert_eq!((turn.text(), turn.id()), (words(&prompt), format!("resp_{number}")));
    }
    let lines = turn_lines(&weir, 30);
    assert!(
        lines
            .iter()
            .all(|line| line["outcome"] == "ok" && line["status"] == 200 && line["stream"] == true)
    );
}

/// Checks that a frame is refused as the POST with its members is, and returns the event.
#[track_caller]
fn refused_alike(weir: &Weir, socket: &mut WebSocket, key: &str, frame: &Json) -> Json {
    let post = weir.exchange(&post_of(frame, key));
    assert!(post.status >= 400, "{frame}: {}", post.text());
    let turn = socket.ask(frame);
    let expected = post.json()["error"].clone();
    let event = turn.refused(post.status, expected["code"].as_str().unwrap_or_default());
    assert_eq!(event["error"], expected, "{frame}");
    for name in ["retry-after", "x-should-retry", "x-codex-promo-message"] {
        assert_eq!(event["headers"][name].as_str(), post.header(name), "{name} {event}");
    }
    let id = event["headers"]["x-weir-request-id"].as_str();
    let id = id.unwrap_or_else(|| panic!("no request id: {event}")).to_owned();
    assert_eq!(weir.access_line(&id)["status"], post.status);
    event
}

/// Defect 14: what a client could recover from is renamed.
#[test]
fn a_refusal_has_the_status_the_code_and_the_words_of_a_post() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key_with(&["--models", RESPONSES_MODEL]).text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let with = |name: &str, value: Json| {
        let mut frame = create("hi");
        frame[name] = value;
        frame
    };
    for frame in [
        with("model", "no-such-model".into()),
        with("model", crate::harness::MESSAGES_MODEL.into()),
        with("background", true.into()),
        continuation("resp_of_nobody", "hi"),
        create("an error of the client"),
    ] {
        refused_alike(&weir, &mut socket, &key, &frame);
        assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
    }
    let poor = weir.key_with(&["--quota-usd", "0"]).text;
    let mut socket = WebSocket::open(weir.gateway, &poor);
    let event = refused_alike(&weir, &mut socket, &poor, &create("hi"));
    assert_eq!(event["error"]["type"], "usage_limit_reached", "{event}");
    let fast = weir.key_with(&["--rpm", "1"]);
    assert_eq!(weir.exchange(&Wire::Responses.request(&fast.text, "hi")).status, 200);
    let mut socket = WebSocket::open(weir.gateway, &fast.text);
    let event = socket.ask(&create("hi")).refused(429, "rate_limit_exceeded");
    let wait: u64 = event["headers"]["retry-after"].as_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{event}");
}

/// Checks that the socket is open, and that nothing is left of what was sent before.
#[track_caller]
fn assert_serves(socket: &mut WebSocket) {
    assert_eq!(
        socket.ask(&create("still there?")).completed().text(),
        words("still there?")
    );
}

#[test]
fn a_message_that_is_no_request_is_answered_and_the_socket_stays() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let spaces = " ".repeat(20_000);
    for text in [
        String::new(),
        "no JSON".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        "{}".to_owned(),
        r#"{"type":"response.create""#.to_owned(),
        r#"{"type":7}"#.to_owned(),
        r#"{"type":"response.append","input":[]}"#.to_owned(),
        r#"{"type":"response.inject","response_id":"resp_1","input":[]}"#.to_owned(),
        format!(r#"{{{spaces}"type":"session.update","session":{{}}}}"#),
    ] {
        socket.send_text(&text);
        let turn = socket.turn();
        let [event] = turn.events.as_slice() else {
            panic!("{text}: {:?}", turn.events);
        };
        assert_eq!(
            (&event["type"], &event["status"]),
            (&"error".into(), &400.into()),
            "{text}: {event}"
        );
        assert!(event["error"]["message"].is_string(), "{text}: {event}");
        assert_serves(&mut socket);
    }
    socket.send(&json!({"type": "response.append", "input": []}));
    socket.turn().refused(400, "unknown_event_type");
}

#[test]
fn what_needs_no_answer_gets_none_and_steering_is_declined() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let id = socket.ask(&create("hi")).completed().id();
    socket.send(&json!({"type": "response.processed", "response_id": id}));
    socket.send(&json!({"type": "response.interrupt", "response_id": id, "mode": "discard_partial_items"}));
    assert_eq!(socket.settle(), Vec::<Json>::new());
    socket.send(&json!({"type": "response.steer", "previous_response_id": id, "input": "more"}));
    let event = socket.event();
    assert_eq!(event["type"], "response.steer.failed", "{event}");
    assert!(event.to_string().contains("steering_not_supported"), "{event}");
    assert_serves(&mut socket);
    assert_eq!(provider.count(), 2);
}

/// Defect 21: the end of the provider's answer is not passed on, and the client waits.
#[test]
fn an_answer_that_breaks_off_ends_with_an_event_and_the_socket_stays() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let cut = socket.ask(&create_in("lane", "cut"));
    assert_eq!(cut.last()["type"], "response.failed", "{}", cut.last());
    assert!(
        cut.events.iter().all(|event| event["stream_id"] == "lane"),
        "{:?}",
        cut.events
    );
    assert!(cut.last().to_string().contains("broke"), "{}", cut.last());
    assert_serves(&mut socket);
    let incomplete = socket.ask(&create("incomplete"));
    assert_eq!(
        incomplete.last()["type"],
        "response.incomplete",
        "{}",
        incomplete.last()
    );
    assert_serves(&mut socket);
    let unstreamed = socket.ask(&create("without a stream"));
    assert_eq!(
        (&unstreamed.last()["type"], &unstreamed.last()["status"]),
        (&"error".into(), &502.into())
    );
    assert_serves(&mut socket);
    let outcomes: Vec<Json> = turn_lines(&weir, 6)
        .iter()
        .map(|line| line["outcome"].clone())
        .collect();
    assert_eq!(outcomes[0], "provider_cut", "{outcomes:?}");
    assert_eq!(outcomes[2], "ok", "{outcomes:?}");
}

/// Defect 13: a request that may have been served is sent again, and is served twice.
#[test]
fn a_request_whose_answer_has_begun_is_not_sent_again() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.ask(&create("cut"));
    assert_eq!(socket.settle(), Vec::<Json>::new());
    // Not when the socket ends in the middle of it either.
    socket.send(&create("hi"));
    socket.event();
    drop(socket);
    weir.books(2);
    assert_eq!(provider.count(), 2);
}

/// Defect 23: a provider that says nothing is only noticed by the client, after 300 seconds.
#[test]
fn an_answer_that_stalls_is_ended_by_the_gateway() {
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.idle_seconds", 1)
        .start();
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let stalled = socket.ask(&create("[[sample: deltas=9 stall_after=2]]"));
    assert_eq!(stalled.last()["type"], "response.failed", "{}", stalled.last());
    socket.ask(&create("hi")).completed();
}

#[test]
fn refusals_in_a_lane_name_the_lane() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let mut unknown = create_in("a", "hi");
    unknown["model"] = "no-such-model".into();
    socket.send(&unknown);
    socket.send(&create_in("b", "an error of the client"));
    socket.send(&create("an error of the client"));
    let events = socket.events_to_ends(3);
    for (lane, status, code) in [
        (Some("a"), 404, "model_not_found"),
        (Some("b"), 400, "odd_input"),
        (None, 400, "odd_input"),
    ] {
        Turn::of_lane(&events, lane).refused(status, code);
    }
}
