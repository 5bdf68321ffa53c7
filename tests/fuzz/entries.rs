//! The fuzz entry points: any bytes in, a panic when a promise is broken. `tests/integration/fuzz.rs` runs them on
//! stable Rust for a bounded time; `tests/fuzz/targets/` runs the same functions coverage-guided.

mod files;
mod frames;
pub(crate) mod translation;
mod wire;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use http::HeaderMap;
use serde_json::value::RawValue;
use weir::parts::{
    AnswerFraming, AnswerReport, BodyRules, Break, EditError, HEAP_BYTES_MAX, JsonEnd, JsonEndProgress, Observer,
    Operation, Protocol, RequestFacts, ResponseRewriter, RuleFile, ScanLimits, compile, edit_body, scan,
};

pub(crate) use files::{journal_frames, journal_records, price_list, provider_file};
pub(crate) use frames::websocket;
pub(crate) use translation::{
    chat_answer, gemini_answer, messages_answer, reasoning_carrier, responses_answer, translated_request,
};
pub(crate) use wire::{chunked_body, content_coding, proxy_header, request_head};

const PROTOCOLS: [Protocol; 3] = [Protocol::Messages, Protocol::Responses, Protocol::Gemini];

/// One entry point.
pub(crate) type Entry = fn(&[u8]);

/// Every entry point by its name, which is also the name of its coverage-guided target.
pub(crate) const ENTRIES: [(&str, Entry); 20] = [
    ("sse", sse),
    ("json_array", json_array),
    ("unary", unary),
    ("request_scan", request_scan),
    ("rules", rules),
    ("request_head", request_head),
    ("chunked_body", chunked_body),
    ("proxy_header", proxy_header),
    ("content_coding", content_coding),
    ("websocket", websocket),
    ("journal_frames", journal_frames),
    ("journal_records", journal_records),
    ("provider_file", provider_file),
    ("price_list", price_list),
    ("translated_request", translated_request),
    ("messages_answer", messages_answer),
    ("responses_answer", responses_answer),
    ("gemini_answer", gemini_answer),
    ("chat_answer", chat_answer),
    ("reasoning_carrier", reasoning_carrier),
];

/// A provider file with every kind of body edit.
const EVERY_EDIT: &str = r#"
name = "every"
display_name = "Every"
errors = "native"
[auth]
secret = "env:NONE"
style = "bearer"
[endpoints]
messages = "https://every.test/v1/messages"
[[body]]
op = "remove"
path = "top_k"
[[body]]
op = "set"
path = "store"
value = false
[[body]]
op = "rename"
path = "usage"
to = "used"
[[body]]
op = "clamp"
path = "max_tokens"
min = 1
max = 100
[[body]]
op = "map"
path = "role"
values = { user = "human" }
[[body]]
op = "remove"
path = "usageMetadata.promptTokenCount"
[[body]]
op = "remove"
path = "messages[].content[].cache_control"
[[body]]
op = "remove"
path = "messages[].content[]"
when = [{ field = "type", in = ["image", "document"] }, { root_field = "stream", equals = true }]
[[body]]
op = "set"
path = "tools[].strict"
value = false
when = { field = "name", present = true }
[[body]]
op = "clamp"
path = "stop[]"
max = 1
[[body]]
op = "refuse"
path = "contents[].parts[].kind"
values = ["image"]
message = "`{value}` at {path}"
[[response]]
op = "remove"
path = "usage"
[[response]]
op = "set"
path = "items[].role"
value = "human"
when = { root_field = "type", present = true }
"#;

/// An answer that is announced as SSE: any split gives the same reading, memory is bounded, and unless its first bytes tell
/// another framing, a failure can always be said in band.
pub(crate) fn sse(data: &[u8]) {
    for protocol in PROTOCOLS {
        let observer = split_does_not_matter(protocol, AnswerFraming::Sse, data);
        if observer.framing() != AnswerFraming::Sse {
            continue;
        }
        let tail = observer
            .failure_tail(Break::ProviderCut)
            .expect("an SSE stream can always tell of a failure");
        let mut whole = Observer::new(protocol, AnswerFraming::Sse);
        whole.push(data);
        whole.push(&tail);
        assert!(
            whole.observed().in_band_error.is_some() && whole.is_complete(),
            "the tail is no error of the protocol"
        );
    }
}

