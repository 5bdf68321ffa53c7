//! The options of a request, by their verdicts.

use super::*;
use crate::domain::translation::conversation::{AnswerFormat, ReasoningRequest};

#[test]
fn options_are_kept_as_they_are_spelled() {
    let body = with_members(
        r#""stream":true,"temperature":0.70,"top_p":1,"top_k":40,"stop_sequences":["a","b"],"system":null,
        "mcp_servers":[],"container":null,"output_config":{"format":{"type":"json_schema","schema":{"b": 1.0}}}"#,
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
        Some(("max_tokens".into(), 9))
    );
    assert_eq!(options.temperature.as_ref().map(|option| option.value), Some("0.70"));
    assert_eq!(options.top_p.as_ref().map(|option| option.value), Some("1"));
    assert_eq!(options.top_k.as_ref().map(|option| option.value), Some("40"));
    assert_eq!(
        options.stop.as_ref().map(|option| option.value.clone()),
        Some(vec!["a".into(), "b".into()])
    );
    assert_eq!(
        options
            .format
            .as_ref()
            .map(|option| (option.path.clone(), option.value.clone())),
        Some((
            "output_config.format".into(),
            AnswerFormat::Schema {
                name: None,
                description: None,
                schema: r#"{"b": 1.0}"#.into(),
                strict: None,
            }
        ))
    );
    assert_eq!(options.reasoning, None);
    assert_eq!(options.shows_reasoning, None);
}

