//! Every client of `examples/clients/`: what it prints, beside what the provider billed and weir charged.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::Value as Json;

use super::{Example, path_with, shell};
use crate::harness::node::{node, node_modules};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{python, repository, skip};
use crate::harness::{CLAUDE_CODE_MODEL, DEEPSEEK_MODEL, GEMINI_MODEL, MESSAGES_MODEL, RESPONSES_MODEL, Weir};

/// The rows of the README's table.
const CLIENTS: [&str; 9] = [
    "anthropic, Python",
    "openai, Python",
    "google-genai, Python",
    "@anthropic-ai/sdk, Node",
    "openai, Node",
    "@google/genai, Node",
    "Claude Code",
    "Codex",
    "Gemini CLI",
];
/// The agents' commands and their scripts below `node_modules`: no script that npm would run has put them in place.
const AGENTS: [(&str, &str); 3] = [
    ("claude", "@anthropic-ai/claude-code/cli-wrapper.cjs"),
    ("codex", "@openai/codex/bin/codex.js"),
    ("gemini", "@google/gemini-cli/bundle/gemini.js"),
];

/// The command of a client, as the README's table has it.
#[track_caller]
fn command<'a>(example: &'a Example, client: &str) -> &'a str {
    let start = format!("\n| {client} | `");
    let row = example
        .readme
        .split(&start)
        .nth(1)
        .unwrap_or_else(|| panic!("no {client}"));
    row.split('`').next().unwrap()
}

/// Tokens in and out.
type Usage = (u64, u64);

