//! Tests of `observer`.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::domain::wire::{Protocol, operation::Operation, protocol::Break};

mod beginning;
mod bills;
mod calls;
mod closing;
mod ends;
mod errors;
mod goldens;
mod iterations;
mod sources;
mod spoken;
mod template;
mod usage;
mod whole;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/streams")
}

fn stream(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

/// What a golden file is, by its name.
fn kind_of(name: &str) -> (Protocol, AnswerFraming) {
    let protocol = match name.split('-').next() {
        Some("messages") => Protocol::Messages,
        Some("responses") => Protocol::Responses,
        _ => Protocol::Gemini,
    };
    let framing = match (name.starts_with("gemini-array"), name.ends_with(".sse")) {
        (true, _) => AnswerFraming::JsonArray,
        (false, true) => AnswerFraming::Sse,
        (false, false) => AnswerFraming::Json,
    };
    (protocol, framing)
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".sse") || name.ends_with(".json"))
        .collect();
    names.sort();
    names
}

fn observe(protocol: impl Into<UpstreamProtocol>, framing: AnswerFraming, bytes: &[u8], size: usize) -> Observer {
    let mut observer = Observer::new(protocol, framing);
    for chunk in bytes.chunks(size) {
        observer.push(chunk);
    }
    observer
}

/// The data of the last event of a stream.
fn last_event(stream: &[u8]) -> (String, Value) {
    let text = String::from_utf8_lossy(stream)
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let event = text
        .trim_end_matches('\n')
        .rsplit("\n\n")
        .next()
        .unwrap()
        .trim_start_matches('\n')
        .to_owned();
    let name = event
        .lines()
        .find_map(|line| line.strip_prefix("event: "))
        .unwrap_or_default();
    let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    (name.to_owned(), serde_json::from_str(data).unwrap())
}

#[test]
fn content_types_decide_the_framing() {
    use Operation::{GenerateContent, Messages, StreamGenerateContent};
    assert_eq!(
        framing_from_content_type(Messages, Some("text/event-stream; charset=utf-8")),
        AnswerFraming::Sse
    );
    assert_eq!(
        framing_from_content_type(StreamGenerateContent, Some("Text/Event-Stream")),
        AnswerFraming::Sse
    );
    assert_eq!(
        framing_from_content_type(Messages, Some("application/json")),
        AnswerFraming::Json
    );
    assert_eq!(
        framing_from_content_type(GenerateContent, Some("application/json; charset=UTF-8")),
        AnswerFraming::Json
    );
    assert_eq!(
        framing_from_content_type(StreamGenerateContent, Some("application/json")),
        AnswerFraming::JsonArray
    );
    assert_eq!(
        framing_from_content_type(Messages, Some("text/html")),
        AnswerFraming::Opaque
    );
    assert_eq!(framing_from_content_type(Messages, None), AnswerFraming::Opaque);
}

#[test]
fn content_begins_with_the_first_generated_thing() {
    for (name, mark) in [
        ("messages-text.sse", "\"Hello\"}}\n\n"),
        ("messages-thinking-tools-caches.sse", "\"estimated_tokens\":null}}\n\n"),
        (
            "messages-search-compaction.sse",
            "\"name\":\"web_search\",\"input\":{}}}\n\n",
        ),
        ("messages-compatible-server.sse", "\"Hi\"}}\r\n\r\n"),
        ("responses-reasoning-text.sse", "\"obfuscation\":\"x8\"}\n\n"),
        ("responses-tools-cache-write.sse", "\"status\":\"in_progress\"}}\n\n"),
        ("gemini-thinking-text.sse", "\r\n\r\n"),
        ("gemini-array-text.json", "\n}\n"),
        ("gemini-unary.json", "\"Hello\""),
        ("messages-unary.json", "\"content\": [\n  {"),
    ] {
        let (protocol, framing) = kind_of(name);
        let bytes = stream(name);
        let first = (0..bytes.len())
            .find(|end| observe(protocol, framing, &bytes[..*end], 64).first_content_seen())
            .unwrap();
        let before = String::from_utf8_lossy(&bytes[..first]).into_owned();
        assert!(before.trim_end().ends_with(mark.trim_end()), "{name}: {before}");
    }
    for name in [
        "messages-native-failure.json",
        "gemini-blocked.sse",
        "responses-failed.sse",
        "gemini-array-error.json",
    ] {
        let (protocol, framing) = kind_of(name);
        assert!(
            !observe(protocol, framing, &stream(name), 64).first_content_seen(),
            "{name}"
        );
    }
}

