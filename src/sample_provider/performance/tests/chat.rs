//! The shapes of `chat/completions`, from request to bytes.

use super::*;

const CHAT: UpstreamOperation = UpstreamOperation::ChatCompletions;

fn chat_body() -> Value {
    json!({"model": "sample-1", "stream": true, "stream_options": {"include_usage": true}, "reasoning_effort": "low",
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": schema()}}],
        "messages": [{"role": "user", "content": WEATHER}]})
}

fn perform_chat(body: &Value) -> ScriptedResponse {
    perform(CHAT, GeminiFraming::Sse, body)
}

/// The chunks of a whole stream.
fn chunks(performance: &ScriptedResponse) -> Vec<Value> {
    let text = sent(performance);
    events(text.strip_suffix("data: [DONE]\n\n").unwrap(), "\n\n")
}

fn error(performance: &ScriptedResponse) -> Value {
    let body: Value = serde_json::from_str(&sent(performance)).unwrap();
    body["error"].clone()
}

#[test]
fn a_chat_stream_has_its_role_first_and_its_usage_behind_the_finish_reason() {
    let performance = perform_chat(&chat_body());
    let chunks = chunks(&performance);
    let (last, answer) = chunks.split_last().unwrap();
    let deltas: Vec<&Value> = answer.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    assert_eq!(deltas[0], &json!({"role": "assistant", "content": ""}));
    let mut members: Vec<&str> = Vec::new();
    for delta in &deltas {
        members.extend(delta.as_object().unwrap().keys().map(String::as_str));
    }
    members.dedup();
    assert_eq!(
        members,
        ["role", "content", "reasoning_content", "content", "tool_calls"]
    );
    let reasons: Vec<&Value> = answer
        .iter()
        .map(|chunk| &chunk["choices"][0]["finish_reason"])
        .collect();
    let (reason, before) = reasons.split_last().unwrap();
    assert!(
        *reason == "tool_calls" && before.iter().all(|reason| reason.is_null()),
        "{reasons:?}"
    );
    assert!(answer.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)));
    assert_eq!(last["choices"], json!([]));
    let usage = &last["usage"];
    assert_eq!(usage["prompt_tokens"], performance.bill.input.count);
    assert_eq!(usage["completion_tokens"], performance.bill.answer.tokens());
    let reasoning = usage["completion_tokens_details"]["reasoning_tokens"].as_u64();
    assert_eq!(reasoning, Some(performance.bill.answer.thinking_tokens()));
    assert!(reasoning > Some(0), "{usage}");
}

