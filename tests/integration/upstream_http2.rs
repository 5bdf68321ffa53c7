//! Providers over HTTP/2, where the operator wants it and the provider offers it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use h2::Reason;

use crate::harness::certificates::{Authority, Flaw};
use crate::harness::client::Piece;
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::http2_provider::{Http2Provider, Plan, Received};
use crate::harness::provider::Welcome;
use crate::harness::recordings::{events, unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::shapes::assert_refusal;
use crate::harness::{RecordingProvider, Steps, Weir, WeirBuilder, wait_for, wait_until};

/// What of an answer may be on its way to a client that does not read: the window, and what sockets hold.
const ON_ITS_WAY_MAX: usize = 12 << 20;

fn weir(authority: &Authority, base_url: &str) -> WeirBuilder {
    WeirBuilder::new()
        .all_providers(base_url)
        .set("upstream.ca_file", authority.ca_file().to_str().unwrap())
        .set("upstream.http2", true)
}

fn wire(received: &Received) -> Wire {
    wire_of(received.head.uri().path())
}

/// Answers like a provider: whole streams to requests for one, whole objects to others.
fn recorded(received: &Received) -> Plan {
    let wire = wire(received);
    let path = received.head.uri().path();
    if path.contains(":stream") || received.body.starts_with(br#"{"stream":true"#) {
        let open = Steps::default();
        events(wire).iter().for_each(|_| open.permit());
        return Plan::Events(events(wire).iter().map(|event| (*event).to_owned()).collect(), open);
    }
    Plan::Json(unary(wire).to_owned())
}

fn prompt(received: &Received) -> String {
    String::from_utf8_lossy(&received.body).into_owned()
}

#[test]
fn every_protocol_passes_over_http2_as_it_does_over_http_1_1() {
    let authority = Authority::new();
    let provider = Http2Provider::start(&authority.server(Flaw::None), recorded);
    let weir = weir(&authority, &provider.base_url()).start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let request = wire.request(&key, "hi");
        let answer = weir.exchange(&request);
        assert_eq!((answer.status, answer.text().as_str()), (200, unary(wire)), "{wire:?}");
        let over_h2 = h2c::exchange(weir.gateway, &request, EndStream::OnLastFrame, Length::Said);
        assert_eq!(
            (over_h2.status, over_h2.text().as_str()),
            (200, unary(wire)),
            "{wire:?}"
        );
        let streamed = weir.exchange(&wire.streaming(&key, "hi"));
        assert!(streamed.complete, "{wire:?}");
        assert_eq!(streamed.text(), whole_stream(wire), "{wire:?}");
    }
    for received in provider.received() {
        let head = &received.head;
        assert_eq!(head.version(), http::Version::HTTP_2);
        assert_eq!(head.uri().scheme_str(), Some("https"));
        assert!(head.uri().authority().is_some_and(|name| name.host() == "localhost"));
        for name in ["host", "connection", "transfer-encoding", "keep-alive", "upgrade", "te"] {
            assert!(!head.headers().contains_key(name), "{name} in {head:?}");
        }
        assert_eq!(
            head.headers()["content-length"],
            received.body.len().to_string().as_str()
        );
        assert!(
            !format!("{:?}", head.headers()).contains(&key),
            "the client's key went on"
        );
    }
    weir.books(9);
}

#[test]
fn events_arrive_one_by_one() {
    let (authority, steps) = (Authority::new(), Steps::default());
    let gate = steps.clone();
    let provider = Http2Provider::start(&authority.server(Flaw::None), move |received| {
        let all = events(wire(received)).iter().map(|event| (*event).to_owned());
        Plan::Events(all.collect(), gate.clone())
    });
    let weir = weir(&authority, &provider.base_url()).start();
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&weir.key().text, "hi").bytes(Upload::Length));
    let mut head = client.head_to("POST");
    let (mut seen, mut sent) = (Vec::new(), String::new());
    for event in events(Wire::Messages) {
        sent.push_str(event);
        // The provider sends nothing more before this has arrived.
        while seen.len() < sent.len() {
            let Piece::Data(data) = client.piece(&mut head) else {
                panic!("no data after {} bytes", seen.len());
            };
            seen.extend_from_slice(&data);
        }
        assert_eq!(String::from_utf8_lossy(&seen), sent);
        steps.permit();
    }
    assert_eq!(client.piece(&mut head), Piece::End);
}

