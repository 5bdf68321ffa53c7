//! How the numbers of each protocol become the canonical record.

use super::*;
use crate::domain::wire::usage::{COUNT_MAX, Usage};

fn golden(name: &str) -> Usage {
    let (protocol, framing) = kind_of(name);
    observe(protocol, framing, &stream(name), 100).observed().usage.unwrap()
}

fn body(protocol: Protocol, json: &str) -> Option<Usage> {
    observe(protocol, AnswerFraming::Json, json.as_bytes(), 10)
        .observed()
        .usage
}

#[test]
fn messages_take_each_number_from_the_last_frame_that_has_it() {
    let usage = golden("messages-thinking-tools-caches.sse");
    let wanted = Usage {
        input_uncached: 12,
        cache_read: 14_000,
        cache_write_short: 1000,
        cache_write_long: 2000,
        output_text: 25,
        output_reasoning: 90,
        ..Usage::default()
    };
    assert_eq!(usage, wanted);
    let compatible = golden("messages-compatible-server.sse");
    assert_eq!(
        (compatible.input_uncached, compatible.cache_read, compatible.output_text),
        (80, 64, 7)
    );
}

#[test]
fn messages_add_compactions_and_scale_the_split_of_cache_writes() {
    let wanted = Usage {
        input_uncached: 4100 + 7000,
        cache_read: 900 + 10,
        cache_write_short: 200,
        cache_write_long: 400,
        output_text: 40 + 500,
        web_searches: 2,
        web_fetches: 1,
        ..Usage::default()
    };
    assert_eq!(golden("messages-search-compaction.sse"), wanted);
}

