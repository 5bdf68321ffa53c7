//! What a provider's file does to a request that is pasted here; nothing is sent anywhere.

use http::HeaderMap;
use maud::{Markup, html};
use serde_json::Value;

use crate::{
    api::error::AdminError,
    console::{desk::Desk, fields::Fields, forms::Field, frame::Page},
    domain::{
        rules::{
            Explanation, Passage, Question, RuleFile,
            compile::{Compiled, compile},
            explain::{explain as explained, header},
        },
        strict_toml::FileError,
        wire::operation::Operation,
    },
};

const ACTION: &str = "/rules";
/// What is shown of a text that an edit replaces or puts there.
const PLACE_CHARS_MAX: usize = 200;

pub(super) fn page(desk: &Desk<'_>) -> Page {
    shown(desk, &Fields::default(), &html! {})
}

pub(super) fn explain(desk: &Desk<'_>, form: &Fields) -> Result<Page, AdminError> {
    let wrong = |message: String| AdminError::invalid(message);
    let name = form.text("provider");
    let files = desk.source.rule_files();
    let (file, compiled) = compiled(&files, name).map_err(wrong)?;
    // `operation` is the field of every form by which it counts once.
    let operation = form.given("asked_for").map(operation).transpose().map_err(wrong)?;
    let mut headers = HeaderMap::new();
    for line in form.text("headers").lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = header(line).map_err(|why| wrong(format!("headers: `{line}`: {why}")))?;
        headers.append(name, value);
    }
    let question = Question {
        operation,
        model: form.given("model"),
        headers,
        query: form.given("query").map(|query| query.trim_start_matches('?')),
        body: form.text("request").as_bytes(),
        response: form.given("response").map(str::as_bytes),
    };
    let explanation = explained(&compiled, &question).map_err(|error| wrong(error.to_string()))?;
    Ok(shown(desk, form, &result(&file.name, &explanation)))
}

fn operation(name: &str) -> Result<Operation, String> {
    serde_json::from_value(Value::from(name)).map_err(|_| format!("no operation has the name `{name}`"))
}

fn compiled<'a>(files: &'a [RuleFile], name: &str) -> Result<(&'a RuleFile, Compiled), String> {
    for file in files {
        let compiled = compile(file).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(FileError::to_string).collect();
            lines.join("; ")
        })?;
        if compiled.provider.name == name {
            return Ok((file, compiled));
        }
    }
    Err(format!("there is no provider `{name}`"))
}

fn shown(desk: &Desk<'_>, form: &Fields, result: &Markup) -> Page {
    let files = desk.source.rule_files();
    let names: Vec<String> = files
        .iter()
        .filter_map(|file| Some(compile(file).ok()?.provider.name))
        .collect();
    let entered = |name: &str| desk.forms.entered(ACTION, name).unwrap_or(form.text(name)).to_owned();
    let [provider, model, asked_for, query] = ["provider", "model", "asked_for", "query"].map(entered);
    let content = html! {
        p class="lead" { "The edits that a provider's file makes, line by line, as `weir rules explain` tells them." }
        (desk.forms.form(ACTION, "card fields", &html! {
            label {
                span { "Provider" }
                select name="provider" { @for name in &names { option value=(name) selected[*name == provider] { (name) } } }
            }
            (desk.forms.input(ACTION, &Field::text("model", "Model, where the body does not name it", &model, "As the body says")))
            label {
                span { "Operation" }
                select name="asked_for" {
                    option value="" { "As the body looks" }
                    @for one in Operation::ALL.map(Operation::as_str) { option value=(one) selected[one == asked_for] { (one) } }
                }
            }
            (desk.forms.input(ACTION, &Field::text("query", "Query of the request", &query, "None")))
            label class="wide" {
                span { "Headers of the request, a line each" }
                textarea name="headers" rows="2" placeholder="anthropic-beta: context-1m-2025-08-07" { (entered("headers")) }
            }
            label class="wide" { span { "Body of the request" } textarea name="request" rows="8" required { (entered("request")) } }
            label class="wide" { span { "Body of an answer, if you like" } textarea name="response" rows="4" { (entered("response")) } }
            button { "Explain" }
        }))
        (result)
    };
    Page {
        title: "Rules".to_owned(),
        content,
    }
}

fn result(file: &str, explanation: &Explanation) -> Markup {
    html! {
        section class="card" aria-labelledby="result" {
            h2 id="result" { "What " (file) " does" }
            p {
                (explanation.operation.as_str()) " for model " bdi { (explanation.model) } ", "
                bdi { (explanation.upstream_model) } " at the provider"
            }
            @if explanation.changes.is_empty() { p { "Nothing is changed." } }
            ol class="plain" {
                @for change in &explanation.changes {
                    li {
                        code { (file) ":" (change.line) } " " (change.part) ": " (change.rule)
                        @for (before, after) in &change.places {
                            div class="places" { del { (short(before)) } " " ins { (short(after)) } }
                        }
                    }
                }
            }
            @if let Some((line, message)) = &explanation.refused {
                p class="refused" { (file) ":" (line) ": refused with 400: " (message) }
            }
            (passage("The body at the provider", &explanation.body))
            (passage("The head at the provider", &explanation.head))
            @if let Some(response) = &explanation.response { (passage("The answer for the client", response)) }
        }
    }
}

fn passage(name: &str, passage: &Passage) -> Markup {
    html! {
        @if let Some(after) = &passage.after {
            details { summary { (name) } pre tabindex="0" { code { (String::from_utf8_lossy(after)) } } }
        }
    }
}

fn short(text: &str) -> String {
    if text.chars().count() <= PLACE_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(PLACE_CHARS_MAX).chain(['\u{2026}']).collect()
}
