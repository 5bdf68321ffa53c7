//! `weir rules`: explains what provider files do, without a running weir.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::domain::{
    rules::{
        AppliedEdit, ExplainRequest, Explanation, RawModel, RuleFile, TextChange, compile,
        explain::{self, ExplainedTranslation, TranslationQuestion},
    },
    strict_toml::FileError,
    translation::losses::{TranslationLoss, TranslationMode},
    wire::{Protocol, operation::Operation},
};

/// The maximum length of the printed value of a changed field, in characters. A longer value is shortened.
const PLACE_CHARS_MAX: usize = 100;

/// The subcommands of `weir rules`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Show the changes that a provider's file makes to a request, and the line of the file that makes each change
    Explain(ExplainArgs),
}

/// The arguments of `weir rules explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The name of the provider
    #[arg(long, value_name = "NAME")]
    pub provider: String,
    /// A file with the body of a request, as a client sends it
    #[arg(long, value_name = "FILE")]
    pub request: PathBuf,
    /// A file with the body of an answer, as the provider sends it: a JSON object, an array of JSON events, or an event stream.
    /// The command then also shows the changes to the answer
    #[arg(long, value_name = "FILE")]
    pub response: Option<PathBuf>,
    /// The requested model, if the request's body does not name it
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The operation: messages, count_tokens, responses, generate_content, stream_generate_content or gemini_count_tokens.
    /// Without this option, weir recognizes the operation from the request's body
    #[arg(long, value_name = "NAME", value_parser = operation)]
    pub operation: Option<Operation>,
    /// The client's protocol, if the provider does not speak it: messages, responses or gemini. weir then translates the request
    #[arg(long = "as", value_name = "PROTOCOL", value_parser = protocol)]
    pub client_protocol: Option<Protocol>,
    /// The mode of the translation: strict or lossy. It replaces the model's setting `translate`
    #[arg(long, value_name = "MODE", value_parser = mode, requires = "client_protocol")]
    pub mode: Option<TranslationMode>,
    /// A header of the request; can be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = explain::parse_header)]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The query of the request's URL
    #[arg(long, value_name = "QUERY")]
    pub query: Option<String>,
    /// The configuration file that names the provider files. Without this option, the files that are built into the binary are
    /// used
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// The reason why `weir rules` failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RulesCommandError {
    /// A provider file is invalid, or no provider file describes the provider.
    #[error("{0}")]
    Configuration(String),
    /// A file cannot be read.
    #[error("cannot read {}: {why}", file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error of the operating system.
        why: io::Error,
    },
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] explain::ExplainError),
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Output(#[from] io::Error),
}

fn operation(text: &str) -> Result<Operation, String> {
    serde_json::from_value(Value::from(text)).map_err(|_| "unknown operation; --help lists the operations".to_owned())
}

fn protocol(text: &str) -> Result<Protocol, String> {
    serde_json::from_value(Value::from(text))
        .map_err(|_| "unknown client protocol; give messages, responses or gemini".to_owned())
}

fn mode(text: &str) -> Result<TranslationMode, String> {
    serde_json::from_value(Value::from(text)).map_err(|_| "unknown translation mode; give strict or lossy".to_owned())
}

/// Explains what the provider files `files` do to a request. `models` are the models that weir.toml adds.
///
/// # Errors
/// See [`RulesCommandError`].
pub(crate) fn run(
    command: &RulesCommand,
    (files, models): (&[RuleFile], &[RawModel]),
    out: &mut impl Write,
) -> Result<(), RulesCommandError> {
    let RulesCommand::Explain(args) = command;
    let (file, mut compiled) = provider(args, files)?;
    // A model in weir.toml replaces a model of the same name in a provider file.
    let is_replaced = |name: &str| models.iter().any(|model| model.name == name);
    compiled.models.retain(|(_, model)| !is_replaced(&model.name));
    let own = models.iter().filter(|model| model.providers.contains(&args.provider));
    compiled.models.extend(own.map(|model| (0, model.clone())));
    let mut headers = HeaderMap::new();
    for (name, value) in &args.headers {
        headers.append(name, value.clone());
    }
    let body = read(&args.request)?;
    let response = args.response.as_deref().map(read).transpose()?;
    let question = ExplainRequest {
        operation: args.operation,
        model: args.model.as_deref(),
        headers,
        query: args.query.as_deref(),
        body: &body,
        response: response.as_deref(),
    };
    let client = args
        .client_protocol
        .map(|from| TranslationQuestion { from, mode: args.mode });
    let explanation = explain::explain_as(&compiled, &question, client.as_ref())?;
    if args.json {
        writeln!(out, "{}", as_json(&file.name, &explanation))?;
        return Ok(());
    }
    print(&file.name, &explanation, out)?;
    Ok(())
}

fn provider<'a>(
    args: &ExplainArgs,
    files: &'a [RuleFile],
) -> Result<(&'a RuleFile, compile::CompiledProvider), RulesCommandError> {
    let (name, mut names) = (&args.provider, Vec::new());
    for file in files {
        let compiled = compile::compile(file).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(FileError::to_string).collect();
            RulesCommandError::Configuration(lines.join("\n"))
        })?;
        if compiled.provider.name == *name {
            return Ok((file, compiled));
        }
        names.push(compiled.provider.name);
    }
    Err(RulesCommandError::Configuration(format!(
        "there is no provider `{name}`; the providers are {}{}",
        names.join(", "),
        if args.conf.is_some() {
            ""
        } else {
            "; for others, give their configuration with --conf FILE"
        }
    )))
}