/// Runs one client against a gateway of its own; `read` finds the usage in what it prints.
#[track_caller]
fn passes(client: &str, model: &str, changes: &[(&str, &str)], path: &[&Path], read: fn(&str) -> Option<Usage>) {
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let example = Example::copy("clients");
    let home = example.folder.path();
    if let (Some(modules), true) = (node_modules("tests/sdk/node"), client.ends_with("Node")) {
        symlink(modules, example.path("node/node_modules")).unwrap();
    }
    fs::create_dir(example.path(".codex")).unwrap();
    fs::copy(
        example.path("agents/codex-config.toml"),
        example.path(".codex/config.toml"),
    )
    .unwrap();
    let mut environment = vec![
        ("WEIR_URL", format!("http://{}", weir.gateway)),
        ("WEIR_KEY", weir.key().text),
        ("PATH", path_with(path)),
        ("HOME", home.display().to_string()),
        ("TMPDIR", home.display().to_string()),
        // The agents reach nothing but weir.
        ("HTTP_PROXY", "http://127.0.0.1:9".to_owned()),
        ("HTTPS_PROXY", "http://127.0.0.1:9".to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
    ];
    environment.extend(changes.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let finished = shell(command(&example, client), &environment, home);
    let told = format!("{client} ({:?})\n{}\n{}", finished.took, finished.out, finished.err);
    assert!(finished.status.success(), "{told}");
    assert!(finished.out.contains("You said"), "{told}");
    let usage = read(&finished.out).unwrap_or_else(|| panic!("no usage: {told}"));

    let books = weir.books_as_billed(&sample, 0);
    let count = |bill: &Json, name: &str| bill[name].as_u64().unwrap();
    let bills = sample.bills();
    let mut billed = bills
        .iter()
        .map(|bill| (count(bill, "input_tokens"), count(bill, "output_tokens")));
    assert!(billed.any(|bill| bill == usage), "{usage:?} {bills:?}");
    for row in &books.rows {
        assert_eq!((&row["model"], &row["stream"]), (&model.into(), &true.into()), "{row}");
        assert!(row["cost_nano_usd"].as_i64() > Some(0), "{row}");
    }
}

/// The last line of the SDKs' clients.
fn printed(out: &str) -> Option<Usage> {
    let (input, rest) = out
        .lines()
        .next_back()?
        .strip_prefix("usage: ")?
        .split_once(" input tokens, ")?;
    Some((input.parse().ok()?, rest.strip_suffix(" output tokens")?.parse().ok()?))
}

/// The last of the lines of this type.
fn event(out: &str, kind: &str) -> Option<Json> {
    let mut events = out.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    events.rfind(|event| event["type"] == kind)
}

fn claude_code(out: &str) -> Option<Usage> {
    let usage = &event(out, "result")?["usage"];
    Some((usage["input_tokens"].as_u64()?, usage["output_tokens"].as_u64()?))
}

fn codex(out: &str) -> Option<Usage> {
    let usage = &event(out, "turn.completed")?["usage"];
    Some((usage["input_tokens"].as_u64()?, usage["output_tokens"].as_u64()?))
}

/// Its `output_tokens` are without those of reasoning; its total has them.
fn gemini_cli(out: &str) -> Option<Usage> {
    let stats = &event(out, "result")?["stats"];
    let input = stats["input_tokens"].as_u64()?;
    Some((input, stats["total_tokens"].as_u64()?.checked_sub(input)?))
}

#[track_caller]
fn with_python(client: &str, model: &str, changes: &[(&str, &str)]) {
    let Some(python) = python(".venv") else {
        skip!(".venv is not there: tests/run makes it");
    };
    passes(client, model, changes, &[python.parent().unwrap()], printed);
}

#[track_caller]
fn with_node(client: &str, model: &str) {
    let (Some(node), Some(_)) = (node(), node_modules("tests/sdk/node")) else {
        skip!("Node or tests/sdk/node/node_modules is not there: tests/run makes them");
    };
    passes(client, model, &[], &[node.parent().unwrap()], printed);
}

#[track_caller]
fn with_agent(client: &str, model: &str, read: fn(&str) -> Option<Usage>) {
    let (Some(node), Some(modules)) = (node(), node_modules("tests/agents")) else {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    };
    let commands = tempfile::TempDir::new().unwrap();
    for (name, script) in AGENTS {
        let file = commands.path().join(name);
        let script = modules.join(script);
        let text = format!("#!/bin/sh\nexec '{}' '{}' \"$@\"\n", node.display(), script.display());
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    passes(client, model, &[], &[commands.path()], read);
}

#[test]
fn anthropic_for_python() {
    with_python("anthropic, Python", MESSAGES_MODEL, &[]);
}

#[test]
fn anthropic_for_python_at_another_provider_by_changing_only_the_model() {
    with_python("anthropic, Python", DEEPSEEK_MODEL, &[("WEIR_MODEL", DEEPSEEK_MODEL)]);
}

#[test]
fn openai_for_python() {
    with_python("openai, Python", RESPONSES_MODEL, &[]);
}

#[test]
fn google_genai_for_python() {
    with_python("google-genai, Python", GEMINI_MODEL, &[]);
}

#[test]
fn anthropic_for_node() {
    with_node("@anthropic-ai/sdk, Node", MESSAGES_MODEL);
}

#[test]
fn openai_for_node() {
    with_node("openai, Node", RESPONSES_MODEL);
}

#[test]
fn google_genai_for_node() {
    with_node("@google/genai, Node", GEMINI_MODEL);
}

#[test]
fn claude_code_headless() {
    with_agent("Claude Code", CLAUDE_CODE_MODEL, claude_code);
}

#[test]
fn codex_headless() {
    with_agent("Codex", RESPONSES_MODEL, codex);
}

#[test]
fn gemini_cli_headless() {
    with_agent("Gemini CLI", GEMINI_MODEL, gemini_cli);
}

#[test]
fn the_table_has_every_client() {
    let example = Example::copy("clients");
    let files = ["python", "node", "agents"].map(|folder| fs::read_dir(example.path(folder)).unwrap());
    let programs: BTreeSet<String> = files
        .into_iter()
        .flatten()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| [".py", ".mjs", ".sh"].iter().any(|end| name.ends_with(end)))
        .collect();
    let named = CLIENTS.map(|client| command(&example, client).rsplit('/').next().unwrap().to_owned());
    assert_eq!(programs, BTreeSet::from(named));
}

#[test]
fn the_node_clients_need_the_versions_that_are_tested() {
    let needed = |file: &str| -> Json {
        let text = fs::read_to_string(repository().join(file)).unwrap();
        serde_json::from_str::<Json>(&text).unwrap()["dependencies"].take()
    };
    let tested = needed("tests/sdk/node/package.json");
    let written = needed("examples/clients/node/package.json");
    for (name, version) in tested.as_object().unwrap() {
        assert_eq!(written[name], format!("^{}", version.as_str().unwrap()), "{name}");
    }
}
