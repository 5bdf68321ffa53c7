//! Answers that several models worked on: each model's tokens at its own price.

use serde_json::{Value as Json, json};

use crate::harness::books::cost;
use crate::harness::models::{CLAUDE_CODE_MODEL, MESSAGES_MODEL};
use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::{RecordingProvider, Weir};

/// Nano-USD per token of input and output, as `conf/prices.toml` has them.
const SONNET: [i64; 2] = [2_000, 10_000];
const OPUS: [i64; 2] = [4_000, 20_000];

fn charge(prices: [i64; 2], input: i64, output: i64) -> i64 {
    prices[0] * input + prices[1] * output
}

/// The row of a streamed answer whose last event reports this usage, from a provider of the recorded kind.
fn row(usage: Json) -> (Json, String) {
    let provider = RecordingProvider::start(move |_, peer| {
        peer.sse();
        let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": MESSAGES_MODEL,
            "usage": {"input_tokens": 535, "output_tokens": 1}}});
        let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}});
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
        for event in [start, text, end, json!({"type": "message_stop"})] {
            peer.chunk(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
        }
        peer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let prompt = "Tell me. [[sample: deltas=400 delta_bytes=40]]";
    assert_eq!(weir.exchange(&Wire::Messages.streaming(&key, prompt)).status, 200);
    let row = weir.books(1).rows.swap_remove(0);
    let table = weir.cli(&["log", "query"], &[]);
    (row, String::from_utf8(table.stdout).unwrap())
}

#[test]
fn an_advisors_tokens_are_billed_at_the_advisors_price() {
    let (row, table) = row(json!({"input_tokens": 2414, "output_tokens": 3200, "iterations": [
        {"type": "message", "input_tokens": 2414, "output_tokens": 1200},
        {"type": "advisor_message", "model": CLAUDE_CODE_MODEL, "input_tokens": 2728, "output_tokens": 874},
        {"type": "message", "input_tokens": 0, "output_tokens": 2000}]}));
    assert_eq!(
        cost(&row),
        charge(SONNET, 2414, 3200) + charge(OPUS, 2728, 874),
        "{row}"
    );
    assert_eq!(
        (&row["input_uncached"], &row["output_text"]),
        (&json!(2414 + 2728), &json!(3200 + 874)),
        "{row}"
    );
    assert_eq!(
        row["parts"],
        json!([
            {"run": "answer", "model": MESSAGES_MODEL, "input_uncached": 2414, "output_text": 3200,
                "cost_nano_usd": charge(SONNET, 2414, 3200)},
            {"run": "advisor", "model": CLAUDE_CODE_MODEL, "input_uncached": 2728, "output_text": 874,
                "cost_nano_usd": charge(OPUS, 2728, 874)},
        ])
    );
    let lines: Vec<&str> = table.lines().filter(|line| line.contains(CLAUDE_CODE_MODEL)).collect();
    assert!(
        matches!(&lines[..], [line] if line.contains("advisor") && line.contains("2728")),
        "{table}"
    );
}

#[test]
fn a_fallback_is_billed_at_its_own_price_and_what_was_declined_at_that_of_the_model_asked_for() {
    let (row, _) = row(json!({"input_tokens": 412, "output_tokens": 264, "iterations": [
        {"type": "message", "input_tokens": 535, "output_tokens": 900},
        {"type": "fallback_message", "model": CLAUDE_CODE_MODEL, "input_tokens": 412, "output_tokens": 264}]}));
    assert_eq!(cost(&row), charge(SONNET, 535, 900) + charge(OPUS, 412, 264), "{row}");
    assert_eq!(row["usage_source"], "reported", "{row}");
}

#[test]
fn a_model_that_no_price_is_known_of_is_never_free() {
    let (row, _) = row(json!({"input_tokens": 10, "output_tokens": 5, "iterations": [
        {"type": "message", "input_tokens": 10, "output_tokens": 5},
        {"type": "advisor_message", "model": "claude-unheard-of-9", "input_tokens": 1000, "output_tokens": 100}]}));
    let dearest = charge([10_000, 50_000], 1000, 100);
    assert_eq!(cost(&row), charge(SONNET, 10, 5) + dearest, "{row}");
    let part = &row["parts"][1];
    assert_eq!(
        (&part["model"], &part["cost_nano_usd"]),
        (&json!("claude-unheard-of-9"), &json!(dearest)),
        "{row}"
    );
    assert!(
        part["priced_as"]
            .as_str()
            .is_some_and(|name| name.starts_with("claude-")),
        "{row}"
    );
}

#[test]
fn each_model_of_a_whole_answer_pays_its_own_price_in_one_piece_and_in_a_stream() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let order = format!("[[sample: cache_read=300 advisor={CLAUDE_CODE_MODEL} fallback={CLAUDE_CODE_MODEL}]]");
    let prompt = format!("Tell me of weirs. {order}");
    for request in [
        Wire::Messages.request(&key, &prompt),
        Wire::Messages.streaming(&key, &prompt),
    ] {
        assert_eq!(weir.exchange(&request).status, 200);
    }
    let books = weir.books(2);
    for row in &books.rows {
        let tokens = |part: &Json, name: &str| part[name].as_i64().unwrap_or(0);
        let runs: Vec<(&str, &str)> = row["parts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| (part["run"].as_str().unwrap(), part["model"].as_str().unwrap()))
            .collect();
        let wanted = [
            ("answer", MESSAGES_MODEL),
            ("fallback", CLAUDE_CODE_MODEL),
            ("advisor", CLAUDE_CODE_MODEL),
        ];
        assert_eq!(runs, wanted, "{row}");
        for (place, [input, output]) in [SONNET, OPUS, OPUS].into_iter().enumerate() {
            let part = &row["parts"][place];
            assert_eq!(tokens(part, "cache_read"), 300, "{row}");
            let uncached = input * tokens(part, "input_uncached") + output * tokens(part, "output_text");
            // A twentieth of the price of input: `conf/prices.toml`.
            assert_eq!(cost(part), uncached + 300 * input / 20, "{row}");
        }
        assert_eq!(tokens(&row["parts"][2], "output_text"), 500, "{row}");
        let shares: i64 = row["parts"].as_array().unwrap().iter().map(cost).sum();
        assert_eq!((cost(row), &row["usage_source"]), (shares, &json!("reported")), "{row}");
    }
}
