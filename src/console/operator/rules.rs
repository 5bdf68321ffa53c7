//! The console's page that displays how a provider file changes a pasted request. The request is not sent to a provider.

use http::HeaderMap;
use maud::{Markup, html};
use serde_json::Value;

use crate::{
    api::AdminError,
    console::{PageContext, forms::InputField, layout::HtmlPage, request::FormFields},
    domain::{
        rules::{
            ExplainRequest, Explanation, RuleFile, TextChange,
            compile::{CompiledProvider, compile},
            explain::{explain as explained, parse_header},
        },
        strict_toml::FileError,
        wire::operation::Operation,
    },
};

const ACTION: &str = "/rules";
/// The maximum number of characters that are displayed of a removed or inserted text.
const PLACE_CHARS_MAX: usize = 200;

pub(super) fn page(context: &PageContext<'_>) -> HtmlPage {
    page_with_result(context, &FormFields::default(), &html! {})
}

pub(super) fn explain(context: &PageContext<'_>, form: &FormFields) -> Result<HtmlPage, AdminError> {
    let wrong = |message: String| AdminError::invalid(message);
    let name = form.text("provider");
    let files = context.source.rule_files();
    let (file, compiled) = compiled(&files, name).map_err(wrong)?;
    // The field cannot be called `operation`, because every form uses this name for the operation id.
    let operation = form.non_empty("asked_for").map(operation).transpose().map_err(wrong)?;
    let mut headers = HeaderMap::new();
    for line in form.text("headers").lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = parse_header(line).map_err(|why| wrong(format!("headers: `{line}`: {why}")))?;
        headers.append(name, value);
    }
    let question = ExplainRequest {
        operation,
        model: form.non_empty("model"),
        headers,
        query: form.non_empty("query").map(|query| query.trim_start_matches('?')),
        body: form.text("request").as_bytes(),
        response: form.non_empty("response").map(str::as_bytes),
    };
    let explanation = explained(&compiled, &question).map_err(|error| wrong(error.to_string()))?;
    Ok(page_with_result(context, form, &result(&file.name, &explanation)))
}

fn operation(name: &str) -> Result<Operation, String> {
    serde_json::from_value(Value::from(name)).map_err(|_| format!("operation `{name}` does not exist"))
}

fn compiled<'a>(files: &'a [RuleFile], name: &str) -> Result<(&'a RuleFile, CompiledProvider), String> {
    for file in files {
        let compiled = compile(file).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(FileError::to_string).collect();
            lines.join("; ")
        })?;
        if compiled.provider.name == name {
            return Ok((file, compiled));
        }
    }
    Err(format!("provider `{name}` does not exist"))
}

fn page_with_result(context: &PageContext<'_>, form: &FormFields, result: &Markup) -> HtmlPage {
    let files = context.source.rule_files();
    let names: Vec<String> = files
        .iter()
        .filter_map(|file| Some(compile(file).ok()?.provider.name))
        .collect();
    let entered = |name: &str| {
        context
            .forms
            .entered_value(ACTION, name)
            .unwrap_or(form.text(name))
            .to_owned()
    };
    let [provider, model, asked_for, query] = ["provider", "model", "asked_for", "query"].map(entered);
    let content = html! {
        p class="lead" { "The edits that a provider's file makes in a request, line by line, as `weir rules explain` prints them." }
        (context.forms.form(ACTION, "card fields", &html! {
            label {
                span { "Provider" }
                select name="provider" { @for name in &names { option value=(name) selected[*name == provider] { (name) } } }
            }
            (context.forms.input(ACTION, &InputField::text("model", "Model, if the body does not name it", &model, "As in the body")))
            label {
                span { "Operation" }
                select name="asked_for" {
                    option value="" { "Detected from the body" }
                    @for one in Operation::ALL.map(Operation::as_str) { option value=(one) selected[one == asked_for] { (one) } }
                }
            }
            (context.forms.input(ACTION, &InputField::text("query", "Query of the request", &query, "None")))
            label class="wide" {
                span { "Headers of the request, one per line" }
                textarea name="headers" rows="2" placeholder="anthropic-beta: context-1m-2025-08-07" { (entered("headers")) }
            }
            label class="wide" { span { "Body of the request" } textarea name="request" rows="8" required { (entered("request")) } }
            label class="wide" { span { "Body of an answer, optional" } textarea name="response" rows="4" { (entered("response")) } }
            button { "Explain" }
        }))
        (result)
    };
    HtmlPage {
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
                            div class="places" { del { (shortened(before)) } " " ins { (shortened(after)) } }
                        }
                    }
                }
            }
            @if let Some((line, message)) = &explanation.refused {
                p class="refused" { (file) ":" (line) ": refused with 400: " (message) }
            }
            (changed_text("The body that the provider gets", &explanation.body))
            (changed_text("The head that the provider gets", &explanation.head))
            @if let Some(response) = &explanation.response { (changed_text("The answer that the client gets", response)) }
        }
    }
}

fn changed_text(name: &str, passage: &TextChange) -> Markup {
    html! {
        @if let Some(after) = &passage.after {
            details { summary { (name) } pre tabindex="0" { code { (String::from_utf8_lossy(after)) } } }
        }
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= PLACE_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(PLACE_CHARS_MAX).chain(['\u{2026}']).collect()
}
