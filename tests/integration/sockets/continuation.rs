//! Conversations that a socket continues by the id of a response: what the provider gets then, and when there is nothing to continue.

use serde_json::{Value as Json, json};

use super::stage::{USAGE, bodies, continuation, create, create_in, provider, response, turn_lines, user_item, words};
use crate::harness::books::cost;
use crate::harness::request::Wire;
use crate::harness::websocket::WebSocket;
use crate::harness::{RecordingProvider, Steps, Weir, WeirBuilder, wait_until};

/// The length of a prompt that takes much memory, and of the conversation with its answer, at most.
const LARGE: usize = 10_000;
const CONVERSATION: i64 = 22_000;

fn large(mark: &str) -> String {
    format!("{mark} {}", "x".repeat(LARGE))
}

/// A key of an account of its own.
fn key_of(weir: &Weir, account: &str) -> String {
    weir.cli_json(&["account", "create", "--id", account, "--balance-usd", "10"]);
    let key = weir.cli_json(&["key", "create", "--account", account, "--name", account]);
    key["key"].as_str().unwrap().to_owned()
}

/// A gateway with so much memory for all conversations, and for those of one key.
fn with_memory(provider: &RecordingProvider, all: i64, of_key: i64) -> Weir {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("sockets.state_bytes_max", all)
        .set("sockets.state_key_bytes", of_key)
        .start()
}

#[track_caller]
fn assert_gone(socket: &mut WebSocket, id: &str) {
    let event = socket
        .ask(&continuation(id, "more"))
        .refused(400, "previous_response_not_found");
    assert_eq!(event["error"]["param"], "previous_response_id", "{event}");
    assert!(event["error"]["message"].as_str().unwrap().contains(id), "{event}");
}

/// The items that a provider made in a response, without the reasoning that cannot be sent back.
fn output(number: usize, prompt: &str) -> Vec<Json> {
    let mut items = response(number, prompt, "completed")["output"]
        .as_array()
        .unwrap()
        .clone();
    items.retain(|item| item["type"] != "reasoning" || item["encrypted_content"].is_string());
    items
}

#[test]
fn a_continuation_reaches_the_provider_with_everything_that_was_said_before() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let first = "reasoning and a tool";
    let mut opening = create(first);
    opening["instructions"] = "Be brief.".into();
    let id = socket.ask(&opening).completed().id();
    assert_eq!(id, "resp_1");
    let result = json!({"type": "function_call_output", "call_id": "call_1", "output": "it"});
    let mut second = continuation(&id, "");
    second["input"] = json!([result]);
    let id = socket.ask(&second).completed().id();
    let mut third = continuation(&id, "and now");
    third["instructions"] = "Be long.".into();
    socket.ask(&third).completed();

    let got = bodies(&provider);
    let mut expected = vec![user_item(first)];
    expected.extend(output(1, first));
    expected.push(result);
    assert_eq!(got[1]["input"], Json::from(expected.clone()));
    // The last prompt is still the first one.
    expected.extend(output(2, first));
    expected.push(user_item("and now"));
    assert_eq!(got[2]["input"], Json::from(expected));
    for body in &got {
        assert_eq!(body.get("previous_response_id"), None, "{body}");
        assert_eq!(
            (&body["store"], &body["stream"]),
            (&false.into(), &true.into()),
            "{body}"
        );
    }
    let instructions: Vec<Option<&str>> = got.iter().map(|body| body["instructions"].as_str()).collect();
    assert_eq!(instructions, [Some("Be brief."), None, Some("Be long.")]);
    assert!(
        weir.metrics()
            .contains("weir_socket_continuations_total{state=\"found\"} 2\n")
    );
}

#[test]
fn ten_turns_are_continued_one_after_the_other() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let mut expected: Vec<Json> = Vec::new();
    let mut id: Option<String> = None;
    for number in 1..=10 {
        let prompt = format!("prompt {number}");
        let frame = match &id {
            None => create(&prompt),
            Some(id) => continuation(id, &prompt),
        };
        let turn = socket.ask(&frame).completed();
        assert_eq!(turn.text(), words(&prompt));
        id = Some(turn.id());
        expected.push(user_item(&prompt));
        if number > 1 {
            assert_eq!(bodies(&provider)[number - 1]["input"], Json::from(expected.clone()));
        }
        expected.extend(output(number, &prompt));
    }
}

/// A first message as Codex sends it: there is no prompt yet.
fn warm_up(input: &Json) -> Json {
    let mut frame = create("");
    frame["input"] = input.clone();
    frame["generate"] = false.into();
    frame
}

