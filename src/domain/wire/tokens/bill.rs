//! Determines the usage that a request is billed for. A provider's report is billed if it is plausible and within the request's
//! limits. Usage that the provider does not report is estimated.
//!
//! | what happened | what is billed | source |
//! |---|---|---|
//! | the provider reported its usage and completed its answer | the report, even if it contains zeros | `reported` |
//! | the same, but the report lacks the output | the report, with at least the estimated output | `partial` |
//! | the provider completed its answer without a report | the estimates of input and output | `estimated` |
//! | the answer was interrupted, or the client disconnected, after a report | the same as for `partial` above | `partial` |
//! | the same, before any report | the estimates; before the first byte, only the estimate of the input | `estimated` |
//! | the provider answered with a status of 400 or above, without a report | nothing | `estimated` |
//! | no answer (no connection, silence, closed before the head) while the client was connected | nothing | `estimated` |
//! | the report exceeds the accepted maximum | the accepted maximum | `bounded` |
//!
//! A report is accepted up to these limits ([`ReportedRuns::cap`]):
//!
//! - Output up to the requested limit, and up to the model's limit. Both apply to each run of the model. The number of runs is
//!   the length of the list of runs in the report ([`crate::domain::wire::usage::Run`]). Without a list, it is the number of
//!   calls of the provider's own tools plus one, at most [`RUNS_BY_TOOLS_MAX`]. Each image adds [`IMAGE_TOKENS_MAX`], for up to
//!   [`IMAGES_MAX`] images.
//! - Input up to the model's context, in each run.
//! - More input or output if weir has seen its text: up to [`ESTIMATE_TIMES_MAX`] times the estimate of the text. In this case,
//!   the provider has exceeded the limit, but the client has the text.
//! - For a model without known limits, [`INPUT_PLAUSIBLE`] and [`OUTPUT_PLAUSIBLE`]; for each tool, [`CALLS_PLAUSIBLE`] calls.
//!
//! So a mistake of a provider costs hundreds of dollars at most, and usually no more than the client's own limit allows.
//!
//! An estimate of output never exceeds the requested limit or the model's limit.
//!
//! Hidden reasoning is only in the provider's report, so an answer that is interrupted before the report is billed without it.
//! For this reason, answers of models with hidden reasoning are read to their end when a client disconnects (`on_client_gone` of
//! provider files).

use crate::domain::wire::{
    tokens::TokenFactor,
    usage::{Run, UnlimitedWork, Usage, UsageSource, total_usage},
};

/// The maximum ratio of an accepted report to weir's estimate, if the report exceeds the model's limit or the requested limit.
pub(crate) const ESTIMATE_TIMES_MAX: u64 = 4;
/// The context in tokens that is assumed for a model whose context is unknown: the largest on the market.
pub(crate) const INPUT_PLAUSIBLE: u64 = 10_000_000;
/// The output limit in tokens that is assumed for a model whose limit is unknown: several times the largest on the market,
/// including hidden reasoning.
pub(crate) const OUTPUT_PLAUSIBLE: u64 = 1_000_000;
/// The maximum number of calls of each tool that are accepted in the report of one answer.
pub(crate) const CALLS_PLAUSIBLE: u64 = 1_000;
/// The maximum number of runs of a model for one answer, if the number is known only from the calls of the provider's own tools.
/// Ten is Anthropic's limit (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools>).
pub(crate) const RUNS_BY_TOOLS_MAX: u64 = 10;
/// The maximum number of tokens that are accepted for one image. The vendors' largest images have 6,240 tokens
/// (<https://platform.openai.com/docs/guides/image-generation>) and 2,000 tokens
/// (<https://ai.google.dev/gemini-api/docs/pricing>).
pub(crate) const IMAGE_TOKENS_MAX: u64 = 8_192;
/// The maximum number of images in one answer that raise the accepted output.
pub(crate) const IMAGES_MAX: u64 = 16;

