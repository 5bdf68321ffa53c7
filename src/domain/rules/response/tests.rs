//! Tests of response edits.

use http::HeaderMap;
use proptest::prelude::*;

use super::*;
use crate::domain::rules::response::EVENT_BYTES_MAX;
use crate::domain::{
    rules::{RuleFile, compile::compile},
    wire::operation::Operation,
};

const EDITS: &str = r#"
name = "p"
[auth]
secret = "env:X"
style = "bearer"
[endpoints]
messages = "https://h/m"
[[response]]
op = "map"
path = "delta.stop_reason"
values = { sensitive = "refusal" }
when = { field = "type", present = false }
[[response]]
op = "remove"
path = "items[].secret"
[[response]]
op = "rename"
path = "usage.used"
to = "output_tokens"
when = { root_field = "type", equals = "message_delta" }
[[response]]
op = "set"
path = "model"
value = "public"
when = { field = "model", present = true }
protocols = ["messages"]
"#;

fn rules() -> BodyRules {
    let file = RuleFile {
        name: "p.toml".to_owned(),
        text: EDITS.to_owned(),
    };
    compile(&file)
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .provider
        .response
}

fn rewriter(framing: AnswerFraming) -> ResponseRewriter {
    let headers = HeaderMap::new();
    let facts = RequestFacts {
        operation: Operation::Messages.into(),
        is_translated: false,
        model: "m",
        upstream_model: "m",
        headers: &headers,
    };
    ResponseRewriter::new(&rules(), &facts, framing).unwrap()
}

fn rewritten(framing: AnswerFraming, pieces: &[&[u8]]) -> Vec<u8> {
    let mut rewriter = rewriter(framing);
    let mut out: Vec<u8> = pieces.iter().flat_map(|piece| rewriter.push(piece)).collect();
    out.extend(rewriter.finish());
    out
}

#[track_caller]
fn check(framing: AnswerFraming, text: &str, expected: &str) {
    let out = rewritten(framing, &[text.as_bytes()]);
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    let out = rewritten(framing, &bytes);
    assert_eq!(String::from_utf8(out).unwrap(), expected, "byte by byte");
}

#[test]
fn an_answer_in_one_piece_is_edited_whole() {
    check(
        AnswerFraming::Json,
        r#" { "model" : "x", "items":[{"secret":1,"a":1.0}] }"#,
        r#" { "model" : "public", "items":[{"a":1.0}] }"#,
    );
    for same in [
        r#"{"a":1}"#,
        r#"[{"model":"x"}]"#,
        "",
        "not JSON",
        r#"{"model":"x"}{"#,
        r#"{"model":"x""#,
    ] {
        check(AnswerFraming::Json, same, same);
    }
}

#[test]
fn events_are_edited_one_by_one_and_keep_their_form() {
    let text = concat!(
        "\u{feff}data: {\"model\":\"x\"}\n\n",
        ": heartbeat\n\n",
        "event: message_delta\ndata:{\"type\":\"message_delta\",\"usage\":{\"used\":5}}\n: c\nid: 7\n\n",
        "event: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\n",
        "data: {\"model\":\rdata: \"x\"}\r\r",
        "event: a\r\ndata: {\"model\":\"x\",\"items\":[{\"secret\":1}]}\r\n\r\n",
        "data: [DONE]\n\n",
        "data\n\ndata:\n\nnothing: {\"model\":\"x\"}\n\n",
        "data: {\"model\":\"x\"}\n",
    );
    let expected = text
        .replacen("\"x\"", "\"public\"", 1)
        .replace("\"used\"", "\"output_tokens\"")
        .replace(
            "{\"model\":\"x\",\"items\":[{\"secret\":1}]}",
            "{\"model\":\"public\",\"items\":[{}]}",
        );
    check(AnswerFraming::Sse, text, &expected);
}

#[test]
fn an_event_goes_on_when_it_is_complete_and_a_heartbeat_at_once() {
    let mut rewriter = rewriter(AnswerFraming::Sse);
    assert_eq!(rewriter.push(b": heart"), b"");
    assert_eq!(rewriter.push(b"beat\n"), b": heartbeat\n");
    assert_eq!(rewriter.push(b"\ndata: {}\n"), b"\n");
    assert_eq!(rewriter.push(b"\ndata: {"), b"data: {}\n\n");
    assert_eq!(rewriter.push(b"}\r"), b"");
    assert_eq!(rewriter.push(b"\n\r"), b"data: {}\r\n\r");
    assert_eq!(rewriter.push(b"\ndata"), b"\n");
    assert_eq!(rewriter.finish(), b"data");
    assert_eq!(rewriter.finish(), b"");
}

