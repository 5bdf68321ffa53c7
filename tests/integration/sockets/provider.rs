//! Requests on a socket that go to their provider over a WebSocket: what the provider gets, and when it gets a POST instead. The tests
//! of known defects of other gateways say which defect in their comments.

use std::sync::Arc;

use serde_json::Value as Json;

use super::provider_stage::{
    Conversation, FRAME_BYTES_MAX, answer_to, asked_with, odd_input, script, socket_provider, wait_lines_closed,
    weir_over,
};
use super::stage::{create, words};
use crate::harness::certificates::{Authority, Flaw};
use crate::harness::provider::Recorded;
use crate::harness::request::Wire;
use crate::harness::rules::RuleFolder;
use crate::harness::socket_provider::{Act, SocketProvider, Way};
use crate::harness::websocket::{Turn, WebSocket, handshake};
use crate::harness::weir::PROVIDER_KEY;
use crate::harness::{Request, Steps, Weir, WeirBuilder};

/// A streaming POST with the members of a frame.
fn post_of(frame: &Json, key: &str) -> Request {
    let mut body = frame.clone();
    body.as_object_mut().unwrap().shift_remove("type");
    body["stream"] = true.into();
    Wire::Responses.request(key, "hi").body(body.to_string().as_bytes())
}

/// The number of requests on WebSockets to providers.
fn line_turns(weir: &Weir) -> i64 {
    weir.figure("weir_provider_socket_turns_total")
}

#[test]
fn requests_on_a_socket_go_over_one_websocket_and_have_the_members_of_posts() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let key = weir.key().text;
    let mut frame = create("hi");
    frame["metadata"] = serde_json::json!({"type": "kept", "stream": "kept"});
    assert_eq!(weir.exchange(&post_of(&frame, &key)).status, 200);
    let mut socket = WebSocket::open(weir.gateway, &key);
    let mut marked = frame.clone();
    marked["stream"] = true.into();
    marked["generate"] = true.into();
    marked["background"] = false.into();
    let mut in_lane = frame.clone();
    in_lane["stream_id"] = "lane".into();
    let turns = [&frame, &marked, &in_lane].map(|frame| socket.ask(frame).completed());
    let asked = provider.asked();
    assert_eq!(
        provider.ways(),
        [Way::Post, Way::Line(0), Way::Line(0), Way::Line(1)],
        "a POST goes by POST, and a lane has a WebSocket of its own"
    );
    let mut by_post = asked[0].body.clone();
    by_post.as_object_mut().unwrap().shift_remove("stream");
    for (asked, turn) in asked[1..].iter().zip(&turns) {
        let mut body = asked.body.clone();
        assert_eq!(
            body.as_object_mut().unwrap().shift_remove("type"),
            Some("response.create".into())
        );
        assert_eq!(body, by_post);
        let is_event = |act: Act| match act {
            Act::Event(event) => Some(event),
            _ => None,
        };
        let mut events: Vec<Json> = script(asked).into_iter().filter_map(is_event).collect();
        if turn.last()["stream_id"] == "lane" {
            events.iter_mut().for_each(|event| event["stream_id"] = "lane".into());
        }
        assert_eq!(turn.events, events);
    }
    assert_eq!(turns[2].last()["stream_id"], "lane");
    assert_eq!(weir.figure("weir_provider_sockets_open"), 2);
    assert_eq!(line_turns(&weir), 3);
    assert!(provider.other_frames().is_empty(), "{:?}", provider.other_frames());
    weir.books(4);
}

/// Defect 16: fields of the client's handshake are copied into that to the provider.
#[test]
fn a_handshake_has_the_credential_of_the_gateway_and_nothing_of_the_client() {
    const NONCE_OF_CLIENT: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    let provider = socket_provider(&Steps::default());
    let rules = RuleFolder::over_websocket_with("", "set = { x-of-the-file = \"1\" }");
    let weir = rules.into_weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    let of_client = [
        ("cookie", "session=1"),
        ("accept", "text/html"),
        ("openai-beta", "responses_websockets=2026-02-06"),
        ("session-id", "0b7c-4"),
        ("originator", "codex_exec"),
        ("x-weir-tag", "project=blue"),
        ("x-forwarded-for", "192.0.2.7"),
    ];
    let add = |request: Request, (name, value): (&str, &str)| request.header(name, value);
    let opening = of_client.into_iter().fold(handshake(&key), add);
    let opening = opening.header("user-agent", "codex_exec/0.169.0");
    let mut socket = WebSocket::open_with(weir.gateway, &opening);
    socket.ask(&create("hi")).completed();
    let handshakes = provider.handshakes();
    let [head] = handshakes.as_slice() else {
        panic!("{handshakes:?}");
    };
    let text = String::from_utf8_lossy(&head.head).into_owned();
    assert!(text.starts_with("GET /v1/responses HTTP/1.1\r\n"), "{text}");
    let (host, credential) = (provider.http().address().to_string(), format!("Bearer {PROVIDER_KEY}"));
    for (name, value) in [
        ("host", host.as_str()),
        ("authorization", credential.as_str()),
        ("sec-websocket-version", "13"),
        ("x-of-the-file", "1"),
    ] {
        assert_eq!(head.header_values(name), [value], "{name}");
    }
    for (name, value) in [("upgrade", "websocket"), ("connection", "upgrade")] {
        let values = head.header_values(name);
        assert!(values.len() == 1 && values[0].eq_ignore_ascii_case(value), "{text}");
    }
    assert_ne!(head.header("sec-websocket-key"), Some(NONCE_OF_CLIENT));
    let names = of_client.map(|(name, _)| name);
    let of_other_requests = [
        "content-length",
        "content-type",
        "transfer-encoding",
        "sec-websocket-extensions",
        "sec-websocket-protocol",
    ];
    for name in names.into_iter().chain(of_other_requests) {
        assert_eq!(head.header(name), None, "{text}");
    }
    assert!(
        !text.contains(&key) && !text.contains("codex") && !text.contains("weir.test"),
        "{text}"
    );
}

