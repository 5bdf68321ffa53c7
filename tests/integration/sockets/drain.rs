//! The end of the process, and an upgrade, with open sockets: what runs is finished, and clients are told to connect anew.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::stage::{create, create_in, held_until, provider, words};
use crate::harness::request::{Upload, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::shapes::assert_refusal;
use crate::harness::tools::rounds;
use crate::harness::websocket::{Message, Turn, WebSocket, handshake};
use crate::harness::{Steps, Weir, WeirBuilder, wait_until};

/// How long after the end of everything that runs a process may take.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn at_the_end_of_the_process_idle_sockets_are_closed_and_running_answers_are_finished_first() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut idle: Vec<WebSocket> = (0..10).map(|_| WebSocket::open(weir.gateway, &key)).collect();
    idle[0].ask(&create("hi")).completed();
    let mut busy = WebSocket::open(weir.gateway, &key);
    busy.send(&create_in("a", &held_until(1)));
    let mut events = vec![busy.event()];
    let address = weir.gateway;
    weir.process().signal("TERM");
    for socket in &mut idle {
        assert_eq!(socket.close_code(), Some(1012));
        assert_eq!(socket.read(), Message::End);
    }
    wait_until("new connections to be refused", || TcpStream::connect(address).is_err());
    assert!(weir.process().ended().is_none(), "it ended under a running answer");
    steps.permit();
    events.extend(busy.events_to_ends(1));
    let answer = Turn::of_lane(&events, Some("a")).completed();
    assert_eq!(answer.text(), words(&held_until(1)));
    assert_eq!(busy.close_code(), Some(1012));
    assert_eq!(busy.read(), Message::End);
    let finished = Instant::now();
    assert!(weir.process().wait_ended().success());
    assert!(finished.elapsed() < SOON, "{:?}", finished.elapsed());
}

#[test]
fn at_the_deadline_a_running_answer_ends_with_an_error_and_is_accounted_for() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.drain_seconds", 1)
        .start();
    let key = weir.key().text;
    let mut sockets: Vec<WebSocket> = (0..3).map(|_| WebSocket::open(weir.gateway, &key)).collect();
    for socket in &mut sockets {
        socket.send(&create(&held_until(1)));
        socket.event();
        socket.event();
    }
    weir.process().signal("TERM");
    for socket in &mut sockets {
        let end = socket.turn();
        let event = end.last();
        assert!(
            ["response.failed", "error"].contains(&event["type"].as_str().unwrap()),
            "{event}"
        );
        assert!(event.to_string().contains("restarted"), "{event}");
        assert_eq!(socket.close_code(), Some(1012));
    }
    assert!(weir.process().wait_ended().success());
    weir.kill_and_restart();
    for row in &weir.books(sockets.len()).rows {
        assert_eq!(row["outcome"], "stopped", "{row}");
    }
    steps.permit();
}

#[test]
fn a_request_that_comes_while_the_process_ends_is_not_lost_in_silence() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    // The head of a handshake that is under way when the end begins.
    let head = handshake(&key).head_bytes(Upload::Length);
    let (first, rest) = head.split_at(head.len() - 10);
    let mut late = weir.connect();
    late.write(first);
    let mut busy = WebSocket::open(weir.gateway, &key);
    busy.send(&create_in("a", &held_until(1)));
    busy.event();
    busy.event();
    let address = weir.gateway;
    weir.process().signal("TERM");
    wait_until("new connections to be refused", || TcpStream::connect(address).is_err());
    late.write(rest);
    if let Some(answer) = late.try_head_to("GET") {
        assert_ne!(answer.status, 101, "a socket was opened to be closed");
        let answer = late.rest(answer);
        assert_refusal(Wire::Responses, &answer, 426, "upgrade_unavailable");
    }
    busy.send(&create_in("b", "late"));
    let mut events = busy.settle();
    steps.permit();
    let close = loop {
        match busy.message() {
            Message::Text(text) => events.push(serde_json::from_str(&text).unwrap()),
            end => break end,
        }
    };
    assert!(matches!(close, Message::Close(1012, _)), "{close:?}");
    Turn::of_lane(&events, Some("a")).completed();
    // It is served, or refused, or was not read: the client knows which, and does not wait.
    let late = Turn::of_lane(&events, Some("b"));
    let served = late.last()["type"] == "response.completed";
    assert!(served || late.events.len() <= 1, "{:?}", late.events);
    assert_eq!(provider.count(), 1 + usize::from(served));
    assert!(weir.process().wait_ended().success());
}

#[test]
fn an_upgrade_finishes_what_runs_on_sockets_and_the_new_process_opens_the_next_ones() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut idle = WebSocket::open(weir.gateway, &key);
    idle.ask(&create("hi")).completed();
    let mut busy = WebSocket::open(weir.gateway, &key);
    busy.send(&create(&held_until(1)));
    busy.event();
    weir.upgrade();
    assert_eq!(idle.close_code(), Some(1012));
    let mut next = WebSocket::open(weir.gateway, &key);
    assert_eq!(next.ask(&create("hi")).completed().text(), words("hi"));
    steps.permit();
    assert_eq!(busy.turn().completed().last()["response"]["id"], "resp_2");
    assert_eq!(busy.close_code(), Some(1012));
    weir.wait_for_predecessors();
    assert_eq!(next.ask(&create("ho")).completed().text(), words("ho"));
    weir.books(4);
}

/// A client that keeps a conversation on its socket as Codex does: whatever ends the socket, it sends everything on the next one.
fn converse(gateway: SocketAddr, key: &str, requests: usize) -> usize {
    let mut socket = WebSocket::open(gateway, key);
    let mut reconnected = 0;
    for _ in 0..requests {
        loop {
            socket.send(&create("Tell me of weirs. [[sample: deltas=5 gap_ms=5]]"));
            let first = match socket.message() {
                Message::Text(text) => serde_json::from_str::<Json>(&text).unwrap(),
                end => {
                    assert!(matches!(end, Message::Close(1012, _)), "{end:?}");
                    socket = WebSocket::open(gateway, key);
                    reconnected += 1;
                    continue;
                }
            };
            if first["type"] == "error" {
                assert_eq!(first["error"]["code"], "stopping", "{first}");
                continue;
            }
            // What has begun is finished.
            socket.turn().completed();
            break;
        }
    }
    reconnected
}

#[test]
fn upgrades_under_load_cut_no_answer_on_a_socket_and_charge_each_once() {
    let sample = SampleProvider::start();
    let mut weir = WeirBuilder::new()
        .all_providers(&sample.base_url())
        .set("gateway.drain_seconds", 120)
        .start();
    let key = weir.key().text;
    let (clients, requests) = (rounds(4, 12), rounds(60, 600));
    let gateway = weir.gateway;
    let clients: Vec<_> = (0..clients)
        .map(|_| {
            let key = key.clone();
            std::thread::spawn(move || converse(gateway, &key, requests))
        })
        .collect();
    for round in 0..rounds(2, 10) {
        wait_until("answers to be billed", || sample.bills().len() > (round + 1) * 20);
        weir.upgrade();
    }
    let reconnected: Vec<usize> = clients
        .into_iter()
        .map(|client| client.join().expect("an answer was cut"))
        .collect();
    assert!(reconnected.iter().any(|times| *times > 0), "{reconnected:?}");
    weir.wait_for_predecessors();
    weir.books_as_billed(&sample, 0);
}
