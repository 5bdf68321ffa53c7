//! What a provider sends or reports beyond what was asked of it is billed at that.

use serde_json::{Value as Json, json};

use crate::harness::books::cost;
use crate::harness::request::{ALL_WIRES, Request, Wire, wire_of};
use crate::harness::{RecordingProvider, Weir};

/// A request whose answer may have so many output tokens.
fn asking(wire: Wire, key: &str, tokens: u64) -> Request {
    let mut request = wire.request(key, "Tell me of weirs.");
    let mut body: Json = serde_json::from_slice(&request.body).unwrap();
    match wire {
        Wire::Messages => body["max_tokens"] = json!(tokens),
        Wire::Responses => body["max_output_tokens"] = json!(tokens),
        Wire::Gemini => body["generationConfig"] = json!({"maxOutputTokens": tokens}),
    }
    request.body = body.to_string().into_bytes();
    request
}

/// A whole answer with this text, and this report of its output unless it has none.
fn answer(wire: Wire, text: &str, output: Option<u64>) -> String {
    let mut body = match wire {
        Wire::Messages => json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
            "content": [{"type": "text", "text": text}], "stop_reason": "max_tokens"}),
        Wire::Responses => json!({"id": "resp_1", "object": "response", "status": "completed", "model": "gpt",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}),
        Wire::Gemini => json!({"candidates": [{"content": {"parts": [{"text": text}], "role": "model"},
            "finishReason": "MAX_TOKENS"}]}),
    };
    if let Some(output) = output {
        let (place, usage) = match wire {
            Wire::Messages => ("usage", json!({"input_tokens": 25, "output_tokens": output})),
            Wire::Responses => ("usage", json!({"input_tokens": 25, "output_tokens": output})),
            Wire::Gemini => (
                "usageMetadata",
                json!({"promptTokenCount": 25, "candidatesTokenCount": output}),
            ),
        };
        body[place] = usage;
    }
    body.to_string()
}

fn output(row: &Json) -> u64 {
    let of = |part: &str| row[part].as_u64().unwrap_or(0);
    of("output_text") + of("output_reasoning")
}

/// The rows of an answer with this text and report to each protocol's request for `tokens`.
fn rows(text: String, reported: Option<u64>, tokens: u64) -> Vec<Json> {
    let provider = RecordingProvider::start(move |request, peer| {
        peer.json(&answer(wire_of(&request.target), &text, reported));
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&asking(wire, &key, tokens)).status, 200);
    }
    weir.books(ALL_WIRES.len()).rows
}

#[test]
fn an_answer_without_usage_is_billed_for_no_more_output_than_was_asked_for() {
    for row in rows("weirs and rivers ".repeat(20_000), None, 16) {
        assert_eq!((output(&row), &row["usage_source"]), (16, &"estimated".into()), "{row}");
        assert!(cost(&row) > 0, "{row}");
    }
}

#[test]
fn a_report_of_more_output_than_was_asked_for_is_billed_at_that() {
    for reported in [65, 999_999, 1 << 53] {
        for row in rows("Hello world".to_owned(), Some(reported), 64) {
            assert_eq!((output(&row), &row["usage_source"]), (64, &"bounded".into()), "{row}");
        }
    }
}

#[test]
fn what_came_and_was_reported_is_billed_as_reported_although_less_was_asked_for() {
    for row in rows("weirs and rivers ".repeat(100), Some(300), 16) {
        assert_eq!((output(&row), &row["usage_source"]), (300, &"reported".into()), "{row}");
    }
}

#[test]
fn zeros_at_the_end_of_an_answer_do_not_erase_what_its_start_reported() {
    let provider = RecordingProvider::start(|_, peer| {
        peer.sse();
        let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude", "usage": {
            "input_tokens": 2000, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 700, "output_tokens": 40}}});
        let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}});
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {
            "input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}});
        for event in [start, text, end, json!({"type": "message_stop"})] {
            peer.chunk(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
        }
        peer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    assert_eq!(weir.exchange(&Wire::Messages.streaming(&key, "hi")).status, 200);
    let row = &weir.books(1).rows[0];
    let of = |part: &str| row[part].as_u64().unwrap_or(0);
    assert_eq!(
        (
            of("input_uncached"),
            of("cache_write_short"),
            of("cache_read"),
            of("output_text")
        ),
        (2000, 300, 700, 40),
        "{row}"
    );
}
