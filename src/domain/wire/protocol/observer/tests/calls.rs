//! Calls of a Responses provider's own tools.

use super::*;
use crate::domain::wire::usage::Usage;

fn usage_of(framing: AnswerFraming, text: &str) -> Usage {
    let whole = observe(Protocol::Responses, framing, text.as_bytes(), usize::MAX).observed();
    for size in [1, 3, 17, 64] {
        let split = observe(Protocol::Responses, framing, text.as_bytes(), size).observed();
        assert_eq!(split, whole, "in pieces of {size}");
    }
    whole.usage.unwrap()
}

const USAGE: &str = r#""usage":{"input_tokens":5,"output_tokens":1}"#;

/// The items in the event that ends each, in the last event, and in a body.
fn counted(items: &[&str]) -> Usage {
    let done: String = items
        .iter()
        .map(|item| format!("data: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\n"))
        .collect();
    let all = items.join(",");
    let last = |items: &str| {
        format!("data: {{\"type\":\"response.completed\",\"response\":{{\"output\":[{items}],{USAGE}}}}}\n\n")
    };
    let usage = usage_of(AnswerFraming::Json, &format!("{{\"output\":[{all}],{USAGE}}}"));
    assert_eq!(
        usage_of(AnswerFraming::Sse, &(done.clone() + &last(&all))),
        usage,
        "{items:?}"
    );
    assert_eq!(usage_of(AnswerFraming::Sse, &(done + &last(""))), usage, "{items:?}");
    assert_eq!(usage_of(AnswerFraming::Sse, &last(&all)), usage, "{items:?}");
    usage
}

fn web(status: &str, action: &str) -> String {
    format!(r#"{{"type":"web_search_call","id":"ws","status":"{status}","action":{action}}}"#)
}

#[test]
fn only_searches_of_the_web_that_did_not_fail_are_paid() {
    let search = r#"{"type":"search","query":"weir","queries":["weir"],"sources":[{"type":"url","url":"a"}]}"#;
    for (status, action, searches) in [
        ("completed", search, 1),
        ("failed", search, 0),
        ("completed", r#"{"type":"open_page","url":"https://example.org/"}"#, 0),
        (
            "completed",
            r#"{"url":"https://example.org/","pattern":"x","type":"find_in_page"}"#,
            0,
        ),
        ("completed", r#"{"type":"find"}"#, 0),
        // It does not say what it did.
        ("completed", "null", 1),
        ("completed", "{}", 1),
    ] {
        let item = web(status, action);
        assert_eq!(counted(&[&item]).web_searches, searches, "{item}");
        assert_eq!(counted(&[&item, &web("completed", search)]).web_searches, searches + 1);
    }
    assert_eq!(counted(&[r#"{"type":"web_search_call","id":"ws_1"}"#]).web_searches, 1);
}

#[test]
fn calls_of_the_other_tools_are_counted_apart() {
    let items = [
        r#"{"type":"file_search_call","status":"completed","queries":["a"],"results":null}"#,
        r#"{"type":"file_search_call","status":"failed","queries":["a"]}"#,
        r#"{"type":"code_interpreter_call","status":"completed","container_id":"c","code":"1+1","outputs":[{"type":"logs","logs":"2"}]}"#,
        r#"{"type":"image_generation_call","status":"completed","result":"AAAA"}"#,
        r#"{"type":"image_generation_call","status":"completed","result":"AAAA"}"#,
        r#"{"type":"computer_call","status":"completed","action":{"type":"search"}}"#,
        r#"{"type":"message","status":"completed","content":[{"type":"web_search_call","text":"web_search_call"}]}"#,
    ];
    let usage = counted(&items);
    let calls = (
        usage.file_searches,
        usage.code_interpreter_calls,
        usage.image_generations,
    );
    assert_eq!((calls, usage.web_searches), ((1, 1, 2), 0));
}

#[test]
fn the_providers_own_count_of_searches_goes_before() {
    let search = web("completed", r#"{"type":"search"}"#);
    let json =
        format!(r#"{{"output":[{search},{search}],{USAGE},"tool_usage":{{"web_search":{{"num_requests":1}}}}}}"#);
    assert_eq!(usage_of(AnswerFraming::Json, &json).web_searches, 1);
}