/// Gemini's JSON array: as for SSE; a failure tail, where there is one, leaves valid JSON if the text was valid so far.
pub(crate) fn json_array(data: &[u8]) {
    let observer = split_does_not_matter(Protocol::Gemini, AnswerFraming::JsonArray, data);
    if let Some(tail) = observer.failure_tail(Break::ProviderCut) {
        let mut whole = Observer::new(Protocol::Gemini, AnswerFraming::JsonArray);
        whole.push(data);
        whole.push(&tail);
        assert!(
            whole.observed().in_band_error.is_some() || !is_prefix_of_array(data),
            "the tail is no error of the protocol"
        );
    }
}

/// A unary answer: any split gives the same reading, and nothing is ever appended to it, unless its first bytes tell that it is
/// a stream. So it is when it ends as a whole one does, which is read in another way if it comes in one piece.
pub(crate) fn unary(data: &[u8]) {
    let end = data.iter().rposition(|byte| matches!(byte, b'}' | b']'));
    let closed = data.get(..=end.unwrap_or_default()).unwrap_or_default();
    for protocol in PROTOCOLS {
        split_does_not_matter(protocol, AnswerFraming::Json, closed);
        let observer = split_does_not_matter(protocol, AnswerFraming::Json, data);
        assert!(observer.framing() != AnswerFraming::Json || observer.failure_tail(Break::ProviderCut).is_none());
    }
}

/// A request: what the scan accepts, serde_json reads the same way; where it ends is found in any split.
pub(crate) fn request_scan(data: &[u8]) {
    for protocol in PROTOCOLS {
        scanned(data, protocol);
    }
    let _ = end_in_pieces(data, 2);
}

fn scanned(data: &[u8], protocol: Protocol) {
    let limits = ScanLimits {
        depth_max: 100,
        references_max: 100,
    };
    let accepted = scan(data, protocol, &limits);
    // The values stay text: serde_json refuses numbers beyond its own range, which are the provider's to judge.
    let reading: Result<BTreeMap<String, Box<RawValue>>, _> = serde_json::from_slice(data);
    if let Ok(scan) = &accepted {
        let object = reading.expect("the scan took what is no JSON object");
        match &scan.model {
            Some(model) => {
                let value = object.get("model").expect("the scan found a model that is not there");
                let token = data
                    .get(model.value.clone())
                    .expect("the model's place lies in the body");
                assert_eq!(value.get().as_bytes(), token, "the model's place is its token");
                assert_eq!(
                    serde_json::from_str::<String>(value.get()).ok().as_deref(),
                    Some(model.text.as_str())
                );
            }
            None => assert!(!object.contains_key("model")),
        }
        assert_eq!(scan.has_contents, object.contains_key("contents"));
        for reference in &scan.references {
            let named = serde_json::from_slice::<String>(&data[reference.at.clone()]);
            assert_eq!(
                named.ok(),
                Some(reference.text(data).into_owned()),
                "a name is a string"
            );
        }
        assert!(
            scan.models.names(data).count() <= 16,
            "no more names of models are kept"
        );
        assert_eq!(end_in_pieces(data, 1), end_in_pieces(data, data.len().max(1)));
        assert!(end_in_pieces(data, 3).is_some(), "a whole object has an end");
    }
}

