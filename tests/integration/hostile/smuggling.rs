//! Requests that two parsers may read differently (`tests/hostile/smuggling.toml`), over real sockets: none is passed on.

use std::collections::BTreeMap;

use super::{closed, report};
use crate::harness::provider::Recorded;
use crate::harness::request::{Upload, Wire};
use crate::harness::shapes::in_band_error;
use crate::harness::wait::DEADLINE;
use crate::harness::{RecordingProvider, Request, Weir};

#[path = "../../hostile/cases.rs"]
mod cases;

const HIDDEN: &str = "GET /v1/hidden HTTP/1.1\r\nhost: hidden\r\n\r\n";

/// The bytes of every case, for fuzzing.
pub(crate) fn requests() -> Vec<Vec<u8>> {
    let parts = cases::Parts {
        key: "k",
        body: "{}",
        next: HIDDEN,
    };
    cases::all(&parts).into_iter().map(|case| case.bytes).collect()
}

/// The provider sees requests that are whole and in weir's own form, or the test fails.
#[track_caller]
fn assert_strict(request: &Recorded, body: &str) {
    assert_eq!(
        (request.method.as_str(), request.target.split('?').next()),
        ("POST", Some("/v1/messages"))
    );
    assert_eq!(request.header_values("content-length"), [body.len().to_string()]);
    assert!(request.header("transfer-encoding").is_none() && request.header_values("host").len() == 1);
    assert_eq!(String::from_utf8_lossy(&request.body), body);
}

#[test]
fn no_request_that_could_be_two_is_passed_on() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let body = String::from_utf8(Wire::Messages.request(&key, "hi").body).unwrap();
    let parts = cases::Parts {
        key: &key,
        body: &body,
        next: HIDDEN,
    };
    let hello = Request::new("HEAD", "/").bytes(Upload::Length);
    let (mut refused, mut served) = (0, 0);
    let mut forms: BTreeMap<String, (usize, u16)> = BTreeMap::new();
    for case in cases::all(&parts) {
        // As the first request of its connection, and behind another one.
        for before in [&b""[..], &hello] {
            let mut client = weir.connect();
            client.write(before);
            if !before.is_empty() {
                assert_eq!(client.response_to("HEAD").status, 200, "{}", case.name);
            }
            client.write(&case.bytes);
            let answer = client.response_to("POST");
            assert_eq!(
                answer.status,
                case.refused.unwrap_or(200),
                "{}: {}",
                case.name,
                answer.text()
            );
            let form = case.name.split(": ").next().unwrap().to_owned();
            forms.entry(form).or_insert((0, answer.status)).0 += 1;
            if case.refused.is_none() {
                served += 1;
                continue;
            }
            refused += 1;
            assert_eq!(answer.header("connection"), Some("close"), "{}", case.name);
            assert!(answer.json().is_object(), "{}", case.name);
            assert!(client.closed_within(DEADLINE), "{}: more was answered", case.name);
        }
    }
    assert!(refused >= 800, "{refused} only");
    assert_eq!(provider.count(), served);
    provider
        .requests()
        .iter()
        .for_each(|request| assert_strict(request, &body));
    for (form, (count, status)) in forms {
        let what = if status == 200 {
            "served, passed on once"
        } else {
            "closed, nothing passed on"
        };
        report::came("smuggling", &form, count, &format!("{status}, {what}"));
    }
    assert!(closed(&weir, "gateway", "content_length_invalid") > 0 && closed(&weir, "gateway", "two_lengths") > 0);
}

#[test]
fn what_is_refused_is_refused_in_the_form_of_its_path() {
    let weir = Weir::start("http://127.0.0.1:9");
    for (path, place) in [
        ("/v1/messages", "/error/type"),
        ("/v1/responses", "/error/code"),
        ("/v1beta/models/m:generateContent", "/error/status"),
    ] {
        let mut client = weir.connect();
        client.write(format!("POST {path} HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n").as_bytes());
        let answer = client.response_to("POST");
        assert!(
            answer.status == 400 && answer.json().pointer(place).is_some(),
            "{path}: {}",
            answer.text()
        );
    }
}

/// Requests that a client sends without waiting are answered one after the other, each head checked.
#[test]
fn requests_sent_at_once_are_answered_in_turn() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for upload in [Upload::Length, Upload::Chunked(100)] {
        let mut all = Vec::new();
        for wire in [Wire::Messages, Wire::Responses] {
            all.extend(wire.request(&key, "hi").bytes(upload));
        }
        all.extend(Wire::Messages.streaming(&key, "hi").bytes(upload));
        all.extend_from_slice(b"GET /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n");
        let mut client = weir.connect();
        client.write(&all);
        for (method, status) in [("POST", 200), ("POST", 200), ("POST", 200), ("GET", 400)] {
            let answer = client.response_to(method);
            assert_eq!(answer.status, status, "{upload:?}: {}", answer.text());
            assert!(answer.complete && in_band_error(Wire::Messages, &answer.text()).is_none());
        }
        assert!(client.closed_within(DEADLINE));
    }
    assert_eq!(provider.count(), 6);
}
