//! Reads `usage.iterations` of the Messages protocol: the usage of each run of a model for one answer.
//!
//! The usage object itself counts only runs of the answering model: some servers count all of its runs, others only the input of
//! the first run. Compactions, advice, and attempts of a model that declined are counted only in `iterations`.

use std::borrow::Cow;

use crate::domain::wire::protocol::messages::{InputCounts, thinking_tokens};
use crate::domain::wire::{
    operation,
    usage::{Run, RunKind, Usage, fields::ReportField, total_usage},
};

/// The fields of one entry of the list.
type Iteration<'a> = [ReportField<'a>; 8];

const FIELDS: [&str; 8] = [
    "type",
    "model",
    "output_tokens",
    "output_tokens_details",
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation",
];

/// Whether a list contains any run.
pub(super) fn has_any(iterations: ReportField<'_>) -> bool {
    iterations.objects(&[]).next().is_some()
}

/// Whether a model has replaced another model that declined.
pub(super) fn has_fallback(iterations: ReportField<'_>) -> bool {
    let mut kinds = iterations.objects(&["type"]);
    kinds.any(|[kind]| kind.text().as_deref() == Some("fallback_message"))
}

/// Returns the runs in the list of a usage object. Returns no runs if the list is empty, or if its only run is an ordinary run of
/// the requested model. `top` has the other counts of the usage object, merged with earlier events. Every token of `top` or of
/// the list is in exactly one of the returned runs.
pub(super) fn read_runs(iterations: ReportField<'_>, main: &InputCounts, top: Usage, fell_back: bool) -> Vec<Run> {
    let iterations = iterations.objects(&FIELDS);
    let mut runs: Vec<Run> = iterations.map(|iteration| read_run(iteration, main)).collect();
    if let []
    | [
        Run {
            kind: RunKind::Answer,
            model: None,
            ..
        },
    ] = &runs[..]
    {
        return Vec::new();
    }
    let answering = if fell_back { RunKind::Fallback } else { RunKind::Answer };
    let is_counted = |run: &&Run| run.kind == answering;
    let model = runs.iter().rfind(is_counted).and_then(|run| run.model.clone());
    let counted: Vec<Run> = runs.iter().filter(is_counted).cloned().collect();
    let missing = missing_usage(&top, &total_usage(&counted));
    if missing != Usage::default() {
        let missing = Run {
            kind: answering,
            model,
            usage: missing,
        };
        runs.insert(0, missing);
    }
    move_to_reasoning(&mut runs, answering, top.output_reasoning);
    runs
}

/// Reads one run. An unknown kind of run is treated as part of the answer, so that it is neither free nor counted twice.
fn read_run([kind, model, output, details, input @ ..]: Iteration<'_>, main: &InputCounts) -> Run {
    let output = output.count().unwrap_or(0);
    let reasoning = thinking_tokens(details).unwrap_or(0).min(output);
    Run {
        kind: match kind.text().as_deref() {
            Some("fallback_message") => RunKind::Fallback,
            Some("compaction") => RunKind::Compaction,
            Some("advisor_message") => RunKind::Advisor,
            _ => RunKind::Answer,
        },
        model: model
            .text()
            .filter(|model| operation::is_plausible(model))
            .map(Cow::into_owned),
        usage: Usage {
            output_text: output - reasoning,
            output_reasoning: reasoning,
            ..InputCounts::of_run(input, main).usage()
        },
    }
}

/// Returns the usage that is counted in the usage object but not in its list.
fn missing_usage(top: &Usage, runs: &Usage) -> Usage {
    Usage {
        output_text: top.output_total().saturating_sub(runs.output_total()),
        output_reasoning: 0,
        ..top.minus(runs)
    }
}

/// Moves output tokens from text to reasoning in the runs of the answer, until the runs have `thinking` reasoning tokens, the
/// number reported for all of them together.
fn move_to_reasoning(runs: &mut [Run], answering: RunKind, thinking: u64) {
    let told: u64 = runs
        .iter()
        .filter(|run| run.kind == answering)
        .map(|run| run.usage.output_reasoning)
        .sum();
    let mut left = thinking.saturating_sub(told);
    for run in runs.iter_mut().filter(|run| run.kind == answering) {
        let moved = left.min(run.usage.output_text);
        run.usage.output_text -= moved;
        run.usage.output_reasoning += moved;
        left -= moved;
    }
}
