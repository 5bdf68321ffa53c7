//! Each further pair of protocols: a streamed turn with a call of a tool, and the answer to its result. The provider gets the
//! opaque state of its reasoning back as it made it.

use serde_json::{Value as Json, json};

use super::chat_answers::{ChatCall, ChatTurn};
use super::chat_provider::{CHAT_PATH, chat_provider, check_head, refuse};
use super::conversation::{Conversation, SYSTEM, calls, reported, stop, text, thought};
use super::other_providers::{STATE, TEXT, THOUGHT, call_events, reasoning_item, text_events};
use super::stage::{CHARGE, MODEL, REPORTED, Stage, TRANSLATION, UPSTREAM_MODEL, Upstream, billed, protocol};
use super::streams::folded;
use crate::harness::RecordingProvider;
use crate::harness::books::cost;
use crate::harness::provider::Recorded;
use crate::harness::request::Wire;

/// What the tool answers.
const RESULT: &str = "18 degrees";

const CALL: ChatTurn = ChatTurn {
    reasoning: &[THOUGHT],
    text: &[],
    calls: &[ChatCall {
        id: "call_1",
        name: "weather",
        arguments: &["{\"city\":", "\"Rome\"}"],
    }],
};

const ANSWER: ChatTurn = ChatTurn {
    reasoning: &[],
    text: &[TEXT],
    calls: &[],
};

/// Calls the tool, and answers once it has the result.
fn provider(upstream: Upstream) -> RecordingProvider {
    let Upstream::Of(wire) = upstream else {
        return chat_provider(|body, answer| {
            let turn = if body.to_string().contains(RESULT) {
                ANSWER
            } else {
                CALL
            };
            turn.answer(body, answer);
        });
    };
    RecordingProvider::start(move |request, answer| {
        if let Err(fault) = check_head(request) {
            return refuse(&fault, answer);
        }
        let has_result = String::from_utf8_lossy(&request.body).contains(RESULT);
        let events = if has_result {
            text_events(wire)
        } else {
            call_events(wire)
        };
        answer.sse();
        events.iter().for_each(|event| answer.chunk(event));
        answer.end();
    })
}

fn body(request: &Recorded) -> Json {
    serde_json::from_slice(&request.body).unwrap()
}

/// Checks the target and what each request of this protocol must have beside its turns; returns the turns.
fn check_request(upstream: Upstream, request: &Recorded) -> Vec<Json> {
    let body = body(request);
    let (target, model, system, tool, turns) = match upstream {
        Upstream::Chat => (
            CHAT_PATH.to_owned(),
            &body["model"],
            &body["messages"][0]["content"],
            &body["tools"][0]["function"]["name"],
            &body["messages"],
        ),
        Upstream::Of(Wire::Messages) => (
            "/v1/messages".to_owned(),
            &body["model"],
            &body["system"][0]["text"],
            &body["tools"][0]["name"],
            &body["messages"],
        ),
        Upstream::Of(Wire::Responses) => (
            "/v1/responses".to_owned(),
            &body["model"],
            &body["instructions"],
            &body["tools"][0]["name"],
            &body["input"],
        ),
        Upstream::Of(Wire::Gemini) => (
            format!("/v1beta/models/{UPSTREAM_MODEL}:streamGenerateContent?alt=sse"),
            &body["model"],
            &body["systemInstruction"]["parts"][0]["text"],
            &body["tools"][0]["functionDeclarations"][0]["name"],
            &body["contents"],
        ),
    };
    assert_eq!(request.target, target);
    assert!(model.is_null() || *model == UPSTREAM_MODEL, "{body}");
    assert_eq!((system, tool), (&SYSTEM.into(), &"weather".into()), "{body}");
    match upstream {
        Upstream::Of(Wire::Messages) => assert!(body["max_tokens"].is_u64() && body["stream"] == true, "{body}"),
        Upstream::Of(Wire::Responses) => {
            let include = json!(["reasoning.encrypted_content"]);
            assert_eq!((&body["store"], &body["include"]), (&false.into(), &include), "{body}");
        }
        Upstream::Of(Wire::Gemini) => assert_eq!(body.get("stream"), None, "{body}"),
        Upstream::Chat => {}
    }
    turns.as_array().unwrap().clone()
}

