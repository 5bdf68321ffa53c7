//! Answers and requests of any content: nothing panics, memory is bounded, and what is written obeys its protocol.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::{TARGETS, client_bytes, clients::read_answer, forms, frame, maker, recordings::Recording, translation};
use crate::domain::{
    translation::{
        TranslationTarget,
        answer::{ANSWER_BYTES_MAX, AnswerFault, EVENT_BYTES_MAX, write::AnswerForm},
        losses::{HEADER_BYTES_MAX, TranslationMode},
        translate_request,
        translator::AnswerTranslator,
    },
    wire::{Protocol, UpstreamProtocol, usage::Usage},
};

/// The maximum length of a written answer, apart from what grows with the provider's bytes.
const ANSWER_BYTES: usize = 16 * 1024;
/// The maximum number of bytes that a client gets for each byte of the provider.
const ANSWER_FACTOR: usize = 200;
/// The maximum length of a translated request, apart from what grows with the client's bytes.
const REQUEST_BYTES: usize = 16 * 1024;
/// The maximum number of bytes that a provider gets for each byte of the client.
const REQUEST_FACTOR: usize = 50;
/// What the header of losses can have in addition: the number of those that it leaves out.
const HEADER_MORE_BYTES: usize = 24;

/// Pieces that mean something in an answer.
const WORDS: [&str; 28] = [
    "data: ",
    "data: [DONE]\n\n",
    "event: error\n",
    ": comment\n",
    "\n\n",
    "\r\n\r\n",
    "\r",
    "\u{2028}",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "\\",
    "null",
    "0",
    "\"index\":1,",
    "\"output_index\":0,",
    "\"type\":\"error\",",
    "\"error\":{\"code\":429},",
    "\"finish_reason\":\"stop\",",
    "\"finishReason\":\"SAFETY\",",
    "\"stop_reason\":\"refusal\",",
    "\"refusal\":\"no\",",
    "\"arguments\":\"{}\",",
    "\"thought\":true,",
    "\"id\":\"\",",
];

fn clients() -> impl Strategy<Value = Protocol> {
    select(Protocol::ALL.to_vec())
}

fn targets() -> impl Strategy<Value = UpstreamProtocol> {
    select(TARGETS.to_vec())
}