/// Defect 13: a request that may have been served is sent again.
#[test]
fn a_request_whose_websocket_breaks_behind_it_is_not_sent_again() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let key = weir.key().text;
    for prompt in [
        "close 1011 first",
        "cut first",
        "close 1011 in the middle",
        "cut in the middle",
    ] {
        let mut socket = WebSocket::open(weir.gateway, &key);
        // Once on a new WebSocket, and once on one that has served.
        for number in 0..2 {
            if number == 1 {
                socket.ask(&create("hi")).completed();
            }
            let prompt = format!("{prompt} {number}");
            let broken = socket.ask(&create(&prompt));
            let end = broken.last();
            let is_refused = end["type"] == "error" && end["status"].as_u64() >= Some(500);
            assert!(is_refused || end["type"] == "response.failed", "{prompt}: {end}");
            assert_eq!(socket.settle(), Vec::<Json>::new(), "{prompt}");
            assert_eq!(
                socket.ask(&create("well?")).completed().text(),
                words("well?"),
                "{prompt}"
            );
            assert_eq!(asked_with(&provider, &prompt).len(), 1, "{prompt}");
        }
        drop(socket);
        wait_lines_closed(&weir, &provider);
    }
}

/// Defect 15: the client is stranded when the provider's WebSocket is not served, although its POST is.
#[test]
fn a_provider_that_refuses_the_handshake_gets_posts_and_is_not_asked_again() {
    for (status, why) in [
        (426, "upgrade_required"),
        (404, "not_served"),
        (405, "not_served"),
        (503, "failed"),
    ] {
        let provider = SocketProvider::refusing(status, &Steps::default(), script);
        let weir = weir_over(&provider);
        let key = weir.key().text;
        let mut sockets = [(); 2].map(|()| WebSocket::open(weir.gateway, &key));
        for socket in &mut sockets {
            let mut conversation = Conversation::default();
            for prompt in ["one", "two", "three"] {
                assert_eq!(conversation.say(socket, &provider, prompt).way, Way::Post, "{status}");
            }
        }
        assert_eq!(provider.handshakes().len(), 1, "{status}");
        let line = format!("weir_provider_socket_handshakes_refused_total{{why=\"{why}\"}} 1\n");
        assert!(weir.metrics().contains(&line), "{line}");
        let books = weir.books(6);
        assert!(
            books
                .rows
                .iter()
                .all(|row| row["outcome"] == "ok" && row["status"] == 200)
        );
    }
}

/// The answers of two gateways to a request on a socket: of one that goes to the provider over WebSocket, and of one that does not.
#[track_caller]
fn both_ways(provider: &SocketProvider, prompt: &str) -> [Turn; 2] {
    let weirs = [weir_over(provider), Weir::start(&provider.base_url())];
    [("over websocket", &weirs[0]), ("by post", &weirs[1])].map(|(way, weir)| {
        let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
        let turn = socket.ask(&create(&format!("{prompt} {way}")));
        // It stays open for what comes later.
        assert_eq!(socket.settle(), Vec::<Json>::new());
        turn
    })
}

#[test]
fn a_credential_that_the_provider_refuses_or_limits_at_the_handshake_is_answered_as_by_post() {
    for status in [401, 403, 429] {
        let provider = SocketProvider::start_with(None, &Steps::default(), move |_| Some(status), script);
        let [over_websocket, by_post] = both_ways(&provider, "hi");
        assert_eq!(provider.handshakes().len(), 1, "{status}");
        for name in ["type", "status", "error"] {
            assert_eq!(over_websocket.last()[name], by_post.last()[name], "{status}: {name}");
        }
        assert!(by_post.last()["status"].as_u64() >= Some(400), "{}", by_post.last());
    }
}