#[test]
fn a_failure_tail_can_be_said_after_any_cut() {
    for name in names() {
        let (protocol, framing) = kind_of(&name);
        let bytes = stream(&name);
        for cut in 0..bytes.len() {
            let observer = observe(protocol, framing, &bytes[..cut], 33);
            let tail = observer.failure_tail(Break::ProviderCut);
            match framing {
                AnswerFraming::Sse => {
                    let whole = [&bytes[..cut], &tail.unwrap()].concat();
                    let (event, data) = last_event(&whole);
                    check_failure(protocol, &event, &data);
                    let after = observe(protocol, framing, &whole, 33).observed();
                    assert!(
                        after.complete && after.in_band_error.is_some() && !after.saw_done_marker
                            || name.contains("compatible")
                            || name.contains("reasoning"),
                        "{name} {cut}"
                    );
                }
                AnswerFraming::JsonArray => {
                    let Some(tail) = tail else { continue };
                    let whole: Vec<Value> = serde_json::from_slice(&[&bytes[..cut], &tail].concat()).unwrap();
                    check_failure(protocol, "", whole.last().unwrap());
                }
                AnswerFraming::Json | AnswerFraming::Opaque => assert_eq!(tail, None),
            }
        }
    }
}

fn check_failure(protocol: Protocol, event: &str, data: &Value) {
    let message = Break::ProviderCut.message();
    match protocol {
        Protocol::Messages => {
            assert_eq!((event, &data["type"]), ("error", &Value::from("error")));
            assert_eq!(data["error"]["type"], "overloaded_error");
            assert_eq!(data["error"]["message"], message);
        }
        Protocol::Responses => {
            assert_eq!(
                (event, &data["type"]),
                ("response.failed", &Value::from("response.failed"))
            );
            assert_eq!(data["response"]["status"], "failed");
            assert_eq!(data["response"]["error"]["message"], message);
            assert_eq!(data["error"]["code"], "server_error");
        }
        Protocol::Gemini => {
            assert_eq!(data["error"]["code"], 503);
            assert_eq!(data["error"]["status"], "UNAVAILABLE");
            assert_eq!(data["error"]["message"], message);
        }
    }
}

#[test]
fn a_responses_failure_goes_on_where_the_stream_was() {
    let bytes = stream("responses-reasoning-text.sse");
    let cut = bytes.len() / 2;
    let observer = observe(Protocol::Responses, AnswerFraming::Sse, &bytes[..cut], 50);
    let tail = observer.failure_tail(Break::Internal).unwrap();
    let (_, data) = last_event(&[&bytes[..cut], &tail].concat());
    assert_eq!(data["response"]["id"], "resp_68");
    assert_eq!(data["response"]["model"], "gpt-5.6-sol");
    assert_eq!(data["response"]["created_at"], 1_790_000_000);
    let text = String::from_utf8_lossy(&bytes[..cut]).into_owned();
    let whole = text.rsplit_once("\n\n").unwrap().0;
    let seen = whole.matches("\"sequence_number\"").count();
    assert_eq!(data["sequence_number"], seen);
}

#[test]
fn a_timeout_has_its_own_gemini_status() {
    let tail = Observer::new(Protocol::Gemini, AnswerFraming::Sse)
        .failure_tail(Break::ProviderTimeout)
        .unwrap();
    assert!(tail.starts_with(b"data: {") && tail.ends_with(b"\r\n\r\n"));
    let (_, data) = last_event(&tail);
    assert_eq!(
        (&data["error"]["code"], &data["error"]["status"]),
        (&Value::from(504), &Value::from("DEADLINE_EXCEEDED"))
    );
}

#[test]
fn an_end_without_its_blank_line_is_an_end() {
    let observer = observe(
        Protocol::Messages,
        AnswerFraming::Sse,
        b"event: message_stop\ndata: {\"type\":\"message_stop\"}",
        5,
    );
    assert!(observer.is_complete());
    assert!(
        !observe(
            Protocol::Messages,
            AnswerFraming::Sse,
            b"data: {\"type\":\"message_stop\"",
            5
        )
        .is_complete()
    );
}

#[test]
fn an_event_without_a_type_has_its_name() {
    let bytes = b"event: content_block_delta\ndata: {\"delta\":{\"text\":\"x\"}}\n\nevent: message_stop\ndata: {}\n\n";
    let observer = observe(Protocol::Messages, AnswerFraming::Sse, bytes, 7);
    assert!(observer.first_content_seen() && observer.is_complete());
}

#[test]
fn an_array_is_complete_with_its_bracket_only() {
    let bytes = stream("gemini-array-text.json");
    let end = bytes.iter().rposition(|byte| *byte == b']').unwrap();
    assert!(!observe(Protocol::Gemini, AnswerFraming::JsonArray, &bytes[..end], 9).is_complete());
    assert!(observe(Protocol::Gemini, AnswerFraming::JsonArray, &bytes[..=end], 9).is_complete());
}

