//! The maximum output that a request asks for, which limits its bill.

use super::*;
use Protocol::{Gemini, Messages, Responses};

fn limit(protocol: Protocol, body: &str) -> Option<u64> {
    scanned(body).output_limits.for_protocol(protocol)
}

#[test]
fn each_protocol_has_its_own_name_and_no_other_counts() {
    let all =
        r#"{"max_tokens":1,"max_output_tokens":2,"max_completion_tokens":3,"generationConfig":{"maxOutputTokens":4}}"#;
    assert_eq!(
        [Messages, Responses, Gemini].map(|protocol| limit(protocol, all)),
        [Some(1), Some(2), Some(4)]
    );
    assert_eq!(limit(Responses, r#"{"max_tokens":1,"max_completion_tokens":1}"#), None);
    assert_eq!(
        limit(Gemini, r#"{"max_tokens":1,"maxOutputTokens":1,"max_output_tokens":1}"#),
        None
    );
    assert_eq!(limit(Messages, "{}"), None);
    let snake = r#"{"generation_config":{"max_output_tokens":5,"candidate_count":1}}"#;
    assert_eq!(limit(Gemini, snake), Some(5));
}

#[test]
fn a_value_that_two_readers_could_take_differently_is_no_limit() {
    for value in [
        "null",
        "\"64\"",
        "64.0",
        "6e1",
        "-1",
        "0",
        "[64]",
        "{\"x\":64}",
        "true",
        "99999999999999999999",
    ] {
        for body in [
            format!("{{\"max_tokens\":{value}}}"),
            format!("{{\"max_tokens\":64,\"max_tokens\":{value}}}"),
            format!("{{\"max_tokens\":{value},\"max_tokens\":64}}"),
        ] {
            assert_eq!(limit(Messages, &body), None, "{body}");
        }
        let gemini = format!("{{\"generationConfig\":{{\"maxOutputTokens\":{value}}}}}");
        assert_eq!(limit(Gemini, &gemini), None, "{gemini}");
        let candidates = format!("{{\"generationConfig\":{{\"maxOutputTokens\":64,\"candidateCount\":{value}}}}}");
        assert_eq!(limit(Gemini, &candidates), None, "{candidates}");
    }
    assert_eq!(
        limit(Messages, r#"{"max_tokens":64,"max_tokens":65,"max_tokens":1}"#),
        Some(65)
    );
    // Which of two objects counts is the provider's affair.
    let twice = r#"{"generationConfig":{"maxOutputTokens":1},"generation_config":{}}"#;
    assert_eq!(limit(Gemini, twice), None);
}

#[test]
fn all_candidates_are_asked_for() {
    let body = r#"{"generationConfig":{"candidateCount":3,"maxOutputTokens":64}}"#;
    assert_eq!(limit(Gemini, body), Some(192));
    assert_eq!(limit(Gemini, r#"{"generationConfig":{"candidateCount":3}}"#), None);
    let most = r#"{"generationConfig":{"candidateCount":18446744073709551615,"maxOutputTokens":2}}"#;
    assert_eq!(limit(Gemini, most), Some(u64::MAX));
}

#[test]
fn a_model_that_may_stand_in_may_have_a_larger_limit() {
    let body = r#"{"max_tokens":64,"fallbacks":[{"model":"a"},{"model":"b","max_tokens":100,"thinking":{"max_tokens":9000}}]}"#;
    assert_eq!(limit(Messages, body), Some(100));
    assert_eq!(
        scanned(body).output_max,
        Some(64),
        "what is held for the model asked for"
    );
    assert_eq!(limit(Messages, r#"{"max_tokens":64,"fallbacks":"default"}"#), Some(64));
    assert_eq!(
        limit(Messages, r#"{"max_tokens":64,"fallbacks":[{"max_tokens":null}]}"#),
        None
    );
    assert_eq!(
        limit(Messages, r#"{"max_tokens":64,"tools":[{"max_tokens":9000}]}"#),
        Some(64)
    );
}
