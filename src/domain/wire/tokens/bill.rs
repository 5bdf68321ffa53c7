//! What a request is billed for: what the provider reported, as far as it did, as far as it can be true, and as far as it was
//! asked for.
//!
//! | what happened | billed | source |
//! |---|---|---|
//! | the provider reported its usage and ended its answer | as reported; a zero is a zero | `reported` |
//! | the same, but its report lacks the output | the report; output the larger of it and the text that passed | `partial` |
//! | it ended its answer and reported nothing | the estimates of input and of the text that passed | `estimated` |
//! | the answer broke off, or the client left, after a report | the report; output the larger of it and the text that passed | `partial` |
//! | the same, before any report | the estimates; before the first byte, input only | `estimated` |
//! | it answered 400 or above, without a report | nothing | `estimated` |
//! | no answer came (connection failed, silent, cut before its head), and the client had not left | nothing | `estimated` |
//! | a report of more than is accepted | the most that is accepted | `bounded` |
//!
//! What is accepted of a report ([`Report::hold`]):
//!
//! - Output up to what was asked for, and up to what the model gives. Both hold for each run of the model, of which a list of
//!   runs in the report tells ([`crate::domain::wire::usage::Run`]), or else the calls of the provider's own tools: one more than
//!   calls, up to [`RUNS_BY_TOOLS_MAX`]. An image adds [`IMAGE_TOKENS_MAX`], up to [`IMAGES_MAX`] of them.
//! - Input up to what the model takes, in each run.
//! - More of either where weir has seen it: up to [`SEEN_TIMES`] times the estimate of the text. Then the provider did not keep to
//!   what was asked for, and the client has it.
//! - What a model takes or gives and nobody has written down is [`INPUT_PLAUSIBLE`] and [`OUTPUT_PLAUSIBLE`]; of each tool,
//!   [`CALLS_PLAUSIBLE`] calls.
//!
//! So a provider's slip costs hundreds of dollars at most, and mostly no more than the client has asked for.
//!
//! An estimate of output is never more than was asked for, nor than the model gives.
//!
//! Reasoning that a provider does not show is in its report only: an answer that broke off before is billed without it. So
//! the answers of models that may reason so are read to their end when a client leaves (`on_client_gone` of the rules).

use crate::domain::wire::{
    tokens::factor::Factor,
    usage::{Run, Unlimited, Usage, UsageSource, total},
};

/// A report of more than the model's limit, or than was asked for, is accepted up to so many times the estimate.
pub(crate) const SEEN_TIMES: u64 = 4;
/// The context size assumed for a model without a known one: the largest on offer.
pub(crate) const INPUT_PLAUSIBLE: u64 = 10_000_000;
/// The output limit assumed for a model without a known one: several times the largest on offer, hidden reasoning
/// included.
pub(crate) const OUTPUT_PLAUSIBLE: u64 = 1_000_000;
/// The most calls of each tool that are accepted of one answer.
pub(crate) const CALLS_PLAUSIBLE: u64 = 1_000;
/// How often a model is run at most for one answer because of the provider's own tools, where their calls are all that is
/// known of it. Ten times is the vendor's limit
/// (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools>).
pub(crate) const RUNS_BY_TOOLS_MAX: u64 = 10;
/// The most tokens of one image. The vendors' largest have 6,240
/// (<https://platform.openai.com/docs/guides/image-generation>) and 2,000
/// (<https://ai.google.dev/gemini-api/docs/pricing>).
pub(crate) const IMAGE_TOKENS_MAX: u64 = 8_192;
/// The most images of one answer that add to what is accepted.
pub(crate) const IMAGES_MAX: u64 = 16;

