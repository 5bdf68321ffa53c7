//! Tests of `input`.

use super::*;
use crate::domain::ledger::calibration::Calibration;
use crate::domain::wire::Protocol;
use crate::domain::wire::json_scan::{ScanLimits, scan};

fn estimated(body: &str) -> u64 {
    let limits = ScanLimits {
        depth_max: 64,
        references_max: 64,
    };
    scan(body.as_bytes(), Protocol::Messages, &limits).unwrap().input_tokens
}

fn exact(text: &str) -> u64 {
    bpe_openai::o200k_base().count(text) as u64
}

fn message(text: &str) -> String {
    serde_json::json!({ "model": "m", "messages": [{ "role": "user", "content": text }] }).to_string()
}

fn near(estimate: u64, wanted: u64) -> bool {
    estimate * 10 >= wanted * 9 && estimate * 10 <= wanted * 11
}

#[test]
fn a_request_costs_its_text_and_a_little() {
    let text = include_str!("../../../../../tests/golden/tokens/english.txt");
    let code = include_str!("../../sse.rs");
    for text in [text, code] {
        assert!(
            near(estimated(&message(text)), exact(text) + 6),
            "{} {}",
            estimated(&message(text)),
            exact(text)
        );
    }
    assert!(
        (4..10).contains(&estimated(&message("hi"))),
        "{}",
        estimated(&message("hi"))
    );
}

#[test]
fn a_long_request_is_sampled_and_still_near() {
    let text = [
        include_str!("../../../../../tests/golden/tokens/english.txt"),
        include_str!("../../../../../README.md"),
        include_str!("../../sse.rs"),
    ]
    .concat()
    .repeat(30);
    assert!(text.len() > 4 * usize::try_from(EXACT_BYTES).unwrap());
    let one = estimated(&message(&text));
    assert!(near(one, exact(&text)), "{one} {}", exact(&text));
    // Cut into many strings.
    let parts: Vec<_> = text.as_bytes().chunks(700).map(String::from_utf8_lossy).collect();
    let many = estimated(&serde_json::json!({ "messages": parts }).to_string());
    assert!(near(many, exact(&text)), "{many} {}", exact(&text));
}

#[test]
fn schemas_of_tools_count_with_their_structure() {
    let tools = serde_json::json!([{
        "name": "read_file",
        "description": "Reads a file and gives its lines.",
        "input_schema": { "type": "object", "required": ["path"], "properties": {
            "path": { "type": "string", "description": "The path, from the working folder." },
            "lines": { "type": "array", "items": { "type": "integer" } },
            "follow": { "type": "boolean", "description": "Whether to follow links." },
        } },
    }, {
        "name": "run_tests",
        "description": "Runs the tests of the project and says which failed.",
        "input_schema": { "type": "object", "properties": {
            "filter": { "type": "string", "description": "Part of the names of the tests to run." },
            "timeout_seconds": { "type": "integer" },
        } },
    }]);
    let wanted = exact(&tools.to_string());
    let found = estimated(&serde_json::json!({ "tools": tools }).to_string());
    assert!(
        found * 10 >= wanted * 8 && found * 10 <= wanted * 12,
        "{found} {wanted}"
    );
}

#[test]
fn payloads_count_by_kind_and_not_by_length() {
    let filled = |head: &str, length: usize| format!("{head}{}", "Qm9n".repeat(length / 4));
    let image = |data: &str| estimated(&serde_json::json!({ "data": data }).to_string());
    let about = |found: u64, wanted: u64| assert!((wanted..wanted + 5).contains(&found), "{found} {wanted}");
    for head in ["iVBORw0K", "/9j/4AAQ", "R0lGODlh", "UklGRiQIAQBXRUJQVlA4IA"] {
        about(image(&filled(head, 4_000)), IMAGE_TOKENS);
        about(image(&filled(head, 3_000_000)), IMAGE_TOKENS);
    }
    about(image("data:image/png;base64,iVBO"), IMAGE_TOKENS);
    about(image(&filled("data:image/webp;base64,", 90_000)), IMAGE_TOKENS);
    about(image(&filled("JVBERi0x", 90_000)), DOCUMENT_STEP_TOKENS);
    about(
        image(&filled("data:application/pdf;base64,", 205_000)),
        3 * DOCUMENT_STEP_TOKENS,
    );
    about(image(&filled("zzzz", 90_000)), DOCUMENT_STEP_TOKENS);
    about(image(&filled("UklGRiQIAQBXQVZFZm10", 66_680)), 100);
    about(image(&filled("data:video/mp4;base64,", 130_000)), 100);
    // PHP writes slashes with a backslash.
    let escaped = format!(r#"{{"data":"\/9j\/4AAQ{}"}}"#, r"Qm9n\/+8=".repeat(500));
    about(estimated(&escaped), IMAGE_TOKENS);
}

#[test]
fn long_text_without_spaces_is_no_payload_and_neither_is_a_short_string() {
    let chinese = include_str!("../../../../../tests/golden/tokens/chinese.txt").replace('\n', "");
    assert!(
        near(estimated(&message(&chinese)), exact(&chinese)),
        "{} {}",
        estimated(&message(&chinese)),
        exact(&chinese)
    );
    let id = "a1B2".repeat(10);
    assert!(estimated(&message(&id)) < 60);
    assert!(estimated(&message("data:image/png, not one")) < 20);
    assert!(estimated(&message("data:")) < 20);
}

#[test]
fn an_estimate_is_corrected_and_no_more_than_the_model_takes() {
    let mut learnt = Calibration::default();
    (0..200).for_each(|_| learnt.learn(1_000, 1_500));
    assert_eq!(input_estimate(1_000, learnt.factor(), None), 1_500);
    assert_eq!(input_estimate(1_000, learnt.factor(), Some(1_200)), 1_200);
    assert_eq!(input_estimate(7, TokenFactor::ONE, Some(1_200)), 7);
}
