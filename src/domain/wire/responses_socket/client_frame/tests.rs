//! What becomes of a client's frame.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn frame(text: &str) -> ClientFrame {
    ClientFrame::read(Bytes::copy_from_slice(text.as_bytes()))
}

fn body(text: &str, input: Option<&str>) -> String {
    String::from_utf8(frame(text).to_body(input.map(str::as_bytes))).expect("UTF-8")
}

#[test]
fn the_body_is_the_frame_without_what_belongs_to_the_socket() {
    let text = r#" {"type":"response.create", "model" : "m","stream":false,"stream_id":"a","background":false,
        "generate":false,"input":[ 1 ],"x":{"type":"y"}} "#;
    assert_eq!(
        body(text, None),
        r#"{"model" : "m","input":[ 1 ],"x":{"type":"y"},"stream":true}"#
    );
    assert_eq!(
        body(r#"{"type":"response.create","background":true}"#, None),
        r#"{"background":true,"stream":true}"#,
        "refused later, like that of a POST"
    );
    assert_eq!(body("{}", None), r#"{"stream":true}"#);
}

#[test]
fn an_expanded_continuation_names_no_response() {
    let text = r#"{"type":"response.create","previous_response_id":"resp_1","input":[3],"store":false}"#;
    assert_eq!(
        body(text, Some("1,2,3")),
        r#"{"store":false,"input":[1,2,3],"stream":true}"#
    );
    let read = frame(text);
    assert_eq!(read.previous_response_id().as_deref(), Some("resp_1"));
    assert!(read.is_unstored() && !read.is_warm_up());
}

#[test]
fn the_kind_is_the_type_wherever_it_stands() {
    for (text, kind) in [
        (r#"{"model":"m","type":"response.create"}"#, ClientFrameKind::Create),
        (r#"{"type":"response.steer"}"#, ClientFrameKind::Steer),
        (r#"{"type":"response.processed"}"#, ClientFrameKind::Ignored),
        (r#"{"type":"response.interrupt"}"#, ClientFrameKind::Ignored),
        (r#"{"type":"response.inject"}"#, ClientFrameKind::Unknown),
        (r#"{"x":{"type":"response.create"}}"#, ClientFrameKind::Unknown),
        ("{}", ClientFrameKind::Unknown),
        ("[]", ClientFrameKind::Create),
        ("hello", ClientFrameKind::Create),
    ] {
        assert_eq!(frame(text).kind(), kind, "{text}");
    }
}

#[test]
fn a_lane_is_named_by_few_letters() {
    let id = |value: &str| {
        let read = frame(&format!(r#"{{"stream_id":{value}}}"#));
        read.stream_id().map(|id| id.map(Cow::into_owned))
    };
    assert_eq!(id(r#""a_B.9-""#), Ok(Some("a_B.9-".to_owned())));
    assert_eq!(id("null"), Ok(None));
    let longest = "x".repeat(256);
    assert_eq!(id(&format!("\"{longest}\"")), Ok(Some(longest.clone())));
    for wrong in ["\"\"", "1", "\"a b\"", "\"ä\"", &format!("\"{longest}x\"")] {
        assert_eq!(id(wrong), Err(InvalidStreamId), "{wrong}");
    }
    assert_eq!(frame("{}").stream_id(), Ok(None));
}

#[test]
fn the_input_is_a_list_of_items_in_any_form() {
    let items = |text: &str| {
        let read = frame(text);
        read.input_items()
            .map(|items| String::from_utf8(items.into_owned()).expect("UTF-8"))
    };
    assert_eq!(items(r#"{"input":[ {"a":1} , 2 ]}"#).as_deref(), Some(r#"{"a":1} , 2"#));
    assert_eq!(items(r#"{"input":[]}"#).as_deref(), Some(""));
    assert_eq!(items("{}").as_deref(), Some(""));
    assert_eq!(
        items(r#"{"input":"a\"b"}"#).as_deref(),
        Some(r#"{"type":"message","role":"user","content":"a\"b"}"#)
    );
    assert_eq!(items(r#"{"input":7}"#), None);
    assert_eq!(join_items(b"1", b"2"), b"1,2");
    assert_eq!(join_items(b"", b"2"), b"2");
    assert_eq!(join_items(b"1", b""), b"1");
}

#[test]
fn what_two_programs_could_read_differently_is_not_read() {
    for text in [
        "",
        "null",
        r#"{"type":"response.create""#,
        r#"{"type":"response.create"} x"#,
        r#"{"input":1,"input":2}"#,
        r#"{"gener\u0061te":false}"#,
        r#"{"a":1,}"#,
    ] {
        assert!(frame(text).fault().is_some(), "{text}");
        assert_eq!(body(text, Some("1")), text, "the scan refuses it");
    }
    let many = |count: usize| {
        let members: Vec<String> = (0..count).map(|number| format!("\"m{number}\":1")).collect();
        frame(&format!("{{{}}}", members.join(","))).fault()
    };
    assert_eq!(many(MEMBERS_MAX), None);
    assert!(many(MEMBERS_MAX + 1).is_some());
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The values that are counted in a member's value: its objects and arrays, and all that is in them.
fn counted_values(value: &Value) -> usize {
    let inside = |value: &Value| counted_values(value).max(1);
    match value {
        Value::Array(values) => 1 + values.iter().map(inside).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(inside).sum::<usize>(),
        _ => 0,
    }
}

proptest! {
    /// Whatever else a frame has, the body is the same object with `stream: true` and without the socket's members.
    #[test]
    fn the_other_members_stay(members in prop::collection::btree_map("[a-z_]{1,9}", json(), 0..8)) {
        let mut object: serde_json::Map<String, Value> = members.into_iter().collect();
        object.insert("type".to_owned(), "response.create".into());
        let read = ClientFrame::read(serde_json::to_vec(&object).expect("JSON").into());
        prop_assert_eq!(read.fault(), None);
        let made: Value = serde_json::from_slice(&read.to_body(None)).expect("JSON");
        for name in ["type", "stream_id", "generate"] {
            object.remove(name);
        }
        if object.get("background") == Some(&Value::Bool(false)) {
            object.remove("background");
        }
        object.insert("stream".to_owned(), true.into());
        prop_assert_eq!(made, Value::Object(object));
    }

    /// Steps of any size give the result of one, and each step but the last has as many values as it may.
    #[test]
    fn a_frame_read_in_steps_is_the_frame_read_at_once(members in prop::collection::vec(json(), 0..8), values in 1..9_usize) {
        let object: serde_json::Map<String, Value> =
            members.into_iter().enumerate().map(|(at, value)| (format!("m{at}"), value)).collect();
        let inside: usize = object.values().map(counted_values).sum();
        let text = Bytes::from(serde_json::to_vec(&object).expect("JSON"));
        let whole = ClientFrame::read(text.clone());
        let mut steps = 0;
        let read = ClientFrame::read_in_steps(text.clone(), values, || {
            steps += 1;
            true
        });
        prop_assert_eq!(read.expect("it is never stopped").members, whole.members.clone());
        prop_assert_eq!(steps, inside.saturating_sub(1) / values);
        let stopped = ClientFrame::read_in_steps(text, values, || false);
        prop_assert_eq!(stopped.map(|frame| frame.members), (steps == 0).then_some(whole.members));
    }

    /// No bytes make it fail, and what cannot be read stays as it is.
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let read = ClientFrame::read(Bytes::copy_from_slice(&bytes));
        let _ = (read.kind(), read.stream_id(), read.input_items());
        if read.fault().is_some() {
            prop_assert_eq!(read.to_body(None), bytes);
        }
    }
}
