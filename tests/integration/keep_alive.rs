//! A client with a pool of connections: what is said to be kept is kept, whatever became of the request before.

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::answer::Answer;
use crate::harness::client::Response;
use crate::harness::provider::Recorded;
use crate::harness::recordings::{events, unary};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::shapes::in_band_error;
use crate::harness::tools::rounds;
use crate::harness::{Client, RecordingProvider, Request, Weir, WeirBuilder, wait_until};

/// How long a provider of these tests may be silent, in seconds.
const PATIENCE_SECONDS: u32 = 1;

/// One connection, used for as long as its answers allow.
struct Pool {
    gateway: SocketAddr,
    idle: Option<Client>,
    /// Requests that went over a connection that had carried another one.
    reused: usize,
}

impl Pool {
    fn new(weir: &Weir) -> Pool {
        Pool {
            gateway: weir.gateway,
            idle: None,
            reused: 0,
        }
    }

    /// Asks as a pooling client does: over the connection it has, which it trusts.
    #[track_caller]
    fn ask(&mut self, what: &str, request: &Request) -> Response {
        self.reused += usize::from(self.idle.is_some());
        let mut client = self.idle.take().unwrap_or_else(|| Client::connect(self.gateway));
        client.write(&request.bytes(Upload::Length));
        let Some(head) = client.try_head_to(&request.method) else {
            panic!("{what}: a request was lost: the connection had been said to be kept");
        };
        let answer = client.rest(head);
        if answer.complete && answer.header("connection") != Some("close") {
            self.idle = Some(client);
        }
        answer
    }
}

