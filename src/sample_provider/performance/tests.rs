//! The shapes of the protocols, from request to bytes.

mod chat;

use serde_json::json;

use super::{super::tokens::count, *};

fn target(operation: UpstreamOperation) -> PathTarget {
    let model = (operation.protocol() == UpstreamProtocol::Gemini).then(|| "sample-1".to_owned());
    PathTarget { operation, model }
}

fn perform(operation: impl Into<UpstreamOperation>, chunking: GeminiFraming, body: &Value) -> ScriptedResponse {
    let (target, body) = (target(operation.into()), body.to_string());
    let order = RawSampleRequest {
        target: &target,
        chunking,
        body: body.as_bytes(),
        id: "00ff",
        request_id: "req_00ff",
        created_at: 1_700_000_000,
        prompt_cache: &PromptCache::default(),
    };
    respond(&order, &SampleSettings::default())
}

fn sent(performance: &ScriptedResponse) -> String {
    let mut sent = Vec::new();
    for step in performance.steps.iter() {
        if let ReplyStep::Send { bytes, .. } = step {
            sent.extend_from_slice(bytes);
        }
    }
    String::from_utf8(sent).unwrap()
}

/// The JSON of every event of a stream, after checking that its frames are whole.
fn events(text: &str, end: &str) -> Vec<Value> {
    assert!(text.ends_with(end));
    text.split(end)
        .filter(|frame| !frame.is_empty())
        .map(|frame| {
            let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            if let Some(name) = frame.lines().find_map(|line| line.strip_prefix("event: ")) {
                assert_eq!(data["type"], name);
            }
            data
        })
        .collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

const WEATHER: &str = "weather?";

fn schema() -> Value {
    json!({"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]})
}

fn messages_body() -> Value {
    json!({"model": "sample-1", "max_tokens": 9, "stream": true, "thinking": {"type": "adaptive"},
        "tools": [{"name": "get_weather", "input_schema": schema()}],
        "messages": [{"role": "user", "content": WEATHER}]})
}

fn responses_body() -> Value {
    json!({"model": "sample-1", "stream": true, "reasoning": {"effort": "low"}, "input": WEATHER,
        "tools": [{"type": "function", "name": "get_weather", "parameters": schema()}]})
}

fn gemini_body() -> Value {
    json!({"contents": [{"parts": [{"text": WEATHER}]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
        "tools": [{"functionDeclarations": [{"name": "get_weather", "parameters": schema()}]}]})
}

#[test]
fn a_messages_stream_has_its_events_in_order_and_its_usage_at_both_ends() {
    let performance = perform(Operation::Messages, GeminiFraming::Sse, &messages_body());
    let events = events(&sent(&performance), "\n\n");
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let expected = [
        &["message_start", "ping"][..],
        &block,
        &block,
        &block,
        &["message_delta", "message_stop"],
    ]
    .concat();
    assert_eq!(kinds(&events), expected);
    let usage = &events[0]["message"]["usage"];
    assert_eq!(usage["output_tokens"], 1);
    assert_eq!(usage["input_tokens"], performance.bill.input.count);
    assert_eq!(usage["cache_creation"]["ephemeral_1h_input_tokens"], 0);
    let last = &events[events.len() - 2];
    assert_eq!(last["delta"]["stop_reason"], "tool_use");
    assert_eq!(last["usage"]["output_tokens"], performance.bill.answer.tokens());
    assert!(
        last["usage"]["output_tokens_details"]["thinking_tokens"]
            .as_u64()
            .unwrap()
            > 0
    );
    let input: String = events
        .iter()
        .filter_map(|event| event["delta"]["partial_json"].as_str())
        .collect();
    assert_eq!(input, r#"{"location":"Paris"}"#);
    assert!(events.iter().any(|event| event["delta"]["type"] == "signature_delta"));
}

#[test]
fn a_responses_stream_is_numbered_and_completed_with_full_usage() {
    let performance = perform(Operation::Responses, GeminiFraming::Sse, &responses_body());
    let events = events(&sent(&performance), "\n\n");
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let expected = "created in_progress output_item.added reasoning_summary_part.added reasoning_summary_text.delta \
        reasoning_summary_text.done reasoning_summary_part.done output_item.done output_item.added content_part.added \
        output_text.delta output_text.done content_part.done output_item.done output_item.added \
        function_call_arguments.delta function_call_arguments.done output_item.done completed";
    let expected: Vec<String> = expected
        .split_whitespace()
        .map(|kind| format!("response.{kind}"))
        .collect();
    assert_eq!(kinds(&events), expected);
    let response = &events.last().unwrap()["response"];
    let output: Vec<&str> = response["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["type"].as_str().unwrap())
        .collect();
    assert_eq!(output, ["reasoning", "message", "function_call"]);
    let usage = &response["usage"];
    assert_eq!(usage["output_tokens"], performance.bill.answer.tokens());
    assert_eq!(
        usage["input_tokens_details"],
        json!({"cached_tokens": 0, "cache_write_tokens": 0})
    );
    assert!(usage["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
    assert_eq!(events[0]["response"]["usage"], Value::Null);
}

#[test]
fn gemini_streams_have_cumulative_usage_in_both_framings() {
    let performance = perform(Operation::StreamGenerateContent, GeminiFraming::Sse, &gemini_body());
    let chunks = events(&sent(&performance), "\r\n\r\n");
    let array = perform(Operation::StreamGenerateContent, GeminiFraming::Array, &gemini_body());
    let text = sent(&array);
    assert!(text.contains("}\n,\r\n{") && text.ends_with("}\n]"));
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        Value::Array(chunks.clone())
    );
    let totals: Vec<u64> = chunks
        .iter()
        .map(|chunk| chunk["usageMetadata"]["totalTokenCount"].as_u64().unwrap())
        .collect();
    assert!(totals.is_sorted());
    let last = chunks.last().unwrap();
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    let usage = &last["usageMetadata"];
    let output = usage["candidatesTokenCount"].as_u64().unwrap() + usage["thoughtsTokenCount"].as_u64().unwrap();
    assert_eq!(output, performance.bill.answer.tokens());
    assert_eq!(chunks[0]["candidates"][0]["content"]["parts"][0]["thought"], true);
    let parts: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["candidates"][0]["content"]["parts"][0])
        .collect();
    assert!(
        parts
            .iter()
            .any(|part| part["functionCall"]["args"]["location"] == "Paris")
    );
}

#[test]
fn unary_bodies_say_the_same_as_the_streams() {
    let mut body = messages_body();
    body["stream"] = json!(false);
    let performance = perform(Operation::Messages, GeminiFraming::Sse, &body);
    let message: Value = serde_json::from_str(&sent(&performance)).unwrap();
    assert_eq!(message["content"][2]["input"]["location"], "Paris");
    assert_eq!(message["usage"]["output_tokens"], performance.bill.answer.tokens());
    let mut body = responses_body();
    body["stream"] = json!(false);
    let performance = perform(Operation::Responses, GeminiFraming::Sse, &body);
    let response: Value = serde_json::from_str(&sent(&performance)).unwrap();
    assert_eq!(
        (response["status"].as_str(), response["output"][2]["name"].as_str()),
        (Some("completed"), Some("get_weather"))
    );
    let performance = perform(Operation::GenerateContent, GeminiFraming::Array, &gemini_body());
    let response: Value = serde_json::from_str(&sent(&performance)).unwrap();
    assert_eq!(
        response["candidates"][0]["content"]["parts"][2]["functionCall"]["name"],
        "get_weather"
    );
    assert_eq!(performance.length, Some(sent(&performance).len() as u64));
}

fn marked(operation: impl Into<UpstreamOperation>, mark: &str) -> (ScriptedResponse, String) {
    let prompt = format!("hi [[sample: {mark}]]");
    let body = json!({"model": "sample-1", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": prompt}], "input": prompt, "contents": [{"parts": [{"text": prompt}]}]});
    let performance = perform(operation, GeminiFraming::Sse, &body);
    let sent = sent(&performance);
    (performance, sent)
}

const STREAMS: [UpstreamOperation; 4] = [
    UpstreamOperation::Client(Operation::Messages),
    UpstreamOperation::Client(Operation::Responses),
    UpstreamOperation::Client(Operation::StreamGenerateContent),
    UpstreamOperation::ChatCompletions,
];

#[test]
fn odd_usage_is_reported_in_every_protocol_and_never_billed() {
    for operation in STREAMS {
        let (_, none) = marked(operation, "usage=none");
        for word in ["input_tokens", "TokenCount", "prompt_tokens"] {
            assert!(!none.contains(word), "{none}");
        }
        let (performance, absurd) = marked(operation, "usage=absurd");
        assert!(absurd.contains("9223372036854775807"));
        assert!(performance.bill.input.count < 100);
        assert!(marked(operation, "usage=negative").1.contains("-7"));
        let (_, cached) = marked(operation, "cache_read=1111 cache_write=2222");
        assert!(cached.contains("1111"));
    }
}

#[test]
fn errors_have_the_shape_of_the_protocol() {
    let (performance, body) = marked(Operation::Messages, "status=529");
    assert_eq!((performance.status, performance.bill.billed), (529, false));
    let error: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&error["error"]["type"], &error["request_id"]),
        (&json!("overloaded_error"), &json!("req_00ff"))
    );
    let (performance, body) = marked(Operation::Responses, "status=429");
    assert_eq!(performance.retry_after, Some(1));
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap()["error"]["code"],
        "rate_limit_exceeded"
    );
    let (performance, body) = marked(Operation::StreamGenerateContent, "status=429 retry_after=7");
    let error: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(error["error"]["status"], "RESOURCE_EXHAUSTED");
    assert_eq!(
        (performance.retry_after, &error["error"]["details"][0]["retryDelay"]),
        (Some(7), &json!("7s"))
    );
    let (performance, body) = marked(Operation::Messages, "status=502 content_type=text/html");
    assert!(body.starts_with("<!DOCTYPE html>") && performance.content_type == "text/html");
}

#[test]
fn an_unknown_order_is_refused_by_name_in_every_protocol() {
    for operation in STREAMS {
        let (performance, body) = marked(operation, "detlas=3");
        assert_eq!(performance.status, 400);
        assert!(body.contains("`detlas`"), "{body}");
    }
}

#[test]
fn in_band_errors_keep_the_framing() {
    for operation in STREAMS {
        let (performance, text) = marked(operation, "in_band_error_after=1");
        let end = if operation.protocol() == UpstreamProtocol::Gemini {
            "\r\n\r\n"
        } else {
            "\n\n"
        };
        let events = events(&text, end);
        let last = events.last().unwrap();
        assert!(
            last["type"] == "error"
                || last["type"] == "response.failed"
                || last["error"]["code"] == 503
                || last["error"]["type"] == "server_error",
            "{last}"
        );
        if operation == UpstreamOperation::Client(Operation::Responses) {
            assert_eq!(last["sequence_number"], events.len() - 1);
        }
        assert_eq!(performance.status, 200);
    }
    let body = gemini_body();
    let settings = SampleSettings {
        script: SampleScript {
            in_band_error_after: Some(0),
            ..SampleScript::default()
        },
        ..SampleSettings::default()
    };
    let (target, body) = (target(Operation::StreamGenerateContent.into()), body.to_string());
    let order = RawSampleRequest {
        target: &target,
        chunking: GeminiFraming::Array,
        body: body.as_bytes(),
        id: "0",
        request_id: "r",
        created_at: 0,
        prompt_cache: &PromptCache::default(),
    };
    let array: Value = serde_json::from_str(&sent(&respond(&order, &settings))).unwrap();
    assert_eq!(array[0]["error"]["status"], "UNAVAILABLE");
}

#[test]
fn counting_tokens_is_free_and_exact() {
    let tokens = count("Hello world");
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hello world"}]});
    let performance = perform(Operation::CountTokens, GeminiFraming::Sse, &body);
    assert_eq!(
        (sent(&performance).as_str(), performance.bill.billed),
        (format!(r#"{{"input_tokens":{tokens}}}"#).as_str(), false)
    );
    let body = json!({"generateContentRequest": {"contents": [{"parts": [{"text": "Hello world"}]}]}});
    let performance = perform(Operation::GeminiCountTokens, GeminiFraming::Sse, &body);
    assert!(sent(&performance).starts_with(&format!(r#"{{"totalTokens":{tokens}"#)));
}
