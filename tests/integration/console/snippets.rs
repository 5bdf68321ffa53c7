//! What people are told to paste works: every snippet of curl and of the SDKs is run as it stands, against the sample provider.

use std::path::Path;
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::node::{Finished, node, node_modules, run};
use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{program, python, skip, skipped};
use crate::harness::{Request, Weir, WeirBuilder, wait_for};

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A snippet: its name, and what is to be pasted.
type Snippet = (String, String);

/// The snippets of a page.
fn on_page(page: &str) -> Vec<Snippet> {
    let (_, section) = page.split_once("<h2 id=\"snippets\">").unwrap();
    let between = |text: &str, start: &str, end: &str| {
        let (_, rest) = text.split_once(start).unwrap();
        let text = rest.split(end).next().unwrap();
        let text = text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">");
        text.replace("&amp;", "&")
    };
    let snippets = section.split("<details").skip(1);
    let snippet = |text: &str| {
        (
            between(text, "<summary>", "</summary>"),
            between(text, "<code>", "</code>"),
        )
    };
    snippets.map(snippet).collect()
}

/// The snippets that a key is told of, for the gateway's address in the place of the name that was asked.
fn told(weir: &Weir, key: &str) -> Vec<Snippet> {
    let request = Request::get("/web/v1/me").header("authorization", &format!("Bearer {key}"));
    let told = weir.exchange(&request).json();
    let snippets = told["data"]["snippets"].as_array().unwrap();
    let text = |one: &Json, field: &str| one[field].as_str().unwrap().to_owned();
    let here = weir.gateway.to_string();
    let snippet = |one: &Json| (text(one, "name"), text(one, "text").replace("weir.test", &here));
    snippets.iter().map(snippet).collect()
}

fn names(snippets: &[Snippet]) -> Vec<&str> {
    snippets.iter().map(|(name, _)| name.as_str()).collect()
}

/// Runs a snippet with the key in its environment; `None` for agents, which are no programs of a line, and for what is not
/// installed here.
fn pasted((name, text): &Snippet, key: &str, folder: &Path) -> Option<Finished> {
    let environment = [
        ("WEIR_KEY", key.to_owned()),
        ("PATH", std::env::var("PATH").unwrap()),
        ("HOME", folder.display().to_string()),
        ("NO_PROXY", "*".to_owned()),
    ];
    let script = folder.join("snippet.mjs");
    let interpreter = if name == "curl" {
        program("curl")?;
        let text = text.strip_prefix("curl ").unwrap();
        let words = ["sh", "-c", &format!("curl --fail-with-body -sS {text}")];
        return Some(run(&words, &environment, folder, LIMIT));
    } else if name.ends_with("(Python)") {
        python(".venv")
    } else if name.ends_with("(Node)") {
        node().filter(|_| node_modules("tests/sdk/node").is_some())
    } else {
        return None;
    };
    let Some(interpreter) = interpreter else {
        skipped(&format!("what {name} needs is not there: tests/run installs it"));
        return None;
    };
    std::fs::write(&script, text).unwrap();
    let words = [interpreter.to_str().unwrap(), script.to_str().unwrap()];
    Some(run(&words, &environment, folder, LIMIT))
}

/// Runs the snippets: each is one request that is answered.
#[track_caller]
fn each_works(weir: &Weir, key: &str, snippets: &[Snippet], model: Option<&str>) {
    let folder = TempDir::new().unwrap();
    if let Some(modules) = node_modules("tests/sdk/node") {
        std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
    }
    let asked = |lines: Vec<Json>| -> Vec<Json> {
        let lines = lines.into_iter();
        lines
            .filter(|line| line["operation"] != "own_usage" && line["key_id"].is_string())
            .collect()
    };
    for snippet in snippets {
        let before = asked(weir.access_lines()).len();
        let Some(done) = pasted(snippet, key, folder.path()) else {
            continue;
        };
        let said = format!("{snippet:?}\n{}\n{}", done.out, done.err);
        assert!(done.status.success(), "{said}");
        assert!(!done.out.trim().is_empty(), "{said}");
        let line = wait_for("the access line", || asked(weir.access_lines()).into_iter().nth(before));
        assert_eq!(line["status"], 200, "{line}: {said}");
        if let Some(model) = model {
            assert_eq!(line["model"], model, "{line}: {said}");
        }
    }
}

#[test]
fn what_a_bound_key_is_told_to_paste_works_with_its_model_and_in_its_protocol() {
    let provider = SampleProvider::start();
    let weir = super::builder(&provider.base_url()).start();
    weir.fund();
    let mut tab = super::signed_in(&weir, "operator");
    for (wire, ways) in [
        (
            Wire::Messages,
            ["curl", "Claude Code", "anthropic (Python)", "@anthropic-ai/sdk (Node)"],
        ),
        (Wire::Responses, ["curl", "Codex", "openai (Python)", "openai (Node)"]),
        (
            Wire::Gemini,
            ["curl", "Gemini CLI", "google-genai (Python)", "@google/genai (Node)"],
        ),
    ] {
        let entered = [("name", "bound"), ("account", "tests"), ("models", wire.model())];
        let page = tab.fill(&tab.page("/keys/new"), "/keys", &entered).text();
        let key = super::shown_key(&page);
        let shown = on_page(&page);
        assert_eq!(names(&shown), ways, "{wire:?}");
        assert!(shown.iter().all(|(_, text)| text.contains(wire.model())), "{shown:?}");
        each_works(&weir, &key, &shown, Some(wire.model()));
        let read = told(&weir, &key);
        assert_eq!(names(&read), ways, "{wire:?}");
        assert!(!format!("{read:?}").contains(&key), "the key's text is told to nobody");
        each_works(&weir, &key, &read, Some(wire.model()));
    }
}

