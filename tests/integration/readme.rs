//! The commands of docs/start.md, as they stand there.

use std::process::Command;

use crate::harness::WeirBuilder;
use crate::harness::sample::SampleProvider;

const START: &str = include_str!("../../docs/start.md");

/// The commands of the step with this number.
fn commands(step: usize) -> String {
    let step = START.split(&format!("\n{step}. ")).nth(1).unwrap();
    step.split("```").nth(1).unwrap().to_owned()
}

#[test]
fn from_the_first_account_to_the_first_answer_by_copy_and_paste() {
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new().provider("anthropic", &provider.base_url()).start();
    // Steps 1 and 2, building and starting, are done: this is the other shell.
    let script = [commands(3), commands(4)].concat();
    let script = script
        .replace("target/release/weir", env!("CARGO_BIN_EXE_weir"))
        .replace("conf/weir.toml", weir.folder().join("weir.toml").to_str().unwrap())
        .replace("127.0.0.1:8080", &weir.gateway.to_string());
    let out = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env_remove("WEIR_KEY")
        .output()
        .unwrap();
    let (said, complained) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{said}{complained}");
    assert!(
        said.contains("claude-haiku-4-5") && said.contains("\"stop_reason\":\"end_turn\""),
        "{said}{complained}"
    );
}