/// The call, its result and the state of the reasoning stand in the second request as the provider made them. `id` is that of
/// the call at the client.
fn check_history(upstream: Upstream, turns: &[Json], id: Option<&str>) {
    match upstream {
        Upstream::Chat => {
            assert_eq!(turns[2]["reasoning_content"], THOUGHT, "{turns:?}");
            assert_eq!(turns[2]["tool_calls"][0]["id"], "call_1", "{turns:?}");
            let result = json!({"role": "tool", "tool_call_id": "call_1", "content": RESULT});
            assert_eq!(turns[3], result);
        }
        Upstream::Of(Wire::Messages) => {
            let content = json!([
                {"type": "thinking", "thinking": THOUGHT, "signature": STATE},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            ]);
            assert_eq!(turns[1]["content"], content);
            let results = json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": RESULT}]);
            assert_eq!(turns[2]["content"], results);
        }
        Upstream::Of(Wire::Responses) => {
            let call = json!({
                "type": "function_call",
                "call_id": "call_1",
                "name": "weather",
                "arguments": "{\"city\":\"Rome\"}",
            });
            let result = json!({"type": "function_call_output", "call_id": "call_1", "output": RESULT});
            assert_eq!(turns[1..], [reasoning_item(), call, result]);
        }
        Upstream::Of(Wire::Gemini) => {
            let part = &turns[1]["parts"][0];
            assert_eq!(part["thoughtSignature"], STATE, "{turns:?}");
            let (name, args) = (&part["functionCall"]["name"], &part["functionCall"]["args"]);
            assert_eq!((name, args), (&"weather".into(), &json!({"city": "Rome"})));
            let result = &turns[2]["parts"][0]["functionResponse"];
            assert_eq!(result["name"], "weather", "{turns:?}");
            assert_eq!(result["response"]["output"], RESULT, "{turns:?}");
            // The provider has given the call no id. It gets the client's, the same in both places.
            assert_eq!(
                (result["id"].as_str(), &part["functionCall"]["id"]),
                (id, &result["id"])
            );
        }
    }
}

/// A call, its result, and the answer, all in streams.
fn converse(wire: Wire, upstream: Upstream) {
    let provider = provider(upstream);
    let stage = Stage::start(upstream, &provider.base_url(), "strict");
    let mut conversation = Conversation::new(wire, "How is it in Rome?");

    let answer = stage.ask(wire, true, &conversation.body());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let way = format!("from={}, to={}", protocol(wire), upstream.name());
    assert!(
        answer
            .header(TRANSLATION)
            .is_some_and(|header| header.starts_with(&way))
    );
    check_request(upstream, &provider.last());
    let called = folded(wire, &answer.text());
    // Gemini clients get reasoning only if they ask for it.
    let (end, shown) = match wire {
        Wire::Messages => ("tool_use", THOUGHT),
        Wire::Responses => ("completed", THOUGHT),
        Wire::Gemini => ("STOP", ""),
    };
    assert_eq!(
        (stop(wire, &called), &*thought(wire, &called)),
        (end, shown),
        "{called}"
    );
    let found = calls(wire, &called);
    assert_eq!(found.len(), 1, "{called}");
    assert_eq!(
        (&*found[0].name, &found[0].arguments),
        ("weather", &json!({"city": "Rome"}))
    );
    assert_eq!(reported(wire, &called), REPORTED, "{called}");

    conversation.add_answer(&called, &[RESULT]);
    let answer = stage.ask(wire, true, &conversation.body());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let turns = check_request(upstream, &provider.last());
    check_history(upstream, &turns, found[0].id.as_deref());
    let whole = folded(wire, &answer.text());
    assert_eq!(text(wire, &whole), TEXT, "{whole}");
    assert_eq!(reported(wire, &whole), REPORTED, "{whole}");

    for row in stage.weir.books(2).rows {
        assert_eq!(
            (&row["protocol"], &row["model"]),
            (&protocol(wire).into(), &MODEL.into()),
            "{row}"
        );
        assert_eq!(
            (billed(&row), &row["usage_source"]),
            (REPORTED, &"reported".into()),
            "{row}"
        );
        assert_eq!(cost(&row), CHARGE, "{row}");
    }
}

#[test]
fn a_messages_client_calls_a_tool_through_a_responses_provider() {
    converse(Wire::Messages, Upstream::Of(Wire::Responses));
}

#[test]
fn a_responses_client_calls_a_tool_through_a_messages_provider() {
    converse(Wire::Responses, Upstream::Of(Wire::Messages));
}

#[test]
fn a_messages_client_calls_a_tool_through_a_gemini_provider() {
    converse(Wire::Messages, Upstream::Of(Wire::Gemini));
}

#[test]
fn a_responses_client_calls_a_tool_through_a_gemini_provider() {
    converse(Wire::Responses, Upstream::Of(Wire::Gemini));
}

#[test]
fn a_gemini_client_calls_a_tool_through_a_messages_provider() {
    converse(Wire::Gemini, Upstream::Of(Wire::Messages));
}

#[test]
fn a_gemini_client_calls_a_tool_through_a_responses_provider() {
    converse(Wire::Gemini, Upstream::Of(Wire::Responses));
}

#[test]
fn a_gemini_client_calls_a_tool_through_a_chat_provider() {
    converse(Wire::Gemini, Upstream::Chat);
}

#[test]
fn a_gemini_provider_gets_contents_of_alternating_roles() {
    let upstream = Upstream::Of(Wire::Gemini);
    let provider = provider(upstream);
    let stage = Stage::start(upstream, &provider.base_url(), "strict");
    // Claude Code adds a message of the system behind the user's first one.
    let body = json!({
        "max_tokens": 512,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": RESULT},
        ],
    });
    let answer = stage.ask(Wire::Messages, true, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let parts = json!([{"text": "hi"}, {"text": "<system>Be brief.</system>"}, {"text": RESULT}]);
    let sent: Json = serde_json::from_slice(&provider.last().body).unwrap();
    assert_eq!(sent["contents"], json!([{"role": "user", "parts": parts}]), "{sent}");
}
