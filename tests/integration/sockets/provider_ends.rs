//! How WebSockets to providers end, and what that means for the requests on them: the provider closes them or is silent, the client
//! leaves or reads slowly, and the process ends. The tests of known defects of other gateways say which defect in their comments.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::provider_stage::{
    Conversation, asked_with, halves, prompt_of, socket_provider, wait_line_ends, wait_lines_closed, weir_over,
};
use super::stage::{USAGE, create, create_in, held_until, words};
use crate::harness::books::cost;
use crate::harness::rules::RuleFolder;
use crate::harness::socket_provider::{Act, SocketProvider, Way};
use crate::harness::tools::rounds;
use crate::harness::websocket::{Turn, WebSocket};
use crate::harness::{Steps, Weir, wait_until};

/// Events with a ping behind each, and the bytes of one.
const PINGED_EVENTS: usize = 64;
const EVENT_BYTES: usize = 16 << 10;
/// The number of events by which the slow client is behind the provider.
const BEHIND: usize = 8;

/// Defect 11: the provider's pings are not answered while the client does not read, so that the provider ends the WebSocket.
#[test]
fn pings_of_the_provider_are_answered_while_the_client_reads_slowly() {
    let provider = SocketProvider::start(&Steps::default(), |asked| {
        let [begin, end] = halves(asked.number, &prompt_of(asked));
        let piece = "x".repeat(EVENT_BYTES);
        let event = json!({"type": "response.output_text.delta", "item_id": "msg", "output_index": 0, "content_index": 0,
            "delta": piece});
        let pinged = (0..PINGED_EVENTS).flat_map(|_| [Act::Event(event.clone()), Act::Ping]);
        let all = begin.into_iter().chain(pinged).chain([Act::Pongs(PINGED_EVENTS)]);
        all.chain(end).collect()
    });
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    socket.send(&create("hi"));
    let mut events = Vec::new();
    for number in 0..PINGED_EVENTS {
        let answered = (number + BEHIND).min(PINGED_EVENTS);
        wait_until("the pings to be answered", || provider.pongs() >= answered);
        events.push(socket.event());
    }
    events.extend(socket.events_to_ends(1));
    let turn = Turn { events }.completed();
    assert_eq!(turn.text().len(), words("hi").len() + PINGED_EVENTS * EVENT_BYTES);
    assert_eq!(provider.ways(), [Way::Line(0)]);
    assert!(provider.closes().is_empty());
}

/// Defect 11, between two requests.
#[test]
fn a_ping_of_the_provider_is_answered_on_an_idle_websocket() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    for pongs in 1..=3 {
        let prompt = format!("request {pongs}, then a ping");
        socket.ask(&create(&prompt)).completed();
        wait_until("the pong", || provider.pongs() == pongs);
    }
    assert_eq!(provider.ways(), [Way::Line(0); 3]);
}

/// The error of an event that ends an answer.
fn error_of(event: &Json) -> &Json {
    match event["response"]["error"].is_object() {
        true => &event["response"]["error"],
        false => &event["error"],
    }
}

