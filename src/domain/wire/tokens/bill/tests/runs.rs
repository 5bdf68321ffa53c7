//! Answers of several runs.

use super::*;
use crate::domain::wire::usage::RunKind;
use UsageSource::{Bounded, Partial, Reported};

fn run(kind: RunKind, usage: Usage) -> (Run, ModelLimits) {
    let model = (kind != RunKind::Answer).then(|| "other".to_owned());
    (Run { kind, model, usage }, ModelLimits::default())
}

fn billed_runs(runs: &[(Run, ModelLimits)], evidence: Evidence<'static>) -> BilledUsage {
    let all: Vec<Run> = runs.iter().map(|(run, _)| run.clone()).collect();
    bill(&Evidence {
        reported: Some(total_usage(&all)),
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
        output_requested: Some(64),
        output_observed: 8,
        ..EVIDENCE
    };
    assert_eq!(billed_runs(&runs(60), asked).source, Reported);
    let held = billed_runs(&runs(90), asked);
    assert_eq!((held.usage.output_total(), held.source), (128 + 5_000, Bounded));
    assert_eq!(held.runs[2].usage, usage(10, 0, 4, 60));
    let absurd = billed_runs(&runs(999_999), asked);
    assert_eq!((&absurd.runs, absurd.source), (&held.runs, Bounded));
}

#[test]
fn what_passed_is_compared_with_the_answers_runs_alone() {
    let runs = [
        run(RunKind::Answer, usage(900, 0, 1, 0)),
        run(RunKind::Advisor, usage(1_000, 0, 5_000, 0)),
    ];
    let cut = Evidence {
        extent: AnswerExtent::Cut,
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
fn a_run_beyond_its_own_model_is_held_to_it() {
    let held = |kind, usage, limits| {
        let runs = [
            run(RunKind::Answer, super::usage(900, 0, 150, 0)),
            (run(kind, usage).0, limits),
        ];
        let billed = billed_runs(&runs, EVIDENCE);
        assert_eq!(billed.runs[0], runs[0].0, "the other is billed as reported");
        let was_held = billed.runs[1].usage != usage;
        assert_eq!(billed.source, if was_held { Bounded } else { Reported });
        billed.runs[1].usage
    };
    let known = ModelLimits {
        context_tokens: Some(10_000),
        output_tokens: Some(500),
    };
    for (kind, limits, reported, wanted) in [
        (RunKind::Advisor, known, usage(10, 0, 501, 0), usage(10, 0, 500, 0)),
        (RunKind::Advisor, known, usage(10_001, 0, 5, 0), usage(10_000, 0, 5, 0)),
        // Four times the text that passed.
        (RunKind::Fallback, known, usage(10, 0, 0, 801), usage(10, 0, 0, 800)),
        (
            RunKind::Advisor,
            ModelLimits::default(),
            usage(1 << 53, 0, 1 << 53, 0),
            usage(INPUT_PLAUSIBLE, 0, OUTPUT_PLAUSIBLE, 0),
        ),
    ] {
        assert_eq!(held(kind, reported, limits), wanted);
        assert_eq!(held(kind, wanted, limits), wanted);
    }
}
