//! The cases of `tests/golden/rules/`: one folder per case, named after a shipped file (or a variant) and what it shows.
//!
//! - `request.json`: the client's body, byte for byte.
//! - `head.txt`: the client's request line and headers; without it, `POST /v1/messages` without headers. A request in a protocol that
//!   the provider does not speak is translated.
//! - `forwarded.json`: what the provider gets; without it, the same bytes.
//! - `forwarded-head.txt`: the target and the headers, sorted; without it, not looked at.
//! - `refused.txt`: what a refused client is told, in the place of both.
//! - `response.*` and `client.*`: the provider's answer and what the client gets; `usage.txt`: what is counted in it.
//! - `provider.toml`: a provider file of the case's own, for what no shipped file does.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use http::{HeaderMap, HeaderName};

use super::*;
use crate::domain::rules::explain::{TranslationQuestion, explain_as};
use crate::domain::wire::{
    json_scan::{Scan, ScanLimits, scan},
    operation::{RequestTarget, read_target},
    protocol::{AnswerFraming, Observer, framing_from_content_type},
};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/rules"))
}

/// A case's provider file: its own, a variant, or the shipped file whose name the case's begins with.
fn file_of(folder: &Path) -> RuleFile {
    let case = folder.file_name().unwrap().to_string_lossy().into_owned();
    if let Ok(text) = fs::read_to_string(folder.join("provider.toml")) {
        return RuleFile { name: case, text };
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua-free-rules/variants");
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if case.starts_with(&format!("{stem}-")) {
            return RuleFile {
                text: fs::read_to_string(&path).unwrap(),
                name: stem,
            };
        }
    }
    let provider = case.split('-').next().unwrap();
    let name = format!("lua-free-rules/{provider}.toml");
    let file = shipped().into_iter().find(|file| file.name == name);
    file.unwrap_or_else(|| panic!("{case}: there is no {name}"))
}

struct Request {
    operation: Operation,
    path_model: Option<String>,
    query: Option<String>,
    headers: HeaderMap,
}

fn head(text: Option<String>) -> Request {
    let text = text.unwrap_or_else(|| "POST /v1/messages\n".to_owned());
    let mut lines = text.lines();
    let (method, target_text) = lines.next().unwrap().split_once(' ').unwrap();
    let (path, query) = match target_text.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target_text, None),
    };
    let RequestTarget::Forward { operation, model } = read_target(method, path).unwrap() else {
        panic!("{path} is not forwarded");
    };
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    Request {
        operation,
        path_model: model,
        query,
        headers,
    }
}

/// How the request is translated; `None` if the provider speaks the client's protocol.
fn translation(provider: &Provider, request: &Request) -> Option<TranslationQuestion> {
    provider
        .endpoints
        .get(request.operation)
        .is_none()
        .then(|| TranslationQuestion {
            from: request.operation.protocol(),
            mode: None,
        })
}

fn forwarded_head(provider: &Provider, request: &Request, upstream_model: &str) -> String {
    let endpoint = provider.endpoints.get(request.operation).unwrap();
    let mut headers = request.headers.clone();
    edit_head(&provider.headers, &mut headers);
    let query = edit_query(&provider.query, request.query.as_deref());
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()))
        .collect();
    lines.sort();
    format!(
        "POST https://{}{}{query}\n{}",
        endpoint.origin.authority(),
        endpoint.fill(upstream_model),
        lines.concat()
    )
}

const LIMITS: ScanLimits = ScanLimits {
    depth_max: 100,
    references_max: 100,
};

