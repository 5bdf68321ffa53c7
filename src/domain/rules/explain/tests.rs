//! Tests of `explain`.

use super::*;
use crate::domain::{
    rules::{RuleFile, compile::compile},
    translation::losses::{LossVerdict, TranslationLoss, TranslationMode},
};

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
        headers: [(header::AUTHORIZATION, HeaderValue::from_static("Bearer k"))]
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

#[test]
fn an_edit_of_elements_says_which_ones_it_is_for() {
    let when = |tests: &str| {
        let edit = format!("[[body]]\nop = \"remove\"\npath = \"s[]\"\nwhen = [{tests}]\n[[model]]");
        let compiled = compile(&RuleFile {
            name: "p.toml".to_owned(),
            text: FILE.replace("[[model]]", &edit),
        })
        .unwrap();
        let question = ExplainRequest {
            operation: None,
            model: None,
            headers: HeaderMap::new(),
            query: None,
            body: br#"{"model":"public","input":"x","s":[{"type":"text","n":1.5,"text":"x-h: \"1\""},2]}"#,
            response: None,
        };
        let explanation = explain(&compiled, &question).unwrap();
        let removal = explanation
            .changes
            .iter()
            .find(|change| change.rule.starts_with("remove s[]"));
        removal.unwrap().rule.clone()
    };
    for (tests, rule) in [
        (
            r#"{ field = "type", equals = "text" }, { field = "text", starts_with = "x-h: \"" }"#,
            r#"remove s[] where type is "text" and text starts with "x-h: \"""#,
        ),
        (
            r#"{ field = "n", in = [1.5, 2, true, "a"] }, { field = "o.p", present = false }"#,
            r#"remove s[] where n is 1.5 or 2 or true or "a" and o.p is missing"#,
        ),
        (
            r#"{ root_field = "input", present = true }, { field = "n", present = true }"#,
            "remove s[] where the root's input is present and n is present",
        ),
        (r#"{ model = "public" }"#, "remove s[]"),
    ] {
        assert_eq!(when(tests), rule);
    }
}

const CHAT_FILE: &str = r#"name = "c"
[auth]
secret = "env:X"
style = "bearer"
[endpoints]
chat_completions = "https://h/v1/chat/completions"
[headers]
set = { x-a = "1" }
[[body]]
op = "rename"
path = "max_tokens"
to = "max_completion_tokens"
protocols = ["chat"]
when = { translated = true }
[[body]]
op = "remove"
path = "messages"
when = { translated = false }
[[model]]
name = "public"
upstream_name = "own"
translate = "strict"
"#;

fn explained_as(file: &str, body: &str, client: TranslationQuestion) -> Result<Explanation, ExplainError> {
    explained_operation_as(file, body, client, None)
}

fn explained_operation_as(
    file: &str,
    body: &str,
    client: TranslationQuestion,
    operation: Option<Operation>,
) -> Result<Explanation, ExplainError> {
    let compiled = compile(&RuleFile {
        name: "p.toml".to_owned(),
        text: file.to_owned(),
    })
    .unwrap();
    let header =
        |name: &'static str, value: &'static str| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let question = ExplainRequest {
        operation,
        model: Some("public"),
        headers: [header("user-agent", "agent"), header("anthropic-beta", "b")]
            .into_iter()
            .collect(),
        query: Some("beta=true"),
        body: body.as_bytes(),
        response: None,
    };
    explain_as(&compiled, &question, Some(&client))
}

fn client(from: Protocol, mode: Option<TranslationMode>) -> TranslationQuestion {
    TranslationQuestion { from, mode }
}

#[test]
fn a_request_is_translated_before_it_is_edited() {
    let body = r#"{"model":"public","max_tokens":5,"top_k":4,"messages":[{"role":"user","content":"hi"}]}"#;
    let explanation = explained_as(CHAT_FILE, body, client(Protocol::Messages, None)).unwrap();
    let translated = r#"{"model":"own","messages":[{"role":"user","content":"hi"}],"max_tokens":5}"#;
    let expected = ExplainedTranslation {
        from: Protocol::Messages,
        to: UpstreamProtocol::Chat,
        mode: TranslationMode::Strict,
        losses: vec![TranslationLoss {
            verdict: LossVerdict::Dropped,
            path: "top_k".to_owned(),
        }],
        body: Some(translated.as_bytes().to_vec()),
        refused: None,
    };
    assert_eq!(explanation.translation, Some(expected));
    let changes: Vec<(usize, &str)> = explanation
        .changes
        .iter()
        .map(|change| (change.line, change.rule.as_str()))
        .collect();
    let rename = "rename max_tokens to max_completion_tokens";
    assert_eq!(changes, [(9, rename), (8, "set x-a to 1")]);
    assert_eq!(explanation.body.before, body.as_bytes());
    let edited = translated.replace("max_tokens", "max_completion_tokens");
    assert_eq!(explanation.body.after.unwrap(), edited.as_bytes());
    let before = b"POST https://h/v1/chat/completions?beta=true\nanthropic-beta: b\nuser-agent: agent\n";
    assert_eq!(explanation.head.before, before);
    let after = b"POST https://h/v1/chat/completions\ncontent-type: application/json\nuser-agent: agent\nx-a: 1\n";
    assert_eq!(explanation.head.after.unwrap(), after);
}

#[test]
fn the_answer_is_edited_before_it_is_translated() {
    let file = CHAT_FILE.replace(
        "[[model]]",
        "[[response]]\nop = \"remove\"\npath = \"extra\"\nprotocols = [\"chat\"]\nwhen = { translated = true }\n[[model]]",
    );
    let compiled = compile(&RuleFile {
        name: "p.toml".to_owned(),
        text: file,
    })
    .unwrap();
    let question = ExplainRequest {
        operation: None,
        model: Some("public"),
        headers: HeaderMap::new(),
        query: None,
        body: br#"{"model":"public","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}"#,
        response: Some(br#"{"extra":1,"choices":[]}"#),
    };
    let explanation = explain_as(&compiled, &question, Some(&client(Protocol::Messages, None))).unwrap();
    let response = explanation.response.unwrap();
    assert_eq!(response.after.unwrap(), br#"{"choices":[]}"#);
}

#[test]
fn a_mode_replaces_that_of_the_model() {
    let body = r#"{"model":"public","max_tokens":5,"stop_sequences":["a","b","c","d","e"],"messages":[{"role":"user","content":"hi"}]}"#;
    let explanation = explained_as(CHAT_FILE, body, client(Protocol::Messages, None)).unwrap();
    let refused = explanation.translation.unwrap().refused.unwrap();
    assert_eq!(refused.path, "stop_sequences");
    assert_eq!((explanation.body.after, explanation.head.after), (None, None));
    assert!(explanation.changes.is_empty() && explanation.refused.is_none());

    let lossy = Some(TranslationMode::Lossy);
    let explanation = explained_as(CHAT_FILE, body, client(Protocol::Messages, lossy)).unwrap();
    let translation = explanation.translation.unwrap();
    assert_eq!((translation.mode, translation.refused), (TranslationMode::Lossy, None));
    assert_eq!(translation.losses[0].path, "stop_sequences");
    let after = String::from_utf8(explanation.body.after.unwrap()).unwrap();
    assert!(after.contains(r#""stop":["a","b","c","d"]"#), "{after}");
}

#[test]
fn a_stream_to_gemini_asks_for_events() {
    let file = CHAT_FILE.replace(
        "chat_completions = \"https://h/v1/chat/completions\"",
        "stream_generate_content = \"https://h/{model}:s\"",
    );
    let body = r#"{"model":"public","input":"hi"}"#;
    let explanation = explained_as(&file, body, client(Protocol::Responses, None)).unwrap();
    let head = String::from_utf8(explanation.head.after.unwrap()).unwrap();
    assert!(head.starts_with("POST https://h/own:s?alt=sse\n"), "{head}");
}

#[test]
fn what_is_not_translated_says_why() {
    let body = r#"{"model":"public","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}"#;
    let fails = |file: &str, from: Protocol, operation: Option<Operation>| {
        let result = explained_operation_as(file, body, client(from, None), operation);
        result.unwrap_err().to_string()
    };
    assert!(fails(FILE, Protocol::Responses, None).ends_with("leave out --as"));
    assert!(fails(FILE, Protocol::Messages, None).starts_with("model `public` is not translated"));
    for operation in [Operation::CountTokens, Operation::Responses] {
        let why = fails(CHAT_FILE, Protocol::Messages, Some(operation));
        assert!(why.contains("does not translate the operation"), "{why}");
    }
}
