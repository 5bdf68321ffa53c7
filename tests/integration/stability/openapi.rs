//! The service's own description, checked against what it does: schemathesis sends what the description allows and what it
//! does not, and looks at every answer.

use tempfile::TempDir;

use crate::harness::request::ALL_WIRES;
use crate::harness::tools::{SCHEMATHESIS, python, rounds, schemathesis, skip};
use crate::harness::{Client, RecordingProvider, Request, Weir, WeirBuilder, wait_until};

const DESCRIPTION: &str = "/web/v1/openapi.json";

/// A gateway with some traffic in its record, that lets everybody ask as often as they like.
fn weir(provider: &RecordingProvider) -> Weir {
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("stability.requests_per_minute", 1_000_000)
        .set("stability.burst", 1_000_000)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for _ in 0..12 {
            assert_eq!(weir.exchange(&wire.streaming(&key, "hi")).status, 200);
        }
    }
    wait_until("the first snapshot", || get(&weir, "/status").0 == 200);
    weir
}

fn get(weir: &Weir, target: &str) -> (u16, String) {
    let answer = Client::connect(weir.stability).exchange(&Request::get(target));
    (answer.status, answer.text())
}

#[test]
fn the_service_does_what_its_description_says() {
    let Some(python) = python(SCHEMATHESIS) else {
        skip!("{SCHEMATHESIS} is not there: tests/run makes it");
    };
    let provider = RecordingProvider::recorded();
    let weir = weir(&provider);
    let folder = TempDir::new().unwrap();
    let url = format!("http://{}{DESCRIPTION}", weir.stability);
    let examples = rounds(25, 200).to_string();
    let (passed, said) = schemathesis(&python, folder.path(), &[&url, "--max-examples", &examples]);
    assert!(passed, "{said}");
}

#[test]
fn a_description_that_is_wrong_is_found_out() {
    let Some(python) = python(SCHEMATHESIS) else {
        skip!("{SCHEMATHESIS} is not there: tests/run makes it");
    };
    let provider = RecordingProvider::recorded();
    let weir = weir(&provider);
    let folder = TempDir::new().unwrap();
    let base = format!("http://{}", weir.stability);
    let (_, right) = get(&weir, DESCRIPTION);
    for (from, to, complaint) in [
        ("\"avg_tps\"", "\"tps\"", "Response violates schema"),
        (
            "^public, max-age=[0-9]+$",
            "^private$",
            "Response header does not conform",
        ),
    ] {
        let wrong = right.replace(from, to);
        assert_ne!(wrong, right, "{from} is not in the description");
        std::fs::write(folder.path().join("wrong.json"), &wrong).unwrap();
        let words = ["wrong.json", "--url", &base, "--phases", "coverage"];
        let summary = ["--include-name", "GET /web/v1/model-stability/summary"];
        let (passed, said) = schemathesis(&python, folder.path(), &[&words[..], &summary].concat());
        assert!(!passed && said.contains(complaint), "{from}: {said}");
    }
}
