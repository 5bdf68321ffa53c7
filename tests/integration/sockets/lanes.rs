//! Lanes: responses that run on one socket at one time, and how many may.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::stage::{bodies, create, create_in, held_until, last_prompt, provider, turn_lines, words};
use crate::harness::tools::rounds;
use crate::harness::websocket::{Turn, WebSocket, is_terminal};
use crate::harness::{RecordingProvider, Steps, Weir, WeirBuilder, wait_until};

/// The maximum number of names of lanes on one socket.
const NAMES_MAX: usize = 32;
/// The maximum length of a name.
const NAME_BYTES_MAX: usize = 256;

fn running_at_most(provider: &RecordingProvider, running: i64) -> Weir {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("sockets.running_max", running)
        .start()
}

/// The prompts that the provider got, in their order.
fn prompts(provider: &RecordingProvider) -> Vec<String> {
    bodies(provider).iter().map(last_prompt).collect()
}

#[test]
fn lanes_are_answered_at_one_time_and_each_event_names_its_lane() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.send(&create_in("a", &held_until(3)));
    socket.send(&create_in("B.2_-", &held_until(2)));
    socket.send(&create(&held_until(1)));
    let mut events = Vec::new();
    // Each has begun before any has ended.
    while events.len() < 6 {
        events.push(socket.event());
    }
    for lane in [Some("a"), Some("B.2_-"), None] {
        assert_eq!(Turn::of_lane(&events, lane).events.len(), 2, "{lane:?}");
    }
    // They end in the order in which the provider ends them.
    let mut ended = Vec::new();
    for _ in 0..3 {
        steps.permit();
        let rest = socket.events_to_ends(1);
        ended.push(rest.last().unwrap()["stream_id"].clone());
        events.extend(rest);
    }
    assert_eq!(ended, [Json::Null, "B.2_-".into(), "a".into()]);
    for (lane, step) in [(Some("a"), 3), (Some("B.2_-"), 2), (None, 1)] {
        let turn = Turn::of_lane(&events, lane).completed();
        assert_eq!(turn.text(), words(&held_until(step)));
    }
    // What stands in an event is the provider's, but for the lane.
    let last = Turn::of_lane(&events, Some("a"));
    assert_eq!(last.last()["response"].get("stream_id"), None);
    let lines = turn_lines(&weir, 3);
    let lanes: HashSet<u64> = lines.iter().map(|line| line["lane"].as_u64().unwrap()).collect();
    assert_eq!(lanes, HashSet::from([0, 1, 2]), "the names stay with the client");
    assert!(!weir.logs().contains("B.2_-"));
}

#[test]
fn a_lane_answers_one_request_after_the_other_in_their_order() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.send(&create_in("a", &held_until(1)));
    let mut events = vec![socket.event()];
    socket.send(&create_in("a", "second"));
    events.extend(socket.settle());
    assert_eq!(provider.count(), 1, "two at one time in a lane");
    steps.permit();
    events.extend(socket.events_to_ends(2));
    let first_end = events.iter().position(is_terminal).unwrap();
    let first = Turn {
        events: events[..=first_end].to_vec(),
    };
    assert_eq!(first.text(), words(&held_until(1)));
    let second = Turn {
        events: events[first_end + 1..].to_vec(),
    };
    assert_eq!(second.completed().text(), words("second"));
    assert_eq!(prompts(&provider), [held_until(1), "second".to_owned()]);
}

#[test]
fn a_further_request_of_a_lane_that_has_one_waiting_is_refused_and_the_others_are_served() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.send(&create(&held_until(1)));
    let mut events = vec![socket.event()];
    socket.send(&create("second"));
    socket.send(&create("third"));
    // The refusal does not wait for the others.
    while !events.last().is_some_and(is_terminal) {
        events.push(socket.event());
    }
    let refused = Turn {
        events: vec![events.pop().unwrap()],
    };
    let event = refused.refused(429, "websocket_queue_full");
    assert_eq!(
        event["headers"]["retry-after"], "1",
        "without it Codex gives the turn up: {event}"
    );
    steps.permit();
    events.extend(socket.events_to_ends(2));
    assert_eq!(prompts(&provider), [held_until(1), "second".to_owned()]);
}

