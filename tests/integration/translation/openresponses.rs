//! Open Responses: the cases of its compliance suite (github.com/openresponses/openresponses, Apache-2.0), written anew, over a
//! provider that only speaks `chat/completions`. Each answer and each stream follows the rules of the specification.
//!
//! Where a conversation goes on, the suite names the earlier answer by its id. weir keeps no answers of translated requests, so the
//! client sends the conversation itself here.

use serde_json::{Value as Json, json};

use super::chat_answers::{ChatCall, ChatTurn, DONE, chunk, usage_chunk};
use super::chat_provider::chat_provider;
use super::open_rules::{check_response, check_stream};
use super::stage::{Stage, Upstream};
use super::streams::{events, types};
use crate::harness::RecordingProvider;
use crate::harness::answer::Answer;
use crate::harness::request::Wire;

const TEXT: ChatTurn = ChatTurn {
    reasoning: &[],
    text: &["Hello ", "to ", "you."],
    calls: &[],
};

const CALL: ChatTurn = ChatTurn {
    reasoning: &[],
    text: &[],
    calls: &[ChatCall {
        id: "call_1",
        name: "get_weather",
        arguments: &["{\"location\":", "\"San Francisco, CA\"}"],
    }],
};

/// Reasoning, a text, and two calls whose arguments come in turns.
const EVERYTHING: ChatTurn = ChatTurn {
    reasoning: &["I need ", "both."],
    text: &["One ", "moment."],
    calls: &[
        ChatCall {
            id: "call_1",
            name: "get_weather",
            arguments: &["{\"location\":", "\"Oslo\"}"],
        },
        ChatCall {
            id: "call_2",
            name: "get_weather",
            arguments: &["{\"location\":", "\"Rome\"}"],
        },
    ],
};

/// A provider that answers so, and a gateway before it.
fn stage_with(turn: &'static ChatTurn) -> (RecordingProvider, Stage) {
    stage_of(|body, answer| turn.answer(body, answer))
}

fn stage_of(script: impl Fn(&Json, &mut Answer<'_>) + Send + Sync + 'static) -> (RecordingProvider, Stage) {
    let provider = chat_provider(script);
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    (provider, stage)
}

/// The non-streaming answer, which follows the rules.
#[track_caller]
fn answer(stage: &Stage, body: &Json) -> Json {
    let answer = stage.ask(Wire::Responses, false, body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let response = answer.json();
    check_response(&response);
    response
}

/// The events of the answer as a stream, and its last response object; all follow the rules.
#[track_caller]
fn stream(stage: &Stage, body: &Json) -> (Vec<Json>, Json) {
    let answer = stage.ask(Wire::Responses, true, body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let content_type = answer.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("text/event-stream"), "{content_type}");
    let (events, is_marked) = events(&answer.text());
    let response = check_stream(&events);
    assert_eq!(is_marked, response["status"] != "failed", "{response}");
    (events, response)
}

/// Both forms of the answer, which have the same items but for their ids.
#[track_caller]
fn completed(stage: &Stage, body: &Json) -> Json {
    let whole = answer(stage, body);
    let (_, streamed) = stream(stage, body);
    for response in [&whole, &streamed] {
        assert_eq!(response["status"], "completed", "{response}");
        assert!(!items(response).is_empty(), "{response}");
    }
    let kinds = |response: &Json| -> Vec<Json> { items(response).iter().map(|item| item["type"].clone()).collect() };
    assert_eq!(kinds(&whole), kinds(&streamed));
    whole
}

fn items(response: &Json) -> &Vec<Json> {
    response["output"].as_array().unwrap()
}

fn of_kind<'r>(response: &'r Json, kind: &str) -> Vec<&'r Json> {
    items(response).iter().filter(|item| item["type"] == kind).collect()
}

fn message(role: &str, content: impl Into<Json>) -> Json {
    let content: Json = content.into();
    json!({"type": "message", "role": role, "content": content})
}