/// The text of an answer with these changes: a kind, a position, and a length or the number of a word.
fn changed(text: &str, changes: &[(u8, usize, usize)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (kind, position, length) in changes.iter().copied() {
        let begin = position % (bytes.len() + 1);
        let end = (begin + length % 80).min(bytes.len());
        match kind {
            0 => bytes.truncate(begin),
            1 => drop(bytes.drain(begin..end)),
            2 => {
                let again = bytes[begin..end].to_vec();
                drop(bytes.splice(begin..begin, again));
            }
            3 => drop(bytes.splice(begin..begin, WORDS[length % WORDS.len()].bytes())),
            _ => {
                if let Some(byte) = bytes.get_mut(begin) {
                    *byte = u8::try_from(length % 256).unwrap();
                }
            }
        }
    }
    bytes
}

/// The events of a stream with these changes: a kind, and two positions.
fn reordered(stream: &str, changes: &[(u8, usize, usize)]) -> Vec<u8> {
    let stream = stream.replace("\r\n", "\n");
    let mut events: Vec<&str> = stream.split_inclusive("\n\n").collect();
    for (kind, first, second) in changes.iter().copied() {
        if events.is_empty() {
            break;
        }
        let (first, second) = (first % events.len(), second % events.len());
        match kind {
            0 => {
                events.remove(first);
            }
            1 => events.insert(second, events[first]),
            _ => events.swap(first, second),
        }
    }
    events.concat().into_bytes()
}

/// Checks an answer of any content in all forms that the client can request.
fn check_answer(target: UpstreamProtocol, client: Protocol, is_stream: bool, bytes: &[u8]) {
    let translation = translation(client, target);
    for form in forms(client) {
        let written = |size: usize| {
            let pieces = bytes.chunks(size);
            client_bytes(&translation, frame(*form, true), is_stream, pieces, &Usage::default())
        };
        let answer = written(bytes.len().max(1));
        assert_eq!(written(1), answer, "byte by byte");
        assert_eq!(written(7), answer, "in pieces of 7 bytes");
        assert!(answer.text.len() <= ANSWER_BYTES + bytes.len() * ANSWER_FACTOR);
        let is_good = answer.is_complete && answer.fault.is_none();
        if *form == AnswerForm::Whole && !is_good {
            assert_eq!(answer.text, "");
        } else {
            let read = read_answer(client, *form, &answer.text);
            assert!(
                is_good || read.error.is_some(),
                "{:?} without an error: {}",
                answer.fault,
                answer.text
            );
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_become_an_answer_of_the_clients_protocol(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        is_stream: bool,
        client in clients(),
        target in targets(),
    ) {
        check_answer(target, client, is_stream, &bytes);
    }

    #[test]
    fn a_damaged_stream_becomes_an_answer_of_the_clients_protocol(
        number in any::<prop::sample::Index>(),
        changes in prop::collection::vec((0..5_u8, any::<usize>(), any::<usize>()), 0..6),
        client in clients(),
    ) {
        let recording = number.get(Recording::all());
        check_answer(recording.protocol, client, true, &changed(&recording.stream, &changes));
    }

    #[test]
    fn a_damaged_body_becomes_an_answer_of_the_clients_protocol(
        number in any::<prop::sample::Index>(),
        changes in prop::collection::vec((0..5_u8, any::<usize>(), any::<usize>()), 0..4),
        client in clients(),
        target in targets(),
    ) {
        let recording = number.get(Recording::all());
        let body = recording.body.as_deref().unwrap_or("{}");
        check_answer(recording.protocol, client, false, &changed(body, &changes));
        // A body of another protocol, and a body in the place of a stream.
        check_answer(target, client, false, &changed(body, &changes));
        check_answer(recording.protocol, client, true, &changed(body, &changes));
    }

    #[test]
    fn events_in_any_order_become_an_answer_of_the_clients_protocol(
        number in any::<prop::sample::Index>(),
        changes in prop::collection::vec((0..3_u8, any::<usize>(), any::<usize>()), 0..8),
        client in clients(),
        target in targets(),
    ) {
        let recording = number.get(Recording::all());
        let stream = reordered(&recording.stream, &changes);
        check_answer(recording.protocol, client, true, &stream);
        check_answer(target, client, true, &stream);
    }
}

#[test]
fn marks_and_comments_of_a_provider_never_reach_a_gemini_client() {
    for recording in Recording::all() {
        let stream = format!(": comment\n\n{}data: [DONE]\n\n: comment\n\n", recording.stream);
        let translation = recording.translation(Protocol::Gemini);
        if recording.protocol == UpstreamProtocol::Gemini {
            // A Gemini provider has no such mark either, and it is no chunk.
            continue;
        }
        let frame = frame(AnswerForm::Stream, true);
        let pieces = [stream.as_bytes()];
        let answer = client_bytes(&translation, frame, true, pieces, &recording.expected.usage);
        let as_recorded = recording.stream_answer(Protocol::Gemini, (AnswerForm::Stream, true));
        assert_eq!(answer, as_recorded, "{}", recording.name);
        assert!(!answer.text.contains("[DONE]") && !answer.text.contains("comment"));
    }
}

#[test]
fn an_event_without_an_end_is_a_fault_and_is_not_kept() {
    for target in TARGETS {
        for client in Protocol::ALL {
            let translation = translation(client, target);
            let mut translator = AnswerTranslator::new(&translation, frame(AnswerForm::Stream, true), true);
            let mut out = String::new();
            translator.push(b"data: ", &mut out);
            let piece = [b'x'; 64 * 1024];
            for _ in 0..EVENT_BYTES_MAX / piece.len() {
                translator.push(&piece, &mut out);
                assert_eq!(translator.fault(), None);
            }
            translator.push(&piece, &mut out);
            assert_eq!(
                translator.fault(),
                Some(AnswerFault::EventTooLarge),
                "{client:?} {target:?}"
            );
            assert_eq!(out, "");
        }
    }
}

/// The events of a stream, with a request of this length in the response object of those that have one.
fn with_long_request(stream: &str, length: usize, has_names: bool) -> String {
    let response = format!(r#""response":{{"instructions":"{}","#, "x".repeat(length));
    let lines = stream.split_inclusive('\n');
    let lines = lines.filter(|line| has_names || !line.starts_with("event: "));
    lines.collect::<String>().replace(r#""response":{"#, &response)
}

#[test]
fn a_large_event_with_the_response_object_is_read_without_being_held() {
    for case in ["text", "cut-call"] {
        let recording = Recording::of(UpstreamProtocol::Responses, case);
        for client in Protocol::ALL {
            for form in forms(client) {
                let as_recorded = recording.stream_answer(client, (*form, true));
                for (has_names, size) in [(true, usize::MAX), (false, 64 * 1024)] {
                    let stream = with_long_request(&recording.stream, EVENT_BYTES_MAX, has_names);
                    assert!(stream.len() > 3 * EVENT_BYTES_MAX);
                    let pieces = stream.as_bytes().chunks(size);
                    let (translation, usage) = (recording.translation(client), &recording.expected.usage);
                    let answer = client_bytes(&translation, frame(*form, true), true, pieces, usage);
                    assert!(
                        answer == as_recorded,
                        "{case} for {client:?}, {form:?}, {has_names}: {:?}",
                        answer.fault
                    );
                }
            }
        }
    }
}

#[test]
fn a_large_event_with_content_that_no_other_has_is_a_fault() {
    let recording = Recording::of(UpstreamProtocol::Responses, "text");
    let last = recording.stream.rfind("event: response.completed").unwrap();
    let stream = with_long_request(recording.stream.get(last..).unwrap(), EVENT_BYTES_MAX, true);
    for client in Protocol::ALL {
        let mut translator =
            AnswerTranslator::new(&recording.translation(client), frame(AnswerForm::Stream, true), true);
        let mut out = String::new();
        translator.push(stream.as_bytes(), &mut out);
        assert_eq!(translator.fault(), Some(AnswerFault::EventTooLarge), "{client:?}");
        assert_eq!(out, "");
    }
}

#[test]
fn a_non_streaming_answer_without_an_end_is_a_fault() {
    let translation = translation(Protocol::Messages, UpstreamProtocol::Chat);
    let mut translator = AnswerTranslator::new(&translation, frame(AnswerForm::Whole, true), false);
    let mut out = String::new();
    let piece = vec![b' '; 1024 * 1024];
    for _ in 0..ANSWER_BYTES_MAX / piece.len() {
        translator.push(&piece, &mut out);
        assert_eq!(translator.fault(), None);
    }
    translator.push(b" ", &mut out);
    assert_eq!(translator.fault(), Some(AnswerFault::AnswerTooLarge));
}

/// A Messages request with a bit of everything.
const MESSAGES_REQUEST: &str = r##"{
  "model": "big", "max_tokens": 100, "stream": true, "temperature": 0.5, "top_k": 3, "stop_sequences": ["x"],
  "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
  "thinking": {"type": "enabled", "budget_tokens": 2048}, "metadata": {"user_id": "u_session_1"},
  "tools": [
    {"name": "get.it", "description": "Gets", "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}}},
    {"type": "bash_20250124", "name": "bash"},
    {"type": "web_search_20250305", "name": "web_search"}
  ],
  "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
  "messages": [
    {"role": "user", "content": [
      {"type": "text", "text": "Look"},
      {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
      {"type": "document", "title": "D", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
    ]},
    {"role": "assistant", "content": [
      {"type": "thinking", "thinking": "hm", "signature": "weir1.AAAAAAAA.m.e30"},
      {"type": "text", "text": "So"},
      {"type": "tool_use", "id": "toolu_1", "name": "get.it", "input": {"a": 1.50}}
    ]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": [{"type": "text", "text": "no"}]},
      {"type": "text", "text": "Go on"}
    ]}
  ]
}"##;

/// A Responses request with a bit of everything.
const RESPONSES_REQUEST: &str = r##"{
  "model": "big", "max_output_tokens": 100, "stream": true, "temperature": 0.5, "store": false,
  "instructions": "Be brief.", "reasoning": {"effort": "high", "summary": "auto"}, "prompt_cache_key": "k",
  "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}, "verbosity": "low"},
  "tools": [
    {"type": "function", "name": "get", "strict": true,
     "parameters": {"type": "object", "properties": {"a": {"$ref": "#/$defs/b", "title": "A"}}, "$defs": {"b": {}}}},
    {"type": "custom", "name": "exec", "format": {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}},
    {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "web_search"}
  ],
  "tool_choice": "auto",
  "input": [
    {"role": "developer", "content": "Rules"},
    {"type": "message", "role": "user", "content": [
      {"type": "input_text", "text": "Look"},
      {"type": "input_image", "image_url": "https://a.example/a.png"}
    ]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "call_1", "name": "read", "namespace": "mcp", "arguments": "{\"p\":1}"},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "exec", "input": "a"},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "y"},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "user", "content": "Go on"}
  ]
}"##;

/// A Gemini request with a bit of everything.
const GEMINI_REQUEST: &str = r##"{
  "systemInstruction": {"parts": [{"text": "Be brief."}]},
  "generationConfig": {
    "maxOutputTokens": 100, "temperature": 0.5, "topK": 3, "stopSequences": ["x"],
    "thinkingConfig": {"thinkingBudget": -1, "includeThoughts": true},
    "responseMimeType": "application/json",
    "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}
  },
  "safetySettings": [{"category": "X", "threshold": "OFF"}],
  "tools": [
    {"functionDeclarations": [{"name": "get", "parametersJsonSchema": {"type": "object"}}, {"name": "put"}]},
    {"googleSearch": {}}
  ],
  "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get"]}},
  "contents": [
    {"role": "user", "parts": [{"text": "Look"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]},
    {"role": "model", "parts": [
      {"text": "hm", "thought": true},
      {"functionCall": {"name": "get", "args": {"a": 1}}, "thoughtSignature": "AAAA"},
      {"functionCall": {"id": "c2", "name": "get", "args": {}}}
    ]},
    {"role": "user", "parts": [
      {"functionResponse": {"name": "get", "response": {"output": "x"}}},
      {"functionResponse": {"id": "c2", "name": "get", "response": {"error": "y"}}}
    ]}
  ]
}"##;

