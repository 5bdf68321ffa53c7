//! Explains how a provider file changes one request: applies the file's edits one by one and records the line of each edit that
//! changed something. Also explains the translation of a request.

mod translated;

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::value::RawValue;

use crate::domain::{
    keys::CREDENTIAL_HEADERS,
    rules::{
        apply::{EditError, Splice, apply_splices, edit_splices, model_splice},
        body::{BodyEdit, BodyOp, BodyPathStep, BodyRules},
        compile::CompiledProvider,
        condition::RequestFacts,
        head::{HeadEdit, HeadOp, QueryEdit, QueryOp},
        provider::Provider,
        response::ResponseRewriter,
    },
    strict_toml::suggestion,
    wire::{
        UpstreamProtocol,
        json_scan::{DEPTH_MAX, ScanLimits, scan},
        operation::{Operation, UpstreamOperation},
        protocol::{AnswerFraming, Protocol},
    },
};

pub(crate) use self::translated::{ExplainedTranslation, TranslationQuestion};

/// A request to explain, and optionally the provider's answer to it.
#[derive(Clone, Debug)]
pub(crate) struct ExplainRequest<'a> {
    /// The requested operation; if it is `None`, the operation is guessed from the body.
    pub operation: Option<Operation>,
    /// The requested model; `None` for the model that the body names.
    pub model: Option<&'a str>,
    /// The client's headers.
    pub headers: HeaderMap,
    /// The client's query, without the client's API key.
    pub query: Option<&'a str>,
    /// The client's body.
    pub body: &'a [u8],
    /// The provider's answer, if the edits of the answer are to be explained as well; otherwise `None`.
    pub response: Option<&'a [u8]>,
}

/// The changes that a provider file makes to a request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// The requested operation.
    pub operation: Operation,
    /// The requested model's name.
    pub model: String,
    /// The provider's name for the model.
    pub upstream_model: String,
    /// The translation that precedes all changes; `None` if the provider speaks the client's protocol.
    pub translation: Option<ExplainedTranslation>,
    /// Whether weir uses a WebSocket to the provider for requests that a client sends over a WebSocket.
    pub has_websocket: bool,
    /// All changes, in the order in which they are made.
    pub changes: Vec<AppliedEdit>,
    /// The body, as the client sent it and as the provider gets it.
    pub body: TextChange,
    /// The request line, followed by the sorted headers, one per line. Credentials and the headers that weir sets itself are left
    /// out.
    pub head: TextChange,
    /// The answer's body, as the provider sent it and as the client gets it; `None` if no answer was given.
    pub response: Option<TextChange>,
    /// The line of the edit that refuses the request, and the message to the client; `None` if the request is not refused.
    pub refused: Option<(usize, String)>,
}

/// A text before and after the edits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextChange {
    /// The text before the edits.
    pub before: Vec<u8>,
    /// The text after the edits; `None` if the request is refused.
    pub after: Option<Vec<u8>>,
}

/// The changes that one edit made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedEdit {
    /// The line of the edit in the provider's file, counted from 1. If the change replaces the model's name, it is the line of
    /// the model's definition, or 0 if weir.toml defines the model.
    pub line: usize,
    /// The changed part of the request or answer: `model`, `body`, `head`, `query` or `response`.
    pub part: &'static str,
    /// The edit as text, such as `remove metadata`.
    pub rule: String,
    /// The replaced texts, each with its replacement; empty for a change of the head, query or answer.
    pub places: Vec<(String, String)>,
}

/// The reason why the request cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ExplainError(String);

/// Parses a header of the form `NAME: VALUE`.
///
/// # Errors
/// The text does not have this form.
pub(crate) fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let form = "give it as 'NAME: VALUE'";
    let (name, value) = text.split_once(':').ok_or(form)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| form)?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| form)?;
    Ok((name, value))
}

/// Applies a provider file to a request, edit by edit, and returns what each edit changed.
///
/// # Errors
/// The body is not JSON, the operation or the model is unknown, or the provider does not serve one of them.
pub(crate) fn explain(compiled: &CompiledProvider, question: &ExplainRequest<'_>) -> Result<Explanation, ExplainError> {
    explain_as(compiled, question, None)
}

