//! The options of a request, by their verdicts.

use super::*;
use crate::domain::translation::conversation::{AnswerFormat, PlacedOption, ReasoningEffort, ReasoningRequest};

/// A body with these members of the generation's options.
fn with_config(members: &str) -> String {
    with_members(&format!(r#""generationConfig":{{{members}}}"#))
}

fn value<T: Clone>(option: &Option<PlacedOption<T>>) -> Option<T> {
    option.as_ref().map(|option| option.value.clone())
}

#[test]
fn options_are_kept_as_they_are_spelled() {
    let body = with_config(
        r#""maxOutputTokens":9,"temperature":0.70,"top_p":1,"topK":64.0,"seed":7,"presencePenalty":-1.5,
        "frequency_penalty":0.10,"stopSequences":["a","\n"],"candidateCount":1,"responseModalities":["Text"],
        "responseMimeType":"text/plain","responseLogprobs":false,"logprobs":0"#,
    );
    let reading = strict(&body).unwrap();
    assert!(reading.losses().is_empty(), "{:?}", reading.losses());
    let options = &reading.conversation.options;
    assert_eq!(value(&options.max_tokens), Some(9));
    assert_eq!(value(&options.temperature), Some("0.70"));
    assert_eq!(value(&options.top_p), Some("1"));
    assert_eq!(value(&options.top_k), Some("64"));
    assert_eq!(value(&options.seed), Some("7"));
    assert_eq!(value(&options.presence_penalty), Some("-1.5"));
    assert_eq!(value(&options.frequency_penalty), Some("0.10"));
    assert_eq!(value(&options.stop), Some(vec!["a".into(), "\n".into()]));
    assert_eq!(options.format, None);
    assert_eq!(options.reasoning, None);
    assert_eq!(options.shows_reasoning, None);
    let path = options.max_tokens.as_ref().map(|option| &*option.path);
    assert_eq!(path, Some("generationConfig.maxOutputTokens"));
}

#[test]
fn thinking_is_a_level_or_a_budget() {
    let level = "generationConfig.thinkingConfig.thinkingLevel";
    let budget = "generationConfig.thinkingConfig.thinkingBudget";
    for (members, expected, losses) in [
        (
            r#""thinkingLevel":"HIGH""#,
            Some((level, ReasoningRequest::by_effort(ReasoningEffort::High))),
            vec![],
        ),
        (
            r#""thinking_level":"minimal""#,
            Some((level, ReasoningRequest::by_effort(ReasoningEffort::Minimal))),
            vec![],
        ),
        (r#""thinkingLevel":"THINKING_LEVEL_UNSPECIFIED""#, None, vec![]),
        (r#""thinkingLevel":"HEROIC""#, None, vec![format!("unknown {level}")]),
        (
            r#""thinkingBudget":1024"#,
            Some((budget, ReasoningRequest::by_budget(1_024))),
            vec![],
        ),
        (
            r#""thinking_budget":0"#,
            Some((budget, ReasoningRequest::by_budget(0))),
            vec![],
        ),
        (r#""thinkingBudget":-1"#, None, vec![format!("adapted {budget}")]),
        (
            r#""thinkingBudget":0,"thinkingLevel":"LOW""#,
            Some((level, ReasoningRequest::by_effort(ReasoningEffort::Low))),
            vec![format!("dropped {budget}")],
        ),
        (
            r#""mood":1"#,
            None,
            vec!["unknown generationConfig.thinkingConfig.mood".to_owned()],
        ),
    ] {
        let body = with_config(&format!(r#""thinkingConfig":{{{members}}}"#));
        let reading = strict(&body).unwrap();
        let reasoning = reading.conversation.options.reasoning.as_ref();
        assert_eq!(
            reasoning.map(|option| (&*option.path, option.value)),
            expected,
            "{members}"
        );
        assert_eq!(reading.losses.iter().count(), losses.len(), "{members}");
        for (loss, expected) in reading.losses.iter().zip(&losses) {
            assert_eq!(format!("{} {}", loss.verdict.as_str(), loss.path), *expected);
        }
    }
    for (text, shows) in [("true", Some(true)), ("false", Some(false)), ("null", None)] {
        let body = with_config(&format!(r#""thinkingConfig":{{"include_thoughts":{text}}}"#));
        assert_eq!(strict(&body).unwrap().conversation.options.shows_reasoning, shows);
    }
}

#[test]
fn an_answer_can_be_json_with_or_without_a_schema() {
    let schema = |text: &str| AnswerFormat::Schema {
        name: None,
        description: None,
        schema: text.to_owned().into(),
        strict: None,
    };
    for (members, path, expected, losses) in [
        (
            r#""responseMimeType":"application/json""#,
            "responseMimeType",
            AnswerFormat::Json,
            vec![],
        ),
        (
            r#""responseMimeType":"application/json","responseJsonSchema":{"b": 1.0}"#,
            "responseJsonSchema",
            schema(r#"{"b": 1.0}"#),
            vec![],
        ),
        (
            r#""_responseJsonSchema":{"b":1}"#,
            "responseJsonSchema",
            schema(r#"{"b":1}"#),
            vec![],
        ),
        (
            r#""response_mime_type":"application/json","response_schema":{"type":"OBJECT","nullable":false}"#,
            "responseSchema",
            schema(r#"{"type":"object"}"#),
            vec!["adapted generationConfig.response_schema"],
        ),
        (
            r#""responseSchema":{"type": "object"},"responseMimeType":"application/json""#,
            "responseSchema",
            schema(r#"{"type": "object"}"#),
            vec![],
        ),
        (
            r#""responseSchema":{"type":"OBJECT"},"responseJsonSchema":{}"#,
            "responseJsonSchema",
            schema("{}"),
            vec!["dropped generationConfig.responseSchema"],
        ),
    ] {
        let body = with_config(members);
        let reading = strict(&body).unwrap();
        let format = reading.conversation.options.format.as_ref().unwrap();
        assert_eq!(format.path, format!("generationConfig.{path}"), "{members}");
        assert_eq!(format.value, expected, "{members}");
        assert_eq!(reading.losses(), losses, "{members}");
    }
    let body = with_config(r#""responseMimeType":"text/x.enum","responseSchema":{"type":"STRING","enum":["a"]}"#);
    assert_eq!(refused_path(strict(&body)), "generationConfig.responseMimeType");
    let reading = lossy(&body).unwrap();
    assert_eq!(reading.conversation.options.format, None);
    assert_eq!(
        reading.losses(),
        [
            "dropped generationConfig.responseMimeType",
            "dropped generationConfig.responseSchema"
        ]
    );
}

#[test]
fn every_other_option_is_reported() {
    for name in ["safetySettings", "labels", "serviceTier", "modelArmorConfig", "store"] {
        let body = with_members(&format!(r#""{name}":{{"x":1}}"#));
        assert_eq!(strict(&body).unwrap().losses(), [format!("dropped {name}")]);
    }
    for name in [
        "mediaResolution",
        "audioTimestamp",
        "enableEnhancedCivicAnswers",
        "enableAffectiveDialog",
        "routingConfig",
        "modelSelectionConfig",
    ] {
        let body = with_config(&format!(r#""{name}":{{"x":1}}"#));
        assert_eq!(
            strict(&body).unwrap().losses(),
            [format!("dropped generationConfig.{name}")]
        );
    }
    for (body, loss) in [
        (with_members(r#""service_tier":"flex""#), "dropped service_tier"),
        (with_members(r#""mood":"good""#), "unknown mood"),
        (with_config(r#""rhyme":true"#), "unknown generationConfig.rhyme"),
    ] {
        assert_eq!(strict(&body).unwrap().losses(), [loss]);
    }
    assert!(
        strict(&with_members(r#""model":"models/x""#))
            .unwrap()
            .losses()
            .is_empty()
    );
}

#[test]
fn what_changes_the_answer_is_refused_in_strict_mode_only() {
    for (members, name) in [
        (r#""responseLogprobs":true"#, "responseLogprobs"),
        (r#""logprobs":3"#, "logprobs"),
        (r#""responseFormat":[{}]"#, "responseFormat"),
        (r#""translationConfig":{}"#, "translationConfig"),
        (r#""audio_transcription_config":{}"#, "audio_transcription_config"),
    ] {
        let body = with_config(members);
        let path = format!("generationConfig.{name}");
        assert_eq!(refused_path(strict(&body)), path);
        assert_eq!(lossy(&body).unwrap().losses(), [format!("dropped {path}")]);
    }
}

#[test]
fn state_other_modalities_and_wrong_types_are_refused_in_both_modes() {
    for (members, path) in [
        (r#""cachedContent":"cachedContents/x""#, "cachedContent"),
        (r#""cached_content":"cachedContents/x""#, "cached_content"),
        (r#""continuationToken":"x""#, "continuationToken"),
        (r#""outputConfig":{"outputUriPrefix":"gs://b/x"}"#, "outputConfig"),
        (r#""generationConfig":[]"#, "generationConfig"),
    ] {
        assert_eq!(refused_path(lossy(&with_members(members))), path);
    }
    for (members, name) in [
        (r#""candidateCount":2"#, "candidateCount"),
        (r#""responseModalities":["TEXT","IMAGE"]"#, "responseModalities[1]"),
        (r#""response_modalities":["AUDIO"]"#, "response_modalities[0]"),
        (r#""speechConfig":{}"#, "speechConfig"),
        (r#""imageConfig":{}"#, "imageConfig"),
        (r#""maxOutputTokens":"many""#, "maxOutputTokens"),
        (r#""temperature":"warm""#, "temperature"),
        (r#""stopSequences":"x""#, "stopSequences"),
        (
            r#""thinkingConfig":{"thinkingBudget":1.5}"#,
            "thinkingConfig.thinkingBudget",
        ),
        (
            r#""thinkingConfig":{"thinkingLevel":1}"#,
            "thinkingConfig.thinkingLevel",
        ),
        (r#""responseSchema":{"items":1}"#, "responseSchema"),
        (r#""responseJsonSchema":1"#, "responseJsonSchema"),
    ] {
        assert_eq!(
            refused_path(lossy(&with_config(members))),
            format!("generationConfig.{name}")
        );
    }
}