/// Defect 21: the provider's close is not passed on, and the client waits.
#[test]
fn an_answer_whose_websocket_ends_in_its_middle_ends_as_by_post() {
    let provider = socket_provider(&Steps::default());
    let weirs = [weir_over(&provider), Weir::start(&provider.base_url())];
    let keys = [&weirs[0], &weirs[1]].map(|weir| weir.key().text);
    let mut sockets = [0, 1].map(|at| WebSocket::open(weirs[at].gateway, &keys[at]));
    let orders = [
        "close 1011 in the middle",
        "close 1009 in the middle",
        "close 1000 in the middle",
        "cut in the middle",
        "an error in the middle",
    ];
    for order in orders {
        let [over_websocket, by_post] = ["over websocket", "by post"].map(|way| {
            let socket = &mut sockets[usize::from(way == "by post")];
            let turn = socket.ask(&create(&format!("{order} {way}")));
            assert_eq!(
                socket.ask(&create("well?")).completed().text(),
                words("well?"),
                "{order} {way}"
            );
            turn
        });
        let types = |turn: &Turn| -> Vec<Json> { turn.events.iter().map(|event| event["type"].clone()).collect() };
        assert_eq!(types(&over_websocket), types(&by_post), "{order}");
        assert_eq!(over_websocket.text(), "You said:", "{order}");
        assert!(error_of(by_post.last()).is_object(), "{order}: {}", by_post.last());
        assert_eq!(error_of(over_websocket.last()), error_of(by_post.last()), "{order}");
        let asked = asked_with(&provider, &format!("{order} over websocket"));
        assert!(asked.len() == 1 && asked[0].way != Way::Post, "{asked:?}");
    }
    let outcomes = [&weirs[0], &weirs[1]].map(|weir| {
        let rows = weir.books(2 * orders.len()).rows;
        let told = |row: &Json| format!("{} {}", row["outcome"], row["usage_source"]);
        let mut outcomes: Vec<String> = rows.iter().map(told).collect();
        outcomes.sort();
        outcomes
    });
    assert_eq!(outcomes[0], outcomes[1]);
}

/// Defect 20: the provider finds a message too large, and the client gets an error although a POST would be served.
#[test]
fn a_message_that_the_provider_finds_too_large_does_not_end_the_socket_of_the_client() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    // It is sent again by POST, and the next one of this size at once.
    for (prompt, on_lines) in [
        ("close 1009 first, and a long text", 1),
        ("close 1009 first, and a longer text", 0),
    ] {
        assert_eq!(socket.ask(&create(prompt)).completed().text(), words(prompt));
        let asked = asked_with(&provider, prompt);
        let posts = asked.iter().filter(|asked| asked.way == Way::Post).count();
        assert_eq!((posts, asked.len()), (1, on_lines + 1), "{asked:?}");
    }
    // What is smaller goes over WebSocket as before.
    socket.ask(&create("hi")).completed();
    assert_ne!(asked_with(&provider, "hi")[0].way, Way::Post);
    weir.books(3);
}

#[test]
fn a_response_that_no_request_asked_for_ends_the_websocket_and_is_not_charged() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    // Behind an answer.
    socket.ask(&create("one, then another")).completed();
    wait_line_ends(&weir, "unexpected", 1);
    wait_lines_closed(&weir, &provider);
    assert_eq!(provider.closes(), [Some(1011)]);
    assert_eq!(socket.settle(), Vec::<Json>::new());
    assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
    // In the middle of one.
    let broken = socket.ask(&create("two, begun twice"));
    assert_eq!(broken.last()["type"], "response.failed", "{}", broken.last());
    let begun = broken.events.iter().filter(|event| event["type"] == "response.created");
    assert_eq!(begun.count(), 1, "{:?}", broken.events);
    wait_line_ends(&weir, "unexpected", 2);
    wait_lines_closed(&weir, &provider);
    assert_eq!(provider.closes(), [Some(1011); 2]);
    assert_eq!(socket.ask(&create("ho")).completed().text(), words("ho"));
    let ways: Vec<Way> = provider.ways();
    assert_eq!(ways, [Way::Line(0), Way::Line(1), Way::Line(1), Way::Line(2)]);
    weir.books(4);
}

/// How a client leaves.
type Leave = fn(WebSocket);

#[test]
fn a_websocket_to_the_provider_ends_with_the_socket_of_the_client() {
    let steps = Steps::default();
    let provider = socket_provider(&steps);
    let weir = weir_over(&provider);
    let key = weir.key().text;
    let ways: [Leave; 3] = [
        |mut socket: WebSocket| {
            socket.send_close(1000);
            socket.read_to_end();
        },
        drop,
        WebSocket::reset,
    ];
    for leave in ways {
        let mut socket = WebSocket::open(weir.gateway, &key);
        for lane in ["a", "b"] {
            socket.ask(&create_in(lane, "hi")).completed();
        }
        assert!(provider.open_lines() > 0);
        leave(socket);
        wait_lines_closed(&weir, &provider);
    }
    weir.books(6);
}