#[test]
fn a_warm_up_is_answered_without_the_provider_costs_nothing_and_is_continued() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let developer = json!({"type": "message", "role": "developer", "content": "Be brief."});
    for kept in [json!([]), json!([developer])] {
        let before = provider.count();
        let mut socket = WebSocket::open(weir.gateway, &key);
        let warm = socket.ask(&warm_up(&kept)).completed();
        assert_eq!(warm.events[0]["type"], "response.created", "{}", warm.events[0]);
        assert_eq!(warm.events[0]["response"]["id"], warm.id().as_str());
        assert!(warm.output().is_empty() && warm.text().is_empty());
        let hex = warm.id().strip_prefix("resp_").unwrap().to_owned();
        assert!(
            hex.len() == 48 && hex.chars().all(|digit| digit.is_ascii_hexdigit()),
            "{hex}"
        );
        let usage = &warm.last()["response"]["usage"];
        for name in ["input_tokens", "output_tokens", "total_tokens"] {
            assert_eq!(usage[name], 0, "{usage}");
        }
        assert_eq!(provider.count(), before, "the provider was asked");
        socket.ask(&continuation(&warm.id(), "hi")).completed();
        let body = bodies(&provider).pop().unwrap();
        let mut expected = kept.as_array().unwrap().clone();
        expected.push(user_item("hi"));
        assert_eq!(body["input"], Json::from(expected));
        assert_eq!((body.get("generate"), body.get("previous_response_id")), (None, None));
    }
    for line in turn_lines(&weir, 4) {
        assert_eq!(
            (&line["status"], &line["refusal"]),
            (&200.into(), &Json::Null),
            "{line}"
        );
    }
    let books = weir.books_at_rest(|rows| rows.iter().filter(|row| cost(row) > 0).count() == 2);
    for row in &books.rows {
        let tokens = if cost(row) > 0 {
            Json::from(USAGE[2])
        } else {
            Json::Null
        };
        assert_eq!(row["output_text"], tokens, "{row}");
    }
}

#[test]
fn a_warm_up_is_refused_like_a_request_and_counts_in_the_rate_of_its_key() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let mut unknown = warm_up(&json!([]));
    unknown["model"] = "no-such-model".into();
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    socket.ask(&unknown).refused(404, "model_not_found");
    let mut socket = WebSocket::open(weir.gateway, &weir.key_with(&["--rpm", "1"]).text);
    let warm = socket.ask(&warm_up(&json!([]))).completed();
    socket
        .ask(&continuation(&warm.id(), "hi"))
        .refused(429, "rate_limit_exceeded");
    assert_eq!(provider.count(), 0);
}

/// Defect 8: the id of another tenant's response is accepted.
#[test]
fn a_response_is_continued_only_on_its_own_socket() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let (mine, theirs) = (key_of(&weir, "a"), key_of(&weir, "b"));
    let mut socket = WebSocket::open(weir.gateway, &mine);
    let id = socket.ask(&create("mine")).completed().id();
    let mut others = [&mine, &theirs].map(|key| WebSocket::open(weir.gateway, key));
    for other in &mut others {
        assert_gone(other, &id);
        assert_eq!(other.ask(&create("hi")).completed().text(), words("hi"));
        assert_gone(other, "resp_of_nobody");
    }
    // Nor by POST.
    for key in [&mine, &theirs] {
        let body = continuation(&id, "more").to_string();
        let post = Wire::Responses.request(key, "hi").body(body.as_bytes());
        assert_eq!(weir.exchange(&post).status, 400);
    }
    assert_eq!(socket.ask(&continuation(&id, "more")).completed().text(), words("more"));
    assert_eq!(provider.count(), 4);
}

/// Defect 8, for responses that the provider stores.
#[test]
fn a_response_that_the_provider_stores_is_continued_there_by_its_account_alone() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let (mine, theirs) = (key_of(&weir, "a"), key_of(&weir, "b"));
    let stored = |mut frame: Json| {
        frame.as_object_mut().unwrap().shift_remove("store");
        frame
    };
    let mut socket = WebSocket::open(weir.gateway, &mine);
    let id = socket.ask(&stored(create("hi"))).completed().id();
    let mut other = WebSocket::open(weir.gateway, &theirs);
    let frame = stored(continuation(&id, "more"));
    other.ask(&frame).refused(400, "previous_response_not_found");
    assert_eq!(provider.count(), 1, "it was forwarded");
    // On any socket of the account.
    socket.ask(&frame).completed();
    WebSocket::open(weir.gateway, &mine).ask(&frame).completed();
    for body in &bodies(&provider)[1..] {
        assert_eq!(body["previous_response_id"], id.as_str(), "{body}");
        assert_eq!(body["input"], "more", "{body}");
    }
}

#[test]
fn a_lane_continues_its_latest_response_and_begins_anew_without_an_id() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let old = socket.ask(&create("old")).completed().id();
    let new = socket.ask(&create("new")).completed().id();
    assert_eq!(bodies(&provider)[1]["input"], "new");
    assert_gone(&mut socket, &old);
    // The failure was not of this one.
    socket.ask(&continuation(&new, "more")).completed();
}

