//! What providers report, and what of it is billed: ends that are none, thoughts, images, tools, and figures that cannot be.

use serde_json::{Value as Json, json};

use crate::harness::books::cost;
use crate::harness::request::{Request, Wire};
use crate::harness::{RecordingProvider, Weir};

const IMAGE_MODEL: &str = "gemini-3-pro-image";
const NANO: i64 = 1_000_000_000;

/// A Gemini-style request whose answer may have so many output tokens.
fn asking(model: &str, key: &str, tokens: u64) -> Request {
    let mut request = Wire::Gemini.request_for(model, key, "A weir, please.");
    let mut body: Json = serde_json::from_slice(&request.body).unwrap();
    body["generationConfig"] = json!({"maxOutputTokens": tokens});
    request.body = body.to_string().into_bytes();
    request
}

fn answer(parts: &Json, usage: &Json) -> Json {
    json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP"}], "usageMetadata": usage})
}

/// The row of a request for so many tokens to this model that is answered with these parts and this usage.
fn row(model: &str, tokens: u64, parts: Json, usage: Json) -> Json {
    let provider = RecordingProvider::start(move |_, peer| peer.json(&answer(&parts, &usage).to_string()));
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    assert_eq!(weir.exchange(&asking(model, &key, tokens)).status, 200);
    let row = weir.books(1).rows[0].clone();
    let source = row["usage_source"].as_str().unwrap();
    let counted = format!("weir_billed_requests_total{{usage_source=\"{source}\"}} 1\n");
    let metrics = weir.metrics();
    assert!(metrics.contains(&counted), "{counted}{metrics}");
    row
}

fn output(row: &Json) -> (u64, u64) {
    let of = |part: &str| row[part].as_u64().unwrap_or(0);
    (of("output_text"), of("output_reasoning"))
}

fn text() -> Json {
    json!([{"text": "Hello world"}])
}

#[test]
fn a_stream_that_is_cut_behind_a_tools_stop_is_billed_as_a_cut_one_and_says_so() {
    let chunk = |part: Json, reason: Option<&str>, output: u64| {
        let mut chunk = answer(
            &json!([part]),
            &json!({"promptTokenCount": 20, "candidatesTokenCount": output}),
        );
        chunk["candidates"][0]["finishReason"] = json!(reason);
        format!("data: {chunk}\r\n\r\n")
    };
    let result = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}});
    let chunks = [
        chunk(result, Some("STOP"), 9),
        chunk(json!({"text": "It is four. "}), None, 12),
        chunk(json!({"text": "And it was ever so."}), None, 15),
    ];
    let provider = RecordingProvider::start(move |request, peer| {
        peer.sse();
        chunks.iter().for_each(|chunk| peer.chunk(chunk));
        match request.target.contains("gemini-3.8-flash") {
            true => peer.cut(),
            false => peer.end(),
        }
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for model in [Wire::Gemini.model(), "gemini-3.5-flash-lite"] {
        let answer = weir.exchange(&Wire::Gemini.streaming_for(model, &key, "Two and two?"));
        let said = crate::harness::shapes::in_band_error(Wire::Gemini, &answer.text());
        assert!(said.is_some(), "{model}: {}", answer.text());
    }
    for row in weir.books(2).rows {
        assert_eq!(
            (&row["outcome"], &row["usage_source"]),
            (&"provider_cut".into(), &"partial".into()),
            "{row}"
        );
        assert_eq!(output(&row), (15, 0), "{row}");
    }
}

#[test]
fn thoughts_that_the_total_counts_among_the_candidates_are_billed_once() {
    let usage = |total: u64| json!({"promptTokenCount": 100, "candidatesTokenCount": 900, "thoughtsTokenCount": 800, "totalTokenCount": total});
    for (total, wanted) in [(1_000, (100, 800)), (1_800, (900, 800))] {
        let row = row(Wire::Gemini.model(), 8_192, text(), usage(total));
        assert_eq!(
            (output(&row), &row["usage_source"]),
            (wanted, &"reported".into()),
            "{row}"
        );
        // 0.75 and 3.75 USD per 1M.
        assert_eq!(
            cost(&row),
            100 * 750 + i64::try_from(wanted.0 + wanted.1).unwrap() * 3_750,
            "{row}"
        );
    }
}

#[test]
fn an_image_is_billed_whatever_limit_was_set() {
    let image = json!([{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]);
    let usage = json!({"promptTokenCount": 20, "candidatesTokenCount": 1_290, "totalTokenCount": 1_310,
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1_290}]});
    let row = row(IMAGE_MODEL, 300, image, usage);
    assert_eq!(row["usage_source"], "reported", "{row}");
    // 20 tokens at 2 USD per 1M, 1,290 at 120.
    assert_eq!(cost(&row), NANO * 15_484 / 100_000, "{row}");
}

#[test]
fn a_report_beyond_what_was_asked_for_is_billed_at_that() {
    let usage = json!({"promptTokenCount": 20, "candidatesTokenCount": 4_000});
    let row = row(Wire::Gemini.model(), 64, text(), usage);
    assert_eq!(
        (output(&row), &row["usage_source"]),
        ((64, 0), &"bounded".into()),
        "{row}"
    );
    assert_eq!(cost(&row), 20 * 750 + 64 * 3_750, "{row}");
}

#[test]
fn each_round_of_a_tool_may_have_what_was_asked_for() {
    let code = json!({"executableCode": {"language": "PYTHON", "code": "print(2 + 2)"}});
    let result = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}});
    let parts: Vec<&Json> = [&code, &result].into_iter().cycle().take(8).collect();
    for (reported, billed, source) in [(4_100, 4_100, "reported"), (6_000, 5_120, "bounded")] {
        let usage = json!({"promptTokenCount": 20, "candidatesTokenCount": reported});
        let row = row(Wire::Gemini.model(), 1_024, json!(parts), usage);
        assert_eq!(
            (output(&row), &row["usage_source"]),
            ((billed, 0), &source.into()),
            "{row}"
        );
    }
}

#[test]
fn a_negative_count_is_no_report() {
    let usage = json!({"promptTokenCount": -7, "candidatesTokenCount": -4});
    let row = row(Wire::Gemini.model(), 64, text(), usage);
    assert_eq!(row["usage_source"], "partial", "{row}");
    assert!(output(&row).0 > 0 && row["input_uncached"].as_u64() > Some(0), "{row}");
}