#[test]
fn a_connection_carries_one_request_at_a_time_and_is_used_again() {
    let authority = Authority::new();
    let provider = Http2Provider::start(&authority.server(Flaw::None), |received| {
        if prompt(received).contains("wait") {
            return Plan::Silence;
        }
        recorded(received)
    });
    let weir = weir(&authority, &provider.base_url()).start();
    let key = weir.key().text;
    let one_after_another = || assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    one_after_another();
    // A connection goes back into the pool a moment after its answer.
    wait_until("a connection is used again", || {
        let before = provider.connections();
        one_after_another();
        provider.connections() == before
    });
    let mut waiting = weir.connect();
    waiting.write(&Wire::Messages.request(&key, "wait").bytes(Upload::Length));
    let held = wait_for("the request that waits", || {
        let all = provider.received();
        let found = all.iter().find(|received| prompt(received).contains("wait"));
        found.map(|received| received.connection)
    });
    one_after_another();
    let last = provider.received().last().map(|received| received.connection);
    assert_ne!(last, Some(held), "two requests ran on one connection");
}

#[test]
fn a_provider_that_does_not_offer_it_is_asked_over_http_1_1() {
    let authority = Authority::new();
    let tls = authority.server(Flaw::None);
    let provider = RecordingProvider::start_with(Some(tls), |_| Welcome::Serve, |_, answer| answer.least());
    let weir = weir(&authority, &provider.base_url()).start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.request(&key, "hi")).status, 200, "{wire:?}");
    }
    assert_eq!(provider.count(), 3);
}

#[test]
fn nobody_is_offered_it_unless_the_operator_wants_it() {
    let authority = Authority::new();
    let provider = Http2Provider::start(&authority.server(Flaw::None), recorded);
    let weir = weir(&authority, &provider.base_url())
        .set("upstream.http2", false)
        .start();
    let answer = weir.exchange(&Wire::Messages.request(&weir.key().text, "hi"));
    // The two have no protocol in common.
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(provider.received().is_empty());
}

#[test]
fn a_large_body_goes_through_windows_that_are_smaller() {
    let authority = Authority::new();
    let provider = Http2Provider::start(&authority.server(Flaw::None), recorded);
    let weir = weir(&authority, &provider.base_url()).start();
    let prompt_bytes = "x".repeat(3 << 20);
    let request = Wire::Messages.request(&weir.key().text, &prompt_bytes);
    assert_eq!(weir.exchange(&request).status, 200);
    assert_eq!(provider.received()[0].body, request.body);
}

#[test]
fn a_client_that_does_not_read_holds_little_of_its_answer() {
    let authority = Authority::new();
    let provider = Http2Provider::start(&authority.server(Flaw::None), |_| Plan::Bytes(64 << 20));
    let weir = weir(&authority, &provider.base_url()).start();
    let mut client = weir.connect();
    client.write(&Wire::Messages.request(&weir.key().text, "hi").bytes(Upload::Length));
    assert_eq!(client.head_to("POST").status, 200);
    // It flows until the window is full, and then no more.
    let mut before = usize::MAX;
    wait_until("the answer stands still", || {
        let now = provider.let_out();
        let stands = now > 0 && now == std::mem::replace(&mut before, now);
        std::thread::yield_now();
        stands && now < ON_ITS_WAY_MAX
    });
    assert!(provider.let_out() < ON_ITS_WAY_MAX, "{} bytes", provider.let_out());
}

#[test]
fn a_stream_that_is_reset_ends_in_an_error_in_band_and_is_charged() {
    let (authority, steps) = (Authority::new(), Steps::default());
    let gate = steps.clone();
    let provider = Http2Provider::start(&authority.server(Flaw::None), move |received| {
        let some = events(wire(received)).iter().take(4).map(|event| (*event).to_owned());
        Plan::EventsThenReset(some.collect(), Reason::INTERNAL_ERROR, gate.clone())
    });
    let weir = weir(&authority, &provider.base_url()).start();
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&weir.key().text, "hi").bytes(Upload::Length));
    let mut head = client.head_to("POST");
    let (mut seen, sent) = (Vec::new(), events(Wire::Messages)[..4].concat());
    while seen.len() < sent.len() {
        let Piece::Data(data) = client.piece(&mut head) else {
            panic!("no data after {} bytes", seen.len());
        };
        seen.extend_from_slice(&data);
    }
    steps.permit();
    let rest = client.rest(head).text();
    assert!(rest.starts_with("event: error"), "{rest}");
    let rows = weir.books(1).rows;
    assert_ne!(rows[0]["cost_nano_usd"], 0, "{rows:?}");
}