fn weather_tool() -> Json {
    json!({
        "type": "function",
        "name": "get_weather",
        "description": "Get the current weather for a location",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}},
            "required": ["location"],
        },
    })
}

fn sent(provider: &RecordingProvider) -> Json {
    serde_json::from_slice(&provider.last().body).unwrap()
}

#[test]
fn a_basic_response() {
    let (_provider, stage) = stage_with(&TEXT);
    for input in [
        json!("Say hello."),
        json!([message("user", "Say hello in exactly 3 words.")]),
    ] {
        let response = completed(&stage, &json!({"input": input}));
        assert_eq!(items(&response)[0]["content"][0]["text"], "Hello to you.");
    }
}

#[test]
fn a_streaming_response() {
    let (_provider, stage) = stage_with(&TEXT);
    let (events, response) = stream(&stage, &json!({"input": [message("user", "Count from 1 to 5.")]}));
    assert_eq!(response["status"], "completed");
    assert_eq!(
        types(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
}

#[test]
fn a_system_prompt() {
    let (provider, stage) = stage_with(&TEXT);
    let input = json!([
        message("system", "You are a pirate. Always respond in pirate speak."),
        message("user", "Say hello."),
    ]);
    completed(&stage, &json!({"input": input}));
    let messages = &sent(&provider)["messages"];
    assert_eq!(messages[0]["role"], "system");
    assert_eq!(
        messages[0]["content"],
        "You are a pirate. Always respond in pirate speak."
    );
}

#[test]
fn a_tool_call() {
    let (_provider, stage) = stage_with(&CALL);
    let question = message("user", "What's the weather like in San Francisco?");
    let body = json!({"input": [question], "tools": [weather_tool()]});
    let response = completed(&stage, &body);
    let call = of_kind(&response, "function_call")[0];
    assert_eq!(
        (&call["name"], &call["call_id"]),
        (&"get_weather".into(), &"call_1".into())
    );
    assert_eq!(response["tools"][0]["name"], "get_weather");
    let (events, _) = stream(&stage, &body);
    let types = types(&events);
    for kind in ["delta", "done"] {
        let kind = format!("response.function_call_arguments.{kind}");
        assert!(types.contains(&&*kind), "{types:?}");
    }
}

#[test]
fn a_function_call_and_its_result() {
    let (provider, stage) = stage_of(|body, answer| {
        let has_result = body.to_string().contains("64 degrees");
        let turn = if has_result { TEXT } else { CALL };
        turn.answer(body, answer);
    });
    let question = message("user", "Use the weather tool to get the temperature in San Francisco.");
    let choice = json!({"type": "function", "name": "get_weather"});
    let body = json!({"input": [&question], "tools": [weather_tool()], "tool_choice": choice});
    let first = completed(&stage, &body);
    assert_eq!(first["tool_choice"], choice);
    let call = of_kind(&first, "function_call")[0];
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "64 degrees and clear"});
    let body = json!({"input": [&question, call, result], "tools": [weather_tool()]});
    let second = completed(&stage, &body);
    assert_eq!(of_kind(&second, "message").len(), 1);
    let messages = &sent(&provider)["messages"];
    assert_eq!(messages[1]["tool_calls"][0]["id"], "call_1");
    assert_eq!(
        messages[2],
        json!({"role": "tool", "tool_call_id": "call_1", "content": "64 degrees and clear"})
    );
}

#[test]
fn a_conversation_of_several_turns() {
    let (provider, stage) = stage_with(&TEXT);
    let input = json!([
        message("user", "My name is Alice."),
        message("assistant", "Hello Alice! Nice to meet you. How can I help you today?"),
        message("user", "What is my name?"),
    ]);
    completed(&stage, &json!({"input": input}));
    let messages = &sent(&provider)["messages"];
    let messages = messages.as_array().unwrap().iter();
    let roles: Vec<&str> = messages.filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
}

