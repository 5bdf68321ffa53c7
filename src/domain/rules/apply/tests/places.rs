//! Edits inside arrays, conditions and refusals.

use super::*;

#[test]
fn edits_go_into_the_elements_of_arrays() {
    check(
        "op = \"remove\"; path = \"m[].c[].k\"",
        &[
            (
                r#"{"m":[ {"c":[{"k":1},{"a":0,"k":1}]} , {"c":"text"}, 7, {"c":[1,{"k":2 , "b":3}]}]}"#,
                r#"{"m":[ {"c":[{},{"a":0}]} , {"c":"text"}, 7, {"c":[1,{"b":3}]}]}"#,
            ),
            (r#"{"m":{"c":[{"k":1}]}}"#, r#"{"m":{"c":[{"k":1}]}}"#),
            (
                r#"{"m":[[{"c":[{"k":1}]}]],"k":1}"#,
                r#"{"m":[[{"c":[{"k":1}]}]],"k":1}"#,
            ),
            (r#"{"m":[]}"#, r#"{"m":[]}"#),
        ],
    );
    check(
        "op = \"clamp\"; path = \"n[][]\"; max = 2",
        &[(r#"{"n":[[1,3],[],9,[ 5 ]]}"#, r#"{"n":[[1,2],[],9,[ 2 ]]}"#)],
    );
    check(
        "op = \"map\"; path = \"s[]\"; values = {a = \"b\"}",
        &[(r#"{"s":["a","b",["a"]]}"#, r#"{"s":["b","b",["a"]]}"#)],
    );
    check(
        "op = \"set\"; path = \"t[].strict\"; value = true",
        &[(
            r#"{"t":[{},{"strict":false},"x"]}"#,
            r#"{"t":[{"strict":true},{"strict":true},"x"]}"#,
        )],
    );
    check(
        "op = \"rename\"; path = \"t[].a\"; to = \"b\"",
        &[(r#"{"t":[{"a":1},{"a":1,"b":2}]}"#, r#"{"t":[{"b":1},{"a":1,"b":2}]}"#)],
    );
}

#[test]
fn whole_elements_go_with_one_comma() {
    check(
        "op = \"remove\"; path = \"c[]\"; when = { field = \"type\", in = [\"x\", \"y\"] }",
        &[
            (
                r#"{"c":[ {"type":"x"} , {"type":"a"}, {"v":1,"type":"y"} ]}"#,
                r#"{"c":[ {"type":"a"} ]}"#,
            ),
            (r#"{"c":[{"type":"x"},{"t":0,"type":"\u0079"}]}"#, r#"{"c":[]}"#),
            (r#"{"c":["x",{"type":"x"},1]}"#, r#"{"c":["x",1]}"#),
            (r#"{"c":[["x"],{"type":["x"]}]}"#, r#"{"c":[["x"],{"type":["x"]}]}"#),
        ],
    );
    check(
        "op = \"remove\"; path = \"c[]\"",
        &[(r#"{"c":[1,{},"a" ]}"#, r#"{"c":[ ]}"#)],
    );
}

#[test]
fn a_condition_on_a_sibling_holds_whatever_the_order() {
    check(
        "op = \"remove\"; path = \"c[].e\"; when = { field = \"type\", equals = \"r\" }",
        &[
            (
                r#"{"c":[{"e":1,"type":"r"},{"type":"r","e":1},{"e":1,"type":"q"},{"e":1}]}"#,
                r#"{"c":[{"type":"r"},{"type":"r"},{"e":1,"type":"q"},{"e":1}]}"#,
            ),
            // Of two members with one name the last counts.
            (
                r#"{"c":[{"type":"r","e":1,"type":"q"},{"type":"q","e":1,"type":"r"}]}"#,
                r#"{"c":[{"type":"r","e":1,"type":"q"},{"type":"q","type":"r"}]}"#,
            ),
        ],
    );
    check(
        "op = \"set\"; path = \"o.k\"; value = 1; when = { field = \"a.b\", present = false }",
        &[
            (r#"{"o":{"a":{"b":null}}}"#, r#"{"o":{"a":{"b":null}}}"#),
            (r#"{"o":{"k":0,"a":{}}}"#, r#"{"o":{"k":1,"a":{}}}"#),
            (r#"{"o":{}}"#, r#"{"o":{"k":1}}"#),
        ],
    );
    check(
        "op = \"remove\"; path = \"a\"; when = { field = \"n\", in = [2.0, true] }",
        &[
            (r#"{"a":1,"n":2}"#, r#"{"n":2}"#),
            (r#"{"a":1,"n":20e-1}"#, r#"{"n":20e-1}"#),
            (r#"{"a":1,"n":true}"#, r#"{"n":true}"#),
            (r#"{"a":1,"n":"2"}"#, r#"{"a":1,"n":"2"}"#),
        ],
    );
}

#[test]
fn a_text_can_be_told_by_its_beginning() {
    check(
        "op = \"remove\"; path = \"s[]\"; when = [{ field = \"type\", equals = \"text\" }, { field = \"text\", starts_with = \"x-h: é\" }]",
        &[
            (
                r#"{"s":[ {"type":"text","text":"x-h: é 1"} , {"type":"text", "text":"be\u0020brief 1.0"}]}"#,
                r#"{"s":[ {"type":"text", "text":"be\u0020brief 1.0"}]}"#,
            ),
            (
                r#"{"s":[{"text":"be brief","type":"text"} , {"text":"x-h: é","type":"text"} ],"k":1.0}"#,
                r#"{"s":[{"text":"be brief","type":"text"} ],"k":1.0}"#,
            ),
            (r#"{"s":[{"type":"text","text":"\u0078-h: \u00e9\n"}]}"#, r#"{"s":[]}"#),
            (r#"{"s":[{"type":"text","text":"x-h: é\\"}]}"#, r#"{"s":[]}"#),
        ],
    );
    for unlike in [
        r#"{"s":[{"type":"text","text":"x-h: "}]}"#,
        r#"{"s":[{"type":"text","text":"x-h: \u00e8"}]}"#,
        r#"{"s":[{"type":"text","text":"x-h: \\u00e9"}]}"#,
        r#"{"s":[{"type":"text","text":"\\x-h: é"}]}"#,
        r#"{"s":[{"type":"text","text":""}]}"#,
        r#"{"s":[{"type":"text","text":" x-h: é"}]}"#,
        r#"{"s":[{"type":"text","text":["x-h: é"]}]}"#,
        r#"{"s":[{"type":"text","text":null},{"type":"text"},"x-h: é",7]}"#,
        r#"{"s":[{"type":"image","text":"x-h: é"}]}"#,
        r#"{"s":"x-h: é"}"#,
    ] {
        let edit = "op = \"remove\"; path = \"s[]\"; when = [{ field = \"type\", equals = \"text\" }, { field = \"text\", starts_with = \"x-h: é\" }]";
        check(edit, &[(unlike, unlike)]);
    }
    check(
        "op = \"remove\"; path = \"k\"; when = { root_field = \"a.b\", starts_with = \"\\\"\" }",
        &[
            (r#"{"k":1,"a":{"b":"\"q\""}}"#, r#"{"a":{"b":"\"q\""}}"#),
            (r#"{"k":1,"a":{"b":"q"}}"#, r#"{"k":1,"a":{"b":"q"}}"#),
        ],
    );
}

#[test]
fn an_edit_inside_of_elements_can_follow_a_removal_of_elements() {
    let edits = [
        "op = \"remove\"; path = \"s[]\"; when = { field = \"t\", starts_with = \"x\" }",
        "op = \"remove\"; path = \"s[].c\"",
        "op = \"set\"; path = \"s[].o.n\"; value = 1; when = { field = \"n\", present = false }",
        "op = \"map\"; path = \"s[].t\"; values = { a = \"xx\" }",
    ];
    let first_three = edits.get(..3).unwrap();
    assert_eq!(body_rules(first_three).batches.len(), 1);
    for (text, expected) in [
        (
            r#"{"s":[{"t":"x","c":1,"o":{}}, {"t":"a","c":1,"o":{}},{"c":1,"t":"x1"}]}"#,
            r#"{"s":[{"t":"xx","o":{"n":1}}]}"#,
        ),
        (
            r#"{"s":[{"c":1},{"o":{},"c":1,"t":"x"},{"c":1,"t":"b"}]}"#,
            r#"{"s":[{},{"t":"b"}]}"#,
        ),
        (r#"{"s":[{"c":1,"t":"x"},{"o":{"n":2},"t":"x"}]}"#, r#"{"s":[]}"#),
    ] {
        assert_eq!(edited(&edits, text).as_deref(), Some(expected), "{text}");
    }
    let removal = edits[0];
    for (other, batches) in [
        (
            "op = \"remove\"; path = \"s[].c\"; when = { root_field = \"s\", present = true }",
            2,
        ),
        ("op = \"refuse\"; path = \"s[].c\"; message = \"{path}\"", 2),
        ("op = \"remove\"; path = \"s\"", 2),
        ("op = \"remove\"; path = \"s[]\"", 2),
        (
            "op = \"remove\"; path = \"k\"; when = { field = \"s\", present = true }",
            2,
        ),
        ("op = \"remove\"; path = \"k\"", 1),
    ] {
        assert_eq!(body_rules(&[removal, other]).batches.len(), batches, "{other}");
    }
    let inner_first = body_rules(&["op = \"map\"; path = \"s[].t\"; values = { a = \"x\" }", removal]);
    assert_eq!(inner_first.batches.len(), 2, "the removal asks for the changed value");
}

#[test]
fn several_conditions_all_have_to_hold() {
    check(
        "op = \"remove\"; path = \"c[].e\"; when = [{ field = \"t\", equals = 1 }, { root_field = \"x.y\", present = true }]",
        &[
            (
                r#"{"c":[{"e":1,"t":1},{"e":1}],"x":{"y":0}}"#,
                r#"{"c":[{"t":1},{"e":1}],"x":{"y":0}}"#,
            ),
            (r#"{"c":[{"e":1,"t":1}],"x":{}}"#, r#"{"c":[{"e":1,"t":1}],"x":{}}"#),
        ],
    );
}

#[test]
fn the_model_asked_and_the_headers_decide() {
    let mut headers = HeaderMap::new();
    headers.append("x-a", "one".parse().unwrap());
    headers.append("x-a", "two, three".parse().unwrap());
    let text = r#"{"model":"deepseek-v4-pro","k":1}"#;
    let applies = |when: &str| {
        let edit = format!("op = \"remove\"; path = \"k\"; when = {{ {when} }}");
        result(&[&edit], &headers, text).unwrap().is_some()
    };
    for when in [
        "model = \"deepseek-*\"",
        "model = \"*\"",
        "model = \"*v4*o\"",
        "model = \"deepseek-v4-pro*\"",
        "model = \"deepseek-v4-pro\"",
        "header = \"X-A\"",
        "header = \"x-a\", value = \"one\"",
        "header = \"x-a\", contains = \"three\"",
    ] {
        assert!(applies(when), "{when}");
    }
    for when in [
        "model = \"deepseek\"",
        "model = \"*v5*\"",
        "model = \"deepseek-v4-pro*o\"",
        "model = \"*DEEPSEEK*\"",
        "header = \"x-b\"",
        "header = \"x-a\", value = \"two\"",
        "header = \"x-a\", contains = \"four\"",
    ] {
        assert!(!applies(when), "{when}");
    }
}

#[test]
fn a_number_out_of_range_is_refused() {
    let edit = "op = \"refuse\"; path = \"t\"; min = 0.0; max = 2.0; message = \"`{path}` is {value} {x} {\"";
    assert_eq!(refused(edit, r#"{"t":2.1}"#).unwrap(), "`t` is 2.1 {x} {");
    assert_eq!(refused(edit, r#"{"t":-1e-9}"#).unwrap(), "`t` is -1e-9 {x} {");
    assert!(refused(edit, r#"{"t":1e999}"#).is_some());
    for text in [r#"{"t":0}"#, r#"{"t":2.00}"#, r#"{"t":"9"}"#, r#"{"t":null}"#, "{}"] {
        assert_eq!(refused(edit, text), None, "{text}");
    }
}

#[test]
fn a_listed_string_is_refused_with_its_position() {
    let edit = "op = \"refuse\"; path = \"m[].c[].c[].type\"; values = [\"image\"]; message = \"`{value}` at {holder} ({path})\"";
    let text = r#"{"m":[{"c":"s"},{"c":[{"type":"image"},{"c":[{"type":"a"},{"x":0,"type":"im\u0061ge"}]}]}]}"#;
    assert_eq!(
        refused(edit, text).unwrap(),
        "`image` at m[1].c[1].c[1] (m[1].c[1].c[1].type)"
    );
    assert_eq!(refused(edit, r#"{"m":[{"c":[{"type":"image"}]}]}"#), None);
}

#[test]
fn a_clients_text_in_a_refusal_is_short_and_tame() {
    let edit = "op = \"refuse\"; path = \"a\"; message = \"[{value}]\"";
    let long = format!(r#"{{"a":"{}"}}"#, "{path}é".repeat(100_000));
    let message = refused(edit, &long).unwrap();
    assert!(message.chars().count() == 67 && message.ends_with("…]"), "{message}");
    assert!(message.contains("{path}é"), "what the client wrote is no placeholder");
    assert_eq!(refused(edit, r#"{"a":"x\n\u001b\"y"}"#).unwrap(), "[x  \"y]");
    assert_eq!(refused(edit, r#"{"a":[1, 2]}"#).unwrap(), "[[1, 2]]");
    let short = format!(r#"{{"a":"{}"}}"#, "é".repeat(64));
    assert_eq!(refused(edit, &short).unwrap(), format!("[{}]", "é".repeat(64)));
}

#[test]
fn a_refusal_knows_its_line() {
    let edits = [
        "op = \"remove\"; path = \"b\"",
        "op = \"refuse\"; path = \"a\"; message = \"no\"",
    ];
    let error = result(&edits, &HeaderMap::new(), r#"{"a":1,"b":2}"#).unwrap_err();
    assert!(matches!(error, EditError::Refused { line: 10, .. }), "{error:?}");
}