#[test]
fn the_first_piece_of_a_chat_call_has_its_id_and_name_and_the_others_its_arguments() {
    let chunks = chunks(&perform_chat(&chat_body()));
    let mut pieces: Vec<&Value> = Vec::new();
    for chunk in &chunks {
        pieces.extend(
            chunk["choices"][0]["delta"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten(),
        );
    }
    let (first, others) = pieces.split_first().unwrap();
    let function = json!({"name": "get_weather", "arguments": ""});
    assert_eq!(
        **first,
        json!({"index": 0, "id": "call_00ff", "type": "function", "function": function})
    );
    let arguments: String = others
        .iter()
        .map(|piece| {
            assert!(piece["index"] == 0 && piece.get("id").is_none(), "{piece}");
            piece["function"]["arguments"].as_str().unwrap()
        })
        .collect();
    assert_eq!(arguments, r#"{"location":"Paris"}"#);
}

#[test]
fn a_chat_stream_without_stream_options_reports_no_usage() {
    let mut body = chat_body();
    body["stream_options"] = Value::Null;
    let chunks = chunks(&perform_chat(&body));
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn a_chat_body_says_the_same_as_the_stream() {
    let mut body = chat_body();
    let streamed = chunks(&perform_chat(&body));
    body["stream"] = json!(false);
    let performance = perform_chat(&body);
    let answer: Value = serde_json::from_str(&sent(&performance)).unwrap();
    let choice = &answer["choices"][0];
    for member in ["content", "reasoning_content"] {
        let pieces = streamed.iter().map(|chunk| &chunk["choices"][0]["delta"][member]);
        let text: String = pieces.filter_map(Value::as_str).collect();
        assert!(
            !text.is_empty() && choice["message"][member] == text,
            "{member}: {answer}"
        );
    }
    let function = json!({"name": "get_weather", "arguments": r#"{"location":"Paris"}"#});
    let call = json!({"id": "call_00ff", "type": "function", "function": function});
    assert_eq!(choice["message"]["tool_calls"], json!([call]));
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(answer["usage"], streamed.last().unwrap()["usage"]);
    assert_eq!(
        (&answer["object"], &answer["id"]),
        (&json!("chat.completion"), &json!("chatcmpl-00ff"))
    );
}

#[test]
fn the_result_of_a_chat_call_ends_the_turn_with_a_text() {
    let mut body = chat_body();
    let call = json!({"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}});
    body["messages"] = json!([{"role": "user", "content": WEATHER},
        {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "18 C"}]);
    let performance = perform_chat(&body);
    let last = chunks(&performance);
    assert_eq!(last[last.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert!(
        performance
            .bill
            .answer
            .text
            .concat()
            .starts_with("The tool says \"18 C\".")
    );
}

#[test]
fn a_faulty_chat_request_is_refused_with_a_code_that_names_the_fault() {
    let user = json!({"role": "user", "content": "hi"});
    for (body, expected) in [
        (json!([]), "invalid_body"),
        (json!({"messages": [user]}), "missing_required_parameter"),
        (json!({"model": "m"}), "missing_required_parameter"),
        (json!({"model": "m", "messages": [user], "n": 2}), "unsupported_n"),
        (
            json!({"model": "m", "messages": [{"role": "robot", "content": "hi"}]}),
            "invalid_role",
        ),
        (
            json!({"model": "m", "messages": [{"role": "user", "content": "[[sample: x=1]]"}]}),
            "invalid_script",
        ),
        // The script's status comes after the checks.
        (
            json!({"model": "sample-529", "messages": [user], "n": 2}),
            "unsupported_n",
        ),
    ] {
        let performance = perform_chat(&body);
        let error = error(&performance);
        assert_eq!((performance.status, performance.bill.billed), (400, false), "{error}");
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!(expected), &json!("invalid_request_error"))
        );
        assert!(
            error["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{error}"
        );
    }
}

#[test]
fn a_script_decides_on_thinking_in_every_protocol_and_on_late_system_messages_in_chat() {
    for operation in STREAMS {
        let (performance, _) = marked(operation, "thinking=true");
        assert!(!performance.bill.answer.thinking.is_empty(), "{operation:?}");
    }
    let mut body = chat_body();
    body["messages"][0]["content"] = json!("hi [[sample: thinking=false]]");
    assert!(perform_chat(&body).bill.answer.thinking.is_empty());
    body["messages"] = json!([{"role": "user", "content": "hi [[sample: system_inside=false]]"},
        {"role": "system", "content": "late"}]);
    assert_eq!(error(&perform_chat(&body))["code"], "system_message_inside");
}

#[test]
fn a_chat_script_sets_errors_breaks_and_the_size_of_deltas() {
    let (performance, _) = marked(CHAT, "status=429");
    assert_eq!((performance.status, performance.retry_after), (429, Some(1)));
    assert_eq!(error(&performance)["code"], "rate_limit_exceeded");
    let (performance, text) = marked(CHAT, "deltas=5 delta_bytes=3 cut_after=2");
    assert_eq!(text.matches(r#""delta":{"content":"#).count(), 2, "{text}");
    let last = performance.steps.last();
    assert!(matches!(last, Some(ReplyStep::Break { .. })), "{last:?}");
    let (performance, text) = marked(CHAT, "deltas=5 delta_bytes=3 hidden_tokens=70");
    assert_eq!(performance.bill.answer.thinking_tokens(), 70);
    assert!(
        text.contains(r#""reasoning_tokens":70"#) && text.ends_with("data: [DONE]\n\n"),
        "{text}"
    );
}