#[test]
fn the_next_credential_takes_the_place_of_one_that_is_refused_at_the_handshake() {
    let is_refused = |credential: Option<&str>| credential == Some("Bearer secret-a-in-full");
    let door = move |head: &Recorded| is_refused(head.header("authorization")).then_some(401);
    let provider = SocketProvider::start_with(None, &Steps::default(), door, script);
    let text = format!(
        r#"
name = "two"
[auth]
style = "bearer"
[[credential]]
name = "a"
secret = "env:SECRET_A"
[[credential]]
name = "b"
secret = "env:SECRET_B"
[endpoints.responses]
url = "{}/v1/responses"
websocket = true
[[model]]
name = "two-model"
free = true
"#,
        provider.base_url()
    );
    let rules = RuleFolder::new(&[("two", &text)]);
    let weir = rules.weir().variable("SECRET_A", "secret-a-in-full");
    let weir = weir.variable("SECRET_B", "secret-b-in-full").start();
    let key = weir.key().text;
    for number in 0..10 {
        let mut socket = WebSocket::open(weir.gateway, &key);
        let mut frame = create(&format!("request {number}"));
        frame["model"] = "two-model".into();
        socket.ask(&frame).completed();
    }
    let asked = provider.asked();
    assert_eq!(asked.len(), 10);
    assert!(
        asked.iter().all(|asked| asked.credential == "Bearer secret-b-in-full"),
        "{asked:?}"
    );
}

#[test]
fn an_error_frame_is_the_refusal_that_the_same_error_is_by_post() {
    let provider = socket_provider(&Steps::default());
    let [over_websocket, by_post] = both_ways(&provider, "odd input");
    let event = over_websocket.refused(400, "odd_input");
    assert_eq!(event["error"], odd_input());
    assert_eq!(event["error"], by_post.last()["error"]);
    let [over_websocket, by_post] = both_ways(&provider, "a failure first");
    assert_eq!(over_websocket.last()["status"], by_post.last()["status"]);
    assert_eq!(over_websocket.last()["error"], by_post.last()["error"]);
    // It is sent again as often as a POST is.
    let times = |way: &str| asked_with(&provider, &format!("a failure first {way}")).len();
    assert_eq!(times("over websocket"), times("by post"));
    let lines = asked_with(&provider, "a failure first over websocket");
    assert!(lines.iter().all(|asked| asked.way != Way::Post), "{lines:?}");
}

/// Defect 20: a message that is too large for the provider's WebSocket fails, although a POST would be served.
#[test]
fn a_large_body_goes_by_post() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let of_bytes = |bytes: usize| "x".repeat(bytes - create("").to_string().len());
    for (prompt, is_post) in [
        ("small".to_owned(), false),
        (of_bytes(FRAME_BYTES_MAX - 1024), false),
        (of_bytes(FRAME_BYTES_MAX + 1024), true),
        ("small again".to_owned(), false),
    ] {
        assert_eq!(socket.ask(&create(&prompt)).completed().text(), answer_to(&prompt));
        let asked = asked_with(&provider, &prompt);
        assert_eq!(asked.len(), 1);
        let bytes = prompt.len();
        assert_eq!(asked[0].way == Way::Post, is_post, "{bytes} bytes");
    }
    assert_eq!(provider.handshakes().len(), 1);
}

/// A provider with TLS, and a gateway that trusts an authority and offers HTTP/2 where it can.
fn over_tls(trusted: &Authority, provider: &SocketProvider) -> WeirBuilder {
    RuleFolder::over_websocket()
        .into_weir_at(&provider.base_url())
        .set("upstream.ca_file", trusted.ca_file().to_str().unwrap())
        .set("upstream.http2", true)
}

#[test]
fn a_websocket_to_a_provider_with_tls_is_verified_and_speaks_http_1_1() {
    let authority = Authority::new();
    let mut tls = (*authority.server(Flaw::None)).clone();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let provider = SocketProvider::start_with(Some(Arc::new(tls)), &Steps::default(), |_| None, script);
    let weir = over_tls(&authority, &provider).start();
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    let mut conversation = Conversation::default();
    for prompt in ["one", "two", "three"] {
        assert_eq!(conversation.say(&mut socket, &provider, prompt).way, Way::Line(0));
    }
    let host = format!("localhost:{}", provider.http().address().port());
    assert_eq!(provider.handshakes()[0].header_values("host"), [host.as_str()]);
}

#[test]
fn a_provider_whose_certificate_is_refused_gets_no_handshake() {
    for flaw in [Flaw::WrongName, Flaw::Expired, Flaw::SelfSigned] {
        let authority = Authority::new();
        let tls = authority.server(flaw);
        let provider = SocketProvider::start_with(Some(tls), &Steps::default(), |_| None, script);
        let weir = over_tls(&authority, &provider).start();
        let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
        let turn = socket.ask(&create("hi"));
        assert_eq!(turn.last()["status"], 503, "{flaw:?}: {}", turn.last());
        assert!(provider.http().connections() > 0, "{flaw:?}: it was never tried");
        assert_eq!(provider.http().plain_bytes(), b"", "{flaw:?}");
    }
}
