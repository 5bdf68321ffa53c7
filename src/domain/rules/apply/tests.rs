//! Tests of body and head edits.

mod places;
mod properties;

use super::*;
use crate::domain::{
    rules::{RuleFile, compile::compile},
    wire::{
        Protocol,
        json_scan::{ScanLimits, scan},
        operation::Operation,
    },
};
use http::HeaderMap;

const LIMITS: ScanLimits = ScanLimits {
    depth_max: 64,
    references_max: 64,
};

fn body_rules(edits: &[&str]) -> BodyRules {
    let head =
        "name = \"p\"\n[auth]\nsecret = \"env:X\"\nstyle = \"bearer\"\n[endpoints]\nmessages = \"https://h/m\"\n";
    let tables: String = edits
        .iter()
        .map(|edit| format!("[[body]]\n{}\n", edit.replace("; ", "\n")))
        .collect();
    let file = RuleFile {
        name: "p.toml".to_owned(),
        text: format!("{head}{tables}"),
    };
    compile(&file)
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .provider
        .body
}

fn facts<'a>(headers: &'a HeaderMap, model: &'a str, upstream_model: &'a str) -> RequestFacts<'a> {
    RequestFacts {
        operation: Operation::Messages.into(),
        is_translated: false,
        model,
        upstream_model,
        headers,
    }
}

fn result(edits: &[&str], headers: &HeaderMap, text: &str) -> Result<Option<String>, EditError> {
    let scan = scan(text.as_bytes(), Protocol::Messages, &LIMITS).unwrap();
    let model = scan.model.as_ref().map_or("", |model| model.text.as_str());
    let edited = edit_body(
        &body_rules(edits),
        &facts(headers, model, model),
        text.as_bytes(),
        &scan,
    )?;
    Ok(edited.map(|bytes| String::from_utf8(bytes).unwrap()))
}

/// The edited body; the model stays.
fn edited(edits: &[&str], text: &str) -> Option<String> {
    result(edits, &HeaderMap::new(), text).unwrap()
}