#[test]
fn a_continuation_that_is_refused_drops_what_it_continued_but_not_that_of_another_lane() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let id = socket.ask(&create("hi")).completed().id();
    let mut fork = create_in("fork", "an error of the client");
    fork["previous_response_id"] = id.as_str().into();
    socket.ask(&fork).refused(400, "odd_input");
    let id = socket.ask(&continuation(&id, "more")).completed().id();
    socket
        .ask(&continuation(&id, "an error of the client"))
        .refused(400, "odd_input");
    assert_gone(&mut socket, &id);
    // With everything it goes on, on the same socket.
    let id = socket.ask(&create("everything")).completed().id();
    socket.ask(&continuation(&id, "more")).completed();
}

#[test]
fn lanes_that_continue_the_same_response_have_histories_of_their_own() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let root = socket.ask(&create("root")).completed().id();
    let fork = |lane: &str, id: &str, prompt: &str| {
        let mut frame = create_in(lane, prompt);
        frame["previous_response_id"] = id.into();
        frame
    };
    let a = socket.ask(&fork("a", &root, "to the left")).completed().id();
    let b = socket.ask(&fork("b", &root, "to the right")).completed().id();
    socket.ask(&fork("a", &a, "on")).completed();
    socket.ask(&fork("b", &b, "on")).completed();
    let got = bodies(&provider);
    for (at, second, number) in [(3, "to the left", 2), (4, "to the right", 3)] {
        let mut expected = vec![user_item("root")];
        expected.extend(output(1, "root"));
        expected.push(user_item(second));
        expected.extend(output(number, second));
        expected.push(user_item("on"));
        assert_eq!(got[at]["input"], Json::from(expected));
    }
}

#[test]
fn the_conversation_that_was_not_used_for_longest_is_dropped_when_the_memory_is_full() {
    let provider = provider(&Steps::default());
    let weir = with_memory(&provider, 2 * CONVERSATION, 2 * CONVERSATION);
    let key = weir.key().text;
    let mut sockets: Vec<WebSocket> = (0..3).map(|_| WebSocket::open(weir.gateway, &key)).collect();
    let mut ids = Vec::new();
    for (number, socket) in sockets.iter_mut().enumerate() {
        ids.push(socket.ask(&create(&large(&number.to_string()))).completed().id());
    }
    assert_eq!(weir.figure("weir_socket_state_evicted_total"), 1);
    let bytes = weir.figure("weir_socket_state_bytes");
    assert!((2 * LARGE as i64..=2 * CONVERSATION).contains(&bytes), "{bytes}");
    assert_gone(&mut sockets[0], &ids[0]);
    assert!(
        weir.metrics()
            .contains("weir_socket_continuations_total{state=\"gone\"} 1\n")
    );
    // It sends everything, and drives out the one that was not used since.
    sockets[0].ask(&create(&large("again"))).completed();
    assert_gone(&mut sockets[1], &ids[1]);
    sockets[2].ask(&continuation(&ids[2], "more")).completed();
    drop(sockets);
    wait_until("the memory to be free", || weir.figure("weir_socket_state_bytes") == 0);
}

#[test]
fn a_key_drops_its_own_conversations_beyond_its_share_and_nobody_elses() {
    let provider = provider(&Steps::default());
    let weir = with_memory(&provider, 10 * CONVERSATION, CONVERSATION);
    let (key, other) = (weir.key().text, weir.key().text);
    let mut foreign = WebSocket::open(weir.gateway, &other);
    let of_other = foreign.ask(&create(&large("other"))).completed().id();
    let mut socket = WebSocket::open(weir.gateway, &key);
    let first = socket.ask(&create_in("a", &large("a"))).completed().id();
    let second = socket.ask(&create_in("b", &large("b"))).completed().id();
    let in_lane = |lane: &str, id: &str| {
        let mut frame = create_in(lane, "more");
        frame["previous_response_id"] = id.into();
        frame
    };
    let gone = socket.ask(&in_lane("a", &first));
    gone.refused(400, "previous_response_not_found");
    let grown = socket.ask(&in_lane("b", &second)).completed();
    assert_eq!(grown.text(), words("more"));
    foreign.ask(&continuation(&of_other, "more")).completed();
}

#[test]
fn without_memory_nothing_is_continued_and_everything_is_served() {
    let provider = provider(&Steps::default());
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("sockets.state_bytes_max", 0)
        .start();
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    for prompt in ["hi", "ho"] {
        let id = socket.ask(&create(prompt)).completed().id();
        assert_gone(&mut socket, &id);
    }
    let warm = socket.ask(&warm_up(&json!([]))).completed();
    assert_gone(&mut socket, &warm.id());
}

#[test]
fn a_conversation_that_has_become_larger_than_a_body_may_be_is_refused_as_one() {
    let provider = provider(&Steps::default());
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", 50_000)
        .start();
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let prompt = "x".repeat(30_000);
    let id = socket.ask(&create(&prompt)).completed().id();
    let turn = socket.ask(&continuation(&id, "more"));
    assert_eq!(
        (&turn.last()["type"], &turn.last()["status"]),
        (&"error".into(), &413.into())
    );
    assert_eq!(provider.count(), 1);
    assert_eq!(socket.ask(&create("less")).completed().text(), words("less"));
}
