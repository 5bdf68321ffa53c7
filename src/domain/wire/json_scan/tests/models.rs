//! Which models a body names beside the one that is to answer.

use super::{LIMITS, Protocol};
use crate::domain::wire::json_scan::scan;

use Protocol::{Gemini, Messages, Responses};

/// The names, and whether each may answer in the place of the model asked for.
fn named(protocol: Protocol, body: &str) -> Vec<(String, bool)> {
    let scan = scan(body.as_bytes(), protocol, &LIMITS).unwrap_or_else(|error| panic!("{body}: {error}"));
    let names = scan.models.names(body.as_bytes());
    names
        .map(|(name, is_fallback)| (name.into_owned(), is_fallback))
        .collect()
}

const NAMES: [(Protocol, &str); 24] = [
    (
        Messages,
        r#"{"model":"m","tools":[{"type":"advisor_20260301","name":"advisor","model":"x"}]}"#,
    ),
    (Messages, r#"{"tools":[{"mod\u0065l":"\u0078"}]}"#),
    (
        Messages,
        r#"{"messages":[{"content":[{"type":"t","tool":{"type":"tool_definition","definition":{"model":"x"}}}]}]}"#,
    ),
    (
        Messages,
        r#"{"messages":[{"content":[{"tool_changes":[{"tool":{"definition":{"model":"x"}}}]}]}]}"#,
    ),
    (Messages, r#"{"any":{"routing_model":"x"}}"#),
    (Messages, r#"{"models":["x"]}"#),
    (Messages, r#"{"tools":[{"model":{"id":"x"}}]}"#),
    (Messages, r#"{"messages":[{"content":[{"model":"x"}]}]}"#),
    (
        Responses,
        r#"{"model":"m","tools":[{"type":"image_generation","model":"x"}]}"#,
    ),
    (
        Responses,
        r#"{"tools":[{"type":"image_generation","svg":{"model":"x"}}]}"#,
    ),
    (Responses, r#"{"tools":[{"type":"namespace","tools":[{"model":"x"}]}]}"#),
    (
        Responses,
        r#"{"input":[{"type":"additional_tools","tools":[{"model":"x"}]}]}"#,
    ),
    (Responses, r#"{"input":[{"tools":[{"svg":{"model":"x"}}]}]}"#),
    (Responses, r#"{"moderation":{"model":"x"}}"#),
    (Responses, r#"{"reviewer":{"model_name":"x"}}"#),
    (Gemini, r#"{"model":"x","contents":[]}"#),
    (Gemini, r#"{"generateContentRequest":{"model":"x"}}"#),
    (
        Gemini,
        r#"{"generate_content_request":{"generate_content_request":{"model":"x"}}}"#,
    ),
    (
        Gemini,
        r#"{"generationConfig":{"routingConfig":{"manualMode":{"modelName":"x"}}}}"#,
    ),
    (
        Gemini,
        r#"{"generationConfig":{"routingConfig":{"autoMode":{"modelRoutingPreference":"x"}}}}"#,
    ),
    (
        Gemini,
        r#"{"generation_config":{"model_selection_config":{"feature_selection_preference":"x"}}}"#,
    ),
    (
        Gemini,
        r#"{"tools":[{"retrieval":{"vertexRagStore":{"ragRetrievalConfig":{"ranking":{"llmRanker":{"modelName":"x"}}}}}}]}"#,
    ),
    (Gemini, r#"{"contents":[{"parts":[{"tool":{"model":"x"}}]}]}"#),
    (Gemini, r#"{"contents":[{"parts":[{"model":"x"}]}]}"#),
];

#[test]
fn a_model_is_found_wherever_a_body_names_one() {
    for (protocol, body) in NAMES {
        assert_eq!(named(protocol, body), [("x".to_owned(), false)], "{body}");
    }
}

#[test]
fn what_takes_the_place_of_a_model_that_declines_is_told_apart() {
    for (fallbacks, names) in [
        (r#"[{"model":"x","max_tokens":7},{"model":"y"}]"#, vec!["x", "y"]),
        (r#"["x"]"#, vec!["x"]),
        (r#"{"model":"x"}"#, vec!["x"]),
        (r#"[{"model":{"id":"x"}}]"#, vec!["x"]),
        (r#""default""#, vec!["default"]),
        ("null", vec![]),
        ("[]", vec![]),
    ] {
        let body = format!(r#"{{"model":"m","fallbacks":{fallbacks}}}"#);
        let all: Vec<_> = names.iter().map(|name| ((*name).to_owned(), true)).collect();
        assert_eq!(named(Messages, &body), all, "{body}");
    }
    // A name that stands in both places.
    let both = r#"{"tools":[{"model":"x"}],"fallbacks":[{"model":"x"}]}"#;
    assert_eq!(named(Messages, both), [("x".to_owned(), true)]);
}

#[test]
fn the_users_own_and_what_has_been_name_no_model() {
    for (protocol, body) in [
        (
            Messages,
            r#"{"model":"m","metadata":{"model":"x","nested":{"model":"x"}}}"#,
        ),
        (
            Messages,
            r#"{"tools":[{"input_schema":{"properties":{"model":{"default":"x"}},"model":"x"}}]}"#,
        ),
        (
            Messages,
            r#"{"tools":[{"configs":{"model":"x"}}],"tool_choice":{"model":"x"}}"#,
        ),
        (
            Messages,
            r#"{"messages":[{"content":[{"type":"tool_use","input":{"model":"x"}}]}]}"#,
        ),
        (
            Messages,
            r#"{"messages":[{"content":[{"type":"fallback","from":{"model":"x"},"to":{"model":"y"}}]}]}"#,
        ),
        (
            Messages,
            r#"{"messages":[{"content":[{"tool":{"definition":{"input_schema":{"model":"x"}}}}]}]}"#,
        ),
        (Messages, r#"{"messages":[{"content":"\"model\":\"x\""}]}"#),
        (Responses, r#"{"model":"m","metadata":{"model":"x"}}"#),
        (Responses, r#"{"prompt":{"id":"p","variables":{"model":"x"}}}"#),
        (
            Responses,
            r#"{"tools":[{"headers":{"model":"x"},"parameters":{"model":"x"}}]}"#,
        ),
        (
            Responses,
            r#"{"text":{"format":{"schema":{"properties":{"model":{"default":"x"}}}}}}"#,
        ),
        (
            Responses,
            r#"{"input":[{"type":"image_generation_call","result":"r","svg_usage":{"model":"x"}}]}"#,
        ),
        (Responses, r#"{"input":[{"action":{"env":{"model":"x"}}}]}"#),
        (
            Gemini,
            r#"{"labels":{"model":"x"},"contents":[{"parts":[{"functionCall":{"args":{"model":"x"}}}]}]}"#,
        ),
        (Gemini, r#"{"generationConfig":{"responseSchema":{"model":"x"}}}"#),
        (
            Gemini,
            r#"{"tools":[{"functionDeclarations":[{"parametersJsonSchema":{"model":"x"}}]}]}"#,
        ),
        (Gemini, r#"{"modelArmorConfig":{"promptTemplateName":"x"}}"#),
    ] {
        assert_eq!(named(protocol, body), [], "{body}");
    }
}

#[test]
fn state_is_found_beside_and_below_a_model_in_content() {
    for (protocol, body) in [
        (Messages, r#"{"messages":[{"model":{"any":{"file_id":"f"}}}]}"#),
        (
            Responses,
            r#"{"input":[{"role":"user","models":[{"any":{"file_id":"f"}}],"a":1}]}"#,
        ),
        (Gemini, r#"{"contents":[{"model":{"any":{"fileUri":"files/f"}}}]}"#),
    ] {
        let scan = scan(body.as_bytes(), protocol, &LIMITS).unwrap();
        assert_eq!(scan.references.len(), 1, "{body}");
    }
}

#[test]
fn sixteen_different_names_are_kept_and_that_there_are_more_is_known() {
    let body = |count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!(r#"{{"model":"x{index}"}}"#)).collect();
        // Each name twice.
        format!(r#"{{"tools":[{0},{0}]}}"#, names.join(","))
    };
    for (count, kept, has_more) in [
        (0, 0, false),
        (1, 1, false),
        (16, 16, false),
        (17, 16, true),
        (90, 16, true),
    ] {
        let text = if count == 0 { "{}".to_owned() } else { body(count) };
        let models = scan(text.as_bytes(), Messages, &LIMITS).unwrap().models;
        assert_eq!(
            (models.names(text.as_bytes()).count(), models.has_more()),
            (kept, has_more),
            "{count}"
        );
    }
}

#[test]
fn what_no_text_can_hold_is_a_name_that_no_model_has() {
    let body = r#"{"tools":[{"model":"\ud83d"}]}"#;
    assert_eq!(named(Messages, body), [(String::new(), false)]);
}
