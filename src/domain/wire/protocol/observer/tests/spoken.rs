//! Tests of what is counted of the text that a model has written.

use super::*;

fn plain(text: &str) -> CharClasses {
    let mut classes = CharClasses::default();
    classes.push(text.as_bytes());
    classes
}

/// In any split, and also before the blank line that ends the last event.
fn counts(protocol: Protocol, framing: AnswerFraming, answer: &str, text: &str) {
    for size in [1, 2, 7, 150, answer.len()] {
        let observer = observe(protocol, framing, answer.as_bytes(), size);
        assert_eq!(observer.classes(), &plain(text), "{protocol:?} {framing:?} by {size}");
        assert_eq!(observer.output_estimate(), plain(text).tokens());
    }
}

#[test]
fn text_reasoning_and_arguments_of_a_messages_stream_are_counted_and_the_frame_is_not() {
    let stream = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","model":"m","content":[],"usage":{"input_tokens":25,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me see.\n"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBCgIYAhIM"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"na\u00efve \ud83d\ude00 wor"}}

: a comment

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"ds\u4e2d"}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"read_file","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":15}}

"#;
    let text = "Let me see.\nnaïve \u{1F600} words中read_file{\"path\":";
    counts(Protocol::Messages, AnswerFraming::Sse, stream, text);
}

#[test]
fn the_deltas_of_a_responses_stream_are_counted_and_what_repeats_them_is_not() {
    let stream = r#"data: {"type":"response.created","response":{"id":"r","output":[]}}

data: {"type":"response.reasoning_summary_text.delta","delta":"Thinking. "}

data: {"type":"response.output_text.delta","delta":"Two words","logprobs":[]}

data: {"type":"response.function_call_arguments.delta","delta":"{\"a\":1}"}

data: {"type":"response.output_text.done","text":"Two words"}

data: {"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"Two words"}]}}

data: {"type":"response.completed","response":{"id":"r","output":[{"type":"message","content":[{"type":"output_text","text":"Two words"}]}],"usage":null}}

"#;
    counts(
        Protocol::Responses,
        AnswerFraming::Sse,
        stream,
        "Thinking. Two words{\"a\":1}",
    );
}

#[test]
fn the_parts_of_gemini_chunks_are_counted() {
    let chunk = |part: &str| format!(r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":"model"}}}}]}}"#);
    let one = chunk(r#"{"text":"Hello \"you\"","thought":true},{"text":" there"}"#);
    let two = chunk(r#"{"functionCall":{"name":"f","args":{"q":"\n"}}}"#);
    let text = r#"Hello "you" there{"name":"f","args":{"q":"\n"}}"#;
    let stream = format!("data: {one}\r\n\r\ndata: {two}\r\n\r\n");
    counts(Protocol::Gemini, AnswerFraming::Sse, &stream, text);
    counts(
        Protocol::Gemini,
        AnswerFraming::JsonArray,
        &format!("[{one},\n{two}]"),
        text,
    );
    counts(
        Protocol::Gemini,
        AnswerFraming::Json,
        &two,
        r#"{"name":"f","args":{"q":"\n"}}"#,
    );
}

#[test]
fn the_content_of_answers_in_one_piece_is_counted() {
    let body = r#"{"id":"m","content":[{"type":"thinking","thinking":"Hm. ","signature":"abc"},{"type":"text","text":"Yes"},
        {"type":"tool_use","id":"t","name":"run","input":{"x":[1,{"y":2}]}}],"usage":{"output_tokens":9}}"#;
    counts(
        Protocol::Messages,
        AnswerFraming::Json,
        body,
        r#"Hm. Yesrun{"x":[1,{"y":2}]}"#,
    );
    let body = r#"{"id":"r","output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"So. "}]},
        {"type":"message","content":[{"type":"output_text","text":"Yes","annotations":[]}]},
        {"type":"function_call","call_id":"c","name":"run","arguments":"{\"x\":1}"}]}"#;
    counts(Protocol::Responses, AnswerFraming::Json, body, r#"So. Yesrun{"x":1}"#);
}

#[test]
fn behind_what_is_no_json_nothing_is_counted_in_any_split() {
    let call = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"q":"#;
    let heard = r#"{"name":"f","args":{"q":"#;
    let behind = format!(" {} ", "words of another answer ".repeat(30));
    for fault in ["}", "nul!", "\"a\\x", "[1 2"] {
        let array = format!("[{call}{fault}{behind}");
        counts(
            Protocol::Gemini,
            AnswerFraming::JsonArray,
            &array,
            &format!("{heard}{fault}"),
        );
        let event = format!("data: {call}{fault}{behind}\n\n");
        counts(Protocol::Gemini, AnswerFraming::Sse, &event, &format!("{heard}{fault}"));
    }
    let delta = r#"data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"half \x"#;
    let event = format!("{delta}{behind}\n\n");
    counts(Protocol::Messages, AnswerFraming::Sse, &event, "half x");
}

#[test]
fn text_that_has_passed_counts_before_its_event_is_whole() {
    let begun = r#"data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"half of it"#;
    counts(Protocol::Messages, AnswerFraming::Sse, begun, "half of it");
}

#[test]
fn what_cannot_be_read_counts_by_its_bytes() {
    let observer = observe(Protocol::Messages, AnswerFraming::Opaque, &[7; 1001], 10);
    assert!(observer.classes().is_empty());
    assert_eq!(observer.output_estimate(), 251);
}

#[test]
fn goldens_give_the_same_counts_in_any_split() {
    for name in names() {
        let (protocol, framing) = kind_of(&name);
        let bytes = stream(&name);
        let whole = observe(protocol, framing, &bytes, bytes.len());
        for size in [1, 3, 64] {
            let split = observe(protocol, framing, &bytes, size);
            assert_eq!(split.classes(), whole.classes(), "{name} by {size}");
        }
    }
}
