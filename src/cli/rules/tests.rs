//! Tests of `weir rules`.

use tempfile::TempDir;

use super::*;
use crate::domain::rules::shipped;

const REQUEST: &str =
    r#"{"model":"deepseek-flash","max_tokens":5,"top_k":4,"messages":[{"role":"user","content":"hi"}]}"#;

fn explained(request: &str, change: impl FnOnce(&mut ExplainArgs)) -> Result<String, RulesCommandError> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("request.json");
    fs::write(&file, request).unwrap();
    let mut args = ExplainArgs {
        provider: "deepseek".to_owned(),
        request: file,
        response: None,
        model: None,
        operation: None,
        headers: vec![explain::header("anthropic-beta: x").unwrap()],
        query: None,
        conf: None,
        json: false,
    };
    change(&mut args);
    let mut out = Vec::new();
    run(&RulesCommand::Explain(args), &shipped(), &mut out).map(|()| String::from_utf8(out).unwrap())
}

/// The line of a rule in the shipped file, as its table begins there.
fn line_of(rule: &str) -> usize {
    let file = shipped()
        .into_iter()
        .find(|file| file.name.ends_with("deepseek.toml"))
        .unwrap();
    let before = file.text.split(rule).next().unwrap();
    before.lines().count() - before.lines().rev().position(|line| line == "[[body]]").unwrap()
}

#[test]
fn every_change_names_its_line() {
    let text = explained(REQUEST, |_| {}).unwrap();
    let line = line_of("path = \"top_k\"");
    assert!(
        text.contains(&format!(
            "lua-free-rules/deepseek.toml:{line}: body: remove top_k\n    - ,\"top_k\":4\n    + \n"
        )),
        "{text}"
    );
    assert!(text.contains(": head: remove anthropic-beta\n"), "{text}");
    assert!(text.contains(&format!("--- body, before\n{REQUEST}\n")), "{text}");
    assert!(
        text.contains(&format!("--- body, after\n{}\n", REQUEST.replace("\"top_k\":4,", ""))),
        "{text}"
    );
    assert!(
        text.contains("--- head, after\nPOST https://api.deepseek.com/anthropic/v1/messages\n\n"),
        "{text}"
    );
}

#[test]
fn a_refusal_names_its_line_and_has_no_after() {
    let request = REQUEST.replace("\"top_k\":4", "\"temperature\":3");
    let text = explained(&request, |args| args.json = true).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["refused"]["line"], line_of("path = \"temperature\""));
    assert_eq!(
        value["refused"]["message"],
        "`temperature` is 3, but this model takes 0.0 to 2.0"
    );
    assert!(value["body"]["after"].is_null() && value["head"]["after"].is_null());
    assert!(
        explained(&request, |_| {})
            .unwrap()
            .contains(": refused with 400: `temperature`")
    );
}

#[test]
fn what_cannot_be_explained_says_why() {
    let fails = |request: &str, change: fn(&mut ExplainArgs)| explained(request, change).unwrap_err().to_string();
    assert!(fails(REQUEST, |args| args.provider = "deep".to_owned()).contains("there is no provider `deep`"));
    assert!(fails("[]", |_| {}).contains("the request's body"));
    assert!(fails("{\"model\":\"m\"}", |_| {}).contains("--operation"));
    assert!(fails("{\"messages\":[]}", |_| {}).contains("--model"));
    assert!(
        fails(REQUEST, |args| args.operation = operation("count_tokens").ok()).contains("no endpoint for count_tokens")
    );
    assert!(fails(REQUEST, |args| args.request = "/nonexistent/file".into()).contains("/nonexistent/file"));
    assert!(operation("message").is_err() && explain::header("a b: c").is_err() && explain::header("abc").is_err());
}
