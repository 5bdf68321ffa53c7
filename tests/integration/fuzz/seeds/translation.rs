//! What fuzzing of translation begins with: the answers of `tests/golden/translation/`, requests that continue them, and states of
//! reasoning.

use std::fs;

use serde_json::{Value as Json, json};

use super::super::entries::translation::{answer_forms, answer_mark};
use crate::harness::tools::repository;

/// An answer as a provider sends it.
struct Recording {
    /// The provider's protocol.
    protocol: String,
    is_stream: bool,
    /// Where a host of `chat/completions` has its reasoning.
    reasoning: String,
    text: String,
}

/// A request of each protocol with most of what a client can say besides its turns.
const OPTIONS: [&str; 3] = [
    r#"{"model":"m","max_tokens":64,"stream":true,"temperature":0.5,"top_k":3,"stop_sequences":["x"],
        "system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
        "thinking":{"type":"enabled","budget_tokens":2048},"output_config":{"effort":"high"},
        "tools":[{"name":"get.it","input_schema":{"type":"object","properties":{"a":{"type":"number"}}}},
        {"type":"bash_20250124","name":"bash"},{"type":"web_search_20250305","name":"web_search"}],
        "tool_choice":{"type":"auto","disable_parallel_tool_use":true},
        "messages":[{"role":"user","content":[{"type":"text","text":"Look"},
        {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},
        {"type":"document","title":"D","source":{"type":"text","media_type":"text/plain","data":"d"}}]}]}"#,
    r##"{"model":"m","max_output_tokens":64,"stream":true,"store":false,"instructions":"Be brief.","prompt_cache_key":"k",
        "reasoning":{"effort":"high","summary":"auto"},"include":["reasoning.encrypted_content"],"tool_choice":"auto",
        "text":{"format":{"type":"json_schema","name":"s","schema":{"type":"object"}},"verbosity":"low"},
        "tools":[{"type":"function","name":"get","strict":true,"parameters":{"type":"object","properties":
        {"a":{"$ref":"#/$defs/b","title":"A"}},"$defs":{"b":{}}}},
        {"type":"custom","name":"exec","format":{"type":"grammar","syntax":"lark","definition":"start: WORD"}},
        {"type":"namespace","name":"mcp","tools":[{"type":"function","name":"read","parameters":{}}]},
        {"type":"local_shell"},{"type":"apply_patch"},{"type":"web_search"}],
        "input":[{"role":"developer","content":"Rules"},{"type":"message","role":"user","content":
        [{"type":"input_text","text":"Look"},{"type":"input_image","image_url":"https://a.example/a.png"}]},
        {"type":"custom_tool_call","call_id":"c","name":"exec","input":"a"},
        {"type":"custom_tool_call_output","call_id":"c","output":"y"}]}"##,
    r#"{"systemInstruction":{"parts":[{"text":"Be brief."}]},"generationConfig":{"maxOutputTokens":64,"topK":3,
        "stopSequences":["x"],"thinkingConfig":{"thinkingBudget":-1,"includeThoughts":true},
        "responseMimeType":"application/json","responseSchema":{"type":"OBJECT","properties":{"a":{"type":"STRING"}}}},
        "tools":[{"functionDeclarations":[{"name":"get","parametersJsonSchema":{"type":"object"}},{"name":"put"}]},
        {"googleSearch":{}}],
        "toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["get"]}},
        "contents":[{"role":"user","parts":[{"text":"Look"},{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}}]}]}"#,
];

