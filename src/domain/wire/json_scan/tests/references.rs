//! What a request names that lies at a provider, held against a reading of the whole tree.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{LIMITS, ScanError, scan};
use crate::domain::wire::json_scan::{REFERENCES_MAX, Reference};
use crate::domain::wire::provider_state::{StateId, StateKind, is_in_own_store};

/// What is named, in the order of the text.
fn named(body: &str) -> Vec<(StateKind, String)> {
    let scan = scan(body.as_bytes(), &LIMITS).unwrap_or_else(|error| panic!("{body}: {error}"));
    let references = scan.references.iter();
    references
        .map(|found| (found.kind, found.text(body.as_bytes()).into_owned()))
        .collect()
}

fn one(kind: StateKind, id: &str) -> Vec<(StateKind, String)> {
    vec![(kind, id.to_owned())]
}

#[test]
fn each_name_is_found_where_it_stands() {
    for (body, kind) in [
        (r#"{"previous_response_id":"x"}"#, StateKind::Response),
        (r#"{"previous_r\u0065sponse_id":"\u0078"}"#, StateKind::Response),
        (r#"{"conversation":"x"}"#, StateKind::Conversation),
        (r#"{"conversation":{"id":"x"}}"#, StateKind::Conversation),
        (r#"{"prompt":{"id":"x","variables":{"a":"b"}}}"#, StateKind::Prompt),
        (
            r#"{"prompt_cache_options":{"comparison_response_id":"x"}}"#,
            StateKind::ComparedResponse,
        ),
        (
            r#"{"thread":{"type":"continue","previous_message_id":"x"}}"#,
            StateKind::Thread,
        ),
        (
            r#"{"diagnostics":{"previous_message_id":"x"}}"#,
            StateKind::ComparedMessage,
        ),
        (r#"{"container":"x"}"#, StateKind::Container),
        (r#"{"container":{"id":"x"}}"#, StateKind::Container),
        (r#"{"tools":[{"container":"x"}]}"#, StateKind::Container),
        (
            r#"{"input":[{"type":"code_interpreter_call","id":"y","container_id":"x"}]}"#,
            StateKind::Container,
        ),
        (
            r#"{"messages":[{"content":[{"source":{"file_id":"x"}}]}]}"#,
            StateKind::File,
        ),
        (r#"{"tools":[{"container":{"file_ids":["x"]}}]}"#, StateKind::File),
        (r#"{"tools":[{"vector_store_ids":["x"]}]}"#, StateKind::VectorStore),
        (r#"{"container":{"skills":[{"skill_id":"skill_x"}]}}"#, StateKind::Skill),
        (r#"{"cachedContent":"x"}"#, StateKind::CachedContent),
        (
            r#"{"generateContentRequest":{"cached_content":"x"}}"#,
            StateKind::CachedContent,
        ),
        (
            r#"{"contents":[{"parts":[{"fileData":{"fileUri":"files/x"}}]}]}"#,
            StateKind::FileUri,
        ),
        (
            r#"{"contents":[{"parts":[{"functionResponse":{"response":{"fileUri":"y"},"parts":[{"file_data":{"file_uri":"files/x"}}]}}]}]}"#,
            StateKind::FileUri,
        ),
        (
            r#"{"tools":[{"fileSearch":{"fileSearchStoreNames":["x"]}}]}"#,
            StateKind::FileSearchStore,
        ),
    ] {
        let id = match kind {
            StateKind::Skill => "skill_x",
            StateKind::FileUri => "files/x",
            _ => "x",
        };
        assert_eq!(named(body), one(kind, id), "{body}");
    }
    let two = r#"{"previous_response_id":"a","previous_response_id":"b"}"#;
    let ids: Vec<String> = named(two).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, ["a", "b"], "both count, whichever a provider takes");
}

#[test]
fn a_reference_is_read_out_of_the_body() {
    let body = br#"{"a":"resp_1","b":"r\u0065sp"}"#;
    let reference = |at| Reference {
        kind: StateKind::Response,
        id: StateId::new(""),
        at,
    };
    assert_eq!(reference(5..13).text(body), "resp_1");
    assert_eq!(reference(18..29).text(body), "resp");
    assert_eq!(reference(500..600).text(body), "");
}

#[test]
fn what_is_no_name_is_none() {
    for body in [
        r#"{"previous_response_id":null,"conversation":{},"container":"","prompt":null}"#,
        r#"{"a":{"previous_response_id":"x","cachedContent":"x","prompt":{"id":"x"}}}"#,
        r#"{"metadata":{"file_id":"x"},"labels":{"container":"x"}}"#,
        r#"{"messages":[{"content":[{"type":"tool_use","id":"t","input":{"file_id":"x","a":[{"container":"x"}]}}]}]}"#,
        r#"{"tools":[{"input_schema":{"file_id":{"default":"x"}},"input_examples":[{"file_id":"x"}]}]}"#,
        r#"{"contents":[{"parts":[{"functionCall":{"args":{"fileUri":"files/x"}}}]}]}"#,
        r#"{"contents":[{"parts":[{"fileData":{"fileUri":"https://example.com/x"}}]}]}"#,
        r#"{"container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]}}"#,
        r#"{"tools":[{"file_ids":[]},"x",{"container":{"type":"auto"}}],"a":["x"]}"#,
        r#"{"messages":[{"file_ids":null},["x"]],"input":["x",["x"]]}"#,
        r#"{"file_id":"x","input":"x","id":"x"}"#,
    ] {
        assert_eq!(named(body), [], "{body}");
    }
    // What stands behind the user's own data counts again.
    let behind = r#"{"messages":[{"content":[{"input":{"file_id":"y"}},{"file_id":"x"}]}]}"#;
    assert_eq!(named(behind), one(StateKind::File, "x"));
}

#[test]
fn an_input_item_names_another_if_it_has_nothing_of_its_own() {
    let item = |members: &str| named(&format!(r#"{{"input":[{{{members}}}]}}"#));
    for members in [
        r#""type":"item_reference","id":"x""#,
        r#""id":"x","type":"item_reference""#,
        r#""id":"x""#,
        r#""id":"x","status":"completed""#,
        r#""type":"reasoning","id":"x","summary":[]"#,
        r#""type":"reasoning","id":"x","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":null"#,
        r#""type":"reasoning","id":"x","encrypted_content":"""#,
        r#""type":"reasoning","id":"x","encrypted_content":"e","encrypted_content":null"#,
        r#""type":"image_generation_call","id":"x","status":"completed""#,
        r#""type":"message","type":"item_reference","id":"x","role":"user""#,
    ] {
        assert_eq!(item(members), one(StateKind::Item, "x"), "{members}");
    }
    for members in [
        r#""type":"reasoning","id":"x","summary":[],"encrypted_content":"e""#,
        r#""type":"image_generation_call","id":"x","result":"aGk=""#,
        r#""type":"message","id":"x","role":"assistant","content":[{"type":"output_text","text":"t"}]"#,
        r#""id":"x","role":"user","content":"hi""#,
        r#""type":"function_call","id":"x","arguments":"{}""#,
        r#""type":"item_reference","id":null"#,
        r#""role":"user","content":"hi""#,
    ] {
        assert_eq!(item(members), [], "{members}");
    }
    let several =
        r#"{"input":[{"id":"a"},{"role":"user","content":[{"id":"n","type":"item_reference"}]},{"id":"b"}],"x":1}"#;
    let ids: Vec<String> = named(several).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn names_are_counted_to_their_limit() {
    let body = |count: usize| {
        let ids: Vec<String> = (0..count).map(|number| format!("\"f{number}\"")).collect();
        format!(r#"{{"tools":[{{"file_ids":[{}]}}]}}"#, ids.join(","))
    };
    assert_eq!(named(&body(REFERENCES_MAX)).len(), REFERENCES_MAX);
    let error = scan(body(REFERENCES_MAX + 1).as_bytes(), &LIMITS).unwrap_err();
    assert!(matches!(error, ScanError::TooManyReferences { .. }), "{error}");
    let items = vec![json!({ "id": "x" }); REFERENCES_MAX + 1];
    let error = scan(json!({ "input": items }).to_string().as_bytes(), &LIMITS).unwrap_err();
    assert!(matches!(error, ScanError::TooManyReferences { .. }), "{error}");
}

#[test]
fn what_hides_the_usage_is_named_whatever_its_value_may_mean() {
    let place = |body: &str| scan(body.as_bytes(), &LIMITS).unwrap().unseen_usage;
    for body in [
        r#"{"background":true}"#,
        r#"{"background":false,"b\u0061ckground":true}"#,
        r#"{"background":"yes"}"#,
        r#"{"background":1}"#,
        r#"{"background":[]}"#,
    ] {
        assert_eq!(place(body), Some("background"), "{body}");
    }
    for body in [
        r#"{"stream_options":{"include_usage":false}}"#,
        r#"{"stream_options":{"include_usage":0}}"#,
    ] {
        assert_eq!(place(body), Some("stream_options.include_usage"), "{body}");
    }
    for body in [
        r#"{"background":false}"#,
        r#"{"background":null,"stream_options":{"include_usage":true,"a":{"include_usage":false}}}"#,
        r#"{"a":{"background":true},"include_usage":false}"#,
    ] {
        assert_eq!(place(body), None, "{body}");
    }
}

/// A reading of the tree, written from the same rules; names in the order of the tree's keys.
fn of_tree(body: &Map<String, Value>) -> Vec<(StateKind, String)> {
    let mut found = Vec::new();
    walk(&Value::Object(body.clone()), 1, None, &mut found);
    if let Some(Value::Array(items)) = body.get("input") {
        for item in items.iter().filter_map(Value::as_object) {
            let text = |name: &str| item.get(name).and_then(Value::as_str);
            let has = |name: &str| text(name).is_some_and(|text| !text.is_empty());
            let own = has("encrypted_content") || has("result");
            // Where a member comes as something else than a text it does not count.
            let lacks = |name: &str| {
                item.get(name)
                    .is_some_and(|value| value.as_str().is_none_or(str::is_empty))
            };
            let is_empty = !own || lacks("encrypted_content") || lacks("result");
            let is_name = match text("type") {
                Some("item_reference") => true,
                Some("reasoning" | "image_generation_call") => is_empty,
                Some(_) => false,
                None => !item.contains_key("role"),
            };
            if let Some(id) = text("id").filter(|id| is_name && !id.is_empty()) {
                found.push((StateKind::Item, id.to_owned()));
            }
        }
    }
    found
}

fn walk(value: &Value, depth: usize, top: Option<&str>, found: &mut Vec<(StateKind, String)>) {
    match value {
        Value::Array(elements) => elements.iter().for_each(|element| walk(element, depth + 1, top, found)),
        Value::Object(members) => {
            for (key, value) in members {
                let top = if depth == 1 { Some(key.as_str()) } else { top };
                let is_data = matches!(key.as_str(), "metadata" | "args" | "schema") || key == "input" && depth > 1;
                if let Some(kind) = kind_of(key, depth, top) {
                    let texts = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                    let texts = texts.iter().filter_map(Value::as_str);
                    let texts = texts.filter(|text| match kind {
                        StateKind::FileUri => is_in_own_store(text),
                        _ => !text.is_empty(),
                    });
                    found.extend(texts.map(|text| (kind, text.to_owned())));
                }
                if !is_data && (value.is_object() || value.is_array()) {
                    walk(value, depth + 1, top, found);
                }
            }
        }
        _ => {}
    }
}

fn kind_of(key: &str, depth: usize, top: Option<&str>) -> Option<StateKind> {
    Some(match (key, depth) {
        ("previous_response_id", 1) => StateKind::Response,
        ("conversation", 1) => StateKind::Conversation,
        ("container", _) => StateKind::Container,
        ("file_id" | "file_ids", 2..) => StateKind::File,
        ("fileUri", 2..) => StateKind::FileUri,
        ("id", 2) if top == Some("container") => StateKind::Container,
        ("id", 2) if top == Some("conversation") => StateKind::Conversation,
        ("id", 2) if top == Some("prompt") => StateKind::Prompt,
        ("previous_message_id", 2) if top == Some("thread") => StateKind::Thread,
        _ => return None,
    })
}

fn text() -> impl Strategy<Value = String> {
    let known = vec![
        "",
        "x",
        "item_reference",
        "reasoning",
        "message",
        "files/x",
        "https://a.test/x",
        "\u{e9}\"\\",
    ];
    prop::sample::select(known).prop_map(str::to_owned)
}

fn key() -> impl Strategy<Value = String> {
    let known = vec![
        "previous_response_id",
        "conversation",
        "container",
        "file_id",
        "file_ids",
        "fileUri",
        "id",
        "type",
        "role",
        "encrypted_content",
        "result",
        "prompt",
        "thread",
        "previous_message_id",
        "input",
        "metadata",
        "args",
        "schema",
        "content",
    ];
    prop::sample::select(known).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => text().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!(1)),
        1 => Just(json!(false)),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// No protocol has lists of lists, or of names and objects: the two readings need not agree on them.
fn plain(value: Value) -> Value {
    match value {
        Value::Array(elements) => {
            let has_objects = elements.iter().any(Value::is_object);
            let fits = |element: &Value| !(element.is_array() || has_objects && element.is_string());
            elements.into_iter().filter(fits).map(plain).collect()
        }
        Value::Object(members) => members.into_iter().map(|(key, value)| (key, plain(value))).collect(),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_walk_finds_what_the_tree_has(
        members in prop::collection::hash_map(key(), value(), 0..6),
        escaped in any::<bool>(),
    ) {
        let body: Map<String, Value> = members.into_iter().map(|(key, value)| (key, plain(value))).collect();
        let mut text = Value::Object(body.clone()).to_string();
        if escaped {
            // Another spelling of the same text.
            text = text.replace('f', "\\u0066").replace("\\u0066alse", "false");
        }
        let (mut ours, mut theirs) = (named(&text), of_tree(&body));
        let order = |(kind, id): &(StateKind, String)| (kind.place(), id.clone());
        ours.sort_by_key(order);
        theirs.sort_by_key(order);
        prop_assert_eq!(ours, theirs, "{}", text);
    }
}
