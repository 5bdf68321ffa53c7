//! Messages answers that several runs of models worked on.

use super::*;
use crate::domain::wire::usage::UsageSource;
use crate::domain::wire::usage::{Run, RunKind, Usage};

fn observed(frames: &[&str]) -> AnswerReport {
    let event = |frame: &&str| format!("data: {}\n\n", frame.replace('\n', " "));
    let text: String = frames.iter().map(event).collect();
    let whole = observe(Protocol::Messages, AnswerFraming::Sse, text.as_bytes(), usize::MAX).observed();
    for size in [1, 7, 60] {
        let split = observe(Protocol::Messages, AnswerFraming::Sse, text.as_bytes(), size).observed();
        assert_eq!(split, whole, "in pieces of {size}");
    }
    whole
}

fn end(usage: &str) -> String {
    format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#)
}

fn usage(input_uncached: u64, cache_read: u64, output_text: u64) -> Usage {
    Usage {
        input_uncached,
        cache_read,
        output_text,
        ..Usage::default()
    }
}

fn run(kind: RunKind, model: Option<&str>, usage: Usage) -> Run {
    Run {
        kind,
        model: model.map(str::to_owned),
        usage,
    }
}

const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":535,"cache_read_input_tokens":400,"output_tokens":1}}}"#;

#[test]
fn a_list_of_one_run_says_nothing_new() {
    let observed = observed(&[&end(
        r#"{"input_tokens":12,"output_tokens":9,"iterations":[{"type":"message","input_tokens":2,"output_tokens":7}]}"#,
    )]);
    assert_eq!((observed.usage, observed.runs), (Some(usage(12, 0, 9)), Vec::new()));
}

#[test]
fn the_input_of_each_run_is_counted_where_the_usage_tells_of_the_first_only() {
    // The example of the vendor's page on its advisor.
    let body = stream("messages-advisor.json");
    let observed = observe(Protocol::Messages, AnswerFraming::Json, &body, 11).observed();
    let runs = [
        run(RunKind::Answer, None, usage(412, 0, 89)),
        run(RunKind::Advisor, Some("claude-fable-5"), usage(823, 0, 1612)),
        run(RunKind::Answer, None, usage(1348, 412, 442)),
    ];
    assert_eq!(observed.runs, runs);
    assert_eq!(observed.usage, Some(usage(412 + 823 + 1348, 412, 89 + 1612 + 442)));
}

#[test]
fn what_the_list_leaves_out_is_counted_all_the_same() {
    let observed = observed(&[&end(
        r#"{"input_tokens":10,"cache_read_input_tokens":178,"output_tokens":12875,"output_tokens_details":{"thinking_tokens":8558},
        "server_tool_use":{"web_search_requests":2},"iterations":[{"type":"message","input_tokens":2,"cache_read_input_tokens":44,"output_tokens":8743},
        {"type":"advisor_message","model":"claude-opus-5-5","input_tokens":100,"output_tokens":50}]}"#,
    )]);
    let missing = Usage {
        output_reasoning: 4132,
        output_text: 0,
        web_searches: 2,
        ..usage(8, 134, 0)
    };
    let told = Usage {
        output_reasoning: 4426,
        ..usage(2, 44, 4317)
    };
    assert_eq!(
        observed.runs,
        [
            run(RunKind::Answer, None, missing),
            run(RunKind::Answer, None, told),
            run(RunKind::Advisor, Some("claude-opus-5-5"), usage(100, 0, 50)),
        ]
    );
    assert_eq!(observed.usage.unwrap().output_total(), 12875 + 50);
}

#[test]
fn a_model_that_stands_in_has_its_own_numbers_and_so_has_the_one_that_declined() {
    // The caches that `message_start` tells of are those of the model that declined.
    let observed = observed(&[
        START,
        &end(
            r#"{"input_tokens":412,"cache_read_input_tokens":0,"cache_creation_input_tokens":30,"output_tokens":264,"iterations":[
            {"type":"message","model":"claude-fable-5-1","input_tokens":535,"cache_read_input_tokens":400,"output_tokens":900},
            {"type":"fallback_message","model":"claude-opus-5-5","input_tokens":412,"cache_creation_input_tokens":30,"output_tokens":264}]}"#,
        ),
    ]);
    let stood_in = Usage {
        cache_write_short: 30,
        ..usage(412, 0, 264)
    };
    assert_eq!(
        observed.runs,
        [
            run(RunKind::Answer, Some("claude-fable-5-1"), usage(535, 400, 900)),
            run(RunKind::Fallback, Some("claude-opus-5-5"), stood_in),
        ]
    );
    assert_eq!(observed.usage_source, Some(UsageSource::Reported));
}

#[test]
fn runs_are_known_as_soon_as_a_frame_tells_of_them_and_grow_with_the_next() {
    let midway = r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":3,"iterations":[
        {"type":"message","input_tokens":535,"cache_read_input_tokens":400,"output_tokens":3},
        {"type":"advisor_message","model":"claude-opus-5-5","input_tokens":900,"output_tokens":70}]}}"#;
    let early = observed(&[START, midway]);
    assert_eq!((early.runs.len(), early.usage_source), (2, Some(UsageSource::Partial)));
    assert_eq!(early.usage, Some(usage(535 + 900, 400, 3 + 70)));
    // A frame without a list adds to the answer, whoever else worked on it.
    let later = observed(&[START, midway, &end(r#"{"output_tokens":40}"#)]);
    assert_eq!(later.usage, Some(usage(535 + 900, 400, 40 + 70)));
}

#[test]
fn what_a_list_may_hold_all_the_same_is_bounded_and_never_free() {
    let odd = observed(&[&end(
        r#"{"input_tokens":5,"output_tokens":5,"iterations":[7,"x",{},{"type":"message","input_tokens":5,"output_tokens":5},
        {"type":"later","input_tokens":1,"output_tokens":2},{"type":"advisor_message","model":"a b","input_tokens":"x","output_tokens":-3},
        {"type":"advisor_message","model":"m","input_tokens":9007199254740992,"output_tokens":1}]}"#,
    )]);
    let most = 1 << 53;
    assert_eq!(odd.usage, Some(usage(6 + most, 0, 8)));
    // As many as there is room for: no more memory than what they are written in.
    let many = vec![r#"{"type":"advisor_message","model":"m","output_tokens":1}"#; 140].join(",");
    let frame = end(&format!(
        r#"{{"input_tokens":5,"output_tokens":5,"iterations":[{many}]}}"#
    ));
    let text = format!("data: {frame}\n\n");
    let observer = observe(Protocol::Messages, AnswerFraming::Sse, text.as_bytes(), 100);
    assert_eq!(observer.observed().runs.len(), 141);
    assert!(observer.heap_bytes() <= HEAP_BYTES_MAX);
}