/// A state of each kind, behind the text that the client sees with it.
const STATES: [&str; 6] = [
    "Let me see.\n{\"t\":{\"t\":\"Let me see.\",\"s\":\"c2lnbmF0dXJl\"}}",
    "\n{\"r\":{\"d\":\"cmVkYWN0ZWQ=\"}}",
    "Short.\n{\"i\":{\"j\":\"{\\\"id\\\":\\\"rs_1\\\",\\\"type\\\":\\\"reasoning\\\",\\\"summary\\\":[],\\\"encrypted_content\\\":\\\"x\\\"}\"}}",
    "\n{\"g\":{\"s\":\"c2lnbmF0dXJl\"}}",
    "Because.\n{\"c\":{\"t\":\"Because.\"}}",
    // A carrier of the provider that the entry point takes: of the state before this one.
    "Because.\nweir1.pJR0aVne.c.eyJjIjp7InQiOiIifX0",
];

/// All recorded answers.
fn recordings() -> Vec<Recording> {
    let folder = repository().join("tests/golden/translation");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let entries = fs::read_dir(&folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let recordings = names.filter_map(|name| {
        let (case, ending) = name.split_once('.')?;
        let is_stream = match ending {
            "sse" => true,
            "json" => false,
            _ => return None,
        };
        let expected: Json = serde_json::from_str(&read(&format!("{case}.expected.json"))).unwrap();
        let (protocol, _) = case.split_once('-')?;
        Some(Recording {
            protocol: protocol.to_owned(),
            is_stream,
            reasoning: expected["reasoning"].as_str().unwrap_or("reasoning_content").to_owned(),
            text: read(&name),
        })
    });
    recordings.collect()
}

/// The answers of providers with this protocol, each for every form that a client can request.
pub(super) fn answers(protocol: &str) -> Vec<Vec<u8>> {
    let recordings = recordings()
        .into_iter()
        .filter(|recording| recording.protocol == protocol);
    let seeds = recordings.flat_map(|recording| {
        (0..answer_forms()).map(move |form| {
            let mark = answer_mark(form, recording.is_stream, &recording.reasoning);
            [&[mark], recording.text.as_bytes()].concat()
        })
    });
    seeds.collect()
}

/// Requests with many options, and those that continue a recorded answer.
pub(super) fn requests() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = OPTIONS.iter().map(|text| text.as_bytes().to_vec()).collect();
    for recording in recordings().iter().filter(|recording| !recording.is_stream) {
        let answer: Json = serde_json::from_str(&recording.text).unwrap();
        let request = match recording.protocol.as_str() {
            "messages" => after_message(&answer),
            "responses" => after_response(&answer),
            "gemini" => after_candidate(&answer),
            _ => continue,
        };
        all.push(request.to_string().into_bytes());
    }
    all
}

/// States of reasoning, as [`STATES`] has them.
pub(super) fn states() -> Vec<Vec<u8>> {
    STATES.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn after_message(answer: &Json) -> Json {
    let blocks = answer["content"].as_array().unwrap().iter();
    let calls = blocks.filter(|block| block["type"] == "tool_use");
    let results = calls.map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "done"}));
    let mut content: Vec<Json> = results.collect();
    content.push(json!({"type": "text", "text": "Go on"}));
    json!({"model": "m", "max_tokens": 64, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": content},
    ]})
}

fn after_response(answer: &Json) -> Json {
    let output = answer["output"].as_array().unwrap();
    let calls = output.iter().filter(|item| item["type"] == "function_call");
    let results =
        calls.map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "done"}));
    let mut input = vec![json!({"role": "user", "content": "hi"})];
    input.extend(output.iter().cloned());
    input.extend(results);
    input.push(json!({"role": "user", "content": "Go on"}));
    json!({"model": "m", "store": false, "input": input})
}

fn after_candidate(answer: &Json) -> Json {
    let content = &answer["candidates"][0]["content"];
    let parts = content["parts"].as_array().into_iter().flatten();
    let calls = parts.filter_map(|part| part.get("functionCall"));
    let results = calls.map(|call| json!({"functionResponse": {"name": call["name"], "response": {"output": "done"}}}));
    let mut parts: Vec<Json> = results.collect();
    parts.push(json!({"text": "Go on"}));
    json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}, content, {"role": "user", "parts": parts}]})
}