#[test]
fn an_image_as_input() {
    // The strict provider takes only texts.
    let provider = RecordingProvider::start(|request, answer| {
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        TEXT.answer(&body, answer);
    });
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    for url in ["data:image/png;base64,iVBORw0KGgo=", "https://images.example/heart.png"] {
        let content = json!([
            {"type": "input_text", "text": "What do you see in this image? Answer in one sentence."},
            {"type": "input_image", "image_url": url},
        ]);
        completed(&stage, &json!({"input": [message("user", content)]}));
        assert_eq!(
            sent(&provider)["messages"][0]["content"][1],
            json!({"type": "image_url", "image_url": {"url": url}})
        );
    }
}

#[test]
fn a_text_file_as_input() {
    let (provider, stage) = stage_with(&TEXT);
    let content = json!([
        {"type": "input_text", "text": "Read the attached file and answer with its title only."},
        {"type": "input_file", "filename": "title.txt", "file_data": "data:text/plain;base64,VGl0bGU6IGZpeHR1cmU="},
    ]);
    completed(&stage, &json!({"input": [message("user", content)]}));
    let text = sent(&provider)["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(text.ends_with("title.txt\n\nTitle: fixture"), "{text}");
}

#[test]
fn reasoning_a_text_and_parallel_calls_are_items_of_their_own() {
    let (_provider, stage) = stage_with(&EVERYTHING);
    let body = json!({
        "input": [message("user", "Where is it warmer?")],
        "tools": [weather_tool()],
        "include": ["reasoning.encrypted_content"],
    });
    let response = completed(&stage, &body);
    let kinds: Vec<&str> = items(&response)
        .iter()
        .filter_map(|item| item["type"].as_str())
        .collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
}

#[test]
fn an_answer_that_was_cut_is_incomplete_and_so_is_its_last_item() {
    let (_provider, stage) = stage_of(|body, answer| {
        if body["stream"] == true {
            answer.sse();
            answer.chunk(chunk(&json!({"role": "assistant", "content": "Once upon"}), None));
            answer.chunk(chunk(&json!({}), Some("length")));
            answer.chunk(usage_chunk());
            answer.chunk(DONE);
            answer.end();
        } else {
            let message = json!({"role": "assistant", "content": "Once upon"});
            let choice = json!({"index": 0, "message": message, "finish_reason": "length"});
            answer.json(&json!({"model": "any", "choices": [choice]}).to_string());
        }
    });
    let body = json!({"input": "Tell a story.", "max_output_tokens": 16});
    let (_, streamed) = stream(&stage, &body);
    for response in [answer(&stage, &body), streamed] {
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
        assert_eq!(items(&response)[0]["status"], "incomplete");
    }
}

#[test]
fn a_stream_that_fails_ends_with_the_failure() {
    let (_provider, stage) = stage_of(|_, answer| {
        answer.sse();
        answer.chunk(chunk(&json!({"role": "assistant", "content": "Once upon"}), None));
        answer.cut();
    });
    let (_, response) = stream(&stage, &json!({"input": "Tell a story."}));
    assert_eq!(response["status"], "failed");
}

#[test]
fn what_needs_state_or_tools_of_a_provider_is_refused_in_the_form_of_an_error() {
    let (provider, stage) = stage_with(&TEXT);
    let pdf =
        json!([{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjEK"}]);
    for (body, status) in [
        (
            json!({"input": "What did I say?", "previous_response_id": "resp_1"}),
            400,
        ),
        (json!({"input": [message("user", pdf)]}), 400),
        (
            json!({"input": "Search.", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}),
            400,
        ),
        (json!({"input": [{"type": "unknown"}]}), 400),
    ] {
        let answer = stage.ask(Wire::Responses, false, &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{error}");
        assert!(error["message"].is_string() && error["code"].is_string(), "{error}");
        assert!(error.get("param").is_some(), "{error}");
    }
    assert_eq!(provider.count(), 0, "something reached the provider");
}