#[test]
fn a_websocket_without_requests_ends_and_the_conversation_goes_on() {
    let provider = socket_provider(&Steps::default());
    let weir = RuleFolder::over_websocket().into_weir_at(&provider.base_url());
    let weir = weir.set("sockets.provider_idle_seconds", 1).start();
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    let mut conversation = Conversation::default();
    conversation.say(&mut socket, &provider, "one");
    wait_line_ends(&weir, "idle", 1);
    wait_lines_closed(&weir, &provider);
    let asked = conversation.say(&mut socket, &provider, "two");
    assert_eq!(asked.way, Way::Line(1));
}

#[test]
fn a_provider_that_is_silent_in_the_middle_loses_its_websocket_and_the_client_is_told() {
    let provider = socket_provider(&Steps::default());
    let weir = RuleFolder::over_websocket().into_weir_at(&provider.base_url());
    let weir = weir.set("upstream.idle_seconds", 1).start();
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    let stalled = socket.ask(&create("silent in the middle"));
    assert_eq!(stalled.last()["type"], "response.failed", "{}", stalled.last());
    wait_lines_closed(&weir, &provider);
    assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
    assert_eq!(provider.ways(), [Way::Line(0), Way::Line(1)]);
    weir.books(2);
}

#[test]
fn a_provider_that_does_not_answer_pings_loses_its_websocket() {
    let steps = Steps::default();
    let provider = socket_provider(&steps);
    let weir = RuleFolder::over_websocket().into_weir_at(&provider.base_url());
    let weir = weir.set("sockets.ping_seconds", 1).start();
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    socket.ask(&create("hi, then deaf")).completed();
    let ended = "weir_provider_sockets_total{end=\"silent\"} 1\n";
    wait_until(ended, || {
        // The client answers its own pings.
        assert_eq!(socket.settle(), Vec::<Json>::new());
        weir.metrics().contains(ended)
    });
    steps.permit();
    wait_lines_closed(&weir, &provider);
    assert_eq!(socket.ask(&create("ho")).completed().text(), words("ho"));
    assert_eq!(provider.ways(), [Way::Line(0), Way::Line(1)]);
}

/// The error with which a provider ends a WebSocket that is too old: clients in Node without a listener for errors end at it.
#[test]
fn the_age_of_a_websocket_to_the_provider_is_no_error_of_the_client() {
    let provider = socket_provider(&Steps::default());
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    let mut conversation = Conversation::default();
    conversation.say(&mut socket, &provider, "one, then too old");
    wait_lines_closed(&weir, &provider);
    assert_eq!(socket.settle(), Vec::<Json>::new());
    conversation.say(&mut socket, &provider, "two");
    // As the answer to a request, for which the provider has done nothing.
    let prompt = "three, too old first";
    assert_eq!(socket.ask(&create(prompt)).completed().text(), words(prompt));
    assert_eq!(asked_with(&provider, prompt).len(), 2);
    assert_eq!(socket.ask(&create("four")).completed().text(), words("four"));
}

#[test]
fn a_client_that_leaves_in_the_middle_ends_its_websocket_where_answers_are_not_read_to_their_end() {
    let steps = Steps::default();
    let provider = socket_provider(&steps);
    let rules = RuleFolder::over_websocket_with("[on_client_gone]\nstream = \"abort\"\n", "");
    let weir = rules.into_weir_at(&provider.base_url()).start();
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    socket.send(&create(&held_until(1)));
    socket.event();
    drop(socket);
    wait_lines_closed(&weir, &provider);
    wait_line_ends(&weir, "abandoned", 1);
    let books = weir.books(1);
    assert_eq!(books.rows[0]["outcome"], "client_gone", "{:?}", books.rows);
    assert!(cost(&books.rows[0]) > 0);
}

