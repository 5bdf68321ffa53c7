//! Answers of several runs.

use super::*;
use crate::domain::wire::usage::RunKind;
use UsageSource::{Estimated, Partial, Reported};

fn run(kind: RunKind, usage: Usage) -> (Run, Limits) {
    let model = (kind != RunKind::Answer).then(|| "other".to_owned());
    (Run { kind, model, usage }, Limits::default())
}

fn billed_runs(runs: &[(Run, Limits)], evidence: Evidence<'static>) -> Billed {
    let all: Vec<Run> = runs.iter().map(|(run, _)| run.clone()).collect();
    bill(&Evidence {
        reported: Some(total(&all)),
        runs,
        ..evidence
    })
}

#[test]
fn runs_are_billed_as_reported_one_by_one() {
    let runs = [
        run(RunKind::Answer, usage(2_414, 0, 1_200, 0)),
        run(RunKind::Advisor, usage(2_728, 0, 874, 0)),
        run(RunKind::Answer, usage(10, 2_414, 2_000, 0)),
    ];
    let billed = billed_runs(&runs, EVIDENCE);
    assert_eq!((billed.usage, billed.source), (usage(5_152, 2_414, 4_074, 0), Reported));
    assert_eq!(billed.runs, runs.map(|(run, _)| run));
}

#[test]
fn what_was_asked_for_holds_for_each_run_of_the_answer_and_for_no_other() {
    let runs = |hidden| {
        [
            run(RunKind::Answer, usage(10, 0, 4, 60)),
            run(RunKind::Advisor, usage(10, 0, 5_000, 0)),
            run(RunKind::Fallback, usage(10, 0, 4, hidden)),
        ]
    };
    let asked = Evidence {
        output_asked: Some(64),
        output_observed: 8,
        ..EVIDENCE
    };
    assert_eq!(billed_runs(&runs(60), asked).source, Reported);
    let held = billed_runs(&runs(90), asked);
    assert_eq!((held.usage.output_total(), held.source), (128 + 5_000, Partial));
    assert_eq!(held.runs[2].usage, usage(10, 0, 4, 60));
    let absurd = billed_runs(&runs(999_999), asked);
    assert_eq!((absurd.usage, absurd.source), (usage(1_000, 0, 8, 0), Estimated));
    assert!(absurd.runs.is_empty());
}

#[test]
fn what_passed_is_compared_with_the_answers_runs_alone() {
    let runs = [
        run(RunKind::Answer, usage(900, 0, 1, 0)),
        run(RunKind::Advisor, usage(1_000, 0, 5_000, 0)),
    ];
    let cut = Evidence {
        end: End::Cut,
        ..EVIDENCE
    };
    let billed = billed_runs(&runs, cut);
    assert_eq!(billed.runs[0].usage, usage(900, 0, 200, 0));
    assert_eq!((billed.usage.output_text, billed.source), (5_200, Partial));
    // Of the answer itself nothing has been told yet.
    let billed = billed_runs(&runs[1..], cut);
    assert_eq!(billed.runs[0], Run::answer(usage(0, 0, 200, 0)));
    assert_eq!(billed.runs.len(), 2);
}

#[test]
fn a_run_beyond_its_own_model_is_not_believed() {
    let absurd = |kind, usage, limits| {
        let runs = [
            run(RunKind::Answer, super::usage(900, 0, 150, 0)),
            (run(kind, usage).0, limits),
        ];
        billed_runs(&runs, EVIDENCE).source == Estimated
    };
    let known = Limits {
        context_tokens: Some(10_000),
        output_tokens: Some(500),
    };
    assert!(absurd(RunKind::Advisor, usage(10, 0, 501, 0), known));
    assert!(!absurd(RunKind::Advisor, usage(10_000, 0, 500, 0), known));
    assert!(absurd(RunKind::Advisor, usage(10_001, 0, 5, 0), known));
    assert!(absurd(RunKind::Fallback, usage(10, 0, 0, 800), known));
    assert!(!absurd(RunKind::Fallback, usage(10, 0, 0, 799), known));
    assert!(absurd(
        RunKind::Advisor,
        usage(1 << 53, 0, 1 << 53, 0),
        Limits::default()
    ));
    assert!(!absurd(
        RunKind::Advisor,
        usage(200_000, 0, 9_000, 0),
        Limits::default()
    ));
}