/// What is known of a request that has ended, or of a running one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    /// What the provider has reported so far.
    pub reported: Option<Usage>,
    /// The runs that add up to the report, each with its model's limits; empty for a single run.
    pub runs: &'a [(Run, Limits)],
    /// The report has all that is billed.
    pub is_full: bool,
    /// How much of the answer there is.
    pub extent: Extent,
    /// The estimate of its input, without the model's factor: [`crate::domain::wire::json_scan::Scan::input_tokens`].
    pub input_scanned: u64,
    /// The estimate of the text that passed, without the model's factor:
    /// [`crate::domain::wire::protocol::Observer::output_estimate`].
    pub output_observed: u64,
    /// The model's factor for input.
    pub input_factor: Factor,
    /// The model's factor for output.
    pub output_factor: Factor,
    /// The requested model's limits.
    pub limits: Limits,
    /// The output limit in the request, if any (`json_scan/output_limits.rs`).
    pub output_asked: Option<u64>,
    /// What the answer shows that this limit does not hold for.
    pub unlimited: Unlimited,
}

/// A model's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most input tokens, if known.
    pub context_tokens: Option<u64>,
    /// The most output tokens, if known.
    pub output_tokens: Option<u64>,
}

/// How much of an answer there is to price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Extent {
    /// The provider ended its answer itself with a success, so its report is final.
    Whole,
    /// The provider answered with this status of 400 or above, or put an error into its answer (the status that stands for
    /// it), and no content had passed.
    Refused,
    /// The answer broke off: cut by the provider, timed out, failed after content had passed, or ended by weir. Also a
    /// running answer.
    Cut,
    /// The client disconnected after the request was sent to the provider.
    ClientLeft,
    /// There was no answer.
    NoAnswer,
}

/// What a request is billed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Billed {
    /// The whole usage.
    pub usage: Usage,
    /// The runs that add up to it; empty for a single run.
    pub runs: Vec<Run>,
    /// Whether the usage was reported or estimated.
    pub source: UsageSource,
}

impl Billed {
    fn estimated(usage: Usage) -> Self {
        Self {
            usage,
            runs: Vec::new(),
            source: UsageSource::Estimated,
        }
    }
}

/// The usage to bill, and its source. Estimated text is billed as `output_text`.
pub(crate) fn bill(evidence: &Evidence<'_>) -> Billed {
    let Some(mut report) = Report::of(evidence) else {
        return Billed::estimated(match evidence.extent {
            Extent::Whole | Extent::Cut | Extent::ClientLeft => evidence.estimate(),
            Extent::Refused | Extent::NoAnswer => Usage::default(),
        });
    };
    let is_accepted = report.hold();
    let is_final = match evidence.extent {
        Extent::Whole => evidence.is_full,
        Extent::Refused => true,
        Extent::Cut | Extent::ClientLeft | Extent::NoAnswer => false,
    };
    if !is_final {
        report.add_what_passed();
    }
    Billed {
        usage: total(&report.runs),
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
    /// The estimate of the text that passed, whatever limit was requested.
    fn passed(&self) -> u64 {
        self.output_factor.apply(self.output_observed)
    }

    /// The estimate of the input of one run.
    fn input(&self) -> u64 {
        let context = self.limits.context_tokens.unwrap_or(u64::MAX);
        self.input_factor.apply(self.input_scanned).min(context)
    }

    /// How often models were run whose text makes the answer.
    fn times(&self) -> u64 {
        let speaking = self.runs.iter().filter(|(run, _)| run.kind.speaks()).count();
        let by_tools = self.unlimited.tool_calls.saturating_add(1).min(RUNS_BY_TOOLS_MAX);
        by_tools.max(u64::try_from(speaking).unwrap_or(u64::MAX))
    }

    /// The tokens of images that no limit of output holds for.
    fn images(&self) -> u64 {
        self.unlimited.images.min(IMAGES_MAX) * IMAGE_TOKENS_MAX
    }

    /// The bill without any report: all input uncached, all text as output.
    fn estimate(&self) -> Usage {
        let given = self.limits.output_tokens.unwrap_or(u64::MAX);
        let asked = self.output_asked.unwrap_or(u64::MAX).min(given);
        Usage {
            input_uncached: self.input(),
            output_text: self.passed().min(asked.saturating_mul(self.times())),
            ..Usage::default()
        }
    }
}

/// A provider's report.
struct Report<'a> {
    evidence: &'a Evidence<'a>,
    /// The runs, each with its model's limits; never empty.
    runs: Vec<Run>,
    limits: Vec<Limits>,
}

