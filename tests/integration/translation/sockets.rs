//! Translated models over a socket: the provider gets what it gets by POST, and the client the same answer at the same charge.

use serde_json::{Value as Json, json};

use super::chat_provider::chat_provider;
use super::conversation::{Conversation, calls, reported, text};
use super::stage::{MODEL, REPORTED, Stage, Upstream, question};
use super::streams::folded;
use super::turns::agentic_provider;
use crate::harness::RecordingProvider;
use crate::harness::books::{INPUT, cost};
use crate::harness::recordings::events;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::websocket::{WebSocket, handshake};

/// The results of the tools, turn by turn.
const RESULTS: [&[&str]; 2] = [&["18 degrees"], &["3 degrees", "noon"]];

/// A `response.create` with this body for [`MODEL`].
fn create(body: &Json) -> Json {
    let mut frame = json!({"type": "response.create", "model": MODEL});
    let members = body.as_object().unwrap().clone();
    frame.as_object_mut().unwrap().extend(members);
    frame
}

/// The bodies of a provider's requests from the `first` one on.
fn bodies(provider: &RecordingProvider, first: usize) -> Vec<Json> {
    let requests = provider.requests();
    requests[first..]
        .iter()
        .map(|request| serde_json::from_slice(&request.body).unwrap())
        .collect()
}

#[test]
fn three_turns_that_a_socket_continues_are_three_posts_to_the_provider() {
    let provider = agentic_provider();
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    // By POST, with everything each time.
    let mut conversation = Conversation::new(Wire::Responses, "Where is it warmer?");
    for turn in 0..3 {
        let answer = stage.ask(Wire::Responses, true, &conversation.body());
        assert_eq!(answer.status, 200, "{}", answer.text());
        if let Some(results) = RESULTS.get(turn) {
            conversation.add_answer(&folded(Wire::Responses, &answer.text()), results);
        }
    }
    // On a socket, with what is new.
    let mut socket = WebSocket::open(stage.weir.gateway, &stage.key);
    let mut frame = create(&Conversation::new(Wire::Responses, "Where is it warmer?").body());
    let mut last = Json::Null;
    for turn in 0..3 {
        let ended = socket.ask(&frame).completed();
        last = ended.last()["response"].clone();
        assert_eq!(reported(Wire::Responses, &last), REPORTED, "{last}");
        let Some(results) = RESULTS.get(turn) else { break };
        let called = calls(Wire::Responses, &last);
        let outputs = called
            .iter()
            .zip(*results)
            .map(|(call, text)| json!({"type": "function_call_output", "call_id": call.id, "output": text}));
        frame["input"] = Json::Array(outputs.collect());
        frame["previous_response_id"] = ended.id().into();
    }
    assert_eq!(text(Wire::Responses, &last), "Rome is warmer.");
    let by_socket = bodies(&provider, 3);
    assert_eq!(by_socket.len(), 3);
    assert_eq!(by_socket, bodies(&provider, 0)[..3]);
    let books = stage.weir.books(6);
    let mut costs: Vec<i64> = books.rows.iter().map(cost).collect();
    costs.dedup();
    assert_eq!(costs.len(), 1, "{costs:?}");
}

/// Answers with the recorded stream of this protocol.
fn recorded(wire: Wire) -> RecordingProvider {
    RecordingProvider::start(move |_, answer| {
        answer.sse();
        events(wire).iter().for_each(|event| answer.chunk(event));
        answer.end();
    })
}

#[test]
fn a_request_on_a_socket_to_a_provider_of_another_protocol_is_billed_like_the_post() {
    for upstream in ALL_WIRES {
        let provider = recorded(upstream);
        let stage = Stage::start(Upstream::Of(upstream), &provider.base_url(), "strict");
        let body = question(Wire::Responses, "hi");
        let answer = stage.ask(Wire::Responses, true, &body);
        assert_eq!(answer.status, 200, "{upstream:?}: {}", answer.text());
        let mut socket = WebSocket::open(stage.weir.gateway, &stage.key);
        let turn = socket.ask(&create(&body)).completed();
        assert!(
            turn.text().starts_with("Hello w\u{f6}rld"),
            "{upstream:?}: {}",
            turn.text()
        );
        let books = stage.weir.books(2);
        let parts = |row: &Json| -> Vec<Json> {
            let names = INPUT
                .into_iter()
                .chain(["output_text", "output_reasoning", "cost_nano_usd"]);
            names.map(|name| row[name].clone()).collect()
        };
        assert_eq!(parts(&books.rows[0]), parts(&books.rows[1]), "{upstream:?}");
        assert!(cost(&books.rows[0]) > 0);
        let requests = provider.requests();
        let names = |at: usize| -> Vec<&String> { requests[at].headers.iter().map(|(name, _)| name).collect() };
        assert!(
            names(1).iter().all(|name| !name.starts_with("sec-websocket")),
            "{:?}",
            names(1)
        );
    }
}

#[test]
fn what_cannot_be_translated_is_refused_on_a_socket_in_the_words_of_a_post() {
    let provider = chat_provider(|_, answer| answer.least());
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    let mut body = question(Wire::Responses, "hi");
    body["conversation"] = "conv_1".into();
    let mut file = question(Wire::Responses, "hi");
    let content = json!([{"type": "input_file", "file_id": "file-1"}]);
    file["input"] = json!([{"type": "message", "role": "user", "content": content}]);
    let mut socket = WebSocket::open_with(stage.weir.gateway, &handshake(&stage.key));
    for body in [body, file] {
        let answer = stage.ask(Wire::Responses, true, &body);
        assert!([400, 404].contains(&answer.status), "{}", answer.text());
        let expected = answer.json()["error"].clone();
        let event = socket
            .ask(&create(&body))
            .refused(answer.status, expected["code"].as_str().unwrap());
        assert_eq!(event["error"], expected);
    }
    assert_eq!(provider.count(), 0);
}