#[test]
fn so_many_run_at_one_time_and_the_next_begins_when_one_ends() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = running_at_most(&provider, 2);
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    for (lane, step) in [("a", 1), ("b", 2)] {
        socket.send(&create_in(lane, &held_until(step)));
    }
    wait_until("two at the provider", || provider.count() == 2);
    socket.send(&create_in("c", "hi"));
    let mut events = socket.settle();
    assert_eq!(provider.count(), 2);
    steps.permit();
    events.extend(socket.events_to_ends(2));
    assert_eq!(
        Turn::of_lane(&events, Some("a")).completed().text(),
        words(&held_until(1))
    );
    assert_eq!(Turn::of_lane(&events, Some("c")).completed().text(), words("hi"));
    steps.permit();
    events.extend(socket.events_to_ends(1));
    assert_eq!(
        Turn::of_lane(&events, Some("b")).completed().text(),
        words(&held_until(2))
    );
}

#[test]
fn a_name_that_is_none_is_refused_and_so_is_one_name_too_many() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    for name in ["", "a b", "a/b", "\u{e9}", &long] {
        let event = socket.ask(&create_in(name, "hi")).refused(400, "invalid_stream_id");
        // An event of a lane that does not exist would be nobody's.
        assert_eq!(event.get("stream_id"), None, "{event}");
    }
    let mut number = create("hi");
    number["stream_id"] = 7.into();
    socket.ask(&number).refused(400, "invalid_stream_id");
    let longest = &long[..NAME_BYTES_MAX];
    assert_eq!(socket.ask(&create_in(longest, "hi")).completed().text(), words("hi"));
    for number in 1..NAMES_MAX {
        socket.ask(&create_in(&format!("lane-{number}"), "hi")).completed();
    }
    socket
        .ask(&create_in("one-more", "hi"))
        .refused(400, "websocket_stream_limit_reached");
    assert_eq!(provider.count(), NAMES_MAX);
    // The lane without a name does not count, and the others go on.
    socket.ask(&create("hi")).completed();
    socket.ask(&create_in("lane-1", "hi")).completed();
}

/// Defect 12: answers and conversations of pooled sockets are mixed.
#[test]
fn sockets_and_lanes_at_one_time_get_their_own_answers_and_continue_their_own_conversations() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let keys: Vec<String> = (0..3).map(|_| weir.key().text).collect();
    let (sockets, turns) = (rounds(8, 32), rounds(5, 40));
    let gateway = weir.gateway;
    let clients: Vec<_> = (0..sockets)
        .map(|number| {
            let key = keys[number % keys.len()].clone();
            std::thread::spawn(move || {
                let mut socket = WebSocket::open(gateway, &key);
                let lanes: Vec<String> = (0..3).map(|lane| format!("lane-{lane}")).collect();
                let mut ids: Vec<Option<String>> = vec![None; lanes.len()];
                for turn in 0..turns {
                    for (lane, id) in lanes.iter().zip(&ids) {
                        let mut frame = create_in(lane, &format!("client {number} {lane} turn {turn}"));
                        if let Some(id) = id {
                            frame["previous_response_id"] = id.as_str().into();
                        }
                        socket.send(&frame);
                    }
                    let events = socket.events_to_ends(lanes.len());
                    for (lane, id) in lanes.iter().zip(&mut ids) {
                        let answer = Turn::of_lane(&events, Some(lane)).completed();
                        assert_eq!(answer.text(), words(&format!("client {number} {lane} turn {turn}")));
                        *id = Some(answer.id());
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("a client got what was not its own");
    }
    // Each request had exactly its lane's conversation.
    for body in bodies(&provider) {
        let last = last_prompt(&body);
        let (conversation, turn) = last.rsplit_once(" turn ").unwrap();
        let items = body["input"].as_array().cloned().unwrap_or_default();
        let own = items.iter().filter(|item| item["role"] == "user");
        let prompts: Vec<&str> = own.filter_map(|item| item["content"].as_str()).collect();
        let turn: usize = turn.parse().unwrap();
        let expected: Vec<String> = (0..=turn).map(|turn| format!("{conversation} turn {turn}")).collect();
        if turn > 0 {
            assert_eq!(prompts, expected);
            assert_eq!(items.len(), 2 * turn + 1);
        }
    }
    assert_eq!(provider.count(), sockets * 3 * turns);
}