/// Applies a provider file to a request, edit by edit. If `client` is given, first translates the request. Returns what the
/// translation lost and what each edit changed.
///
/// # Errors
/// The body is not JSON, the operation or the model is unknown, or the provider does not serve one of them.
pub(crate) fn explain_as(
    compiled: &CompiledProvider,
    question: &ExplainRequest<'_>,
    client: Option<&TranslationQuestion>,
) -> Result<Explanation, ExplainError> {
    let limits = ScanLimits {
        depth_max: DEPTH_MAX,
        references_max: usize::MAX,
    };
    // The protocol is not known yet. It only determines which state at the provider the scan finds, and this state is not used
    // here.
    let facts = scan(question.body, Protocol::Messages, &limits)
        .map_err(|error| ExplainError(format!("cannot read the request's body: {error}")))?;
    let provider = &compiled.provider;
    let (operation, upstream) = operations(question, provider, client)?;
    let named = facts.model.as_ref().map(|model| model.text.as_str());
    let model = question.model.or(named).ok_or_else(|| {
        ExplainError("the request does not name a model: give the model's public name with --model".to_owned())
    })?;
    let (line, known) = compiled
        .model_for(operation.protocol(), model)
        .ok_or_else(|| not_served(compiled, model))?;
    let here = known.upstream_names.get(&provider.name);
    let upstream_model = here.or(known.upstream_name.as_ref()).unwrap_or(&known.name).as_str();
    let request = RequestFacts {
        operation: upstream,
        is_translated: client.is_some(),
        model,
        upstream_model,
        headers: &question.headers,
    };
    let mut changes = Vec::new();
    let subject = (provider, known, upstream_model);
    let translate = |client: &TranslationQuestion| client.translate(subject, (operation, upstream), question.body);
    let translation = client.map(translate).transpose()?;
    let mut body = match &translation {
        None => Some(question.body.to_vec()),
        Some(translation) => translation.body.clone(),
    };
    // The translation has already written the provider's name for the model.
    if let (None, Some(text), Some(splice)) = (&translation, &mut body, model_splice(&request, &facts)) {
        let rule = format!("model `{model}` is `{upstream_model}` at the provider");
        *text = record_change(&mut changes, ("model", *line, rule), vec![splice], text);
    }
    let refused = match &mut body {
        Some(text) => edit_body(&provider.body, &request, text, &mut changes)?,
        None => None,
    };
    let after = body.filter(|_| refused.is_none());
    let (head, response) = edit_head_and_response(provider, question, &request, after.is_some(), &mut changes);
    Ok(Explanation {
        operation,
        model: model.to_owned(),
        upstream_model: upstream_model.to_owned(),
        has_websocket: translation.is_none() && provider.endpoints.has_websocket(upstream),
        translation,
        changes,
        body: TextChange {
            before: question.body.to_vec(),
            after,
        },
        head,
        response,
        refused,
    })
}

/// Returns the client's operation and the provider's, which differ if the request is to be translated.
fn operations(
    question: &ExplainRequest<'_>,
    provider: &Provider,
    client: Option<&TranslationQuestion>,
) -> Result<(Operation, UpstreamOperation), ExplainError> {
    if let Some(client) = client {
        return client.operations(question, provider);
    }
    let operation = operation(question, provider)?;
    match provider.endpoints.get(operation) {
        Some(_) => Ok((operation, operation.into())),
        None => Err(ExplainError(format!(
            "provider `{}` has no endpoint for {}",
            provider.name,
            operation.as_str()
        ))),
    }
}