/// What the client is told.
fn refused(edit: &str, text: &str) -> Option<String> {
    match result(&[edit], &HeaderMap::new(), text) {
        Ok(edited) => {
            assert_eq!(edited, None, "a refusal edits nothing");
            None
        }
        Err(EditError::Refused { message, .. }) => Some(message),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn check(edit: &str, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(
            edited(&[edit], text).as_deref().unwrap_or(text),
            *expected,
            "{edit} on {text}"
        );
        assert_eq!(
            edited(&[edit], text).is_none(),
            text == expected,
            "a copy only if something changes: {text}"
        );
    }
}

#[test]
fn remove_takes_one_comma_along() {
    check(
        "op = \"remove\"; path = \"k\"",
        &[
            (r#"{"k":1}"#, r#"{}"#),
            (r#"{ "k" : 1 }"#, r#"{  }"#),
            (r#"{"k":1,"b":2}"#, r#"{"b":2}"#),
            (r#"{ "k":1 , "b":2}"#, r#"{ "b":2}"#),
            (r#"{"a":0,"k":[1,{"k":2}],"b":2}"#, r#"{"a":0,"b":2}"#),
            (r#"{"a":0, "k":1 }"#, r#"{"a":0 }"#),
            (r#"{"k":1,"k":2,"b":3,"k":4}"#, r#"{"b":3}"#),
            (r#"{"\u006b":1,"b":"\"k\":1"}"#, r#"{"b":"\"k\":1"}"#),
            (r#"{"K":1,"n":{"k":1}}"#, r#"{"K":1,"n":{"k":1}}"#),
            ("{}", "{}"),
        ],
    );
    let both = ["op = \"remove\"; path = \"a\"", "op = \"remove\"; path = \"b\""];
    assert_eq!(edited(&both, r#"{"a":1,"b":2,"c":3}"#).unwrap(), r#"{"c":3}"#);
    assert_eq!(edited(&both, r#"{"c":3,"a":1,"b":2}"#).unwrap(), r#"{"c":3}"#);
    assert_eq!(edited(&both, r#"{"a":1,"c":3,"b":2}"#).unwrap(), r#"{"c":3}"#);
    assert_eq!(edited(&both, r#"{"b":1,"a":2}"#).unwrap(), r#"{}"#);
}

#[test]
fn set_replaces_or_appends_but_adds_no_parents() {
    check(
        "op = \"set\"; path = \"o.k\"; value = {x = [1, 2.5, true, \"\\\"\"]}",
        &[
            (r#"{"o":{}}"#, r#"{"o":{"k":{"x":[1,2.5,true,"\""]}}}"#),
            (r#"{"o":{ "a":1 }}"#, r#"{"o":{ "a":1,"k":{"x":[1,2.5,true,"\""]} }}"#),
            (
                r#"{"o":{"k" : "s" ,"a":1}}"#,
                r#"{"o":{"k" : {"x":[1,2.5,true,"\""]} ,"a":1}}"#,
            ),
            (
                r#"{"o":{"k":{"x":[1,2.5,true,"\""]}}}"#,
                r#"{"o":{"k":{"x":[1,2.5,true,"\""]}}}"#,
            ),
            (r#"{"k":{}}"#, r#"{"k":{}}"#),
            (r#"{"o":[{"k":1}]}"#, r#"{"o":[{"k":1}]}"#),
        ],
    );
    let both = [
        "op = \"set\"; path = \"a\"; value = 1",
        "op = \"set\"; path = \"b\"; value = 2",
    ];
    assert_eq!(edited(&both, "{ }").unwrap(), r#"{"a":1,"b":2 }"#);
}

#[test]
fn rename_touches_the_name_only_and_never_makes_a_duplicate() {
    check(
        "op = \"rename\"; path = \"a\"; to = \"b\\\"\"",
        &[
            (r#"{"a" : 1.0e5,"c":2}"#, r#"{"b\"" : 1.0e5,"c":2}"#),
            (r#"{"a":1,"b\"":2}"#, r#"{"a":1,"b\"":2}"#),
            (r#"{"b\u0022":2,"a":1}"#, r#"{"b\u0022":2,"a":1}"#),
        ],
    );
}

#[test]
fn clamp_rewrites_only_numbers_beyond_a_bound() {
    check(
        "op = \"clamp\"; path = \"t\"; min = 0; max = 2.0",
        &[
            (r#"{"t":2}"#, r#"{"t":2}"#),
            (r#"{"t":2.00}"#, r#"{"t":2.00}"#),
            (r#"{"t":1e0}"#, r#"{"t":1e0}"#),
            (r#"{"t":-0.0}"#, r#"{"t":-0.0}"#),
            (r#"{"t":2.0000001}"#, r#"{"t":2.0}"#),
            (r#"{"t":-1}"#, r#"{"t":0}"#),
            (r#"{"t":1e400}"#, r#"{"t":2.0}"#),
            (r#"{"t":-1e400}"#, r#"{"t":0}"#),
            (
                r#"{"t":99999999999999999999999999999999999999999999999999}"#,
                r#"{"t":2.0}"#,
            ),
            (r#"{"t":"5"}"#, r#"{"t":"5"}"#),
            (r#"{"t":null}"#, r#"{"t":null}"#),
        ],
    );
    let exact = "op = \"clamp\"; path = \"t\"; max = 9007199254740992";
    check(exact, &[(r#"{"t":9007199254740993}"#, r#"{"t":9007199254740992}"#)]);
}

#[test]
fn map_replaces_equal_strings() {
    check(
        "op = \"map\"; path = \"tier\"; values = {auto = \"standard\", \"a b\" = \"c\"}",
        &[
            (r#"{"tier":"auto"}"#, r#"{"tier":"standard"}"#),
            (r#"{"tier":"\u0061uto"}"#, r#"{"tier":"standard"}"#),
            (r#"{"tier":"a\u0020b"}"#, r#"{"tier":"c"}"#),
            (r#"{"tier":"Auto"}"#, r#"{"tier":"Auto"}"#),
            (r#"{"tier":["auto"]}"#, r#"{"tier":["auto"]}"#),
        ],
    );
}

#[test]
fn edits_follow_one_another() {
    let edits = [
        "op = \"rename\"; path = \"a\"; to = \"b\"",
        "op = \"clamp\"; path = \"b\"; max = 5",
        "op = \"rename\"; path = \"b\"; to = \"c\"",
        "op = \"set\"; path = \"d\"; value = false",
        "op = \"remove\"; path = \"x\"",
    ];
    assert_eq!(edited(&edits, r#"{"x":1,"a":9}"#).unwrap(), r#"{"c":5,"d":false}"#);
    assert_eq!(edited(&edits, r#"{"x":1}"#).unwrap(), r#"{"d":false}"#);
}

#[test]
fn edits_for_another_protocol_are_none() {
    let edits = ["op = \"remove\"; path = \"k\"; protocols = [\"responses\"]"];
    assert_eq!(edited(&edits, r#"{"k":1}"#), None);
}

#[test]
fn the_model_is_renamed_where_the_body_names_it() {
    let text = br#"{ "x" : 1.0, "\u006dodel" : "a\u0062c" ,"top_k":3}"#;
    let scanned = scan(text, Protocol::Messages, &LIMITS).unwrap();
    let headers = HeaderMap::new();
    let run = |rules: &BodyRules, operation: Operation, upstream_model| {
        let request = RequestFacts {
            operation: operation.into(),
            ..facts(&headers, "abc", upstream_model)
        };
        edit_body(rules, &request, text, &scanned).unwrap()
    };
    let none = BodyRules::default();
    let renamed = run(&none, Operation::Messages, "up").unwrap();
    assert_eq!(renamed, br#"{ "x" : 1.0, "\u006dodel" : "up" ,"top_k":3}"#);
    assert_eq!(run(&none, Operation::Messages, "abc"), None);
    assert_eq!(run(&none, Operation::GenerateContent, "up"), None);
    let rules = body_rules(&["op = \"remove\"; path = \"x\"", "op = \"remove\"; path = \"top_k\""]);
    assert_eq!(
        run(&rules, Operation::CountTokens, "up").unwrap(),
        br#"{ "\u006dodel" : "up"}"#
    );
}

#[test]
fn a_text_that_is_no_object_is_an_error() {
    let rules = body_rules(&["op = \"remove\"; path = \"k\""]);
    for text in [
        "",
        "[1]",
        "{\"k\"",
        "{\"k\":",
        "{\"k\":\"x",
        "{\"k\":1",
        "{k:1}",
        "{\"k\":}",
        "{\"a\\",
        "{\"a\":[}",
    ] {
        let headers = HeaderMap::new();
        let result = edit_body(&rules, &facts(&headers, "", ""), text.as_bytes(), &Scan::default());
        assert!(matches!(result, Err(EditError::NotJson { .. })), "{text}");
    }
}