/// Fails as the prompt says.
fn as_asked(request: &Recorded, answer: &mut Answer<'_>) {
    let wire = wire_of(&request.target);
    let text = String::from_utf8_lossy(&request.body).into_owned();
    let asks = |word: &str| text.contains(word);
    if asks("close-unanswered") {
        return answer.cut();
    }
    if asks("stay-silent") {
        answer.wait_peer_left(Duration::from_secs(60));
        return;
    }
    if asks("status-500") {
        return answer.full(
            500,
            &[("content-type", "application/json")],
            b"{\"error\":{\"message\":\"m\"}}",
        );
    }
    if asks("refuse-credential") {
        return answer.full(
            401,
            &[("content-type", "application/json")],
            b"{\"error\":{\"message\":\"m\"}}",
        );
    }
    if !(request.target.contains(":stream") || text.starts_with(r#"{"stream":true"#)) {
        return answer.json(unary(wire));
    }
    let all = events(wire);
    let sent = if asks("break-behind-the-end") { all.len() } else { 2 };
    answer.sse();
    if asks("break-in-the-middle") || asks("end-in-the-middle") || asks("stall-in-the-middle") || sent == all.len() {
        all[..sent].iter().for_each(|event| answer.chunk(event));
        match () {
            () if asks("end-in-the-middle") => answer.end(),
            () if asks("stall-in-the-middle") => {
                answer.wait_peer_left(Duration::from_secs(60));
            }
            () => answer.cut(),
        }
        return;
    }
    all.iter().for_each(|event| answer.chunk(event));
    answer.end();
}

fn impatient(base_url: &str) -> Weir {
    WeirBuilder::new()
        .all_providers(base_url)
        .set("upstream.first_byte_seconds", i64::from(PATIENCE_SECONDS))
        .set("upstream.first_byte_unary_seconds", i64::from(PATIENCE_SECONDS))
        .set("upstream.idle_seconds", i64::from(PATIENCE_SECONDS))
        .start()
}

/// After every failure that has an answer the next request of the same pool is served.
#[track_caller]
fn none_lost(pool: &mut Pool, wire: Wire, key: &str, failures: &[(&str, Option<u16>)]) {
    for (failure, status) in failures {
        let what = format!("{wire:?}, {failure}");
        let failed = match status {
            Some(_) => pool.ask(&what, &wire.request(key, failure)),
            None => pool.ask(&what, &wire.streaming(key, failure)),
        };
        assert!(failed.complete, "{what}");
        match status {
            Some(status) => assert_eq!(failed.status, *status, "{what}: {}", failed.text()),
            None if *failure == "break-behind-the-end" => {
                assert!(
                    in_band_error(wire, &failed.text()).is_none(),
                    "{what}: {}",
                    failed.text()
                );
            }
            None => assert!(
                in_band_error(wire, &failed.text()).is_some(),
                "{what}: {}",
                failed.text()
            ),
        }
        let next = pool.ask(&what, &wire.request(key, "hi"));
        assert_eq!(next.status, 200, "after {what}: {}", next.text());
    }
}

#[test]
fn a_pooling_client_loses_no_request_after_failures() {
    let provider = RecordingProvider::start(as_asked);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut pool = Pool::new(&weir);
    let failures = [
        ("close-unanswered", Some(502)),
        ("break-in-the-middle", None),
        ("end-in-the-middle", None),
        ("break-behind-the-end", None),
    ];
    let rounds = rounds(3, 30);
    for _ in 0..rounds {
        for wire in ALL_WIRES {
            none_lost(&mut pool, wire, &key, &failures);
        }
    }
    // Nothing of all this is a reason to give the connection up.
    assert_eq!(pool.reused, rounds * 3 * failures.len() * 2 - 1);
}

#[test]
fn a_pooling_client_loses_no_request_after_timeouts() {
    let provider = RecordingProvider::start(as_asked);
    let weir = impatient(&provider.base_url());
    let key = weir.key().text;
    let mut pool = Pool::new(&weir);
    let failures = [("stay-silent", Some(504)), ("stall-in-the-middle", None)];
    none_lost(&mut pool, Wire::Messages, &key, &failures);
    assert_eq!(pool.reused, failures.len() * 2 - 1);
}

#[test]
fn a_pooling_client_loses_no_request_when_a_provider_is_away_or_refuses_the_credential() {
    let provider = RecordingProvider::start(as_asked);
    let dead = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .provider("openai", &format!("http://{dead}"))
        .start();
    let key = weir.key().text;
    let mut pool = Pool::new(&weir);
    for _ in 0..3 {
        let away = pool.ask("away", &Wire::Responses.request(&key, "hi"));
        assert_eq!(away.status, 503, "{}", away.text());
        let next = pool.ask("away", &Wire::Gemini.request(&key, "hi"));
        assert_eq!(next.status, 200, "{}", next.text());
    }
    let refused = pool.ask("refused", &Wire::Messages.request(&key, "refuse-credential"));
    assert_eq!(refused.status, 503, "{}", refused.text());
    let next = pool.ask("refused", &Wire::Gemini.request(&key, "hi"));
    assert_eq!((next.status, pool.reused), (200, 7), "{}", next.text());
}

/// Also over one connection, what is refused before its body is read leaves nothing of it behind.
#[test]
fn a_small_body_that_is_refused_unread_costs_no_connection() {
    let provider = RecordingProvider::start(as_asked);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut pool = Pool::new(&weir);
    for turn in 0..4 {
        let refused = pool.ask(
            "refused",
            &Wire::Messages.request("weir-nobody", &"long ".repeat(2_000)),
        );
        assert_eq!(refused.status, 401, "turn {turn}: {}", refused.text());
        let next = pool.ask("refused", &Wire::Messages.request(&key, "hi"));
        assert_eq!(next.status, 200, "turn {turn}: {}", next.text());
    }
    assert_eq!(pool.reused, 7);
}

/// What only breaking the connection can tell is told so, and a client that wants its connection closed has it closed.
#[test]
fn a_connection_that_is_not_kept_is_closed() {
    let provider = RecordingProvider::start(|request, answer| {
        answer.head(200, &[("content-type", "application/json")]);
        // So much that it passes before it is whole.
        answer.chunk(" ".repeat(70_000));
        answer.chunk(&unary(wire_of(&request.target))[..100]);
        answer.cut();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let request = Wire::Messages.request(&key, "hi");
    let mut client = weir.connect();
    assert!(!client.exchange(&request).complete);
    let dead = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let weir = Weir::start(&format!("http://{dead}"));
    let request = Wire::Messages
        .request(&weir.key().text, "hi")
        .header("connection", "close");
    let mut client = weir.connect();
    let answer = client.exchange(&request);
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")));
    assert!(client.closed_within(Duration::from_secs(20)));
}

/// A connection that was kept after a failure does not keep the process.
#[test]
fn a_connection_that_was_kept_after_a_failure_does_not_hold_up_the_end() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut weir = Weir::start(&format!("http://{dead}"));
    let mut client = weir.connect();
    let answer = client.exchange(&Wire::Messages.request(&weir.key().text, "hi"));
    assert_eq!((answer.status, answer.header("connection")), (503, Some("keep-alive")));
    weir.process().signal("TERM");
    wait_until("the end of the process", || weir.process().ended().is_some());
    assert!(client.closed_within(Duration::from_secs(1)));
}
