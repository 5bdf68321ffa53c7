//! `usage.iterations`: what each run of a model consumed for one answer.
//!
//! The usage object itself counts the answering model's runs only, from some servers all of them and from others the input
//! of the first one; compactions, advice and attempts of a model that declined are in the list alone.

use std::borrow::Cow;

use super::counts::{Counts, thinking};
use crate::domain::wire::{
    model_name,
    usage::{Run, RunKind, Usage, fields::Field, total},
};

/// What an entry of the list says.
type Iteration<'a> = [Field<'a>; 8];

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

/// Whether there is any run in a list.
pub(super) fn has_any(iterations: Field<'_>) -> bool {
    iterations.objects(&[]).next().is_some()
}

/// Whether a model stands in for one that declined.
pub(super) fn fell_back(iterations: Field<'_>) -> bool {
    let mut kinds = iterations.objects(&["type"]);
    kinds.any(|[kind]| kind.text().as_deref() == Some("fallback_message"))
}

/// The runs of a list in a usage object, whose other numbers, those of earlier frames with them, are `top`; none if it tells of
/// one run of the model asked for alone. Every token of either account is in exactly one run.
pub(super) fn runs(iterations: Field<'_>, main: &Counts, top: Usage, fell_back: bool) -> Vec<Run> {
    let iterations = iterations.objects(&FIELDS);
    let mut runs: Vec<Run> = iterations.map(|iteration| run(iteration, main)).collect();
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
    let missing = missing(&top, &total(&counted));
    if missing != Usage::default() {
        let missing = Run {
            kind: answering,
            model,
            usage: missing,
        };
        runs.insert(0, missing);
    }
    think(&mut runs, answering, top.output_reasoning);
    runs
}

/// A kind that is not known is taken for a part of the answer, so that it is neither free nor counted twice.
fn run([kind, model, output, details, input @ ..]: Iteration<'_>, main: &Counts) -> Run {
    let output = output.count().unwrap_or(0);
    let reasoning = thinking(details).unwrap_or(0).min(output);
    Run {
        kind: match kind.text().as_deref() {
            Some("fallback_message") => RunKind::Fallback,
            Some("compaction") => RunKind::Compaction,
            Some("advisor_message") => RunKind::Advisor,
            _ => RunKind::Answer,
        },
        model: model
            .text()
            .filter(|model| model_name::is_plausible(model))
            .map(Cow::into_owned),
        usage: Usage {
            output_text: output - reasoning,
            output_reasoning: reasoning,
            ..Counts::of_run(input, main).usage()
        },
    }
}

/// What the usage object counts and its list does not.
fn missing(top: &Usage, runs: &Usage) -> Usage {
    Usage {
        output_text: top.output_total().saturating_sub(runs.output_total()),
        output_reasoning: 0,
        ..top.beyond(runs)
    }
}

/// Which of the answer's tokens were thinking is said of all its runs together.
fn think(runs: &mut [Run], answering: RunKind, thinking: u64) {
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
