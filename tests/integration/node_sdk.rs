//! The official Node SDKs, through the gateway, to the sample provider. The tests themselves are in `tests/sdk/node/`.

use std::time::Duration;

use crate::harness::node::{node, node_modules, run};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, repository, skip};
use crate::harness::{DEEPSEEK_MODEL, GEMINI_MODEL, MESSAGES_MODEL, RESPONSES_MODEL, Weir};

/// How long a whole test file may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs one test file against a gateway of its own.
#[track_caller]
fn passes(file: &str) {
    let (Some(node), Some(_)) = (node(), node_modules("tests/sdk/node")) else {
        skip!("Node or tests/sdk/node/node_modules is not there: tests/run makes them");
    };
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let environment = [
        ("WEIR_BASE_URL", format!("http://{}", weir.gateway)),
        ("WEIR_PROVIDER_URL", sample.base_url()),
        ("WEIR_LEDGER", sample.ledger_path().display().to_string()),
        ("WEIR_KEY", weir.key().text),
        ("WEIR_MESSAGES_MODEL", MESSAGES_MODEL.to_owned()),
        ("WEIR_DEEPSEEK_MODEL", DEEPSEEK_MODEL.to_owned()),
        ("WEIR_RESPONSES_MODEL", RESPONSES_MODEL.to_owned()),
        ("WEIR_GEMINI_MODEL", GEMINI_MODEL.to_owned()),
    ];
    let node = node.display().to_string();
    let folder = repository().join("tests/sdk/node");
    let finished = run(
        &[&node, "--test", "--test-reporter=spec", file],
        &environment,
        &folder,
        LIMIT,
    );
    assert!(finished.status.success(), "{file}:\n{}\n{}", finished.out, finished.err);
    let passed = finished
        .out
        .lines()
        .find(|line| line.contains(" pass "))
        .unwrap_or_default();
    assert!(
        !passed.is_empty() && !passed.ends_with(" 0"),
        "{file}:\n{}",
        finished.out
    );
    note(&format!("node sdk: {file} {:?}, {passed}", finished.took));
}

#[test]
fn anthropic_for_node() {
    passes("anthropic.test.js");
}

#[test]
fn openai_for_node() {
    passes("openai.test.js");
}

#[test]
fn google_genai_for_node() {
    passes("google_genai.test.js");
}
