//! What providers report, and what of it is billed: ends that are none, thoughts, images, tools, and figures that cannot be.

use serde_json::{Value as Json, json};

use crate::harness::books::cost;
use crate::harness::request::{Request, Wire};
use crate::harness::{RecordingProvider, Weir, WeirBuilder};

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

/// The counts in the lines of the charge of a key's last row.
fn lines(weir: &Weir, key: &str) -> Vec<u64> {
    let own = weir.exchange(&Request::get("/web/v1/me").header("x-goog-api-key", key));
    let own = own.json();
    let lines = own["data"]["last_rows"][0]["price_lines"].as_array().unwrap();
    lines.iter().map(|line| line["count"].as_u64().unwrap()).collect()
}

#[test]
fn an_image_is_billed_whatever_limit_was_set_and_at_the_price_of_images() {
    let image = json!([{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]);
    let usage = json!({"promptTokenCount": 20, "candidatesTokenCount": 1_290, "totalTokenCount": 1_310,
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1_290}]});
    let row = row(IMAGE_MODEL, 300, image, usage);
    assert_eq!(row["usage_source"], "reported", "{row}");
    assert_eq!((&row["output_image"], output(&row)), (&1_290.into(), (0, 0)), "{row}");
    // 20 tokens at 2 USD per 1M, 1,290 at 120.
    assert_eq!(cost(&row), NANO * 15_484 / 100_000, "{row}");
}

#[test]
fn sound_and_images_cost_what_the_price_list_says_of_them() {
    const LIST: &str = r#"
        version = "mine-1"
        [[price]]
        name = "gemini-3.8-flash"
        tiers = [{ input = "1", output = "10", cache_read = "0.1", input_audio = "3", cache_read_audio = "0.3" }]
        [[price]]
        name = "gpt-6-luna"
        tiers = [{ input = "1", output = "10", input_image = "2", output_audio = "20", output_image = "40" }]
    "#;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("prices.toml");
    std::fs::write(&file, LIST).unwrap();
    let heard = json!({"promptTokenCount": 1_000, "cachedContentTokenCount": 300, "candidatesTokenCount": 50,
        "totalTokenCount": 1_050, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 200},
        {"modality": "AUDIO", "tokenCount": 800}], "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 300}]});
    let seen = json!({"input_tokens": 500, "output_tokens": 120, "total_tokens": 620,
        "input_tokens_details": {"image_tokens": 400},
        "output_tokens_details": {"audio_tokens": 60, "image_tokens": 50, "reasoning_tokens": 0}});
    for (wire, model, usage, counts, wanted) in [
        (
            Wire::Gemini,
            "gemini-3.8-flash",
            heard,
            [
                ("input_uncached", 200),
                ("input_audio", 500),
                ("cache_read_audio", 300),
                ("output_text", 50),
            ],
            200 * 1_000 + 500 * 3_000 + 300 * 300 + 50 * 10_000,
        ),
        (
            Wire::Responses,
            "gpt-6-luna",
            seen,
            [
                ("input_image", 400),
                ("output_audio", 60),
                ("output_image", 50),
                ("output_text", 10),
            ],
            100 * 1_000 + 400 * 2_000 + 60 * 20_000 + 50 * 40_000 + 10 * 10_000,
        ),
    ] {
        let body = match wire {
            Wire::Gemini => answer(&text(), &usage),
            _ => json!({"id": "resp_1", "object": "response", "status": "completed", "usage": usage,
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello world"}]}]}),
        };
        let provider = RecordingProvider::start(move |_, peer| peer.json(&body.to_string()));
        let weir = WeirBuilder::new()
            .all_providers(&provider.base_url())
            .set("prices.file", file.to_str().unwrap())
            .start();
        let key = weir.key().text;
        assert_eq!(
            weir.exchange(&wire.request_for(model, &key, "A weir, please.")).status,
            200
        );
        let row = weir.books(1).rows[0].clone();
        for (part, count) in counts {
            assert_eq!(row[part], count, "{part} of {row}");
        }
        assert_eq!(cost(&row), wanted, "{row}");
        let counted: u64 = lines(&weir, &key).iter().sum();
        let of_usage = |field: &str| usage[field].as_u64().unwrap_or(0);
        let total = of_usage("totalTokenCount") + of_usage("total_tokens");
        assert_eq!(counted, total, "each token has its line");
    }
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
