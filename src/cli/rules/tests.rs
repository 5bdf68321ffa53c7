//! Tests of `weir rules`.

use tempfile::TempDir;

use super::*;
use crate::domain::rules::shipped;

const REQUEST: &str =
    r#"{"model":"deepseek-flash","max_tokens":5,"top_k":4,"messages":[{"role":"user","content":"hi"}]}"#;

fn explained(request: &str, change: impl FnOnce(&mut ExplainArgs)) -> Result<String, RulesCommandError> {
    explained_with(&[], request, change)
}

fn explained_with(
    models: &[RawModel],
    request: &str,
    change: impl FnOnce(&mut ExplainArgs),
) -> Result<String, RulesCommandError> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("request.json");
    fs::write(&file, request).unwrap();
    let mut args = ExplainArgs {
        provider: "deepseek".to_owned(),
        request: file,
        response: None,
        model: None,
        operation: None,
        client_protocol: None,
        mode: None,
        headers: vec![explain::parse_header("anthropic-beta: x").unwrap()],
        query: None,
        conf: None,
        json: false,
    };
    change(&mut args);
    let mut out = Vec::new();
    run(&RulesCommand::Explain(args), (&shipped(), models), &mut out).map(|()| String::from_utf8(out).unwrap())
}

/// Returns the line at which the table of a rule begins in the shipped file.
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
    let request = r#"{"model":"deepseek-flash","max_tokens":5,"temperature":3,"messages":[]}"#;
    let text = explained(request, |_| {}).unwrap();
    assert!(text.contains(": refused with 400: `temperature`"), "{text}");
    assert!(!text.contains("nothing is changed"), "{text}");
}

#[test]
fn a_model_of_another_provider_is_not_explained_and_one_of_weir_toml_is() {
    let other = REQUEST.replace("deepseek-flash", "claude-haiku-4-5");
    let why = explained(&other, |_| {}).unwrap_err().to_string();
    assert!(
        why.starts_with("provider `deepseek` does not serve model `claude-haiku-4-5`; it serves "),
        "{why}"
    );
    let near = REQUEST.replace("deepseek-flash", "depseek-flash");
    let why = explained(&near, |_| {}).unwrap_err().to_string();
    assert!(why.contains("did you mean `deepseek-flash`?"), "{why}");
    let house = |name: &str, provider: &str| RawModel {
        name: name.to_owned(),
        providers: vec![provider.to_owned()],
        upstream_names: [("deepseek".to_owned(), "deepseek-v4".to_owned())].into(),
        ..RawModel::default()
    };
    let own = REQUEST.replace("deepseek-flash", "house");
    let text = explained_with(&[house("house", "deepseek")], &own, |_| {}).unwrap();
    assert!(
        text.contains("weir.toml: model: model `house` is `deepseek-v4` at the provider"),
        "{text}"
    );
    let taken = [house("deepseek-flash", "anthropic")];
    assert!(
        explained_with(&taken, REQUEST, |_| {}).is_err(),
        "weir.toml has another provider serve it"
    );
}

#[test]
fn a_translation_has_a_line_for_each_loss_or_says_why_it_is_refused() {
    let request =
        r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}],"generationConfig":{"responseLogprobs":true}}"#;
    let translated = |mode: TranslationMode, json: bool| {
        let explained = explained(request, |args| {
            args.client_protocol = protocol("gemini").ok();
            args.mode = Some(mode);
            args.model = Some("deepseek-flash".to_owned());
            args.json = json;
        });
        explained.unwrap()
    };
    let text = translated(TranslationMode::Lossy, false);
    assert!(
        text.contains("\ntranslated from gemini to messages (lossy)\n"),
        "{text}"
    );
    assert!(
        text.contains("\ndropped: generationConfig.responseLogprobs\n"),
        "{text}"
    );
    assert!(text.contains("\nadapted: generationConfig.maxOutputTokens\n"), "{text}");
    assert!(text.contains(&format!("--- body, before\n{request}\n")), "{text}");
    assert!(text.contains("--- body, after\n{\"model\":\"deepseek-"), "{text}");
    let text = translated(TranslationMode::Strict, false);
    let refusal = "refused with 400: generationConfig.responseLogprobs: log probabilities cannot be translated";
    assert!(text.contains(refusal), "{text}");
    assert!(!text.contains("body, after") && !text.contains("nothing is"), "{text}");

    let json = |mode| serde_json::from_str::<Value>(&translated(mode, true)).unwrap();
    let lossy = json(TranslationMode::Lossy);
    let losses = lossy["translation"]["losses"].as_array().unwrap();
    let dropped = json!({ "verdict": "dropped", "path": "generationConfig.responseLogprobs" });
    assert!(
        losses.contains(&dropped) && lossy["body"]["after"].is_string(),
        "{lossy}"
    );
    let strict = json(TranslationMode::Strict);
    assert_eq!(
        strict["translation"]["refused"]["path"],
        "generationConfig.responseLogprobs"
    );
    assert!(strict["body"]["after"].is_null() && strict["translation"]["body"].is_null());
    assert!(protocol("chat").is_err() && mode("loose").is_err());
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
    assert!(
        operation("message").is_err()
            && explain::parse_header("a b: c").is_err()
            && explain::parse_header("abc").is_err()
    );
}
