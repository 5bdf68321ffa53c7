//! Names of headers that the vendors' SDKs and agents know (`tests/sdk/header_names.toml`): each is classified, and passes or stays
//! as it is classified. What names or chooses an account passes in neither direction.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde::Deserialize;

use crate::harness::answer::LEAST;
use crate::harness::request::Wire;
use crate::harness::tools::{repository, skip};
use crate::harness::{RecordingProvider, Weir};

/// A name in quotes, as programs write it that are read as text.
const QUOTED: &str = "[\"'`](x|anthropic|openai|chatgpt|oai|amz)(-[a-z0-9]+)+[\"'`]";
/// A name of OpenAI's, in a program in which texts stand side by side.
const BARE: &str = "(x-(codex|openai|oai|amz|goog)|chatgpt|oai)-[a-z0-9-]*[a-z0-9]";
/// Headers of one request: a head has at most 100.
const HEADERS: usize = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    passes: Vec<String>,
    stays: Vec<String>,
    stays_in_requests: Vec<String>,
    stays_in_answers: Vec<String>,
    no_headers: Vec<String>,
}

fn names() -> Names {
    let text = std::fs::read_to_string(repository().join("tests/sdk/header_names.toml")).unwrap();
    toml::from_str(&text).unwrap()
}

/// All names that match in the files below these paths that exist.
fn found(pattern: &str, options: &[&str], paths: &[PathBuf]) -> BTreeSet<String> {
    let there: Vec<&PathBuf> = paths.iter().filter(|path| path.exists()).collect();
    if there.is_empty() {
        return BTreeSet::new();
    }
    let output = Command::new("grep")
        .env("LC_ALL", "C")
        .args(["-rahoE"])
        .args(options)
        .arg(pattern)
        .args(&there)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
    let bare = |line: &str| line.trim_matches(['"', '\'', '`']).to_owned();
    text.lines().map(bare).collect()
}

#[track_caller]
fn assert_classified(who: &str, found: &BTreeSet<String>) {
    let Names {
        passes,
        stays,
        stays_in_requests,
        stays_in_answers,
        no_headers,
    } = names();
    let known: BTreeSet<String> = [passes, stays, stays_in_requests, stays_in_answers, no_headers]
        .concat()
        .into_iter()
        .collect();
    let new: Vec<&String> = found.difference(&known).collect();
    assert!(
        new.is_empty(),
        "{who}: put each of these into a list of tests/sdk/header_names.toml: {new:?}"
    );
}

#[test]
fn every_header_of_the_sdks_is_classified() {
    let lib = repository().join(".venv/lib");
    let Some(packages) = std::fs::read_dir(&lib)
        .ok()
        .and_then(|mut versions| Some(versions.next()?.ok()?.path().join("site-packages")))
    else {
        skip!("{} is not there: tests/run makes it", lib.display());
    };
    let node = repository().join("tests/sdk/node/node_modules");
    if !node.exists() {
        skip!("{} is not there: tests/run makes it", node.display());
    }
    // Node's packages have each file once more as another kind of module, and its types.
    let sources = ["--include=*.py", "--include=*.js", "--include=*.cjs", "-i"];
    let python = ["anthropic", "openai", "google/genai", "google/auth"].map(|name| packages.join(name));
    let node = ["@anthropic-ai", "openai", "@google", "google-auth-library"].map(|name| node.join(name));
    for folder in python.iter().chain(&node) {
        assert!(folder.is_dir(), "{}", folder.display());
    }
    let all = found(QUOTED, &sources, &[python, node].concat());
    // Each vendor's own are found, so the places and the pattern are right.
    for name in [
        "anthropic-beta",
        "openai-organization",
        "x-goog-user-project",
        "x-stainless-lang",
    ] {
        assert!(all.contains(name), "{name}");
    }
    assert_classified("SDKs", &all);
}

#[test]
fn every_header_of_the_agents_is_classified() {
    let agents = repository().join("tests/agents/node_modules");
    if !agents.exists() {
        skip!("{} is not there: tests/run makes it", agents.display());
    }
    let gemini = found(QUOTED, &["--include=*.js", "-i"], &[agents.join("@google/gemini-cli")]);
    assert!(gemini.contains("x-gemini-api-privileged-user-id"), "{gemini:?}");
    assert_classified("Gemini CLI", &gemini);
    let claude = found(QUOTED, &[], &programs(&agents.join("@anthropic-ai"), "claude"));
    assert!(
        claude.contains("anthropic-organization-id") || claude.contains("x-organization-uuid"),
        "{claude:?}"
    );
    assert_classified("Claude Code", &claude);
    let codex = found(BARE, &[], &programs(&agents.join("@openai"), "codex"));
    assert!(codex.contains("chatgpt-account-id"), "{codex:?}");
    assert_classified("Codex", &codex);
}

/// The files of this name that are programs, by their size.
fn programs(folder: &Path, name: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|file| file == name) && entry.metadata().unwrap().len() > 1 << 20 {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn headers_pass_to_the_provider_and_stay_as_they_are_classified() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let names = names();
    let reaches = |name: &str| provider.last().header_values(name).contains(&"theirs");
    let stays: Vec<String> = [names.stays, names.stays_in_requests].concat();
    let passes: Vec<String> = [names.passes, names.stays_in_answers].concat();
    for (listed, passes) in [(passes, true), (stays, false)] {
        for some in listed.chunks(HEADERS) {
            // A bearer token is all that this protocol takes for a credential.
            let request = Wire::Responses.request(&key, "hi");
            let request = some
                .iter()
                .fold(request, |request, name| request.header(name, "theirs"));
            assert_eq!(weir.exchange(&request).status, 200, "{some:?}");
            let wrong: Vec<&String> = some.iter().filter(|name| reaches(name) != passes).collect();
            assert!(
                wrong.is_empty(),
                "passes to the provider: {}, but is listed otherwise: {wrong:?}",
                !passes
            );
        }
    }
}

#[test]
fn headers_pass_to_the_client_and_stay_as_they_are_classified() {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let saying = Arc::clone(&said);
    let provider = RecordingProvider::start(move |_, answer| {
        let names = saying.lock().unwrap().clone();
        let theirs = names.iter().map(|name| (name.as_str(), "theirs"));
        let headers: Vec<(&str, &str)> = std::iter::once(("content-type", "application/json"))
            .chain(theirs)
            .collect();
        answer.full(200, &headers, LEAST.as_bytes());
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let names = names();
    let stays: Vec<String> = [names.stays, names.stays_in_answers].concat();
    let passes: Vec<String> = [names.passes, names.stays_in_requests].concat();
    for (listed, passes) in [(passes, true), (stays, false)] {
        for some in listed.chunks(HEADERS) {
            *said.lock().unwrap() = some.to_vec();
            let answer = weir.exchange(&Wire::Messages.request(&key, "hi"));
            assert_eq!(answer.status, 200, "{some:?}");
            let wrong: Vec<&String> = some
                .iter()
                .filter(|name| (answer.header(name) == Some("theirs")) != passes)
                .collect();
            assert!(
                wrong.is_empty(),
                "passes to the client: {}, but is listed otherwise: {wrong:?}",
                !passes
            );
        }
    }
}