/// A request with a bit of everything that a client of this protocol can send.
const fn rich_request(client: Protocol) -> &'static str {
    match client {
        Protocol::Messages => MESSAGES_REQUEST,
        Protocol::Responses => RESPONSES_REQUEST,
        Protocol::Gemini => GEMINI_REQUEST,
    }
}

/// The places of all values in a value.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                places(element, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                places(
                    member,
                    &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Values that can stand anywhere.
fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5e300),
        json!(""),
        json!("text"),
        json!("function"),
        json!("weir_!!"),
        json!("weir1.AAAAAAAA.c.eyJjIjp7InQiOiJ4In19"),
        json!("\u{0}\u{2028}\u{10ffff}\"\\"),
        json!([]),
        json!({}),
        json!([{}]),
        json!({"type": "text", "text": "x"}),
        json!({"type": "tool_result", "tool_use_id": "nobody"}),
        json!({"new": {"member": ["x"]}}),
    ]
}

/// Translates any text as a request, and checks what comes of it.
fn check_request(body: &str, client: Protocol, target: UpstreamProtocol, mode: TranslationMode) {
    let mut translation = translation(client, target);
    translation.mode = mode;
    let target = TranslationTarget {
        translation: &translation,
        model: "gemini-3-pro-preview",
        output_tokens_max: Some(1_000),
        maker: &maker(),
    };
    match translate_request(body, true, &target) {
        Ok(request) => {
            let written: Value = serde_json::from_str(&request.body).unwrap();
            assert!(written.is_object(), "{}", request.body);
            assert!(request.body.len() <= REQUEST_BYTES + body.len() * REQUEST_FACTOR);
            let header = request.losses.header(client, translation.to);
            assert!(header.len() <= HEADER_BYTES_MAX + HEADER_MORE_BYTES, "{header}");
            assert!(
                header.chars().all(|character| (' '..='~').contains(&character)),
                "{header}"
            );
        }
        Err(refusal) => {
            assert!(!refusal.reason.is_empty());
            assert!(refusal.path.len() <= body.len() + 100, "{}", refusal.path);
        }
    }
}