fn check(case: &Path) {
    let name = case.file_name().unwrap().to_string_lossy().into_owned();
    let read = |file: &str| fs::read_to_string(case.join(file)).ok();
    let compiled = compile::compile(&file_of(case)).unwrap();
    let provider = &compiled.provider;
    let body = read("request.json").unwrap_or_else(|| panic!("{name}: no request.json"));
    let request = head(read("head.txt"));
    let scanned = scan(body.as_bytes(), request.operation.protocol(), &LIMITS).unwrap();
    let named = scanned.model.as_ref().map(|model| model.text.clone());
    let model = request.path_model.clone().or(named).unwrap();
    let known = compiled.models.iter().find(|(_, known)| known.name == model);
    let (_, known) = known.unwrap_or_else(|| panic!("{name}: no model {model}"));
    let upstream_model = known.upstream_name.as_deref().unwrap_or(&model);
    let client = translation(provider, &request);
    let is_translated = client.is_some();
    let operation = match is_translated {
        true => provider.translation_operation().unwrap(),
        false => request.operation.into(),
    };
    let facts = RequestFacts {
        operation,
        is_translated,
        model: &model,
        upstream_model,
        headers: &request.headers,
    };
    let question = ExplainRequest {
        operation: Some(request.operation),
        model: Some(&model),
        headers: request.headers.clone(),
        query: request.query.as_deref(),
        body: body.as_bytes(),
        response: None,
    };
    let explained = explain_as(&compiled, &question, client.as_ref()).unwrap();
    let (unedited, scanned) = match &explained.translation {
        Some(translation) => (translation.body.clone().unwrap(), Scan::default()),
        None => (body.clone().into_bytes(), scanned),
    };
    let edited = edit_body(&provider.body, &facts, &unedited, &scanned);
    match (edited, read("refused.txt")) {
        (Err(EditError::Refused { line, message }), Some(expected)) => {
            assert_eq!(message, expected.trim_end(), "{name}");
            assert_eq!(explained.refused, Some((line, message)), "{name}");
        }
        (Ok(edited), None) => {
            let expected = read("forwarded.json");
            let is_changed = is_translated || edited.is_some();
            assert_eq!(is_changed, expected.is_some(), "{name}: unchanged without a copy");
            let forwarded = String::from_utf8(edited.unwrap_or(unedited)).unwrap();
            assert_eq!(forwarded, expected.unwrap_or(body), "{name}");
            assert_eq!(explained.body.after.unwrap(), forwarded.as_bytes(), "{name}");
        }
        (result, _) => panic!("{name}: {result:?}"),
    }
    if let Some(expected) = read("forwarded-head.txt") {
        if !is_translated {
            assert_eq!(forwarded_head(provider, &request, upstream_model), expected, "{name}");
        }
        let explained = String::from_utf8(explained.head.after.unwrap()).unwrap();
        assert_eq!(explained, expected, "{name}");
    }
    check_answer(case, provider, &facts, request.operation);
}

/// Checks what the client gets of the provider's answer, if the case has one.
fn check_answer(case: &Path, provider: &Provider, facts: &RequestFacts<'_>, operation: Operation) {
    let name = case.file_name().unwrap().to_string_lossy().into_owned();
    let read = |file: &str| fs::read_to_string(case.join(file)).ok();
    for (kind, content_type) in [("json", "application/json"), ("sse", "text/event-stream")] {
        let Some(answer) = read(&format!("response.{kind}")) else {
            continue;
        };
        let framing: AnswerFraming = framing_from_content_type(operation, Some(content_type));
        let client = match ResponseRewriter::new(&provider.response, facts, framing) {
            Some(mut rewriter) => [rewriter.push(answer.as_bytes()), rewriter.finish()].concat(),
            None => answer.clone().into_bytes(),
        };
        let mut observer = Observer::new(operation.protocol(), framing);
        observer.push(answer.as_bytes());
        let usage = format!("{:#?}\n", observer.observed().usage);
        assert_eq!(
            usage,
            read("usage.txt").unwrap(),
            "{name}: what the provider sent is counted"
        );
        let expected = read(&format!("client.{kind}")).unwrap();
        assert_eq!(String::from_utf8(client).unwrap(), expected, "{name}");
    }
}

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    cases
}

#[test]
fn every_case_comes_out_as_written() {
    for case in cases() {
        check(&case);
    }
}

#[test]
fn every_shipped_file_and_every_edit_of_it_has_a_case() {
    let mut missing = Vec::new();
    for file in shipped() {
        let compiled = compile::compile(&file).unwrap();
        let name = &compiled.provider.name;
        let own: Vec<PathBuf> = cases()
            .into_iter()
            .filter(|case| file_of(case).name == file.name)
            .collect();
        if own.is_empty() {
            missing.push(format!("{name}: no case"));
        }
        let mut used = BTreeSet::new();
        for case in own {
            let read = |file: &str| fs::read_to_string(case.join(file)).ok();
            let request = head(read("head.txt"));
            let body = read("request.json").unwrap();
            let question = ExplainRequest {
                operation: Some(request.operation),
                model: request.path_model.as_deref(),
                headers: request.headers.clone(),
                query: request.query.as_deref(),
                body: body.as_bytes(),
                response: None,
            };
            let client = translation(&compiled.provider, &request);
            let explained = explain_as(&compiled, &question, client.as_ref()).unwrap();
            used.extend(explained.changes.iter().map(|change| change.line));
            used.extend(explained.refused.map(|(line, _)| line));
        }
        let body = compiled.provider.body.edits().map(|edit| edit.line);
        let lines = body.chain(compiled.provider.headers.iter().map(|edit| edit.line));
        missing.extend(
            lines
                .filter(|line| !used.contains(line))
                .map(|line| format!("{}:{line}", file.name)),
        );
    }
    assert!(missing.is_empty(), "edits without a case: {missing:?}");
}