#[test]
fn the_earlier_member_for_the_form_of_an_answer_is_known() {
    let body = with_members(r#""output_format":{"type":"json_schema","schema":{}}"#);
    let reading = strict(&body).unwrap();
    let format = reading.conversation.options.format.as_ref();
    assert_eq!(format.map(|option| &*option.path), Some("output_format"));
    let body = with_members(r#""output_config":{"format":{"type":"xml"}}"#);
    assert_eq!(refused_path(&body), "output_config.format");
    assert_eq!(lossy(&body).unwrap().losses(), ["dropped output_config.format"]);
}

#[test]
fn preferences_and_annotations_are_left_out_and_reported() {
    for name in [
        "cache_control",
        "context_management",
        "diagnostics",
        "betas",
        "safeguards",
        "fallbacks",
        "fallback_credit_token",
        "metadata",
        "service_tier",
        "speed",
        "billing_policy",
        "user_profile_id",
        "workspace_id",
    ] {
        let body = with_members(&format!(r#""{name}":{{"x":1}}"#));
        assert_eq!(strict(&body).unwrap().losses(), [format!("dropped {name}")]);
    }
    for (members, loss) in [
        (
            r#""output_config":{"task_budget":{}}"#,
            "dropped output_config.task_budget",
        ),
        (r#""output_config":{"new":1}"#, "unknown output_config.new"),
        (r#""output_config":{"effort":"huge"}"#, "unknown output_config.effort"),
        (r#""thinking":{"type":"between_tools"}"#, "dropped thinking"),
        (r#""thinking":{"type":"dreaming"}"#, "unknown thinking.type"),
        (r#""new_option":1"#, "unknown new_option"),
    ] {
        let body = with_members(members);
        let reading = strict(&body).unwrap();
        assert_eq!(reading.losses(), [loss]);
        assert_eq!(reading.conversation.options.reasoning, None);
    }
}

#[test]
fn state_and_promises_are_refused_in_both_modes() {
    for (members, path) in [
        (r#""container":"c""#, "container"),
        (r#""thread":{"type":"create"}"#, "thread"),
        (r#""inference_geo":"us""#, "inference_geo"),
        (r#""compaction":{"type":"summarize"}"#, "compaction"),
        (r#""mcp_servers":[{"url":"https://a"}]"#, "mcp_servers"),
    ] {
        let body = with_members(members);
        for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
            let refusal = refusal(&body, mode);
            assert!(refusal.starts_with(&format!("{path}: ")), "{refusal}");
        }
    }
}

#[test]
fn the_maximum_number_of_tokens_is_needed_and_not_0() {
    assert_eq!(refused_path(r#"{"max_tokens":0,"messages":[]}"#), "max_tokens");
    assert_eq!(
        refusal(r#"{"messages":[]}"#, TranslationMode::Lossy),
        "max_tokens: is missing"
    );
}

#[test]
fn thinking_and_effort_become_one_request_for_reasoning() {
    let budget = |effort, budget| ReasoningRequest {
        effort,
        budget: Some(budget),
    };
    let by_effort = ReasoningRequest::by_effort;
    for (members, path, request) in [
        (
            r#""thinking":{"type":"adaptive"}"#,
            "thinking",
            by_effort(ReasoningEffort::High),
        ),
        (
            r#""thinking":{"type":"adaptive"},"output_config":{"effort":"xhigh"}"#,
            "output_config.effort",
            by_effort(ReasoningEffort::ExtraHigh),
        ),
        (
            r#""output_config":{"effort":"low"}"#,
            "output_config.effort",
            by_effort(ReasoningEffort::Low),
        ),
        (
            r#""thinking":{"type":"enabled","budget_tokens":10000}"#,
            "thinking",
            budget(ReasoningEffort::Medium, 10_000),
        ),
        (
            r#""thinking":{"type":"enabled","budget_tokens":10000},"output_config":{"effort":"max"}"#,
            "thinking",
            budget(ReasoningEffort::Max, 10_000),
        ),
        (
            r#""thinking":{"type":"disabled"}"#,
            "thinking",
            by_effort(ReasoningEffort::Off),
        ),
    ] {
        let body = with_members(members);
        let reading = strict(&body).unwrap();
        assert!(reading.losses().is_empty(), "{:?}", reading.losses());
        let reasoning = reading.conversation.options.reasoning.as_ref();
        assert_eq!(
            reasoning.map(|option| (&*option.path, option.value)),
            Some((path, request))
        );
    }
    let body = with_members(r#""thinking":{"type":"disabled"},"output_config":{"effort":"low"}"#);
    assert_eq!(strict(&body).unwrap().losses(), ["dropped output_config.effort"]);
    let body = json!({ "max_tokens": 9, "messages": [
        { "role": "user", "content": "go" },
        { "role": "system", "output_config": { "effort": "max" } },
    ] })
    .to_string();
    let reading = strict(&body).unwrap();
    let reasoning = reading.conversation.options.reasoning.as_ref();
    assert_eq!(
        reasoning.map(|option| &*option.path),
        Some("messages[1].output_config.effort")
    );
    assert_eq!(reading.losses(), ["adapted messages[1].output_config.effort"]);
    let body = with_members(r#""thinking":{"type":"enabled"}"#);
    assert_eq!(refused_path(&body), "thinking.budget_tokens");
}

#[test]
fn the_last_effort_counts_also_if_a_message_states_it() {
    let body = json!({ "max_tokens": 9, "output_config": { "effort": "low" }, "messages": [
        { "role": "user", "content": "go" },
        { "role": "system", "output_config": { "effort": "max" } },
        { "role": "system", "content": [], "output_config": { "effort": "medium", "new": 1 } },
    ] })
    .to_string();
    let reading = strict(&body).unwrap();
    let reasoning = reading.conversation.options.reasoning.as_ref();
    assert_eq!(
        reasoning.map(|option| (&*option.path, option.value.effort)),
        Some(("messages[2].output_config.effort", ReasoningEffort::Medium))
    );
    assert_eq!(
        reading.losses(),
        [
            "adapted output_config.effort",
            "adapted messages[1].output_config.effort",
            "adapted messages[2].output_config.effort",
            "unknown messages[2].output_config.new",
        ]
    );
}

#[test]
fn the_client_says_whether_it_wants_to_see_the_reasoning() {
    for (thinking, shows, losses) in [
        (r#"{"type":"adaptive"}"#, None, vec![]),
        (r#"{"type":"adaptive","display":"omitted"}"#, Some(false), vec![]),
        (r#"{"type":"adaptive","display":"summarized"}"#, Some(true), vec![]),
        (r#"{"type":"adaptive","display":"updates"}"#, Some(true), vec![]),
        (r#"{"type":"disabled"}"#, Some(false), vec![]),
        (
            r#"{"type":"adaptive","display":"sung"}"#,
            None,
            vec!["unknown thinking.display"],
        ),
        (
            r#"{"type":"adaptive","block_binding":{}}"#,
            None,
            vec!["dropped thinking.block_binding"],
        ),
    ] {
        let body = with_members(&format!(r#""thinking":{thinking}"#));
        let reading = strict(&body).unwrap();
        assert_eq!(reading.conversation.options.shows_reasoning, shows, "{thinking}");
        assert_eq!(reading.losses(), losses, "{thinking}");
    }
}

#[test]
fn the_session_is_the_cache_key_of_a_provider_that_has_one() {
    let key = |user_id: &str, protocol| {
        let members = format!(r#""metadata":{}"#, json!({ "user_id": user_id }));
        let body = with_members(&members);
        let reading = read_with(&body, &to(protocol, TranslationMode::Strict)).unwrap();
        let key = reading.conversation.options.cache_key.as_ref();
        (key.map(|key| key.value.to_string()), reading.losses())
    };
    let user_id = r#"{"device_id":"d","account_uuid":"","session_id":"5f0c-1"}"#;
    let (session, losses) = key(user_id, UpstreamProtocol::Responses);
    assert_eq!(session.as_deref(), Some("5f0c-1"));
    assert_eq!(losses, ["dropped metadata", "adapted metadata.user_id"]);
    let (session, _) = key("user_ab_account_cd_session_ef-1", UpstreamProtocol::Responses);
    assert_eq!(session.as_deref(), Some("ef-1"));
    for (user_id, protocol) in [
        (user_id, UpstreamProtocol::Chat),
        (user_id, UpstreamProtocol::Gemini),
        ("somebody", UpstreamProtocol::Responses),
        (r#"{"session_id":7}"#, UpstreamProtocol::Responses),
        (r#"{"session_id":"a b"}"#, UpstreamProtocol::Responses),
    ] {
        assert_eq!(key(user_id, protocol), (None, vec!["dropped metadata".to_owned()]));
    }
}