fn read(file: impl AsRef<Path>) -> Result<Vec<u8>, RulesCommandError> {
    let file = file.as_ref();
    fs::read(file).map_err(|why| RulesCommandError::Unreadable {
        file: file.to_owned(),
        why,
    })
}

fn as_json(file: &str, explanation: &Explanation) -> Value {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let passage =
        |passage: &TextChange| json!({ "before": text(&passage.before), "after": passage.after.as_ref().map(text) });
    let change = |change: &AppliedEdit| {
        let places: Vec<Value> = change
            .places
            .iter()
            .map(|(before, after)| json!({ "before": before, "after": after }))
            .collect();
        json!({ "file": file, "line": change.line, "part": change.part, "rule": change.rule, "places": places })
    };
    let refused = explanation
        .refused
        .as_ref()
        .map(|(line, message)| json!({ "file": file, "line": line, "message": message }));
    json!({
        "operation": explanation.operation.as_str(),
        "model": explanation.model,
        "upstream_model": explanation.upstream_model,
        "translation": explanation.translation.as_ref().map(translation_json),
        "websocket": explanation.has_websocket,
        "changes": explanation.changes.iter().map(change).collect::<Vec<_>>(),
        "refused": refused,
        "head": passage(&explanation.head),
        "body": passage(&explanation.body),
        "response": explanation.response.as_ref().map(passage),
    })
}

fn translation_json(translation: &ExplainedTranslation) -> Value {
    let loss = |loss: &TranslationLoss| json!({ "verdict": loss.verdict.as_str(), "path": loss.path });
    let refused = translation
        .refused
        .as_ref()
        .map(|refusal| json!({ "path": refusal.path, "reason": refusal.reason }));
    json!({
        "from": translation.from.as_str(),
        "to": translation.to.as_str(),
        "mode": translation.mode.as_str(),
        "losses": translation.losses.iter().map(loss).collect::<Vec<_>>(),
        "refused": refused,
        "body": translation.body.as_ref().map(|body| String::from_utf8_lossy(body)),
    })
}

fn print(file: &str, explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{} for model {}, {} at the provider, by {file}\n",
        explanation.operation.as_str(),
        explanation.model,
        explanation.upstream_model
    )?;
    if explanation.has_websocket {
        writeln!(
            out,
            "if the client uses a WebSocket, weir sends the request over a WebSocket, too"
        )?;
    }
    match &explanation.translation {
        Some(translation) => print_translation(translation, out)?,
        None if explanation.changes.is_empty() && explanation.refused.is_none() => {
            writeln!(out, "nothing is changed")?;
        }
        None => {}
    }
    for change in &explanation.changes {
        let place = match change.line {
            0 => "weir.toml".to_owned(),
            line => format!("{file}:{line}"),
        };
        writeln!(out, "{place}: {}: {}", change.part, change.rule)?;
        for (before, after) in &change.places {
            writeln!(out, "    - {}\n    + {}", short(before), short(after))?;
        }
    }
    if let Some((line, message)) = &explanation.refused {
        writeln!(out, "{file}:{line}: refused with 400: {message}")?;
    }
    if let Some(translated) = explanation
        .translation
        .as_ref()
        .and_then(|translation| translation.body.as_ref())
        && explanation.body.after.as_ref() != Some(translated)
    {
        section(out, "body", "translated, before the edits", translated)?;
    }
    let passages = [
        ("head", Some(&explanation.head)),
        ("body", Some(&explanation.body)),
        ("response", explanation.response.as_ref()),
    ];
    for (name, passage) in passages {
        let Some(passage) = passage else { continue };
        section(out, name, "before", &passage.before)?;
        if let Some(after) = &passage.after {
            section(out, name, "after", after)?;
        }
    }
    Ok(())
}

/// Prints from which protocol to which protocol a request is translated. Then prints the reason if the request is refused.
/// Otherwise, prints one line for each member that the translation adapts or drops.
fn print_translation(translation: &ExplainedTranslation, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "translated from {} to {} ({})",
        translation.from.as_str(),
        translation.to.as_str(),
        translation.mode.as_str()
    )?;
    if let Some(refusal) = &translation.refused {
        return writeln!(out, "refused with 400: {refusal}");
    }
    if translation.losses.is_empty() {
        writeln!(out, "nothing is lost")?;
    }
    for loss in &translation.losses {
        writeln!(out, "{}: {}", loss.verdict.as_str(), loss.path)?;
    }
    Ok(())
}

fn section(out: &mut impl Write, name: &str, when: &str, text: &[u8]) -> io::Result<()> {
    writeln!(out, "\n--- {name}, {when}")?;
    out.write_all(text)?;
    if !text.ends_with(b"\n") {
        writeln!(out)?;
    }
    Ok(())
}

fn short(text: &str) -> String {
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(PLACE_CHARS_MAX).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
