//! A transcript of each kind of request: what the client read, what the provider was asked, the access log's line, the row of
//! the consumption log and the counters that rose. `tests/golden/transcripts` holds them; `WEIR_TRANSCRIPTS=write` writes
//! them anew.

mod answers;
mod failover;
mod failures;
mod leaving;
mod refusals;
mod stage;
mod stopping;
mod varying;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::harness::tools::repository;
use stage::{Case, Stage};

/// Set to `write`, it has the tests write the transcripts instead of comparing them.
const WRITE: &str = "WEIR_TRANSCRIPTS";
/// How many kinds of requests there are transcripts of, at least.
const CASES_MIN: usize = 60;

fn folder() -> PathBuf {
    repository().join("tests/golden/transcripts")
}

/// Plays the cases of a group one after the other and compares what came of each with its transcript.
#[track_caller]
fn play(group: &str, stage: &mut Stage, cases: &[Case]) {
    let differing: Vec<String> = cases
        .iter()
        .filter_map(|case| compare(group, case, &stage.play(case)))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
}

/// Compares what came of a case with its transcript.
#[track_caller]
fn assert_alike(group: &str, case: &Case, came: &str) {
    let difference = compare(group, case, came);
    assert!(difference.is_none(), "{}", difference.unwrap_or_default());
}

/// How `came` differs from the transcript of a case.
fn compare(group: &str, case: &Case, came: &str) -> Option<String> {
    let path = folder().join(format!("{group}-{}.txt", case.name));
    if std::env::var(WRITE).is_ok_and(|value| value == "write") {
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(path, came).unwrap();
        return None;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    (wanted != came).then(|| {
        let changes = similar_lines(&wanted, came);
        format!("{} differs:\n{changes}", path.display())
    })
}

/// The lines that only one of both texts has.
fn similar_lines(wanted: &str, came: &str) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (wanted, came) = (lines(wanted), lines(came));
    let only = |mark: &str, these: &[String], others: &[String]| {
        let others: BTreeSet<&String> = others.iter().collect();
        let only = these.iter().filter(|line| !others.contains(line));
        only.map(|line| format!("{mark} {line}")).collect::<Vec<_>>()
    };
    let mut all = only("-", &wanted, &came);
    all.extend(only("+", &came, &wanted));
    all.join("\n")
}

#[test]
fn each_transcript_belongs_to_a_case() {
    let names = |group: &str, cases: Vec<Case>| -> Vec<String> {
        cases.iter().map(|case| format!("{group}-{}.txt", case.name)).collect()
    };
    let cases: BTreeSet<String> = [
        answers::groups(),
        refusals::groups(),
        failures::groups(),
        failover::groups(),
        leaving::groups(),
        stopping::groups(),
    ]
    .into_iter()
    .flatten()
    .flat_map(|(group, cases)| names(group, cases))
    .collect();
    let files = std::fs::read_dir(folder()).unwrap();
    let files: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, cases);
    assert!(cases.len() >= CASES_MIN, "{} cases", cases.len());
}
