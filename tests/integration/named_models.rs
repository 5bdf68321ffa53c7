//! Models that a body names beside the one that is to answer: a key that may not use all of them names none of the others, and
//! each is charged at its own price.

use serde_json::{Value as Json, json};

use crate::harness::books::cost;
use crate::harness::client::Response;
use crate::harness::models::{CLAUDE_CODE_MODEL, GEMINI_MODEL, MESSAGES_MODEL, RESPONSES_MODEL};
use crate::harness::recordings::unary;
use crate::harness::request::Wire;
use crate::harness::shapes::assert_refusal;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_until};

/// Nano-USD per token of input and output, as `conf/prices.toml` has them.
const SONNET: [i64; 2] = [2_000, 10_000];
const OPUS: [i64; 2] = [4_000, 20_000];

fn charge(prices: [i64; 2], input: i64, output: i64) -> i64 {
    prices[0] * input + prices[1] * output
}

/// Members that name a model, `@`, for the provider to run.
const PLACES: [(Wire, &str); 15] = [
    (Wire::Messages, r#""fallbacks":[{"model":@}]"#),
    (Wire::Messages, r#""fallbacks":[@]"#),
    (
        Wire::Messages,
        r#""tools":[{"type":"advisor_20260301","name":"advisor","model":@}]"#,
    ),
    (
        Wire::Messages,
        r#""messages":[{"role":"user","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"advisor_20260301","name":"advisor","model":@}}}]}]"#,
    ),
    (Wire::Messages, r#""somethi\u006eg_new":{"mod\u0065l":@}"#),
    (Wire::Messages, r#""router":{"models":[@]}"#),
    (Wire::Responses, r#""tools":[{"type":"image_generation","model":@}]"#),
    (
        Wire::Responses,
        r#""tools":[{"type":"image_generation","output_format":"svg","svg":{"model":@}}]"#,
    ),
    (
        Wire::Responses,
        r#""input":[{"type":"additional_tools","role":"developer","tools":[{"type":"image_generation","model":@}]}]"#,
    ),
    (Wire::Responses, r#""moderation":{"model":@}"#),
    (Wire::Responses, r#""reviewer":{"model_name":@}"#),
    (Wire::Gemini, r#""model":@"#),
    (
        Wire::Gemini,
        r#""generationConfig":{"routingConfig":{"manualMode":{"modelName":@}}}"#,
    ),
    (
        Wire::Gemini,
        r#""generationConfig":{"routingConfig":{"autoMode":{"modelRoutingPreference":@}}}"#,
    ),
    (
        Wire::Gemini,
        r#""tools":[{"retrieval":{"vertexRagStore":{"ragRetrievalConfig":{"ranking":{"llmRanker":{"modelName":@}}}}}}]"#,
    ),
];

/// A request with these members beside what it has to have.
fn ask(wire: Wire, key: &str, members: &str) -> Request {
    let content = match (wire, members.contains("messages") || members.contains("input")) {
        (Wire::Messages, false) => r#""messages":[{"role":"user","content":"hi"}],"#,
        (Wire::Responses, false) => r#""input":"hi","#,
        (Wire::Gemini, _) => r#""contents":[{"role":"user","parts":[{"text":"hi"}]}],"#,
        (_, true) => "",
    };
    let body = match wire {
        Wire::Messages => format!(r#"{{"model":"{MESSAGES_MODEL}","max_tokens":64,{content}{members}}}"#),
        Wire::Responses => format!(r#"{{"model":"{RESPONSES_MODEL}",{content}{members}}}"#),
        Wire::Gemini => format!("{{{content}{members}}}"),
    };
    wire.request(key, "hi").body(body.as_bytes())
}

fn provider() -> RecordingProvider {
    RecordingProvider::start(|request, answer| {
        answer.json(unary(crate::harness::request::wire_of(&request.target)));
    })
}

/// Another model of the protocol, which the key may not use, and names that mean none.
fn others(wire: Wire) -> Vec<&'static str> {
    match wire {
        Wire::Messages => vec![
            CLAUDE_CODE_MODEL,
            "claude-opus-5-5-20260801",
            "claude-opus-5-5[1m]",
            "default",
            "",
        ],
        Wire::Responses => vec![
            "gpt-5.5",
            "gpt-5.5-2026-04-01",
            "gpt-image-2.6-sunburst",
            "omni-moderation-latest",
        ],
        Wire::Gemini => vec![
            "models/gemini-3.1-pro-preview",
            "gemini-3.1-pro-preview",
            "PRIORITIZE_QUALITY",
        ],
    }
}

#[track_caller]
fn assert_refused(wire: Wire, answer: &Response, members: &str, model: &str) {
    assert_eq!(answer.status, 403, "{members}: {}", answer.text());
    let kind = match wire {
        Wire::Messages => "permission_error",
        Wire::Responses => "named_model_not_allowed",
        Wire::Gemini => "PERMISSION_DENIED",
    };
    assert_refusal(wire, answer, 403, kind);
    let name = model.rsplit('/').next().unwrap();
    assert!(answer.text().contains(name), "{members}: {}", answer.text());
}

#[test]
fn a_key_for_one_model_names_no_other_wherever_the_body_can_name_one() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let any = weir.key().text;
    for wire in [Wire::Messages, Wire::Responses, Wire::Gemini] {
        let key = weir.key_with(&["--models", wire.model()]).text;
        for (_, place) in PLACES.iter().filter(|(of, _)| *of == wire) {
            for other in others(wire) {
                let members = place.replace('@', &Json::from(other).to_string());
                let before = provider.count();
                assert_refused(wire, &weir.exchange(&ask(wire, &key, &members)), &members, other);
                assert_eq!(provider.count(), before, "{members}: nothing is passed on");
            }
            let dated = format!("{}-20260801", wire.model());
            for own in [wire.model(), &dated] {
                let members = place.replace('@', &Json::from(own).to_string());
                let answer = weir.exchange(&ask(wire, &key, &members));
                assert_eq!(answer.status, 200, "{members}: {}", answer.text());
                let sent = provider.last().body;
                assert!(String::from_utf8_lossy(&sent).contains(&members), "it passes as it is");
            }
            // A key for all models names any.
            let members = place.replace('@', &Json::from(others(wire)[0]).to_string());
            assert_eq!(weir.exchange(&ask(wire, &any, &members)).status, 200, "{members}");
        }
    }
    let refused = |wire: Wire| {
        let places = PLACES.iter().filter(|(of, _)| *of == wire).count();
        places * others(wire).len()
    };
    for wire in [Wire::Messages, Wire::Responses, Wire::Gemini] {
        let protocol = format!("{wire:?}").to_lowercase();
        let line = format!(
            "weir_refusals_total{{protocol=\"{protocol}\",reason=\"named_model_not_allowed\"}} {}\n",
            refused(wire)
        );
        wait_until("the refusals to be counted", || weir.metrics().contains(&line));
    }
}

#[test]
fn the_request_whose_tokens_are_counted_names_no_other_model_either() {
    let provider = RecordingProvider::start(|_, answer| answer.json(r#"{"totalTokens":7}"#));
    let weir = Weir::start(&provider.base_url());
    let key = weir.key_with(&["--models", GEMINI_MODEL]).text;
    let count = |model: &str| Request {
        target: format!("/v1beta/models/{GEMINI_MODEL}:countTokens"),
        ..Wire::Gemini.request(&key, "hi").body(
            json!({"generateContentRequest": {"model": model, "contents": [{"parts": [{"text": "hi"}]}]}})
                .to_string()
                .as_bytes(),
        )
    };
    assert_eq!(weir.exchange(&count("models/gemini-3.1-pro-preview")).status, 403);
    assert_eq!(provider.count(), 0);
    assert_eq!(weir.exchange(&count(&format!("models/{GEMINI_MODEL}"))).status, 200);
}

#[test]
fn a_name_that_is_another_models_at_the_provider_is_not_the_keys_own() {
    let provider = provider();
    let model = |name: &str, upstream: &str, aliases: &[&str]| {
        let aliases: Vec<toml::Value> = aliases.iter().map(|alias| (*alias).into()).collect();
        toml::Value::from(toml::map::Map::from_iter([
            ("name".to_owned(), name.into()),
            ("upstream_name".to_owned(), upstream.into()),
            ("aliases".to_owned(), aliases.into()),
            ("providers".to_owned(), vec![toml::Value::from("anthropic")].into()),
            ("free".to_owned(), true.into()),
        ]))
    };
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set_top(
            "model",
            vec![
                model("house", "claude-small-1", &["claude-large-1"]),
                model("large", "claude-large-1", &[]),
            ],
        )
        .start();
    let key = weir.key_with(&["--models", "house"]).text;
    let asking = |fallback: &str| {
        let body = json!({"model": "house", "max_tokens": 9, "messages": [], "fallbacks": [{"model": fallback}]});
        Wire::Messages.request(&key, "hi").body(body.to_string().as_bytes())
    };
    // As the model asked for, the alias means the key's own model; at the provider it is the large one.
    assert_eq!(
        weir.exchange(&Wire::Messages.request_for("claude-large-1", &key, "hi"))
            .status,
        200
    );
    for (name, status) in [
        ("claude-large-1", 403),
        ("large", 403),
        ("claude-small-1", 403),
        ("house", 200),
    ] {
        assert_eq!(weir.exchange(&asking(name)).status, status, "{name}");
    }
}

#[test]
fn more_names_than_are_looked_up_are_refused_for_a_key_that_may_not_use_all() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let (limited, any) = (weir.key_with(&["--models", MESSAGES_MODEL]).text, weir.key().text);
    let asking = |key: &str, count: usize| {
        // Different spellings of the one name that the key may use.
        let names: Vec<String> = (0..count)
            .map(|index| format!(r#"{{"model":"{MESSAGES_MODEL}-202601{:02}"}}"#, index + 1))
            .collect();
        ask(Wire::Messages, key, &format!(r#""fallbacks":[{}]"#, names.join(",")))
    };
    for (key, count, status) in [(&limited, 16, 200), (&limited, 17, 400), (&any, 17, 200)] {
        assert_eq!(weir.exchange(&asking(key, count)).status, status, "{count}");
    }
}

/// The row of a streamed answer that begins as every answer does and goes on as `script` says, to a request with these members.
fn row(members: &str, script: fn(&mut crate::harness::answer::Answer<'_>)) -> Json {
    let provider = RecordingProvider::start(move |_, peer| {
        peer.sse();
        let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": MESSAGES_MODEL,
            "usage": {"input_tokens": 535, "output_tokens": 1}}});
        let text = json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "What passes is some words long."}});
        for event in [start, text] {
            peer.chunk(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
        }
        script(peer);
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let request = ask(Wire::Messages, &key, &format!(r#""stream":true,{members}"#));
    assert_eq!(weir.exchange(&request).status, 200);
    weir.books(1).rows.swap_remove(0)
}

#[test]
fn an_advisor_that_the_provider_does_not_name_is_billed_as_the_dearest_that_the_body_names() {
    fn script(peer: &mut crate::harness::answer::Answer<'_>) {
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {
            "input_tokens": 535, "output_tokens": 20, "iterations": [
                {"type": "message", "input_tokens": 535, "output_tokens": 20},
                {"type": "advisor_message", "input_tokens": 1000, "output_tokens": 100}]}});
        for event in [end, json!({"type": "message_stop"})] {
            peer.chunk(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
        }
        peer.end();
    }
    let advisors = format!(
        r#""tools":[{{"type":"advisor_20260301","name":"advisor","model":"{CLAUDE_CODE_MODEL}"}},{{"model":"claude-haiku-4-5"}}]"#
    );
    let row = row(&advisors, script);
    assert_eq!(cost(&row), charge(SONNET, 535, 20) + charge(OPUS, 1000, 100), "{row}");
    assert_eq!(row["parts"][1]["model"], CLAUDE_CODE_MODEL, "{row}");
}

#[test]
fn what_a_cut_answer_may_owe_to_a_fallback_is_billed_as_the_dearest_that_the_body_names() {
    fn script(peer: &mut crate::harness::answer::Answer<'_>) {
        peer.cut();
    }
    let fallbacks = |model: &str| format!(r#""fallbacks":[{{"model":"claude-haiku-4-5"}},{{"model":"{model}"}}]"#);
    let advisor = format!(r#""tools":[{{"type":"advisor_20260301","name":"advisor","model":"{CLAUDE_CODE_MODEL}"}}]"#);
    for (members, prices, model) in [
        (fallbacks(CLAUDE_CODE_MODEL), OPUS, Some(CLAUDE_CODE_MODEL)),
        // Those that the body names cost less than the one that was asked for.
        (fallbacks("claude-haiku-4-5"), SONNET, None),
        // No model of the catalogue: nothing says that it answered.
        (fallbacks("claude-unheard-of-9"), SONNET, None),
        // An advisor's text does not pass.
        (advisor, SONNET, None),
    ] {
        let row = row(&members, script);
        let count = |name: &str| row[name].as_i64().unwrap_or(0);
        let (input, output) = (count("input_uncached"), count("output_text"));
        assert!(input == 535 && output > 1, "{row}");
        assert_eq!(row["usage_source"], "partial", "{row}");
        assert_eq!(cost(&row), charge(prices, input, output), "{members}: {row}");
        assert_eq!(row["parts"][0]["model"].as_str(), model, "{row}");
    }
}
