//! The cases of the Autobahn test suite for WebSocket. kosoku, which runs the suite's own case files, is the peer of programs that
//! echo what they receive, with weir's codec for the frames (`echo.rs`).
//!
//! Left out are the cases 12 and 13, which are about compression.

mod echo;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::node::run;
use crate::harness::process::Process;
use crate::harness::tools::{note, python, rounds, skip};
use crate::harness::wait::{wait_for, wait_within};

/// Framing, pings, reserved bits, opcodes, fragments, UTF-8, closing, and a message that the peer cuts into fragments.
const CASES: [&str; 8] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"];
/// How many cases these are.
const CASE_COUNT: usize = 247;
/// A text of 16 MiB in one frame; in the long form all cases of large and of many messages.
const LARGE_CASES: [&str; 2] = ["9.1.6", "9.*"];
const LARGE_CASE_COUNTS: [usize; 2] = [1, 54];

/// How long all cases may take.
const LIMIT: Duration = Duration::from_secs(300);

fn kosoku() -> Option<PathBuf> {
    let program = python(".venv-kosoku")?.with_file_name("kosoku");
    program.is_file().then_some(program)
}

/// The words that choose the cases.
fn choice() -> Vec<&'static str> {
    let large = LARGE_CASES[rounds(0, 1)];
    CASES
        .into_iter()
        .chain([large])
        .flat_map(|case| ["--include", case])
        .collect()
}

/// Reads the report in `folder`: all cases have been run and are passed, and none only by what the specification merely tolerates.
#[track_caller]
fn assert_passed(side: &str, folder: &Path, printed: &str) {
    let text = std::fs::read_to_string(folder.join("index.json")).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    let report: Json = serde_json::from_str(&text).unwrap();
    let agents: Vec<&Json> = report.as_object().unwrap().values().collect();
    let [cases] = agents[..] else {
        panic!("{} programs were tested", agents.len());
    };
    let cases = cases.as_object().unwrap();
    let is_passed = |result: &Json| {
        let passed = |name: &str| matches!(result[name].as_str(), Some("OK" | "INFORMATIONAL"));
        passed("behavior") && passed("behaviorClose")
    };
    let failed: Vec<_> = cases.iter().filter(|(_, result)| !is_passed(result)).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{printed}");
    let count = CASE_COUNT + LARGE_CASE_COUNTS[rounds(0, 1)];
    assert_eq!(cases.len(), count, "{printed}");
    note(&format!("autobahn: {count} cases passed as {side}"));
}

#[test]
fn a_server_passes_all_cases() {
    let Some(kosoku) = kosoku() else {
        skip!("no .venv-kosoku, which tests/run makes");
    };
    let folder = TempDir::new().unwrap();
    let (kosoku, address) = (kosoku.display().to_string(), echo::start_server().to_string());
    let words = [kosoku.as_str(), &address, "--parallelism", "4", "--outdir", "."];
    let finished = run(&[&words[..], &choice()].concat(), &[], folder.path(), LIMIT);
    assert_passed("server", folder.path(), &format!("{}\n{}", finished.out, finished.err));
    assert!(finished.status.success(), "{}", finished.err);
}

#[test]
fn a_client_passes_all_cases() {
    let Some(kosoku) = kosoku() else {
        skip!("no .venv-kosoku, which tests/run makes");
    };
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(kosoku);
    command.args(["--mode", "fuzzingserver", "127.0.0.1:0", "--outdir"]);
    command.arg(folder.path()).args(choice());
    let mut kosoku = Process::start(&command, folder.path(), "kosoku");
    let address = wait_for("the address of kosoku", || {
        let printed = kosoku.err();
        let (_, address) = printed.split_once("ws://")?;
        // The line is complete.
        address.split_once('\n')?.0.trim().parse().ok()
    });
    echo::run_cases(address);
    let ended = wait_within(LIMIT, || kosoku.ended());
    assert_passed("client", folder.path(), &format!("{}\n{}", kosoku.out(), kosoku.err()));
    assert!(ended.is_some_and(|status| status.success()), "{}", kosoku.err());
}
