//! Handshakes: what opens a socket, and what a client is told that gets none.

use std::net::TcpStream;

use serde_json::json;

use super::stage::{assert_post_instead, create, provider, refusal, turn_lines, words};
use crate::harness::certificates::{Authority, Kind, Offer};
use crate::harness::request::{Request, Upload, Wire};
use crate::harness::shapes::{assert_refusal, assert_unauthorized};
use crate::harness::websocket::{PATH, TEXT, WebSocket, frame, handshake};
use crate::harness::{Client, Steps, Weir, WeirBuilder, https, wait_for, wait_until};

/// The same handshake with this field instead of its own.
fn with_field(handshake: &Request, name: &str, value: &str) -> Request {
    without_field(handshake, name).header(name, value)
}

fn without_field(handshake: &Request, name: &str) -> Request {
    let mut changed = handshake.clone();
    changed.headers.retain(|(found, _)| found != name);
    changed
}

#[test]
fn a_handshake_opens_a_socket_and_has_a_line_that_names_the_socket_of_its_turns() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key();
    let mut socket = WebSocket::open(weir.gateway, &key.text);
    let id = socket.headers.iter().find(|(name, _)| name == "x-weir-request-id");
    let id = id.map(|(_, value)| value.clone());
    assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
    assert_eq!(socket.ask(&create("ho")).completed().text(), words("ho"));
    let turns = turn_lines(&weir, 2);
    drop(socket);
    let opened = wait_for("the line of the handshake", || {
        let mut lines = weir.access_lines().into_iter();
        lines.find(|line| line["operation"] == "socket")
    });
    assert_eq!(
        (&opened["status"], &opened["key_id"]),
        (&101.into(), &key.id.as_str().into())
    );
    assert!(
        opened["socket_id"].as_str().is_some_and(|id| !id.is_empty()),
        "{opened}"
    );
    assert_eq!(opened["request_id"].as_str(), id.as_deref(), "{opened}");
    for turn in &turns {
        assert_eq!(turn["socket_id"], opened["socket_id"], "{turn}");
        assert_eq!(turn["key_id"], key.id.as_str(), "{turn}");
        assert_ne!(turn["request_id"], opened["request_id"], "{turn}");
    }
    assert_ne!(turns[0]["request_id"], turns[1]["request_id"]);
}

#[test]
fn frames_that_come_with_the_handshake_are_served() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    let mut bytes = handshake(&key).head_bytes(Upload::Length);
    bytes.extend(frame(TEXT, create("hi").to_string().as_bytes()));
    bytes.extend(frame(TEXT, create("ho").to_string().as_bytes()));
    client.write(&bytes);
    let mut socket = WebSocket::accepted(client).unwrap();
    assert_eq!(socket.turn().completed().text(), words("hi"));
    assert_eq!(socket.turn().completed().text(), words("ho"));
}

#[test]
fn a_socket_is_opened_on_a_connection_that_has_served_requests() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    assert_eq!(client.exchange(&Wire::Responses.request(&key, "hi")).status, 200);
    let mut socket = WebSocket::try_open(client, &handshake(&key)).unwrap();
    assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
}

#[test]
fn a_socket_is_served_over_tls() {
    let authority = Authority::new();
    let provider = provider(&Steps::default());
    let certificate = authority.files("one", &["api.test"], Kind::Ecdsa).setting();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.tls.certificate", vec![certificate])
        .start();
    let key = weir.key().text;
    let tls = authority.client(Offer::default());
    let client = https::connect(&tls, "api.test", weir.gateway).unwrap().client;
    let mut socket = WebSocket::try_open(client, &handshake(&key)).unwrap();
    for prompt in ["hi", "ho"] {
        assert_eq!(socket.ask(&create(prompt)).completed().text(), words(prompt));
    }
}

/// Defects 15 and 19: any status but 426 strands Codex in retries, or makes it give up, although a POST would be served.
#[test]
fn a_handshake_is_answered_with_426_wherever_a_post_is_served() {
    let provider = provider(&Steps::default());
    let off = WeirBuilder::new().set("sockets.enabled", false);
    let off = off.all_providers(&provider.base_url()).start();
    let key = off.key().text;
    assert_post_instead(&off, &key, &handshake(&key));

    let few = WeirBuilder::new().set("sockets.per_key_max", 1);
    let few = few.all_providers(&provider.base_url()).start();
    let key = few.key().text;
    let old = with_field(&handshake(&key), "sec-websocket-version", "8");
    assert_post_instead(&few, &key, &old);
    assert_eq!(refusal(&few, &old).header("sec-websocket-version"), Some("13"));
    let _only = WebSocket::open(few.gateway, &key);
    assert_post_instead(&few, &key, &handshake(&key));
}