#[test]
fn an_opaque_answer_is_complete_and_says_nothing() {
    let observer = observe(Protocol::Messages, AnswerFraming::Opaque, b"<html>", 2);
    assert_eq!(
        observer.observed(),
        AnswerReport {
            complete: true,
            ..AnswerReport::default()
        }
    );
    assert_eq!(observer.failure_tail(Break::ProviderCut), None);
}

#[test]
fn a_broken_event_spoils_no_other() {
    let mut bytes = b"data: {\"type\": nonsense\xff\n\ndata: [[[[\n\n".to_vec();
    bytes.extend(stream("messages-text.sse"));
    let observed = observe(Protocol::Messages, AnswerFraming::Sse, &bytes, 11).observed();
    assert_eq!(
        observed,
        observe(
            Protocol::Messages,
            AnswerFraming::Sse,
            &stream("messages-text.sse"),
            999
        )
        .observed()
    );
}

#[test]
fn values_of_any_length_at_every_path_stay_within_the_bound() {
    use crate::domain::wire::json_pick::{SCALAR_BYTES_MAX, TREE_BYTES_MAX};
    let keys = [
        "usage",
        "tool_usage",
        "usageMetadata",
        "type",
        "id",
        "model",
        "status",
        "code",
        "success",
        "stop_reason",
    ];
    for protocol in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
        let mut observer = Observer::new(protocol, AnswerFraming::Sse);
        for share in 1..=20 {
            let tree = format!("[\"{}\"]", "x".repeat(TREE_BYTES_MAX * share / 20 - 4));
            let scalar = format!("\"{}\"", "y".repeat(SCALAR_BYTES_MAX * share / 20 - 2));
            let fields: Vec<String> = keys
                .iter()
                .map(|key| format!("\"{key}\":{}", if key.contains("usage") { &tree } else { &scalar }))
                .collect();
            let inner = fields.join(",");
            observer.push(format!("data: {{{inner},\"message\":{{{inner}}},\"response\":{{{inner}}}}}\n\n").as_bytes());
            assert!(observer.heap_bytes() <= HEAP_BYTES_MAX, "{}", observer.heap_bytes());
        }
        assert!(observer.heap_bytes() > TREE_BYTES_MAX);
    }
}

/// Each piece of each of many streams fetches it from memory.
#[test]
fn what_most_pieces_of_an_answer_need_is_small() {
    assert!(size_of::<Observer>() <= 3 * 64, "{}", size_of::<Observer>());
}

#[test]
fn a_line_of_100_mib_costs_no_memory() {
    for (start, framing) in [
        ("data: {\"usage\":{\"x\":\"", AnswerFraming::Sse),
        ("event: ", AnswerFraming::Sse),
        ("field", AnswerFraming::Sse),
        ("{\"usage\":[\"", AnswerFraming::Json),
        ("[{\"usageMetadata\":{\"", AnswerFraming::JsonArray),
    ] {
        for protocol in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
            let mut observer = observe(protocol, framing, start.as_bytes(), 100);
            let block = vec![b'x'; 1 << 20];
            for _ in 0..100 {
                observer.push(&block);
            }
            assert!(observer.heap_bytes() <= HEAP_BYTES_MAX, "{}", observer.heap_bytes());
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_nor_grow(bytes in prop::collection::vec(any::<u8>(), 0..2000), size in 1_usize..300, protocol in 0_usize..3, framing in 0_usize..3) {
        let protocol = [Protocol::Messages, Protocol::Responses, Protocol::Gemini][protocol];
        let framing = [AnswerFraming::Sse, AnswerFraming::Json, AnswerFraming::JsonArray][framing];
        let observer = observe(protocol, framing, &bytes, size);
        let _ = (observer.observed(), observer.failure_tail(Break::ProviderCut));
        prop_assert!(observer.heap_bytes() <= HEAP_BYTES_MAX);
    }

    #[test]
    fn a_damaged_stream_never_panics_and_any_split_observes_the_same(pick in 0_usize..100, at in 0_usize..4000, byte: u8, size in 1_usize..300) {
        let names = names();
        let name = &names[pick % names.len()];
        let (protocol, framing) = kind_of(name);
        let mut bytes = stream(name);
        let at = at % bytes.len();
        bytes[at] = byte;
        let whole = observe(protocol, framing, &bytes, usize::MAX);
        let split = observe(protocol, framing, &bytes, size);
        prop_assert_eq!(whole.observed(), split.observed());
        prop_assert_eq!(whole.first_content_seen(), split.first_content_seen());
        prop_assert_eq!(whole.classes(), split.classes());
        let cut = Break::ProviderTimeout;
        prop_assert_eq!(whole.failure_tail(cut), split.failure_tail(cut));
    }
}
