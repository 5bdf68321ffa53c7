//! The options of a request, by their verdicts.

use super::*;
use crate::domain::translation::conversation::{AnswerFormat, ReasoningEffort};

#[test]
fn options_are_kept_as_they_are_spelled() {
    let body = with_members(
        r#""stream":true,"max_output_tokens":9,"temperature":0.70,"top_p":1,"parallel_tool_calls":false,
        "reasoning":{"effort":"xhigh"},"prompt_cache_key":"k","include":["reasoning.encrypted_content"],
        "truncation":"disabled","background":false,"top_logprobs":0,"instructions":null,
        "text":{"format":{"type":"json_schema","name":"n","description":"d","schema":{"b": 1.0},"strict":true}}"#,
    );
    let reading = strict(&body).unwrap();
    assert!(reading.losses().is_empty(), "{:?}", reading.losses());
    let options = &reading.conversation.options;
    assert!(options.stream);
    assert_eq!(
        options
            .max_tokens
            .as_ref()
            .map(|option| (option.path.clone(), option.value)),
        Some(("max_output_tokens".into(), 9))
    );
    assert_eq!(options.temperature.as_ref().map(|option| option.value), Some("0.70"));
    assert_eq!(options.top_p.as_ref().map(|option| option.value), Some("1"));
    assert_eq!(options.parallel_calls.as_ref().map(|option| option.value), Some(false));
    assert_eq!(
        options.reasoning.as_ref().map(|option| option.value.effort),
        Some(ReasoningEffort::ExtraHigh)
    );
    assert_eq!(options.shows_reasoning, None);
    assert_eq!(
        options.format.as_ref().map(|option| option.value.clone()),
        Some(AnswerFormat::Schema {
            name: Some("n".into()),
            description: Some("d".into()),
            schema: r#"{"b": 1.0}"#.into(),
            strict: Some(true),
        })
    );
}

#[test]
fn every_other_option_is_reported() {
    for name in [
        "stream_options",
        "max_tool_calls",
        "service_tier",
        "moderation",
        "image",
        "access_programs",
        "metadata",
        "user",
        "prompt_cache_retention",
        "safety_identifier",
        "client_metadata",
        "context_management",
    ] {
        let body = with_members(&format!(r#""{name}":{{"x":1}}"#));
        assert_eq!(strict(&body).unwrap().losses(), [format!("dropped {name}")]);
    }
    for (members, loss) in [
        (r#""store":true"#, "dropped store"),
        (r#""truncation":"auto""#, "dropped truncation"),
        (
            r#""text":{"verbosity":"low","format":{"type":"text"}}"#,
            "dropped text.verbosity",
        ),
        (r#""reasoning":{"context":"all_turns"}"#, "dropped reasoning.context"),
        (r#""reasoning":{"mode":"pro"}"#, "dropped reasoning.mode"),
        (r#""reasoning":{"effort":"heroic"}"#, "unknown reasoning.effort"),
        (r#""reasoning":{"summary":"auto"}"#, "dropped reasoning.summary"),
        (
            r#""include":["reasoning.encrypted_content","file_search_call.results"]"#,
            "dropped include[1]",
        ),
        (
            r#""prompt_cache_options":{"mode":"explicit"}"#,
            "dropped prompt_cache_options.mode",
        ),
        (r#""mood":"good""#, "unknown mood"),
        (r#""text":{"rhyme":true}"#, "unknown text.rhyme"),
    ] {
        let body = with_members(members).replacen(r#""store":false,"#, "", usize::from(members.contains("store")));
        assert_eq!(strict(&body).unwrap().losses(), [loss], "{members}");
    }
    let body = with_members(r#""reasoning":{"summary":"detailed"}"#);
    let reading = read_for(
        &body,
        UpstreamProtocol::Messages,
        TranslationMode::Strict,
        CallIdForm::Any,
    )
    .unwrap();
    assert_eq!(reading.losses(), ["adapted reasoning.summary"]);
    assert_eq!(reading.conversation.options.shows_reasoning, Some(true));
}

#[test]
fn what_changes_the_answer_is_refused_in_strict_mode_only() {
    for (members, path) in [
        (r#""top_logprobs":3"#, "top_logprobs"),
        (r#""include":["message.output_text.logprobs"]"#, "include[0]"),
        (r#""text":{"format":{"type":"poem"}}"#, "text.format"),
        (r#""generate":false"#, "generate"),
        (
            r#""prompt_cache_options":{"prewarm":true}"#,
            "prompt_cache_options.prewarm",
        ),
    ] {
        let body = with_members(members);
        assert_eq!(refused_path(strict(&body)), path);
        assert_eq!(lossy(&body).unwrap().losses(), [format!("dropped {path}")]);
    }
}

#[test]
fn state_and_wrong_types_are_refused_in_both_modes() {
    for (members, path) in [
        (r#""previous_response_id":"resp_1""#, "previous_response_id"),
        (r#""conversation":{"id":"conv_1"}"#, "conversation"),
        (r#""prompt":{"id":"pmpt_1"}"#, "prompt"),
        (r#""background":true"#, "background"),
        (
            r#""prompt_cache_options":{"comparison_response_id":"r"}"#,
            "prompt_cache_options.comparison_response_id",
        ),
        (r#""max_output_tokens":"many""#, "max_output_tokens"),
        (r#""temperature":"warm""#, "temperature"),
        (r#""include":[1]"#, "include[0]"),
        (
            r#""text":{"format":{"type":"json_schema","name":"n"}}"#,
            "text.format.schema",
        ),
        (r#""instructions":["x"]"#, "instructions"),
    ] {
        assert_eq!(refused_path(lossy(&with_members(members))), path);
    }
    assert_eq!(refused_path(lossy("[]")), "");
}