#[test]
fn messages_without_a_split_write_short() {
    let usage = body(Protocol::Messages, r#"{"usage":{"cache_creation_input_tokens":7}}"#).unwrap();
    assert_eq!((usage.cache_write_short, usage.cache_write_long), (7, 0));
    let split = r#"{"usage":{"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2}}}"#;
    let usage = body(Protocol::Messages, split).unwrap();
    assert_eq!((usage.cache_write_short, usage.cache_write_long), (1, 2));
}

#[test]
fn a_cut_messages_stream_keeps_what_was_reported() {
    let bytes = stream("messages-thinking-tools-caches.sse");
    let usage = observe(Protocol::Messages, AnswerFraming::Sse, &bytes[..1200], 100)
        .observed()
        .usage
        .unwrap();
    assert_eq!((usage.input_uncached, usage.output_text), (12, 3));
}

#[test]
fn responses_take_caches_and_reasoning_out_of_the_totals() {
    let usage = golden("responses-reasoning-text.sse");
    assert_eq!((usage.input_uncached, usage.cache_read), (93, 3207));
    assert_eq!((usage.output_text, usage.output_reasoning), (56, 64));
    let wanted = Usage {
        input_uncached: 793,
        cache_read: 1000,
        cache_write_short: 207,
        cache_write_long: 3000,
        output_text: 20,
        web_searches: 1,
        ..Usage::default()
    };
    assert_eq!(golden("responses-tools-cache-write.sse"), wanted);
    assert_eq!(golden("responses-unary.json").web_searches, 3);
}

#[test]
fn responses_never_go_below_zero() {
    let json = r#"{"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":8},
        "output_tokens":2,"output_tokens_details":{"reasoning_tokens":9}}}"#;
    let usage = body(Protocol::Responses, json).unwrap();
    assert_eq!(
        (usage.input_uncached, usage.cache_read, usage.cache_write_short),
        (0, 8, 2)
    );
    assert_eq!((usage.output_text, usage.output_reasoning), (0, 2));
    assert_eq!(body(Protocol::Responses, r#"{"usage":null}"#), None);
}

#[test]
fn gemini_counts_thoughts_and_tool_prompts_beside() {
    let wanted = Usage {
        input_uncached: 2000,
        cache_read: 6000,
        output_text: 5,
        output_reasoning: 31,
        ..Usage::default()
    };
    assert_eq!(golden("gemini-thinking-text.sse"), wanted);
    assert_eq!(golden("gemini-array-text.json"), wanted);
    let usage = golden("gemini-tools-search.sse");
    assert_eq!(
        (
            usage.input_uncached,
            usage.tool_input,
            usage.web_searches,
            usage.output_text
        ),
        (20, 700, 2, 9)
    );
    assert_eq!(golden("gemini-array-tools.json"), usage);
    assert_eq!(golden("gemini-blocked.sse").input_uncached, 4);
}

#[test]
fn a_total_says_whether_gemini_thoughts_are_among_the_candidates() {
    let counted = |counts: &str| {
        let usage = body(Protocol::Gemini, &format!(r#"{{"usageMetadata":{{{counts}}}}}"#)).unwrap();
        (usage.output_text, usage.output_reasoning, usage.input_total())
    };
    let base = r#""promptTokenCount":100,"candidatesTokenCount":900,"thoughtsTokenCount":800"#;
    for (more, wanted) in [
        (r#","totalTokenCount":1000"#, (100, 800, 100)),
        (r#","totalTokenCount":1800"#, (900, 800, 100)),
        ("", (900, 800, 100)),
        // A total of its own: as the vendor says.
        (r#","totalTokenCount":1234"#, (900, 800, 100)),
        (r#","totalTokenCount":-5"#, (900, 800, 100)),
        (
            r#","totalTokenCount":1000,"toolUsePromptTokenCount":50"#,
            (100, 800, 150),
        ),
        (
            r#","totalTokenCount":1050,"toolUsePromptTokenCount":50"#,
            (100, 800, 150),
        ),
        (
            r#","totalTokenCount":1850,"toolUsePromptTokenCount":50"#,
            (900, 800, 150),
        ),
        // It fits both ways: as the vendor says.
        (
            r#","totalTokenCount":1800,"toolUsePromptTokenCount":0"#,
            (900, 800, 100),
        ),
    ] {
        assert_eq!(counted(&format!("{base}{more}")), wanted, "{more}");
    }
    // More thoughts than candidates cannot be among them.
    let more = r#""promptTokenCount":100,"candidatesTokenCount":10,"thoughtsTokenCount":800,"totalTokenCount":110"#;
    assert_eq!(counted(more), (10, 800, 100));
}

#[test]
fn a_total_says_whether_responses_reasoning_is_beside_the_output() {
    let counted = |total: &str| {
        let json = format!(
            r#"{{"usage":{{"input_tokens":100,"output_tokens":900,"output_tokens_details":{{"reasoning_tokens":800}}{total}}}}}"#
        );
        let usage = body(Protocol::Responses, &json).unwrap();
        (usage.output_text, usage.output_reasoning)
    };
    assert_eq!(counted(""), (100, 800));
    assert_eq!(counted(r#","total_tokens":1000"#), (100, 800));
    assert_eq!(counted(r#","total_tokens":1800"#), (900, 800));
    assert_eq!(counted(r#","total_tokens":1234"#), (100, 800));
}

#[test]
fn sound_and_images_are_counted_apart_where_the_report_does_so() {
    let gemini = body(
        Protocol::Gemini,
        r#"{"usageMetadata":{"promptTokenCount":1000,"cachedContentTokenCount":300,"candidatesTokenCount":1400,"thoughtsTokenCount":50,
        "totalTokenCount":2450,"promptTokensDetails":[{"modality":"TEXT","tokenCount":100},{"modality":"AUDIO","tokenCount":700},
        {"modality":"IMAGE","tokenCount":150},{"modality":"VIDEO","tokenCount":50}],
        "cacheTokensDetails":[{"modality":"AUDIO","tokenCount":200},{"modality":"TEXT","tokenCount":100}],
        "candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":1290},{"modality":"TEXT","tokenCount":110}]}}"#,
    );
    let wanted = Usage {
        input_uncached: 50,
        input_audio: 500,
        input_image: 150,
        cache_read: 100,
        cache_read_audio: 200,
        output_text: 110,
        output_image: 1290,
        output_reasoning: 50,
        ..Usage::default()
    };
    assert_eq!(gemini, Some(wanted));
    let responses = body(
        Protocol::Responses,
        r#"{"usage":{"input_tokens":1000,"output_tokens":900,"total_tokens":1900,
        "input_tokens_details":{"cached_tokens":300,"text_tokens":150,"audio_tokens":700,"image_tokens":150,
        "cached_tokens_details":{"text_tokens":60,"audio_tokens":200,"image_tokens":40}},
        "output_tokens_details":{"reasoning_tokens":100,"text_tokens":200,"audio_tokens":400,"image_tokens":300}}}"#,
    );
    let wanted = Usage {
        input_uncached: 90,
        input_audio: 500,
        input_image: 110,
        cache_read: 60,
        cache_read_audio: 200,
        cache_read_image: 40,
        output_text: 100,
        output_audio: 400,
        output_image: 300,
        output_reasoning: 100,
        ..Usage::default()
    };
    assert_eq!(responses, Some(wanted));
}

proptest! {
    /// Whatever the details say, each token that the report counts is in one part.
    #[test]
    fn details_move_tokens_and_make_none(counts in proptest::array::uniform4(0..3000_u64), details in proptest::array::uniform7(-9..3000_i64)) {
        let [prompt, cached, output, thoughts] = counts;
        let [audio_in, image_in, audio_read, image_read, audio_out, image_out, text_out] = details;
        let list = |audio: i64, image: i64| serde_json::json!([{"modality": "AUDIO", "tokenCount": audio}, {"modality": "IMAGE", "tokenCount": image},
            {"modality": "TEXT", "tokenCount": text_out}, {"tokenCount": 7}, 3]);
        let gemini = serde_json::json!({"usageMetadata": {"promptTokenCount": prompt, "cachedContentTokenCount": cached,
            "candidatesTokenCount": output, "thoughtsTokenCount": thoughts, "promptTokensDetails": list(audio_in, image_in),
            "cacheTokensDetails": list(audio_read, image_read), "candidatesTokensDetails": list(audio_out, image_out)}});
        let responses = serde_json::json!({"usage": {"input_tokens": prompt, "output_tokens": output,
            "input_tokens_details": {"cached_tokens": cached, "audio_tokens": audio_in, "image_tokens": image_in,
                "cached_tokens_details": {"audio_tokens": audio_read, "image_tokens": image_read}},
            "output_tokens_details": {"reasoning_tokens": thoughts, "audio_tokens": audio_out, "image_tokens": image_out}}});
        for (protocol, json, all) in [(Protocol::Gemini, gemini, output + thoughts), (Protocol::Responses, responses, output)] {
            let usage = body(protocol, &json.to_string()).unwrap();
            prop_assert_eq!((usage.input_total(), usage.output_total()), (prompt, all));
            prop_assert_eq!(usage.cache_read_total(), cached.min(prompt));
            let most = |part: i64| u64::try_from(part).unwrap_or(0);
            prop_assert!(usage.input_audio <= most(audio_in) && usage.input_image <= most(image_in));
            prop_assert!(usage.cache_read_audio <= most(audio_read) && usage.cache_read_image <= most(image_read));
            prop_assert!(usage.output_audio <= most(audio_out) && usage.output_image <= most(image_out));
        }
    }
}

#[test]
fn absurd_numbers_are_none() {
    let absurd = |input: &str| {
        let messages = format!(r#"{{"usage":{{"input_tokens":{input},"output_tokens":{input}}}}}"#);
        let responses = format!(r#"{{"usage":{{"output_tokens":1,"input_tokens":{input}}}}}"#);
        let gemini = format!(r#"{{"usageMetadata":{{"promptTokenCount":{input}}}}}"#);
        [
            (Protocol::Messages, messages),
            (Protocol::Responses, responses),
            (Protocol::Gemini, gemini),
        ]
        .map(|(protocol, json)| body(protocol, &json).unwrap().input_uncached)
    };
    assert_eq!(absurd("-5"), [0; 3]);
    assert_eq!(absurd("9007199254740992"), [COUNT_MAX; 3]);
    assert_eq!(absurd("1e308"), [0; 3]);
    assert_eq!(absurd("1e999"), [0; 3]);
    assert_eq!(absurd("9223372036854775808"), [0; 3]);
    assert_eq!(absurd("7.9"), [7; 3]);
    assert_eq!(absurd("\"12\""), [0; 3]);
    assert_eq!(absurd("[12]"), [0; 3]);
    assert_eq!(absurd("null"), [0; 3]);
}

#[test]
fn no_usage_is_none_and_an_explicit_zero_is_zero() {
    for protocol in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
        assert_eq!(body(protocol, r#"{"x":1}"#), None);
        assert_eq!(body(protocol, r#"{"usage":7,"usageMetadata":"x"}"#), None);
        assert_eq!(body(protocol, "<html>"), None);
    }
    assert_eq!(
        body(Protocol::Messages, r#"{"usage":{"input_tokens":0}}"#),
        Some(Usage::default())
    );
}

/// What a provider may put into a report, under the names that are read and others; some come twice, or as something else.
fn reported() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
        "ephemeral_1h_input_tokens",
        "input_tokens_details",
        "output_tokens_details",
        "thinking_tokens",
        "cached_tokens",
        "cache_write_tokens_details",
        "ttl_12h_tokens",
        "reasoning_tokens",
        "server_tool_use",
        "web_search_requests",
        "iterations",
        "type",
        "service_tier",
        "promptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "totalTokenCount",
        "promptTokensDetails",
        "modality",
        "tokenCount",
        "output_tok\\u0065ns",
        "other",
    ]);
    let value = prop_oneof![
        (0..2000_u32).prop_map(|count| count.to_string()),
        prop::sample::select(vec![
            "null",
            "-1",
            "7.9",
            "\"12\"",
            "\"AUDIO\"",
            "\"fl\\u0065x\"",
            "\"fallback_message\"",
            "9007199254740993"
        ])
        .prop_map(str::to_owned),
    ];
    value.prop_recursive(3, 40, 8, move |inner| {
        let member = (name.clone(), inner.clone()).prop_map(|(name, value)| format!("\"{name}\": {value}"));
        prop_oneof![
            4 => prop::collection::vec(member, 0..8).prop_map(|members| format!("{{{}}}", members.join(","))),
            1 => prop::collection::vec(inner, 0..3).prop_map(|elements| format!("[{} ]", elements.join(" ,"))),
        ]
    })
}

proptest! {
    #[test]
    fn any_split_of_a_body_counts_the_same(first in reported(), last in reported(), size in 1_usize..60) {
        for (protocol, name) in [(Protocol::Messages, "usage"), (Protocol::Responses, "usage"), (Protocol::Gemini, "usageMetadata")] {
            let body = format!("{{\"{name}\":{first},\"tool_usage\":{first},\"{name}\" : {last}}}");
            let whole = observe(protocol, AnswerFraming::Json, body.as_bytes(), usize::MAX).observed();
            let split = observe(protocol, AnswerFraming::Json, body.as_bytes(), size).observed();
            prop_assert_eq!(whole, split, "{}", body);
        }
    }
}