#[test]
fn time_limits_hold() {
    let authority = Authority::new();
    let provider = Http2Provider::start(&authority.server(Flaw::None), |received| {
        if prompt(received).contains("never") {
            Plan::Silence
        } else {
            recorded(received)
        }
    });
    let weir = weir(&authority, &provider.base_url())
        .set("upstream.first_byte_unary_seconds", 1)
        .start();
    let key = weir.key().text;
    let answer = weir.exchange(&Wire::Responses.request(&key, "never"));
    assert_refusal(Wire::Responses, &answer, 504, "provider_timeout");
    // The next request meets no dead connection.
    assert_eq!(weir.exchange(&Wire::Responses.request(&key, "hi")).status, 200);
}

#[test]
fn what_a_provider_has_not_begun_is_asked_again() {
    let authority = Authority::new();
    let ended = Arc::new(AtomicUsize::new(0));
    let (count, served) = (Arc::clone(&ended), Mutex::new(HashSet::new()));
    // What is not the first request of its connection meets its end.
    let provider = Http2Provider::start(&authority.server(Flaw::None), move |received| {
        let is_used = !served.lock().unwrap().insert(received.connection);
        let marks = [
            ("refused", Plan::Reset(Reason::REFUSED_STREAM)),
            ("goaway", Plan::GoAway),
        ];
        let met = marks
            .into_iter()
            .find(|(mark, _)| is_used && prompt(received).contains(mark));
        met.map_or_else(
            || recorded(received),
            |(_, plan)| {
                count.fetch_add(1, Ordering::SeqCst);
                plan
            },
        )
    });
    let weir = weir(&authority, &provider.base_url()).start();
    let key = weir.key().text;
    for mark in ["refused", "goaway"] {
        wait_until("a request meets the end of a pooled connection", || {
            let before = ended.load(Ordering::SeqCst);
            assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
            let answer = weir.exchange(&Wire::Messages.request(&key, mark));
            assert_eq!(answer.status, 200, "{mark}: {}", answer.text());
            ended.load(Ordering::SeqCst) != before
        });
    }
}

#[test]
fn work_that_a_provider_has_begun_is_not_done_twice() {
    let authority = Authority::new();
    let provider = Http2Provider::start(&authority.server(Flaw::None), |received| {
        match prompt(received).contains("break") {
            true => Plan::Reset(Reason::INTERNAL_ERROR),
            false => recorded(received),
        }
    });
    let weir = weir(&authority, &provider.base_url()).start();
    let key = weir.key().text;
    for _ in 0..3 {
        assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
        let before = provider.received().len();
        let answer = weir.exchange(&Wire::Messages.request(&key, "break"));
        assert_refusal(Wire::Messages, &answer, 502, "api_error");
        assert_eq!(provider.received().len(), before + 1);
    }
}

#[test]
fn a_provider_that_wants_a_request_over_http_1_1_gets_it_so() {
    let authority = Authority::new();
    let both = ["h2", "http/1.1"];
    let provider = Http2Provider::offering(&both, &authority.server(Flaw::None), |received| {
        match received.head.version() {
            http::Version::HTTP_2 => Plan::Reset(Reason::HTTP_1_1_REQUIRED),
            _ => recorded(received),
        }
    });
    let weir = weir(&authority, &provider.base_url()).start();
    let key = weir.key().text;
    let request = Wire::Messages.request(&key, "hi");
    let answer = weir.exchange(&request);
    assert_eq!((answer.status, answer.text().as_str()), (200, unary(Wire::Messages)));
    let versions: Vec<_> = provider
        .received()
        .iter()
        .map(|received| received.head.version())
        .collect();
    assert_eq!(versions, [http::Version::HTTP_2, http::Version::HTTP_11]);
    assert!(provider.received().iter().all(|received| received.body == request.body));
}

#[test]
fn a_client_that_leaves_ends_the_stream_at_the_provider() {
    let (authority, steps) = (Authority::new(), Steps::default());
    let gate = steps.clone();
    let provider = Http2Provider::start(&authority.server(Flaw::None), move |received| {
        let first = events(wire(received))[0].to_owned();
        Plan::Events(vec![first; 64], gate.clone())
    });
    let weir: Weir = weir(&authority, &provider.base_url()).start();
    let mut client = weir.connect();
    client.write(&Wire::Responses.streaming(&weir.key().text, "hi").bytes(Upload::Length));
    let mut head = client.head_to("POST");
    assert!(matches!(client.piece(&mut head), Piece::Data(_)));
    drop(client);
    wait_until("the request has ended", || {
        steps.permit();
        weir.metrics().lines().any(|line| {
            line.starts_with("weir_requests_total") && line.contains("client_gone") && !line.ends_with(" 0")
        })
    });
}