#[test]
fn elements_of_an_array_are_edited_one_by_one() {
    check(
        AnswerFraming::JsonArray,
        "[{\"model\":\"x\"}\n,\r\n{\"items\":[{\"secret\":\"}]\",\"b\":1}]},{}]\n",
        "[{\"model\":\"public\"}\n,\r\n{\"items\":[{\"b\":1}]},{}]\n",
    );
    check(AnswerFraming::JsonArray, "{\"model\":\"x\"}", "{\"model\":\"public\"}");
    for same in [
        "[1,{\"model\":\"x\"}]",
        "",
        "[",
        "[{\"model\":\"x\"",
        "oops {\"model\":\"x\"}",
    ] {
        check(AnswerFraming::JsonArray, same, same);
    }
}

#[test]
fn what_is_too_large_passes_unedited_and_the_next_is_edited() {
    let small = "{\"model\":\"x\"}";
    let large = |size: usize| format!("{{\"model\":\"{}\"}}", "x".repeat(size.saturating_sub(small.len() - 1)));
    for (size, is_edited) in [(EVENT_BYTES_MAX, true), (EVENT_BYTES_MAX + 1, false)] {
        let large = large(size);
        let text = format!("[{large},{small}]");
        let one = if is_edited { "{\"model\":\"public\"}" } else { &large };
        let expected = format!("[{one},{{\"model\":\"public\"}}]");
        for piece in [text.len(), 4099, EVENT_BYTES_MAX] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
            assert!(
                rewritten(AnswerFraming::JsonArray, &pieces) == expected.as_bytes(),
                "{size} {piece}"
            );
        }
    }
    for (size, is_edited) in [(EVENT_BYTES_MAX, true), (EVENT_BYTES_MAX + 1, false)] {
        let large = large(size - "data:\n\n".len());
        let text = format!("data:{large}\n\ndata:{small}\n\n");
        let one = if is_edited { "{\"model\":\"public\"}" } else { &large };
        let expected = format!("data:{one}\n\ndata:{{\"model\":\"public\"}}\n\n");
        for piece in [text.len(), 4099, EVENT_BYTES_MAX] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
            assert!(
                rewritten(AnswerFraming::Sse, &pieces) == expected.as_bytes(),
                "{size} {piece}"
            );
        }
    }
    let answer = large(ANSWER_BYTES_MAX + 1);
    let pieces: Vec<&[u8]> = answer.as_bytes().chunks(1 << 20).collect();
    assert!(rewritten(AnswerFraming::Json, &pieces) == answer.as_bytes());
}

#[test]
fn without_an_edit_for_the_request_there_is_no_rewriter() {
    let headers = HeaderMap::new();
    let facts = RequestFacts {
        operation: Operation::Messages.into(),
        is_translated: false,
        model: "m",
        upstream_model: "m",
        headers: &headers,
    };
    assert!(ResponseRewriter::new(&BodyRules::default(), &facts, AnswerFraming::Json).is_none());
    assert!(ResponseRewriter::new(&rules(), &facts, AnswerFraming::Opaque).is_none());
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "data:",
        "data: ",
        "data",
        "event: x",
        ": c",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\r\r",
        "\u{feff}",
        "{\"model\":\"x\"}",
        "{\"items\":[{\"secret\":1,\"b\":2}]",
        ",\"type\":\"message_delta\",\"usage\":{\"used\":1}}",
        "{",
        "}",
        "[",
        "]",
        ",",
        " ",
        "\"",
        "\\",
        "1",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_split_gives_the_same_answer(
        text in text(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        framing in prop::sample::select(vec![AnswerFraming::Sse, AnswerFraming::JsonArray, AnswerFraming::Json]),
    ) {
        let bytes = text.as_bytes();
        let whole = rewritten(framing, &[bytes]);
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.sort_unstable();
        places.push(bytes.len());
        let mut from = 0;
        let mut pieces = Vec::new();
        for to in places {
            pieces.push(&bytes[from..to]);
            from = to;
        }
        prop_assert_eq!(&rewritten(framing, &pieces), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&rewritten(framing, &single), &whole);
    }
}