/// Edits the request's head, and the provider's answer if one is given. `is_sent` is false if the request is refused. In this
/// case, neither the head nor the answer is edited.
fn edit_head_and_response(
    provider: &Provider,
    question: &ExplainRequest<'_>,
    request: &RequestFacts<'_>,
    is_sent: bool,
    changes: &mut Vec<AppliedEdit>,
) -> (TextChange, Option<TextChange>) {
    let at = match provider.endpoints.get(request.operation) {
        Some(template) => {
            let scheme = if template.origin.https { "https" } else { "http" };
            let target = template.fill(request.upstream_model);
            format!("{scheme}://{}{target}", template.origin.authority())
        }
        None => String::new(),
    };
    let mut head = TextChange {
        before: head_text(&at, question.query, &question.headers),
        after: None,
    };
    if !is_sent {
        return (head, None);
    }
    let (headers, query) = match request.is_translated {
        false => (question.headers.clone(), question.query),
        true => translated_head(&question.headers, request.operation),
    };
    head.after = Some(edit_head(provider, &at, (headers, query), changes));
    let edit = |answer| edit_response(&provider.response, request, answer, changes);
    let response = question.response.map(edit);
    (head, response)
}

/// Returns the headers and the query of a translated request before the provider's edits. Of the client's headers, only
/// `user-agent` and `accept` are included, because the others and the query belong to the client's protocol.
fn translated_head(headers: &HeaderMap, operation: UpstreamOperation) -> (HeaderMap, Option<&'static str>) {
    let is_general = |name: &HeaderName| matches!(*name, header::USER_AGENT | header::ACCEPT);
    let general = headers.iter().filter(|(name, _)| is_general(name));
    let mut kept: HeaderMap = general.map(|(name, value)| (name.clone(), value.clone())).collect();
    kept.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let query = (operation.protocol() == UpstreamProtocol::Gemini).then_some("alt=sse");
    (kept, query)
}

fn not_served(compiled: &CompiledProvider, model: &str) -> ExplainError {
    let served: Vec<&str> = compiled.models.iter().map(|(_, model)| model.name.as_str()).collect();
    ExplainError(format!(
        "provider `{}` does not serve model `{model}`{}; it serves {}",
        compiled.provider.name,
        suggestion(model, served.iter().copied()),
        served.join(", ")
    ))
}