#[test]
fn an_answer_whose_client_has_left_is_read_to_its_end_on_its_websocket() {
    let steps = Steps::default();
    let provider = socket_provider(&steps);
    let weir = weir_over(&provider);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    socket.send(&create(&held_until(1)));
    socket.event();
    drop(socket);
    wait_until("the answer to be detached", || {
        weir.metrics().contains("\nweir_detached_answers 1\n")
    });
    assert_eq!(provider.open_lines(), 1);
    steps.permit();
    let books = weir.books(1);
    let [_, _, output] = USAGE;
    assert_eq!(books.rows[0]["usage_source"], "reported", "{:?}", books.rows);
    assert_eq!(books.rows[0]["output_text"], output, "{:?}", books.rows);
    wait_lines_closed(&weir, &provider);
}

#[test]
fn at_the_end_of_the_process_running_answers_are_finished_and_all_websockets_end() {
    let steps = Steps::default();
    let provider = socket_provider(&steps);
    let mut weir = weir_over(&provider);
    let key = weir.key().text;
    let mut idle = WebSocket::open(weir.gateway, &key);
    idle.ask(&create("hi")).completed();
    let mut busy = WebSocket::open(weir.gateway, &key);
    busy.send(&create(&held_until(1)));
    let mut events = vec![busy.event()];
    weir.process().signal("TERM");
    assert_eq!(idle.close_code(), Some(1012));
    wait_until("the idle WebSocket to be closed", || provider.open_lines() == 1);
    steps.permit();
    events.extend(busy.events_to_ends(1));
    assert_eq!(Turn { events }.completed().text(), words(&held_until(1)));
    assert!(weir.process().wait_ended().success());
    wait_until("all WebSockets to be closed", || provider.open_lines() == 0);
}

#[test]
fn killed_answers_over_websockets_are_charged_once() {
    let steps = Steps::default();
    let provider = socket_provider(&steps);
    let mut weir = weir_over(&provider);
    let key = weir.key().text;
    let (sockets, lanes) = (3, 2);
    let mut charged = 0;
    for round in 0..rounds(2, 10) {
        let mut open: Vec<WebSocket> = (0..sockets).map(|_| WebSocket::open(weir.gateway, &key)).collect();
        for socket in &mut open {
            socket.ask(&create("a whole one")).completed();
            for lane in 0..lanes {
                // Never permitted: each ends with the process.
                socket.send(&create_in(&format!("lane-{lane}"), &held_until(1)));
            }
            let begun = |event: &Json| event["type"] == "response.output_text.delta";
            for _ in 0..lanes {
                while !begun(&socket.event()) {}
            }
        }
        // Until a checkpoint has what has come.
        let until = Instant::now() + Duration::from_millis(1000 + 37 * round as u64);
        wait_until("the moment to die", || Instant::now() > until);
        weir.kill_and_restart();
        charged += sockets * (lanes + 1);
        let books = weir.books(charged);
        assert!(books.rows.iter().all(|row| cost(row) > 0));
        let crashed = books.rows.iter().filter(|row| row["outcome"] == "crash").count();
        assert_eq!(crashed, (round + 1) * sockets * lanes, "{:?}", books.rows);
        wait_until("the WebSockets to have ended", || provider.open_lines() == 0);
    }
    assert!(!provider.ways().contains(&Way::Post));
}

/// The last event is written when the charge is recorded, not before.
#[test]
fn an_answer_over_a_websocket_whose_last_event_has_come_is_charged_whole_although_the_process_dies_at_once() {
    let provider = socket_provider(&Steps::default());
    let mut weir = weir_over(&provider);
    let key = weir.key().text;
    let [input, cached, output] = USAGE;
    for round in 1..=rounds(2, 25) {
        let mut socket = WebSocket::open(weir.gateway, &key);
        socket.ask(&create("hi")).completed();
        weir.kill_and_restart();
        for row in &weir.books(round).rows {
            assert_eq!(
                (&row["outcome"], &row["usage_source"]),
                (&"ok".into(), &"reported".into()),
                "{row}"
            );
            let used = ["input_uncached", "cache_read", "output_text"].map(|name| row[name].as_u64());
            assert_eq!(used, [Some(input - cached), Some(cached), Some(output)], "{row}");
        }
    }
}
