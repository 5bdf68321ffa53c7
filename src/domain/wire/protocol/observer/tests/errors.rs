//! Errors beside whole answers: one that says nothing is none, one that says something is one, wherever the pieces are cut.

use super::*;

/// What stands for "no error" in the answers of one server or another.
const NOTHING: [&str; 8] = ["null", "false", "0", "0.0", "\"\"", "[]", "{}", " { } "];
const SOMETHING: [&str; 6] = [
    "true",
    "1",
    "\"failed\"",
    "[0]",
    "{\"message\":\"failed\"}",
    "{\"code\":null}",
];

/// A whole answer in one piece, and a whole stream of one chunk where the protocol's chunks are like it, with this error.
fn answers(error: &str) -> Vec<(Protocol, AnswerFraming, String)> {
    let messages = r#""type":"message","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}"#;
    let responses =
        r#""status":"completed","output":[{"type":"message"}],"usage":{"input_tokens":1,"output_tokens":1}"#;
    let gemini = r#""candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}"#;
    let body = |fields: &str| format!("{{\"error\":{error},{fields}}}");
    vec![
        (Protocol::Messages, AnswerFraming::Json, body(messages)),
        (Protocol::Responses, AnswerFraming::Json, body(responses)),
        (Protocol::Gemini, AnswerFraming::Json, body(gemini)),
        (
            Protocol::Gemini,
            AnswerFraming::JsonArray,
            format!("[{}]", body(gemini)),
        ),
        (
            Protocol::Gemini,
            AnswerFraming::Sse,
            format!("data: {}\n\n", body(gemini)),
        ),
    ]
}

proptest! {
    #[test]
    fn an_error_that_says_nothing_is_none(error in prop::sample::select(&NOTHING[..]), size in 1_usize..400) {
        for (protocol, framing, text) in answers(error) {
            let observer = observe(protocol, framing, text.as_bytes(), size);
            let observed = observer.observed();
            prop_assert!(observed.in_band_error.is_none(), "{} {}", text, size);
            prop_assert!(observer.is_complete() && observer.first_content_seen(), "{}", text);
            prop_assert_eq!(observed.usage.map(|usage| usage.output_text), Some(1));
        }
    }

    #[test]
    fn an_error_that_says_something_is_one(error in prop::sample::select(&SOMETHING[..]), size in 1_usize..400) {
        for (protocol, framing, text) in answers(error) {
            let observed = observe(protocol, framing, text.as_bytes(), size).observed();
            prop_assert!(observed.in_band_error.is_some(), "{} {}", text, size);
        }
    }
}
