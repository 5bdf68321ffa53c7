//! The orders in marks and model names.

use super::*;

#[test]
fn a_mark_sets_every_key() {
    let script = SampleScript::from_prompt(
        "hi [[sample: deltas=20 delta_bytes=12 gap_ms=5 ttfb_ms=100 status=529 retry_after=3 cut_after=3 stall_after=2 \
         in_band_error_after=4 usage=absurd encoding=gzip content_type=text/html close=reset half_event=true native_errors=true \
         cache_read=7 cache_write=8 hidden_tokens=9 prompt_cache=true thinking=false system_inside=false advisor=wise \
         fallback=meek tool=Bash tool_input={\"command\": \"echo a, b\"}]] there",
    )
    .unwrap();
    let expected = SampleScript {
        deltas: Some(20),
        delta_bytes: Some(12),
        gap_ms: Some(5),
        ttfb_ms: Some(100),
        status: Some(529),
        retry_after: Some(3),
        cut_after: Some(3),
        stall_after: Some(2),
        in_band_error_after: Some(4),
        usage: Some(UsageStyle::Absurd),
        encoding: Some(BodyEncoding::Gzip),
        content_type: Some("text/html".to_owned()),
        close: Some(CutStyle::Reset),
        half_event: Some(true),
        native_errors: Some(true),
        cache_read: Some(7),
        cache_write: Some(8),
        hidden_tokens: Some(9),
        prompt_cache: Some(true),
        thinking: Some(false),
        system_inside: Some(false),
        tool: Some("Bash".to_owned()),
        tool_input: Some(serde_json::json!({"command": "echo a, b"})),
        advisor: Some("wise".to_owned()),
        fallback: Some("meek".to_owned()),
    };
    assert_eq!(script, expected);
}

#[test]
fn an_unknown_key_is_named() {
    let error = SampleScript::from_prompt("[[sample: delta=20]]").unwrap_err();
    assert!(error.to_string().contains("`delta`"), "{error}");
}

#[test]
fn what_cannot_be_followed_is_refused() {
    for mark in [
        "[[sample: deltas=x]]",
        "[[sample: deltas=100001]]",
        "[[sample: deltas=100000 delta_bytes=1000]]",
        "[[sample: delta_bytes=0]]",
        "[[sample: status=302]]",
        "[[sample: usage=odd]]",
        "[[sample: content_type=texthtml]]",
        "[[sample: gap_ms=600001]]",
        "[[sample: hidden_tokens=1000000001]]",
        "[[sample: tool_input=7]]",
        "[[sample: tool_input={\"a]]",
        "[[sample: gap_ms]]",
        "[[sample: gap_ms=1",
    ] {
        assert!(SampleScript::from_prompt(mark).is_err(), "{mark}");
    }
}

#[test]
fn the_last_mark_counts_and_no_mark_is_no_order() {
    let script = SampleScript::from_prompt("[[sample: deltas=1]] then [[sample: deltas=2]]").unwrap();
    assert_eq!(script.deltas, Some(2));
    assert_eq!(SampleScript::from_prompt("nothing").unwrap(), SampleScript::default());
}

#[test]
fn model_names_give_orders_at_the_start_and_as_a_suffix() {
    assert_eq!(SampleScript::from_model("sample-slow").gap_ms, Some(200));
    assert_eq!(SampleScript::from_model("claude-opus-5-5-sample-529").status, Some(529));
    let both = SampleScript::from_model("gemini-sample-gzip-cut");
    assert_eq!((both.encoding, both.cut_after), (Some(BodyEncoding::Gzip), Some(2)));
    assert_eq!(SampleScript::from_model("claude-opus-5-5"), SampleScript::default());
    assert_eq!(SampleScript::from_model("sample-large-200"), SampleScript::default());
}

#[test]
fn the_higher_layer_wins_field_by_field() {
    let flags = SampleScript {
        deltas: Some(1),
        gap_ms: Some(1),
        ..SampleScript::default()
    };
    let mark = SampleScript {
        deltas: Some(2),
        ..SampleScript::default()
    };
    let script = flags.under(mark);
    assert_eq!((script.deltas, script.gap_ms), (Some(2), Some(1)));
}