#[test]
fn the_rich_requests_are_understood() {
    for client in Protocol::ALL {
        for target in TARGETS {
            let mut translation = translation(client, target);
            translation.mode = TranslationMode::Lossy;
            let target = TranslationTarget {
                translation: &translation,
                model: "gemini-3-pro-preview",
                output_tokens_max: None,
                maker: &maker(),
            };
            let request = translate_request(rich_request(client), true, &target);
            assert!(request.is_ok(), "{:?} {:?}", translation.to, request.err());
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_a_request_or_is_refused(
        text in ".{0,60}",
        cut in any::<prop::sample::Index>(),
        client in clients(),
        target in targets(),
        mode in select(TranslationMode::ALL.to_vec()),
    ) {
        check_request(&text, client, target, mode);
        let whole = rich_request(client);
        let begun: String = whole.chars().take(cut.index(whole.len())).collect();
        check_request(&format!("{begun}{text}"), client, target, mode);
    }

    #[test]
    fn a_request_with_any_changes_is_valid_or_is_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..4),
        client in clients(),
        target in targets(),
        mode in select(TranslationMode::ALL.to_vec()),
    ) {
        let mut request: Value = serde_json::from_str(rich_request(client)).unwrap();
        for (place, value) in &changes {
            let mut found = Vec::new();
            places(&request, "", &mut found);
            let new = value.get(&values()).clone();
            *request.pointer_mut(place.get::<String>(&found)).unwrap() = new;
        }
        check_request(&request.to_string(), client, target, mode);
    }

    #[test]
    fn a_request_with_parts_of_itself_elsewhere_is_valid_or_is_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..3),
        client in clients(),
        target in targets(),
        mode in select(TranslationMode::ALL.to_vec()),
    ) {
        let mut request: Value = serde_json::from_str(rich_request(client)).unwrap();
        for (place, part) in &changes {
            let mut found = Vec::new();
            places(&request, "", &mut found);
            let new = request.pointer(part.get::<String>(&found)).unwrap().clone();
            *request.pointer_mut(place.get::<String>(&found)).unwrap() = new;
        }
        check_request(&request.to_string(), client, target, mode);
    }
}