/// Rule application: what the scan took can always be edited, and stays what it was but for the edits. Any answer can be
/// rewritten, whatever its pieces.
pub(crate) fn rules(data: &[u8]) {
    static RULES: OnceLock<(BodyRules, BodyRules)> = OnceLock::new();
    let (rules, response) = RULES.get_or_init(|| {
        let file = RuleFile {
            name: "every.toml".to_owned(),
            text: EVERY_EDIT.to_owned(),
        };
        let provider = compile(&file).expect("the provider file is right").provider;
        (provider.body, provider.response)
    });
    let headers = HeaderMap::new();
    for framing in [AnswerFraming::Sse, AnswerFraming::Json, AnswerFraming::JsonArray] {
        assert_eq!(
            rewritten(response, &headers, framing, data, 1),
            rewritten(response, &headers, framing, data, data.len().max(1)),
            "any split of an answer gives the same bytes"
        );
    }
    let limits = ScanLimits {
        depth_max: 100,
        references_max: 100,
    };
    let scan = |body: &[u8]| scan(body, Protocol::Messages, &limits);
    let Ok(before) = scan(data) else { return };
    let model = before.model.as_ref().map_or("", |model| model.text.as_str());
    let facts = RequestFacts {
        operation: Operation::Messages.into(),
        is_translated: false,
        model,
        upstream_model: "upstream",
        headers: &headers,
    };
    let edited = match edit_body(rules, &facts, data, &before) {
        Ok(edited) => edited.expect("`store` is always set"),
        Err(EditError::Refused { message, .. }) => {
            assert!(message.len() < 500, "a refusal repeats a bounded part of the request");
            return;
        }
        Err(error @ EditError::NotJson { .. }) => panic!("what the scan took can be edited: {error}"),
    };
    let after = scan(&edited).expect("an edited body is one JSON object");
    assert_eq!(
        after.model.map(|model| model.text),
        before.model.as_ref().map(|_| "upstream".to_owned())
    );
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&edited).expect("an edited body is JSON");
    assert!(!members.contains_key("top_k") && members["store"].get() == "false");
    let same = RequestFacts {
        upstream_model: model,
        ..facts
    };
    let untouched = edit_body(&BodyRules::default(), &same, data, &before);
    assert_eq!(untouched, Ok(None), "without an edit there is no copy");
}

/// An answer with its edits, when it comes in pieces of this size.
fn rewritten(rules: &BodyRules, headers: &HeaderMap, framing: AnswerFraming, data: &[u8], size: usize) -> Vec<u8> {
    let facts = RequestFacts {
        operation: Operation::Messages.into(),
        is_translated: false,
        model: "m",
        upstream_model: "m",
        headers,
    };
    let mut rewriter = ResponseRewriter::new(rules, &facts, framing).expect("there are edits of answers");
    let mut out: Vec<u8> = data.chunks(size).flat_map(|piece| rewriter.push(piece)).collect();
    out.extend(rewriter.finish());
    out
}

/// Where [`JsonEnd`] finds the end, when the text comes in pieces of this size.
fn end_in_pieces(data: &[u8], size: usize) -> Option<usize> {
    let mut end = JsonEnd::new();
    data.chunks(size)
        .enumerate()
        .find_map(|(number, piece)| match end.push(piece) {
            JsonEndProgress::More => None,
            JsonEndProgress::CompleteAt(at) => Some(number * size + at),
        })
}

/// Reads `data` whole, byte by byte and in pieces whose sizes come from the data itself.
fn split_does_not_matter(protocol: Protocol, framing: AnswerFraming, data: &[u8]) -> Observer {
    let mut whole = Observer::new(protocol, framing);
    whole.push(data);
    assert!(whole.heap_bytes() <= HEAP_BYTES_MAX);
    let expected: AnswerReport = whole.observed();
    let mut bytes = Observer::new(protocol, framing);
    data.iter().for_each(|byte| bytes.push(std::slice::from_ref(byte)));
    assert_eq!(bytes.observed(), expected, "byte by byte");
    assert_eq!(bytes.created_state(), whole.created_state(), "byte by byte");
    assert_eq!(bytes.first_content_seen(), whole.first_content_seen());
    let mut pieces = Observer::new(protocol, framing);
    let mut rest = data;
    while let Some(first) = rest.first() {
        let (piece, after) = rest.split_at(usize::from(*first % 17 + 1).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    assert_eq!(pieces.observed(), expected, "in pieces");
    assert_eq!(pieces.created_state(), whole.created_state(), "in pieces");
    let estimates = [&bytes, &pieces].map(Observer::output_estimate);
    assert_eq!(estimates, [whole.output_estimate(); 2]);
    whole
}

/// Whether some text after `data` could make it a JSON array: its elements so far are objects, all whole.
fn is_prefix_of_array(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let text = text.trim_end();
    ["]", "{}]", "[]"].iter().any(|end| {
        serde_json::from_str::<Vec<serde_json::Map<String, serde_json::Value>>>(&format!("{text}{end}")).is_ok()
    })
}
