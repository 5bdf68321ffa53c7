//! The service's own description, checked against what it does: schemathesis sends what the description allows and what it
//! does not, and looks at every answer.

use std::process::{Command, Stdio};

use crate::harness::request::Wire;
use crate::harness::tools::{python, skip};
use crate::harness::{Client, RecordingProvider, Request, WeirBuilder, wait_until};

const ENVIRONMENT: &str = ".venv-schemathesis";

#[test]
fn the_service_does_what_its_description_says() {
    let Some(python) = python(ENVIRONMENT) else {
        skip!("{ENVIRONMENT} is not there: tests/run makes it");
    };
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("stability.requests_per_minute", 1_000_000)
        .set("stability.burst", 1_000_000)
        .start();
    let key = weir.key().text;
    for wire in [Wire::Messages, Wire::Responses, Wire::Gemini] {
        for _ in 0..12 {
            assert_eq!(weir.exchange(&wire.streaming(&key, "hi")).status, 200);
        }
    }
    wait_until("the first snapshot", || {
        Client::connect(weir.stability)
            .exchange(&Request::get("/status"))
            .status
            == 200
    });
    let folder = tempfile::TempDir::new().unwrap();
    let output = Command::new(python)
        .current_dir(folder.path())
        .args(["-m", "schemathesis.cli", "run"])
        .arg(format!("http://{}/web/v1/openapi.json", weir.stability))
        .args([
            "--checks",
            "all",
            "--max-examples",
            "50",
            "--seed",
            "20261121",
            "--no-color",
        ])
        .args(["--request-timeout", "20", "--workers", "1"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}");
}
