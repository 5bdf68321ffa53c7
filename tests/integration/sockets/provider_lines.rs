//! The WebSockets to a provider that belong to one socket of a client: which requests go over which of them, and what is sent of a
//! conversation.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::provider_stage::{
    Conversation, FRAME_BYTES_MAX, asked_with, assert_carried, continued, prompt_of, socket_provider,
    wait_lines_closed, weir_over,
};
use super::stage::{continuation, create, create_in, held_until, user_item, words};
use crate::harness::rules::RuleFolder;
use crate::harness::socket_provider::{SocketProvider, Way};
use crate::harness::websocket::{Turn, WebSocket};
use crate::harness::{Steps, wait_until};

/// The ways of the requests whose prompts begin with these words.
fn ways_of(provider: &SocketProvider, begin: &str) -> HashSet<Way> {
    let mut asked = provider.asked();
    asked.retain(|asked| prompt_of(asked).starts_with(begin));
    asked.into_iter().map(|asked| asked.way).collect()
}

/// Defect 12: WebSockets to providers are shared, so that one client waits for another, or reaches its conversation.
#[test]
fn two_sockets_never_share_a_websocket_to_the_provider() {
    let steps = Steps::default();
    let provider = socket_provider(&steps);
    let weir = weir_over(&provider);
    let key = weir.key().text;
    let mut sockets: Vec<WebSocket> = (0..3).map(|_| WebSocket::open(weir.gateway, &key)).collect();
    let of = |number: usize| format!("socket {number} says");
    for word in ["one", "two"] {
        for (number, socket) in sockets.iter_mut().enumerate() {
            socket.ask(&create(&format!("{} {word}", of(number)))).completed();
        }
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        socket.send(&create(&format!("{} {}", of(number), held_until(1))));
    }
    wait_until("all at the provider", || provider.count() == 9);
    steps.permit();
    for socket in &mut sockets {
        socket.turn().completed();
    }
    let ways: Vec<HashSet<Way>> = (0..3).map(|number| ways_of(&provider, &of(number))).collect();
    assert!(
        ways.iter().all(|ways| ways.len() == 1 && !ways.contains(&Way::Post)),
        "{ways:?}"
    );
    let all: HashSet<Way> = ways.into_iter().flatten().collect();
    assert_eq!(all.len(), 3);
    // Nor do they inherit one.
    drop(sockets);
    wait_lines_closed(&weir, &provider);
    let mut later = WebSocket::open(weir.gateway, &key);
    later.ask(&create("a later socket")).completed();
    assert!(ways_of(&provider, "a later socket").is_disjoint(&all));
}

/// Defect 12: a continuation reaches a WebSocket of which the provider knows nothing, or only its new part is sent there.
#[test]
fn a_conversation_stays_whole_whichever_way_its_requests_go() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let mut conversation = Conversation::default();
    let mut say = |prompt: &str| conversation.say(&mut socket, &provider, prompt);
    let first = say("one");
    assert_eq!((first.way, continued(&first)), (Way::Line(0), None));
    for (prompt, parent) in [
        ("two with a tool", "resp_1"),
        ("three", "resp_2"),
        ("four, then close 1000", "resp_3"),
    ] {
        let asked = say(prompt);
        assert_eq!(
            (asked.way, continued(&asked)),
            (Way::Line(0), Some(parent)),
            "only what is new is sent"
        );
    }
    wait_lines_closed(&weir, &provider);
    for (prompt, parent) in [("five", None), ("six, then too old", Some("resp_5"))] {
        let asked = say(prompt);
        assert_eq!((asked.way, continued(&asked)), (Way::Line(1), parent));
    }
    wait_lines_closed(&weir, &provider);
    let asked = say("seven");
    assert_eq!((asked.way, continued(&asked)), (Way::Line(2), None));
    // The conversation is too long for a frame from now on.
    for prompt in [format!("eight {}", "x".repeat(FRAME_BYTES_MAX)), "nine".to_owned()] {
        let asked = say(&prompt);
        assert_eq!((asked.way, continued(&asked)), (Way::Post, None));
    }
    weir.books(9);
}

/// Defect 12: the provider has dropped a response that weir believes it to have.
#[test]
fn a_continuation_that_the_provider_has_forgotten_is_sent_whole_and_charged_once() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    let mut conversation = Conversation::default();
    conversation.say(&mut socket, &provider, "one");
    let whole = conversation.say(&mut socket, &provider, "two, forgotten");
    assert_eq!((whole.way, continued(&whole)), (Way::Line(0), None));
    let asked = asked_with(&provider, "two, forgotten");
    assert_eq!(asked.len(), 2);
    assert_eq!((asked[0].way, continued(&asked[0])), (Way::Line(0), Some("resp_1")));
    assert!(continued(&conversation.say(&mut socket, &provider, "three")).is_some());
    weir.books(3);
}

