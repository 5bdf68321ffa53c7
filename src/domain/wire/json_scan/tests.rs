//! What the scan takes, refuses and finds, rule by rule; `differential.rs` holds it against serde_json.

mod depth;
mod differential;
mod end;
mod limits;
mod models;
mod references;
mod tape;
mod unseen_usage;

use super::*;

const LIMITS: ScanLimits = ScanLimits {
    depth_max: 256,
    references_max: REFERENCES_MAX,
};
const REFERENCES_MAX: usize = 1024;

/// What is read in the same way whatever the protocol.
fn scan(body: &[u8], limits: &ScanLimits) -> Result<Scan, ScanError> {
    super::scan(body, Protocol::Messages, limits)
}

/// Without the estimate of tokens, the turns, the further models and the tape, which have tests of their own.
fn scanned(body: &str) -> Scan {
    facts(scan(body.as_bytes(), &LIMITS)).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn facts(scan: Result<Scan, ScanError>) -> Result<Scan, ScanError> {
    scan.map(|scan| Scan {
        input_tokens: 0,
        turns: ConversationTurns::default(),
        models: NamedModels::default(),
        tape: Tape::default(),
        ..scan
    })
}

fn refused(body: impl AsRef<[u8]>) -> ScanError {
    scan(body.as_ref(), &LIMITS).expect_err("must be refused")
}

fn said(body: impl AsRef<[u8]>) -> String {
    refused(body).to_string()
}

fn model(body: &str) -> Option<String> {
    scanned(body).model.map(|model| model.text)
}

#[test]
fn a_body_of_each_protocol_gives_its_facts() {
    let messages =
        r#"{"max_tokens":1024,"messages":[{"role":"user","content":"hi"}],"model":"claude-x","stream":true}"#;
    let scan = scanned(messages);
    let found = scan.model.unwrap();
    assert_eq!(
        (found.text.as_str(), messages.get(found.value)),
        ("claude-x", Some("\"claude-x\""))
    );
    assert_eq!(
        (scan.stream, scan.output_max, scan.has_contents),
        (Some(true), Some(1024), false)
    );

    let scan = scanned(r#"{"model":"gpt-x","input":"hi","max_output_tokens":7,"stream":false}"#);
    assert_eq!(
        (scan.stream, scan.output_max, scan.has_contents),
        (Some(false), Some(7), false)
    );

    let scan = scanned(r#"{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"topK":3,"maxOutputTokens":9}}"#);
    assert_eq!(
        (scan.model, scan.stream, scan.output_max, scan.has_contents),
        (None, None, Some(9), true)
    );
    assert_eq!(
        scanned(r#"{"generation_config":{"max_output_tokens":9}}"#).output_max,
        Some(9)
    );
    assert_eq!(scanned("{}"), Scan::default());
}

#[test]
fn only_the_top_level_counts() {
    let body = r#"{"a":{"model":"no","stream":true,"contents":1,"max_tokens":1},"b":[{"model":"no"}],"c":["model"]}"#;
    assert_eq!(scanned(body), Scan::default());
    assert_eq!(
        scanned(r#"{"generationConfig":{"x":{"maxOutputTokens":5}}}"#).output_max,
        None
    );
    assert_eq!(
        scanned(r#"{"generationConfig":[{"maxOutputTokens":5},6]}"#).output_max,
        None
    );
    assert_eq!(
        scanned(r#"{"generationConfig":{},"x":{"maxOutputTokens":5}}"#).output_max,
        None
    );
    assert_eq!(scanned(r#"{"max_tokens":[5,6]}"#).output_max, None);
    assert_eq!(scanned(r#"{"stream":[true]}"#).stream, None);
}

#[test]
fn keys_and_the_model_are_unescaped() {
    let escaped = "{\"\\u006dodel\":\"a\\/b\\u00e9\\ud83d\\ude00\\n\\\"\"}";
    assert_eq!(model(escaped).as_deref(), Some("a/b\u{e9}\u{1F600}\n\""));
    assert_eq!(scanned(escaped).model.unwrap().value, 14..escaped.len() - 1);
    assert_eq!(scanned(r#"{"m\u0061x_tokens":3}"#).output_max, Some(3));
    assert_eq!(model(r#"{"model\u0000":"a","mode\\u006c":"b","Model":"c"}"#), None);
    assert_eq!(model(r#"{"model":""}"#).as_deref(), Some(""));
}

#[test]
fn a_second_model_or_stream_is_refused_however_it_is_written() {
    assert_eq!(said(r#"{"model":"a","model":"a"}"#), "`model` occurs twice (byte 13)");
    assert_eq!(
        refused(r#"{"model":"a","\u006Dodel":"b"}"#),
        ScanError::ModelTwice { at: 13 }
    );
    assert_eq!(
        said(r#"{"stream":true,"stream":true}"#),
        "`stream` occurs twice (byte 15)"
    );
    assert_eq!(
        refused(r#"{"stream":1,"str\u0065am":true}"#),
        ScanError::StreamTwice { at: 12 }
    );
    assert_eq!(
        model(r#"{"x":1,"x":2,"model":"a","contents":1,"contents":2}"#).as_deref(),
        Some("a")
    );
}

#[test]
fn a_model_that_is_no_string_is_refused() {
    for value in ["1", "-1.5e3", "null", "true", "false", "[\"a\"]", "{\"a\":1}"] {
        assert_eq!(
            refused(format!("{{\"model\": {value}}}")),
            ScanError::ModelNotString { at: 10 },
            "{value}"
        );
    }
    assert_eq!(said(r#"{"model":1}"#), "`model` must be a string");
}

#[test]
fn stream_counts_only_if_it_is_a_boolean() {
    for value in ["1", "null", "\"true\"", "[]", "{}"] {
        assert_eq!(scanned(&format!("{{\"stream\":{value}}}")).stream, None, "{value}");
    }
}

#[test]
fn the_last_non_negative_integer_is_the_output_limit() {
    assert_eq!(scanned(r#"{"max_tokens":1,"max_output_tokens":2}"#).output_max, Some(2));
    assert_eq!(scanned(r#"{"max_completion_tokens":7}"#).output_max, Some(7));
    assert_eq!(
        scanned(r#"{"generationConfig":{"maxOutputTokens":2},"max_tokens":1}"#).output_max,
        Some(1)
    );
    assert_eq!(
        scanned(r#"{"max_tokens":18446744073709551615}"#).output_max,
        Some(u64::MAX)
    );
    for value in [
        "-1",
        "-0",
        "1.0",
        "1e3",
        "18446744073709551616",
        "null",
        "\"5\"",
        "true",
    ] {
        assert_eq!(
            scanned(&format!("{{\"max_tokens\":{value}}}")).output_max,
            None,
            "{value}"
        );
    }
    assert_eq!(scanned(r#"{"max_tokens":3,"max_tokens":"x"}"#).output_max, Some(3));
}

#[test]
fn what_is_not_one_object_is_refused() {
    assert_eq!(said(""), "the body is empty");
    assert_eq!(said(" \r\n\t"), "the body is empty");
    for body in ["[]", "\"a\"", "1", "-1", "true", "false", "null"] {
        assert_eq!(said(body), "the body must be a JSON object", "{body}");
    }
    assert_eq!(said("{} {}"), "after the JSON object, more data begins at byte 3");
    assert_eq!(said("{},"), "after the JSON object, more data begins at byte 2");
    assert_eq!(said("{}\0"), "after the JSON object, more data begins at byte 2");
    assert_eq!(
        said("\u{feff}{}"),
        "the body starts with a byte order mark, which JSON does not allow"
    );
    assert_eq!(scanned(" {} \r\n\t"), Scan::default());
}

#[test]
fn text_that_is_not_utf8_is_refused_wherever_it_stands() {
    assert_eq!(said(b"{\"a\":\"\xff\"}"), "the body is not valid UTF-8 at byte 6");
    assert_eq!(refused(b"{\"a\":\"\xed\xa0\x80\"}"), ScanError::NotUtf8 { at: 6 });
    assert_eq!(refused(b"{\"a\":1}\xc3"), ScanError::NotUtf8 { at: 7 });
}

#[test]
fn every_break_of_the_grammar_is_named_with_its_place() {
    let cases: &[(&str, usize, JsonFault)] = &[
        ("@", 0, JsonFault::ValueExpected),
        ("\u{b}{}", 0, JsonFault::ValueExpected),
        ("{", 1, JsonFault::EndsEarly),
        ("{\"a", 3, JsonFault::EndsEarly),
        ("{\"a\"", 4, JsonFault::EndsEarly),
        ("{\"a\":", 5, JsonFault::EndsEarly),
        ("{\"a\":1", 6, JsonFault::EndsEarly),
        ("{\"a\":-", 6, JsonFault::EndsEarly),
        ("{\"a\":tru", 8, JsonFault::EndsEarly),
        ("{\"a\":\"\\", 7, JsonFault::EndsEarly),
        ("{\"a\":\"\\u00", 10, JsonFault::EndsEarly),
        ("{\"a\":}", 5, JsonFault::ValueExpected),
        ("{\"a\":+1}", 5, JsonFault::ValueExpected),
        ("{\"a\":.5}", 5, JsonFault::ValueExpected),
        ("{\"a\":NaN}", 5, JsonFault::ValueExpected),
        ("{\"a\":'b'}", 5, JsonFault::ValueExpected),
        ("{\"a\":[1,]}", 8, JsonFault::ValueExpected),
        ("{\"a\":[,1]}", 6, JsonFault::ValueExpected),
        ("{\"a\":[}", 6, JsonFault::ValueExpected),
        ("{a:1}", 1, JsonFault::KeyExpected),
        ("{\"a\":1,}", 7, JsonFault::KeyExpected),
        ("{,}", 1, JsonFault::KeyExpected),
        ("{]", 1, JsonFault::KeyExpected),
        ("{\"a\" 1}", 5, JsonFault::ColonExpected),
        ("{\"a\":1 \"b\":2}", 7, JsonFault::CommaOrBraceExpected),
        ("{\"a\":1]", 6, JsonFault::CommaOrBraceExpected),
        ("{\"a\":01}", 6, JsonFault::CommaOrBraceExpected),
        ("{\"a\":-00}", 7, JsonFault::CommaOrBraceExpected),
        ("{\"a\":1/**/}", 6, JsonFault::CommaOrBraceExpected),
        ("{\"a\":[1 2]}", 8, JsonFault::CommaOrBracketExpected),
        ("{\"a\":[1}", 7, JsonFault::CommaOrBracketExpected),
        ("{\"a\":tRue}", 6, JsonFault::Literal),
        ("{\"a\":nul}", 8, JsonFault::Literal),
        ("{\"a\":-a}", 6, JsonFault::DigitExpected),
        ("{\"a\":1.}", 7, JsonFault::DigitExpected),
        ("{\"a\":1.e1}", 7, JsonFault::DigitExpected),
        ("{\"a\":1e}", 7, JsonFault::DigitExpected),
        ("{\"a\":1e+}", 8, JsonFault::DigitExpected),
        ("{\"a\n\":1}", 3, JsonFault::ControlCharacter),
        ("{\"a\":\"\0\"}", 6, JsonFault::ControlCharacter),
        ("{\"a\":\"\u{1f}\"}", 6, JsonFault::ControlCharacter),
        ("{\"a\":\"\\x41\"}", 7, JsonFault::Escape),
        ("{\"a\":\"\\U0041\"}", 7, JsonFault::Escape),
        ("{\"a\":\"\\u00g0\"}", 10, JsonFault::HexDigits),
        ("{\"\\ud800\":1}", 2, JsonFault::LoneSurrogate),
        ("{\"a\\uDC00\":1}", 3, JsonFault::LoneSurrogate),
        ("{\"a\":{\"\\ud800\\ud800\":1}}", 7, JsonFault::LoneSurrogate),
        ("{\"model\":\"\\ud800\"}", 10, JsonFault::LoneSurrogate),
        ("{\"model\":\"a\\n\\udfff\\ud800\"}", 13, JsonFault::LoneSurrogate),
        ("{\"container\":\"\\ud800\\u0041\"}", 14, JsonFault::LoneSurrogate),
        ("{\"a\":\"\\ud800\\u00g1\"}", 16, JsonFault::HexDigits),
    ];
    for (body, at, fault) in cases {
        assert_eq!(
            refused(body),
            ScanError::Malformed { at: *at, fault: *fault },
            "{body:?}"
        );
    }
    assert_eq!(
        said("{\"a\":}"),
        "the body is not valid JSON at byte 5: a value was expected"
    );
}

#[test]
fn what_the_grammar_allows_passes() {
    for value in [
        "0",
        "-0",
        "-0.0",
        "1E+2",
        "1e-2",
        "0e0",
        "1e999",
        "\"\u{7f}\u{2028}\\u0000\\uD83D\\uDE00\"",
        // Half a surrogate pair is for the provider to judge, where weir does not go by the text.
        "\"\\ud800\"",
        "\"\\ud83d\\n\"",
        "\"\\ud800\\u0041\"",
        "[\"\\ud800\\ud800\\udc00\", \"\\uDC00\"]",
        "[[],{}]",
    ] {
        assert_eq!(
            scanned(&format!("{{ \"a\" :\t{value}\r\n}}")),
            Scan::default(),
            "{value}"
        );
    }
}

#[test]
fn a_special_byte_is_seen_at_every_place_of_a_long_string() {
    for length in 0..300 {
        let plain = "\u{e9}x#".repeat(length / 4 + 1);
        let plain = plain.get(..length).unwrap_or("y");
        let body = |middle: &str| format!("{{\"a\":\"{plain}{middle}zzz\",\"model\":\"m\"}}");
        let at = 6 + plain.len();
        assert_eq!(model(&body("\\\"")).as_deref(), Some("m"));
        for control in 0..0x20_u8 {
            let expected = ScanError::Malformed {
                at,
                fault: JsonFault::ControlCharacter,
            };
            assert_eq!(refused(body(&char::from(control).to_string())), expected);
        }
        assert_eq!(
            refused(body("\"")),
            ScanError::Malformed {
                at: at + 1,
                fault: JsonFault::CommaOrBraceExpected
            }
        );
        assert_eq!(
            refused(body("\\q")),
            ScanError::Malformed {
                at: at + 1,
                fault: JsonFault::Escape
            }
        );
    }
}

#[test]
fn errors_never_quote_the_body() {
    for body in [
        "{\"secret\":secret}",
        "{\"secret\" secret}",
        "secret",
        "{\"model\":\"secret\",\"model\":\"secret\"}",
    ] {
        assert!(
            !format!("{:?} {}", refused(body), said(body)).contains("secret"),
            "{body}"
        );
    }
}