#[test]
fn what_a_key_for_all_models_is_told_to_paste_works() {
    let provider = SampleProvider::start();
    let weir = super::builder(&provider.base_url()).start();
    let key = weir.key().text;
    let read = told(&weir, &key);
    assert_eq!(read.len(), 10, "{read:?}");
    each_works(&weir, &key, &read, None);
}

/// What an agent is called in its snippet, its script, and how it is told to ask once and end.
const AGENTS: [(&str, &str, &str); 3] = [
    (
        "claude",
        "@anthropic-ai/claude-code/cli-wrapper.cjs",
        "\"$@\" --dangerously-skip-permissions --print hello",
    ),
    (
        "codex",
        "@openai/codex/bin/codex.js",
        "exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox hello",
    ),
    (
        "gemini",
        "@google/gemini-cli/bundle/gemini.js",
        "\"$@\" --yolo --prompt hello",
    ),
];

/// A home with programs of the agents' names, which ask once and end; `None` when they are not installed.
fn home_with_agents() -> Option<TempDir> {
    let (node, modules) = (node()?, node_modules("tests/agents")?);
    let home = TempDir::new().unwrap();
    std::fs::create_dir_all(home.path().join(".gemini")).unwrap();
    let settings = r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"telemetry":{"enabled":false}}"#;
    std::fs::write(home.path().join(".gemini/settings.json"), settings).unwrap();
    for (name, script, how) in AGENTS {
        let file = home.path().join(name);
        let text = format!(
            "#!/bin/sh\nexec {} {} {how}\n",
            node.display(),
            modules.join(script).display()
        );
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    Some(home)
}

/// Pastes a snippet: what belongs into a file there, the rest into a shell.
#[track_caller]
fn asks_once((name, text): &Snippet, home: &Path) -> Finished {
    let (file, shell) = text.split_once("# in the shell\n").unwrap_or(("", text));
    if let Some((place, content)) = file.strip_prefix("# ~/").and_then(|file| file.split_once('\n')) {
        let place = home.join(place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, content).unwrap();
    }
    let closed = "http://127.0.0.1:9".to_owned();
    let (folder, work) = (home.display().to_string(), TempDir::new().unwrap());
    let environment = [
        ("HOME", folder.clone()),
        ("PATH", format!("{folder}:/usr/local/bin:/usr/bin:/bin")),
        ("TMPDIR", folder),
        ("HTTP_PROXY", closed.clone()),
        ("HTTPS_PROXY", closed),
        ("NO_PROXY", "127.0.0.1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("IS_SANDBOX", "1".to_owned()),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned()),
    ];
    let done = run(&["sh", "-c", shell], &environment, work.path(), LIMIT);
    assert!(done.status.success(), "{name}: {text}\n{}\n{}", done.out, done.err);
    done
}

#[test]
fn what_agents_are_told_to_paste_asks_for_the_keys_model_alone() {
    let Some(home) = home_with_agents() else {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    };
    let provider = SampleProvider::start();
    let weir = super::builder(&provider.base_url()).start();
    weir.fund();
    let mut tab = super::signed_in(&weir, "operator");
    for (wire, agent) in [
        (Wire::Messages, "Claude Code"),
        (Wire::Responses, "Codex"),
        (Wire::Gemini, "Gemini CLI"),
    ] {
        let entered = [("name", agent), ("account", "tests"), ("models", wire.model())];
        let page = tab.fill(&tab.page("/keys/new"), "/keys", &entered).text();
        let shown = on_page(&page);
        let snippet = shown.iter().find(|(name, _)| name == agent).unwrap();
        let before = weir.access_lines().len();
        let done = asks_once(snippet, home.path());
        let said = format!("{snippet:?}\n{}\n{}", done.out, done.err);
        // Whatever it asks beside the conversation is asked of the same model. Codex tries a WebSocket first.
        let lines = weir.access_lines_at_least(before + 1).split_off(before);
        let answered = lines.iter().filter(|line| line["status"] == 200);
        assert!(answered.clone().count() >= 1, "{said}\n{lines:?}");
        for line in &lines {
            assert!(line["status"] == 200 || line["status"] == 426, "{said}\n{line}");
        }
        assert!(
            answered.clone().all(|line| line["model"] == wire.model()),
            "{said}\n{lines:?}"
        );
    }
}

#[test]
fn only_models_that_are_served_are_told_of() {
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new().provider("gemini", &provider.base_url()).start();
    let key = weir.key().text;
    let read = told(&weir, &key);
    let ways = ["curl", "Gemini CLI", "google-genai (Python)", "@google/genai (Node)"];
    assert_eq!(names(&read), ways);
    each_works(&weir, &key, &read[..1], None);
    let off = weir.cli(&["provider", "disable", "gemini"], &[]);
    assert!(off.status.success(), "{}", String::from_utf8_lossy(&off.stderr));
    assert_eq!(told(&weir, &key), []);
    let mut tab = crate::harness::tab::Tab::new(weir.gateway);
    assert_eq!(tab.post("/portal/sign-in", &[("key", &key)]).status, 303);
    let page = tab.page("/portal");
    assert!(
        page.contains("None of the models that this key may request is served now."),
        "{page}"
    );
}