/// The facts about a request that determine its bill. The request may still be running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    /// The usage that the provider has reported so far; `None` without a report.
    pub reported: Option<Usage>,
    /// The runs whose usage adds up to the report, each with the limits of its model; empty for a single run.
    pub runs: &'a [(Run, ModelLimits)],
    /// Whether the report contains every count that is billed.
    pub is_full: bool,
    /// How much of the answer exists.
    pub extent: AnswerExtent,
    /// The estimated input tokens, without the model's factor: [`crate::domain::wire::json_scan::Scan::input_tokens`].
    pub input_scanned: u64,
    /// The estimated tokens of the answer's text that has passed through weir, without the model's factor:
    /// [`crate::domain::wire::protocol::Observer::output_estimate`].
    pub output_observed: u64,
    /// The factor for the model's input tokens.
    pub input_factor: TokenFactor,
    /// The factor for the model's output tokens.
    pub output_factor: TokenFactor,
    /// The limits of the requested model.
    pub limits: ModelLimits,
    /// The output limit in the request, in tokens; `None` if it has none (see
    /// [`crate::domain::wire::json_scan::Scan::output_limits`]).
    pub output_requested: Option<u64>,
    /// The parts of the answer that can raise its output above `output_requested`.
    pub unlimited: UnlimitedWork,
}

/// The token limits of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelLimits {
    /// The maximum number of input tokens; `None` if it is unknown.
    pub context_tokens: Option<u64>,
    /// The maximum number of output tokens; `None` if it is unknown.
    pub output_tokens: Option<u64>,
}

/// How much of an answer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AnswerExtent {
    /// The provider completed its answer, so its report is final.
    Whole,
    /// The provider answered with a status of 400 or above, or sent an error in its answer before any content.
    Refused,
    /// The answer is incomplete: the provider interrupted it, it timed out, it failed after content, or weir ended it. An answer
    /// that is still running has this extent, too.
    Cut,
    /// The client disconnected after the request was sent to the provider.
    ClientLeft,
    /// The provider did not answer.
    NoAnswer,
}

/// The usage that a request is billed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BilledUsage {
    /// The total usage of all runs.
    pub usage: Usage,
    /// The runs whose usage adds up to `usage`; empty for a single run.
    pub runs: Vec<Run>,
    /// How the usage was determined.
    pub source: UsageSource,
}

impl BilledUsage {
    fn estimated(usage: Usage) -> Self {
        Self {
            usage,
            runs: Vec::new(),
            source: UsageSource::Estimated,
        }
    }
}

/// Returns the usage to bill and its source. Estimated text is billed as `output_text`.
pub(crate) fn bill(evidence: &Evidence<'_>) -> BilledUsage {
    let Some(mut report) = ReportedRuns::from_evidence(evidence) else {
        return BilledUsage::estimated(match evidence.extent {
            AnswerExtent::Whole | AnswerExtent::Cut | AnswerExtent::ClientLeft => evidence.estimate(),
            AnswerExtent::Refused | AnswerExtent::NoAnswer => Usage::default(),
        });
    };
    let is_accepted = report.cap();
    let is_final = match evidence.extent {
        AnswerExtent::Whole => evidence.is_full,
        AnswerExtent::Refused => true,
        AnswerExtent::Cut | AnswerExtent::ClientLeft | AnswerExtent::NoAnswer => false,
    };
    if !is_final {
        report.raise_to_estimate();
    }
    BilledUsage {
        usage: total_usage(&report.runs),
        source: match (is_accepted, is_final) {
            (false, _) => UsageSource::Bounded,
            (true, true) => UsageSource::Reported,
            (true, false) => UsageSource::Partial,
        },
        runs: if evidence.runs.is_empty() {
            Vec::new()
        } else {
            report.runs
        },
    }
}

impl Evidence<'_> {
    /// Returns the estimated tokens of the answer's text that has passed through weir, even if they exceed the requested limit.
    fn output_estimate(&self) -> u64 {
        self.output_factor.apply(self.output_observed)
    }

    /// Returns the estimated input tokens of one run.
    fn input_estimate(&self) -> u64 {
        let context = self.limits.context_tokens.unwrap_or(u64::MAX);
        self.input_factor.apply(self.input_scanned).min(context)
    }

    /// Returns the number of runs whose text is part of the answer.
    fn run_count(&self) -> u64 {
        let speaking = self.runs.iter().filter(|(run, _)| run.kind.is_part_of_answer()).count();
        let by_tools = self.unlimited.tool_calls.saturating_add(1).min(RUNS_BY_TOOLS_MAX);
        by_tools.max(u64::try_from(speaking).unwrap_or(u64::MAX))
    }

    /// Returns the number of tokens that are accepted for images, which no output limit covers.
    fn image_tokens(&self) -> u64 {
        self.unlimited.images.min(IMAGES_MAX) * IMAGE_TOKENS_MAX
    }

    /// Returns the usage to bill if there is no report: all input is uncached, and all text is output.
    fn estimate(&self) -> Usage {
        let given = self.limits.output_tokens.unwrap_or(u64::MAX);
        let asked = self.output_requested.unwrap_or(u64::MAX).min(given);
        Usage {
            input_uncached: self.input_estimate(),
            output_text: self.output_estimate().min(asked.saturating_mul(self.run_count())),
            ..Usage::default()
        }
    }
}

