//! Tests of `explain`.

use super::*;
use crate::domain::rules::{RuleFile, compile::compile};

const FILE: &str = r#"name = "p"
[auth]
secret = "env:X"
style = "bearer"
[endpoints]
responses = "https://h/r?v=1"
[headers]
set = { x-a = "1" }
[query]
remove = ["b"]
default = { c = "2" }
[[body]]
op = "rename"
path = "a"
to = "b"
[[body]]
op = "clamp"
path = "b"
max = 3
[[response]]
op = "remove"
path = "secret"
[[model]]
name = "public"
upstream_name = "own"
"#;

#[test]
fn edits_are_explained_in_their_order() {
    let compiled = compile(&RuleFile {
        name: "p.toml".to_owned(),
        text: FILE.to_owned(),
    })
    .unwrap();
    let question = ExplainRequest {
        operation: None,
        model: None,
        headers: [(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer k"))]
            .into_iter()
            .collect(),
        query: Some("b=1"),
        body: br#"{"model":"public","input":"x","a":5}"#,
        response: Some(b"data: {\"secret\":1,\"x\":2}\n\n"),
    };
    let explanation = explain(&compiled, &question).unwrap();
    let changes: Vec<(usize, &str, &str)> = explanation
        .changes
        .iter()
        .map(|change| (change.line, change.part, change.rule.as_str()))
        .collect();
    assert_eq!(
        changes,
        [
            (23, "model", "model `public` is `own` at the provider"),
            (12, "body", "rename a to b"),
            (16, "body", "clamp b"),
            (8, "head", "set x-a to 1"),
            (10, "query", "remove b"),
            (11, "query", "default c to 2"),
            (20, "response", "remove secret"),
        ]
    );
    assert_eq!(explanation.changes[2].places, [("5".to_owned(), "3".to_owned())]);
    assert_eq!(explanation.body.after.unwrap(), br#"{"model":"own","input":"x","b":3}"#);
    assert_eq!(explanation.head.before, b"POST https://h/r?v=1&b=1\n");
    assert_eq!(explanation.head.after.unwrap(), b"POST https://h/r?v=1&c=2\nx-a: 1\n");
    assert_eq!(explanation.response.unwrap().after.unwrap(), b"data: {\"x\":2}\n\n");
}