/// Returns the requested operation: the given one, or else the one that the members of the body indicate.
fn operation(question: &ExplainRequest<'_>, provider: &Provider) -> Result<Operation, ExplainError> {
    if let Some(operation) = question.operation {
        return Ok(operation);
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(question.body).unwrap_or_default();
    let looks_like = [
        ("messages", Operation::Messages),
        ("input", Operation::Responses),
        ("contents", Operation::GenerateContent),
    ];
    let likely = looks_like
        .into_iter()
        .find(|(name, operation)| members.contains_key(*name) && provider.endpoints.get(*operation).is_some());
    likely.map(|(_, operation)| operation).ok_or_else(|| {
        ExplainError(format!(
            "the body does not look like a request that provider `{}` serves: give its operation with --operation, or, if weir \
             translates it, its protocol with --as",
            provider.name
        ))
    })
}

type RefusedByRule = Option<(usize, String)>;

fn edit_body(
    rules: &BodyRules,
    request: &RequestFacts<'_>,
    body: &mut Vec<u8>,
    changes: &mut Vec<AppliedEdit>,
) -> Result<RefusedByRule, ExplainError> {
    for edit in rules.edits().filter(|edit| edit.applies_to(request)) {
        match edit_splices(edit, body) {
            Ok(splices) if splices.is_empty() => {}
            Ok(splices) => {
                *body = record_change(changes, ("body", edit.line, body_rule(edit)), splices, body);
            }
            Err(EditError::Refused { line, message }) => return Ok(Some((line, message))),
            Err(error @ EditError::NotJson { .. }) => return Err(ExplainError(error.to_string())),
        }
    }
    Ok(None)
}

fn record_change(
    changes: &mut Vec<AppliedEdit>,
    (part, line, rule): (&'static str, usize, String),
    mut splices: Vec<Splice<'_>>,
    body: &[u8],
) -> Vec<u8> {
    let text = |splice: &Splice<'_>| {
        let before = body.get(splice.range.clone()).unwrap_or_default();
        (String::from_utf8_lossy(before).into_owned(), splice.text.to_string())
    };
    let edited = apply_splices(body, &mut splices);
    changes.push(AppliedEdit {
        line,
        part,
        rule,
        places: splices.iter().map(text).collect(),
    });
    edited
}

fn edit_head(
    provider: &Provider,
    at: &str,
    (mut headers, query): (HeaderMap, Option<&str>),
    changes: &mut Vec<AppliedEdit>,
) -> Vec<u8> {
    for edit in provider.headers.iter() {
        let before = headers.clone();
        edit.apply(&mut headers);
        if before != headers {
            changes.push(change_without_places("head", edit.line, head_rule(edit)));
        }
    }
    let mut query = query.map(Into::into);
    for edit in provider.query.iter() {
        let before = query.clone();
        query = edit.apply(query);
        if before != query {
            changes.push(change_without_places("query", edit.line, query_rule(edit)));
        }
    }
    head_text(at, query.as_deref(), &headers)
}

fn edit_response(
    rules: &BodyRules,
    request: &RequestFacts<'_>,
    answer: &[u8],
    changes: &mut Vec<AppliedEdit>,
) -> TextChange {
    let mut text = answer.to_vec();
    for edit in rules.edits() {
        let one = BodyRules::new([edit.clone()]);
        let Some(mut rewriter) = ResponseRewriter::new(&one, request, framing(answer)) else {
            continue;
        };
        let mut edited = rewriter.push(&text);
        edited.extend(rewriter.finish());
        if edited != text {
            changes.push(change_without_places("response", edit.line, body_rule(edit)));
            text = edited;
        }
    }
    TextChange {
        before: answer.to_vec(),
        after: Some(text),
    }
}

/// Returns the framing of an answer, guessed from its first byte that is not white space.
fn framing(answer: &[u8]) -> AnswerFraming {
    match answer.trim_ascii_start().first() {
        Some(b'{') => AnswerFraming::Json,
        Some(b'[') => AnswerFraming::JsonArray,
        _ => AnswerFraming::Sse,
    }
}

fn change_without_places(part: &'static str, line: usize, rule: String) -> AppliedEdit {
    AppliedEdit {
        line,
        part,
        rule,
        places: Vec::new(),
    }
}

fn head_text(at: &str, query: Option<&str>, headers: &HeaderMap) -> Vec<u8> {
    let target = match query {
        None => at.to_owned(),
        Some(query) if at.contains('?') => format!("{at}&{query}"),
        Some(query) => format!("{at}?{query}"),
    };
    let mut lines: Vec<String> = headers
        .iter()
        .filter(|(name, _)| !CREDENTIAL_HEADERS.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    lines.sort();
    lines.insert(0, format!("POST {target}"));
    lines.push(String::new());
    lines.join("\n").into_bytes()
}

/// Returns an edit as text. For a path that ends in `[]`, the text says which elements of the array the edit is for.
fn body_rule(edit: &BodyEdit) -> String {
    let path = edit.path_text();
    let rule = match &edit.op {
        BodyOp::Set { value } => format!("set {path} to {value}"),
        BodyOp::Remove => format!("remove {path}"),
        BodyOp::Rename { to } => format!("rename {path} to {to}"),
        BodyOp::Clamp { .. } => format!("clamp {path}"),
        BodyOp::Map { .. } => format!("map {path}"),
        BodyOp::Refuse { .. } => format!("refuse {path}"),
    };
    let tests: Vec<String> = edit.field_tests().map(ToString::to_string).collect();
    match edit.path.last() {
        Some(BodyPathStep::Each) if !tests.is_empty() => format!("{rule} where {}", tests.join(" and ")),
        Some(BodyPathStep::Each | BodyPathStep::Member(_)) | None => rule,
    }
}

fn head_rule(edit: &HeadEdit) -> String {
    let shown = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    match &edit.op {
        HeadOp::Remove(name) => format!("remove {name}"),
        HeadOp::Rename(from, to) => format!("rename {from} to {to}"),
        HeadOp::Set(name, value) => format!("set {name} to {}", shown(value)),
        HeadOp::Default(name, value) => format!("default {name} to {}", shown(value)),
    }
}

fn query_rule(edit: &QueryEdit) -> String {
    match &edit.op {
        QueryOp::Remove => format!("remove {}", edit.name),
        QueryOp::Set(value) => format!("set {} to {value}", edit.name),
        QueryOp::Default(value) => format!("default {} to {value}", edit.name),
    }
}

#[cfg(test)]
mod tests;