/// Codex tries seven times after a 405.
#[test]
fn a_handshake_whose_upgrade_a_proxy_has_removed_is_answered_with_426_and_names_the_proxy() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let cut = without_field(&without_field(&handshake(&key), "upgrade"), "connection");
    assert_post_instead(&weir, &key, &cut);
    let answer = refusal(&weir, &cut);
    assert!(
        answer.text().contains("a proxy removed the upgrade header"),
        "{}",
        answer.text()
    );
    assert_eq!(answer.header("sec-websocket-version"), Some("13"));
}

#[test]
fn a_key_has_so_many_sockets_at_one_time_and_another_key_is_not_concerned() {
    let provider = provider(&Steps::default());
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("sockets.per_key_max", 2)
        .start();
    let (key, other) = (weir.key().text, weir.key().text);
    let mut sockets: Vec<WebSocket> = (0..2).map(|_| WebSocket::open(weir.gateway, &key)).collect();
    assert_post_instead(&weir, &key, &handshake(&key));
    sockets.push(WebSocket::open(weir.gateway, &other));
    assert_eq!(weir.figure("weir_sockets_open"), 3);
    drop(sockets.remove(0));
    let mut again = wait_for("room for another socket", || {
        WebSocket::try_open(weir.connect(), &handshake(&key)).ok()
    });
    assert_eq!(again.ask(&create("hi")).completed().text(), words("hi"));
    drop((sockets, again));
    wait_until("all sockets to be closed", || weir.figure("weir_sockets_open") == 0);
}

#[test]
fn a_key_that_no_post_is_served_with_gets_no_socket_either() {
    let weir = Weir::start("http://127.0.0.1:9");
    let revoked = weir.key();
    weir.cli_json(&["key", "revoke", &revoked.id]);
    let mut unknown = weir.key().text;
    let other = if unknown.ends_with('a') { 'b' } else { 'a' };
    unknown.pop();
    unknown.push(other);
    for key in ["nonsense", &unknown, &revoked.text] {
        wait_until("the key to be refused", || {
            weir.exchange(&Wire::Responses.request(key, "hi")).status == 401
        });
        let post = weir.exchange(&Wire::Responses.request(key, "hi"));
        let refused = refusal(&weir, &handshake(key));
        assert_unauthorized(Wire::Responses, &refused);
        assert_eq!(refused.json(), post.json(), "the words of a POST");
    }
    let nameless = without_field(&handshake("none"), "authorization");
    assert_unauthorized(Wire::Responses, &refusal(&weir, &nameless));
}

#[test]
fn a_handshake_that_is_none_opens_nothing_and_a_post_is_served() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let whole = handshake(&key);
    let nonce = "sec-websocket-key";
    let mut odd = vec![
        without_field(&whole, nonce),
        with_field(&whole, nonce, "c2hvcnQ="),
        with_field(&whole, nonce, "not base64 at all!!!!!!!"),
        whole.clone().header(nonce, "dGhlIHNhbXBsZSBub25jZQ=="),
        without_field(&whole, "connection"),
        without_field(&whole, "sec-websocket-version"),
    ];
    odd.push(whole.clone().header("content-length", "2"));
    for request in odd {
        let mut client = weir.connect();
        client.write(&request.head_bytes(Upload::Length));
        client.write(b"{}");
        let answer = client.head_to("GET");
        assert!(
            matches!(answer.status, 400 | 426),
            "{:?}: {}",
            request.headers,
            answer.text
        );
        let post = weir.exchange(&Wire::Responses.request(&key, "hi"));
        assert_eq!(post.status, 200);
    }
    let mut old = Client::over(TcpStream::connect(weir.gateway).unwrap());
    let head = String::from_utf8(whole.head_bytes(Upload::Length)).unwrap();
    old.write(head.replacen("HTTP/1.1", "HTTP/1.0", 1).as_bytes());
    assert_ne!(old.head_to("GET").status, 101);
}

#[test]
fn only_responses_are_served_over_sockets() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key().text;
    let mut elsewhere = handshake(&key);
    elsewhere.target = "/v1/messages".to_owned();
    assert_eq!(refusal(&weir, &elsewhere).status, 405);
    let mut plain = without_field(&handshake(&key), "upgrade");
    plain.headers.retain(|(name, _)| !name.starts_with("sec-websocket-"));
    assert_refusal(Wire::Responses, &refusal(&weir, &plain), 405, "method_not_allowed");
    let mut post = handshake(&key);
    post.method = "POST".to_owned();
    post.target = PATH.to_owned();
    let post = post.json(&json!({"model": "no-such-model", "input": "hi"}).to_string());
    assert_refusal(Wire::Responses, &weir.exchange(&post), 404, "model_not_found");
}