impl<'a> Report<'a> {
    /// The report, if there is one.
    fn of(evidence: &'a Evidence<'a>) -> Option<Self> {
        let reported = evidence.reported?;
        let (runs, limits) = if evidence.runs.is_empty() {
            (vec![Run::answer(reported)], vec![evidence.limits])
        } else {
            evidence.runs.iter().cloned().unzip()
        };
        Some(Self { evidence, runs, limits })
    }

    /// Holds the report to what is accepted. Returns whether all of it is.
    fn hold(&mut self) -> bool {
        let before = total(&self.runs);
        let evidence = self.evidence;
        // A single run stands for all that were made.
        let times = if evidence.runs.is_empty() { evidence.times() } else { 1 };
        let input_seen = seen(evidence.input().saturating_mul(times));
        for (run, limits) in self.runs.iter_mut().zip(&self.limits) {
            let taken = limits.context_tokens.unwrap_or(INPUT_PLAUSIBLE).saturating_mul(times);
            let given = limits.output_tokens.unwrap_or(OUTPUT_PLAUSIBLE).saturating_mul(times);
            // Output that does not pass to the client is not seen.
            let (images, output_seen) = if run.kind.speaks() {
                (evidence.images(), seen(evidence.passed()))
            } else {
                (0, 0)
            };
            let usage = run.usage.with_calls_at_most(CALLS_PLAUSIBLE);
            run.usage = usage
                .with_input_at_most(taken.max(input_seen))
                .with_output_at_most(given.saturating_add(images).max(output_seen));
        }
        if let Some(asked) = evidence.output_asked {
            let asked = asked.saturating_mul(evidence.times()).saturating_add(evidence.images());
            self.hold_spoken(asked.max(seen(evidence.passed())));
        }
        total(&self.runs) == before
    }

    /// The output of the runs whose text makes the answer.
    fn spoken(&self) -> u64 {
        let speaking = self.runs.iter().filter(|run| run.kind.speaks());
        speaking.fold(0, |sum, run| sum.saturating_add(run.usage.output_total()))
    }

    /// Holds that output to so much, the last runs first.
    fn hold_spoken(&mut self, most: u64) {
        let mut excess = self.spoken().saturating_sub(most);
        for run in self.runs.iter_mut().rev().filter(|run| run.kind.speaks()) {
            let before = run.usage.output_total();
            run.usage = run.usage.with_output_at_most(before.saturating_sub(excess));
            excess -= before - run.usage.output_total();
        }
    }

    /// Raises a report that stopped early to what passed; Messages reports one output token at the start. Input is
    /// taken as reported if any was, since some servers report it at the end only, and zeros before.
    fn add_what_passed(&mut self) {
        let estimate = self.evidence.estimate();
        let missing = estimate.output_total().saturating_sub(self.spoken());
        let is_without_input = total(&self.runs).input_total() == 0;
        if self.runs.iter().all(|run| !run.kind.speaks()) {
            self.runs.insert(0, Run::answer(Usage::default()));
        }
        let last = self.runs.iter_mut().rev().find(|run| run.kind.speaks());
        if let Some(run) = last {
            run.usage.output_text = run.usage.output_text.saturating_add(missing);
            if is_without_input {
                run.usage.input_uncached = estimate.input_uncached;
            }
        }
    }
}

/// How much is accepted of what weir has estimated to be so much.
fn seen(estimated: u64) -> u64 {
    estimated.saturating_mul(SEEN_TIMES)
}

#[cfg(test)]
mod tests;