/// A provider's report as a list of runs.
struct ReportedRuns<'a> {
    evidence: &'a Evidence<'a>,
    /// The runs of the report; never empty. `limits` has the limits of each run's model.
    runs: Vec<Run>,
    limits: Vec<ModelLimits>,
}

impl<'a> ReportedRuns<'a> {
    /// Reads the provider's report; `None` if there is none.
    fn from_evidence(evidence: &'a Evidence<'a>) -> Option<Self> {
        let reported = evidence.reported?;
        let (runs, limits) = if evidence.runs.is_empty() {
            (vec![Run::answer(reported)], vec![evidence.limits])
        } else {
            evidence.runs.iter().cloned().unzip()
        };
        Some(Self { evidence, runs, limits })
    }

    /// Caps the report at the accepted maximum. Returns whether the complete report was accepted.
    fn cap(&mut self) -> bool {
        let before = total_usage(&self.runs);
        let evidence = self.evidence;
        // Without a list of runs, the single run represents all of them.
        let times = if evidence.runs.is_empty() {
            evidence.run_count()
        } else {
            1
        };
        let input_seen = accepted_for_estimate(evidence.input_estimate().saturating_mul(times));
        for (run, limits) in self.runs.iter_mut().zip(&self.limits) {
            let taken = limits.context_tokens.unwrap_or(INPUT_PLAUSIBLE).saturating_mul(times);
            let given = limits.output_tokens.unwrap_or(OUTPUT_PLAUSIBLE).saturating_mul(times);
            // weir does not see output that is not part of the answer.
            let (images, output_seen) = if run.kind.is_part_of_answer() {
                (
                    evidence.image_tokens(),
                    accepted_for_estimate(evidence.output_estimate()),
                )
            } else {
                (0, 0)
            };
            let usage = run.usage.with_calls_at_most(CALLS_PLAUSIBLE);
            run.usage = usage
                .with_input_at_most(taken.max(input_seen))
                .with_output_at_most(given.saturating_add(images).max(output_seen));
        }
        if let Some(asked) = evidence.output_requested {
            let asked = asked
                .saturating_mul(evidence.run_count())
                .saturating_add(evidence.image_tokens());
            self.cap_answer_output(asked.max(accepted_for_estimate(evidence.output_estimate())));
        }
        total_usage(&self.runs) == before
    }

    /// Returns the number of output tokens in the runs whose text is part of the answer.
    fn answer_output(&self) -> u64 {
        let speaking = self.runs.iter().filter(|run| run.kind.is_part_of_answer());
        speaking.fold(0, |sum, run| sum.saturating_add(run.usage.output_total()))
    }

    /// Caps the output of the answer at `most` tokens. The last runs are reduced first.
    fn cap_answer_output(&mut self, most: u64) {
        let mut excess = self.answer_output().saturating_sub(most);
        for run in self.runs.iter_mut().rev().filter(|run| run.kind.is_part_of_answer()) {
            let before = run.usage.output_total();
            run.usage = run.usage.with_output_at_most(before.saturating_sub(excess));
            excess -= before - run.usage.output_total();
        }
    }

    /// Raises the output of an incomplete report to the estimate of the text that has passed through weir. This is necessary
    /// because a Messages provider reports only one output token at the start. Reported input is not changed unless it is zero:
    /// some servers report zeros first, and the input only at the end.
    fn raise_to_estimate(&mut self) {
        let estimate = self.evidence.estimate();
        let missing = estimate.output_total().saturating_sub(self.answer_output());
        let is_without_input = total_usage(&self.runs).input_total() == 0;
        if self.runs.iter().all(|run| !run.kind.is_part_of_answer()) {
            self.runs.insert(0, Run::answer(Usage::default()));
        }
        let last = self.runs.iter_mut().rev().find(|run| run.kind.is_part_of_answer());
        if let Some(run) = last {
            run.usage.output_text = run.usage.output_text.saturating_add(missing);
            if is_without_input {
                run.usage.input_uncached = estimate.input_uncached;
            }
        }
    }
}

/// Returns the maximum number of tokens that are accepted if weir has estimated `estimated` tokens.
fn accepted_for_estimate(estimated: u64) -> u64 {
    estimated.saturating_mul(ESTIMATE_TIMES_MAX)
}

#[cfg(test)]
mod tests;