/// Defect 14: what a client could recover from is renamed.
#[test]
fn a_stored_response_that_the_provider_has_forgotten_is_named_to_the_client() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    let stored = |mut frame: Json| {
        frame.as_object_mut().unwrap().shift_remove("store");
        frame
    };
    let id = socket.ask(&stored(create("one"))).completed().id();
    let more = socket.ask(&stored(continuation(&id, "two"))).completed();
    let asked = asked_with(&provider, "two").pop().unwrap();
    assert_eq!(
        (continued(&asked), &asked.body["input"]),
        (Some(id.as_str()), &"two".into())
    );
    let forgotten = stored(continuation(&more.id(), "three, forgotten"));
    socket.ask(&forgotten).refused(400, "previous_response_not_found");
    assert_eq!(socket.ask(&create("four")).completed().text(), words("four"));
}

/// Defect 12, with lanes: two continue the same response at one time, so at most one of them can have its WebSocket.
#[test]
fn a_response_that_is_continued_in_two_lanes_at_once_is_whole_in_both() {
    let steps = Steps::default();
    let provider = socket_provider(&steps);
    let weir = weir_over(&provider);
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let root = socket.ask(&create("root")).completed();
    let made_on = asked_with(&provider, "root")[0].way;
    let prompts = ["a", "b"].map(|lane| (lane, format!("lane {lane} {}", held_until(1))));
    for (lane, prompt) in &prompts {
        let mut frame = create_in(lane, prompt);
        frame["previous_response_id"] = root.id().into();
        socket.send(&frame);
    }
    wait_until("both at the provider", || provider.count() == 3);
    steps.permit();
    let events = socket.events_to_ends(2);
    let mut ways = HashSet::new();
    for (lane, prompt) in &prompts {
        let turn = Turn::of_lane(&events, Some(*lane)).completed();
        assert_eq!(turn.text(), words(prompt));
        let asked = asked_with(&provider, prompt).pop().unwrap();
        let mut whole = vec![user_item("root")];
        whole.extend(root.output());
        whole.push(user_item(prompt));
        assert_carried(&asked, &root.id(), made_on, &whole);
        ways.insert(asked.way);
    }
    assert_eq!(ways.len(), 2, "one after the other");
}

/// Defect 12: the provider has only the last response on each WebSocket.
#[test]
fn a_response_behind_which_its_websocket_has_made_another_is_continued_whole() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    let root = socket.ask(&create("root")).completed();
    for (lane, prompt, is_whole) in [("a", "to the left", false), ("b", "to the right", true)] {
        let mut frame = create_in(lane, prompt);
        frame["previous_response_id"] = root.id().into();
        assert_eq!(socket.ask(&frame).completed().text(), words(prompt));
        let asked = asked_with(&provider, prompt).pop().unwrap();
        assert_eq!(continued(&asked).is_none(), is_whole, "{}", asked.body);
        let mut whole = vec![user_item("root")];
        whole.extend(root.output());
        whole.push(user_item(prompt));
        assert_carried(&asked, &root.id(), Way::Line(0), &whole);
    }
}

#[test]
fn lanes_are_answered_at_once_each_on_a_websocket_of_its_own_up_to_the_maximum() {
    for (maximum, lines) in [(4, 3), (2, 2), (1, 1), (0, 0)] {
        let steps = Steps::default();
        let provider = socket_provider(&steps);
        let weir = RuleFolder::over_websocket().into_weir_at(&provider.base_url());
        let weir = weir.set("sockets.provider_lines_max", maximum).start();
        let key = weir.key().text;
        let mut socket = WebSocket::open(weir.gateway, &key);
        let prompts = ["a", "b", "c"].map(|lane| (lane, format!("lane {lane} {}", held_until(1))));
        for (lane, prompt) in &prompts {
            socket.send(&create_in(lane, prompt));
        }
        wait_until("all at the provider", || provider.count() == prompts.len());
        steps.permit();
        let events = socket.events_to_ends(prompts.len());
        for (lane, prompt) in &prompts {
            assert_eq!(Turn::of_lane(&events, Some(*lane)).completed().text(), words(prompt));
        }
        let mut ways = provider.ways();
        ways.retain(|way| *way != Way::Post);
        let distinct: HashSet<Way> = ways.iter().copied().collect();
        assert_eq!((ways.len(), distinct.len()), (lines, lines), "of at most {maximum}");
        assert_eq!(provider.handshakes().len(), lines, "of at most {maximum}");
    }
}
