//! The official Python SDKs, through the gateway, to the sample provider. The tests themselves are in `tests/sdk/`; two of
//! them are made from the SDKs' own types.

use std::process::{Command, Stdio};

use crate::harness::sample::SampleProvider;
use crate::harness::tools::{python, repository, skip};
use crate::harness::{DEEPSEEK_MODEL, GEMINI_MODEL, MESSAGES_MODEL, RESPONSES_MODEL, Weir};

/// Runs one test file in one virtual environment against a gateway of its own.
#[track_caller]
fn run(environment: &str, file: &str) {
    let Some(python) = python(environment) else {
        skip!("{environment} is not there: tests/run makes it");
    };
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let key = weir.key().text;
    let models = [MESSAGES_MODEL, RESPONSES_MODEL, GEMINI_MODEL].join(",");
    let limited = weir.key_with(&["--models", &models]).text;
    let output = Command::new(python)
        .current_dir(repository().join("tests/sdk"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", file])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("WEIR_BASE_URL", format!("http://{}", weir.gateway))
        .env("WEIR_PROVIDER_URL", sample.base_url())
        .env("WEIR_LEDGER", sample.ledger_path())
        .env("WEIR_KEY", &key)
        .env("WEIR_LIMITED_KEY", &limited)
        .env("WEIR_MESSAGES_MODEL", MESSAGES_MODEL)
        .env("WEIR_DEEPSEEK_MODEL", DEEPSEEK_MODEL)
        .env("WEIR_RESPONSES_MODEL", RESPONSES_MODEL)
        .env("WEIR_GEMINI_MODEL", GEMINI_MODEL)
        .env("NO_PROXY", "*")
        .env_remove("ANTHROPIC_BASE_URL")
        .env_remove("OPENAI_BASE_URL")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{file} in {environment}:\n{out}\n{err}");
}

#[test]
fn anthropic_current() {
    run(".venv", "test_anthropic.py");
}

#[test]
fn anthropic_last_before_1() {
    run(".venv-anthropic0", "test_anthropic.py");
}

#[test]
fn openai_current() {
    run(".venv", "test_openai.py");
}

#[test]
fn google_genai_current() {
    run(".venv", "test_google_genai.py");
}

#[test]
fn what_the_types_have_of_state_and_of_the_users_own() {
    run(".venv", "test_state_places.py");
}

#[test]
fn what_the_types_have_of_further_models() {
    run(".venv", "test_model_places.py");
}
