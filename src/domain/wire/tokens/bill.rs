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
//! | a report of more than the model can take or give, and of four times the estimate | as if nothing was reported | `estimated` |
//! | a report of four times the output that was asked for, and of four times the text that passed | as if nothing was reported | `estimated` |
//! | a report of more output than was asked for, and of four times the text that passed | the report; output what was asked for | `partial` |
//!
//! An estimate of output is never more than was asked for, nor than the model gives. A report may be: where the text that
//! passed bears it out, the provider did not keep to what was asked for, and the client has it. What was asked for holds for
//! each run of the model ([`crate::domain::wire::usage::Run`]): the provider's own tools make it run again.
//!
//! What a model can take or give and nobody has written down is bounded by [`INPUT_PLAUSIBLE`] and [`OUTPUT_PLAUSIBLE`], what
//! tools are called by [`CALLS_PLAUSIBLE`]: a provider's slip costs hundreds of dollars at most, not millions.
//!
//! Reasoning that a provider does not show is in its report only: an answer that broke off before is billed without it. So
//! the answers of models that may reason so are read to their end when a client leaves (`on_client_gone` of the rules).

use crate::domain::wire::{
    tokens::factor::Factor,
    usage::{Run, Usage, UsageSource, total},
};

/// A report beyond the model's limits, or beyond what was requested, is rejected if it is also this many times the
/// estimate.
pub(crate) const ABSURD_TIMES: u64 = 4;
/// The context size assumed for a model without a known one: the largest on offer.
pub(crate) const INPUT_PLAUSIBLE: u64 = 10_000_000;
/// The output limit assumed for a model without a known one: several times the largest on offer, hidden reasoning
/// included.
pub(crate) const OUTPUT_PLAUSIBLE: u64 = 1_000_000;
/// The most searches, and the most fetches, of one answer that are accepted.
pub(crate) const CALLS_PLAUSIBLE: u64 = 10_000;
/// How often a model is run at most for one answer because of the provider's own tools, where their calls are all that is
/// known of it. Ten times is the vendor's limit
/// (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools>).
pub(crate) const RUNS_BY_TOOLS_MAX: u64 = 10;

/// What is known of a request that has ended, or of a running one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    /// What the provider has reported so far.
    pub reported: Option<Usage>,
    /// The runs that add up to the report, each with its model's limits; empty for a single run.
    pub runs: &'a [(Run, Limits)],
    /// The report has all that is billed.
    pub is_full: bool,
    /// How the request ended.
    pub end: End,
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
    /// That limit holds for each run that the provider's own tools cause, and not for all of them together.
    pub asked_per_run: bool,
}

/// A model's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most input tokens, if known.
    pub context_tokens: Option<u64>,
    /// The most output tokens, if known.
    pub output_tokens: Option<u64>,
}

/// How a request ended, for its bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
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
    let Some(mut report) = Report::believed(evidence) else {
        return Billed::estimated(match evidence.end {
            End::Whole | End::Cut | End::ClientLeft => evidence.estimate(1),
            End::Refused | End::NoAnswer => Usage::default(),
        });
    };
    let is_as_asked = report.keep_to_what_was_asked();
    let is_final = match evidence.end {
        End::Whole => evidence.is_full,
        End::Refused => true,
        End::Cut | End::ClientLeft | End::NoAnswer => false,
    };
    if !is_final {
        report.add_what_passed();
    }
    Billed {
        usage: total(&report.runs),
        source: if is_final && is_as_asked {
            UsageSource::Reported
        } else {
            UsageSource::Partial
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

    /// The most output of this many runs, by the requested limit and the model's.
    fn asked(&self, runs: u64) -> u64 {
        let given = self.limits.output_tokens.unwrap_or(u64::MAX);
        self.output_asked.unwrap_or(u64::MAX).min(given).saturating_mul(runs)
    }

    /// The bill without any report: all input uncached, all text as output.
    fn estimate(&self, runs: u64) -> Usage {
        let context = self.limits.context_tokens.unwrap_or(u64::MAX);
        Usage {
            input_uncached: self.input_factor.apply(self.input_scanned).min(context),
            output_text: self.passed().min(self.asked(runs)),
            ..Usage::default()
        }
    }
}

/// A plausible report of the provider.
struct Report<'a> {
    evidence: &'a Evidence<'a>,
    /// The runs; never empty.
    runs: Vec<Run>,
    /// How often models were run whose text makes the answer.
    times: u64,
}

impl<'a> Report<'a> {
    /// The report, if there is one and it is plausible.
    fn believed(evidence: &'a Evidence<'a>) -> Option<Self> {
        let reported = evidence.reported?;
        let (runs, times) = if evidence.runs.is_empty() {
            (
                vec![Run::answer(reported)],
                runs_by_tools(&reported, evidence.asked_per_run),
            )
        } else {
            let runs: Vec<Run> = evidence.runs.iter().map(|(run, _)| run.clone()).collect();
            let speaking = runs.iter().filter(|run| run.kind.speaks()).count();
            (runs, u64::try_from(speaking).unwrap_or(1).max(1))
        };
        let report = Self { evidence, runs, times };
        (!report.is_absurd(&reported)).then_some(report)
    }

    fn is_absurd(&self, reported: &Usage) -> bool {
        let evidence = self.evidence;
        let calls = [
            reported.web_searches,
            reported.web_fetches,
            reported.file_searches,
            reported.code_interpreter_calls,
            reported.image_generations,
        ];
        let beyond = |tokens: u64, estimated: u64, max: u64| tokens > max && tokens >= times_over(estimated);
        let input_estimate = evidence.estimate(self.times).input_total();
        let each_is_absurd = |(run, limits): (&Run, Limits), times: u64| {
            let context = limits.context_tokens.unwrap_or(INPUT_PLAUSIBLE).saturating_mul(times);
            let most = limits.output_tokens.unwrap_or(OUTPUT_PLAUSIBLE).saturating_mul(times);
            // Output that does not pass to the client is not estimated.
            let passed = if run.kind.speaks() { evidence.passed() } else { 0 };
            let input = run.usage.input_total();
            beyond(input, input_estimate.saturating_mul(times), context)
                || beyond(run.usage.output_total(), passed, most)
        };
        let any_is_absurd = if evidence.runs.is_empty() {
            self.runs
                .iter()
                .any(|run| each_is_absurd((run, evidence.limits), self.times))
        } else {
            let mut runs = evidence.runs.iter();
            runs.any(|(run, limits)| each_is_absurd((run, *limits), 1))
        };
        let asked = evidence.output_asked.unwrap_or(u64::MAX).saturating_mul(self.times);
        any_is_absurd
            || beyond(self.spoken(), evidence.passed().max(asked), asked)
            || calls.into_iter().any(|calls| calls > CALLS_PLAUSIBLE)
    }

    /// The output of the runs whose text makes the answer.
    fn spoken(&self) -> u64 {
        let speaking = self.runs.iter().filter(|run| run.kind.speaks());
        speaking.fold(0, |sum, run| sum.saturating_add(run.usage.output_total()))
    }

    /// Removes output beyond the requested limit that the observed text does not confirm. Returns whether nothing had
    /// to be removed.
    fn keep_to_what_was_asked(&mut self) -> bool {
        let asked = self.evidence.output_asked.map(|asked| asked.saturating_mul(self.times));
        let spoken = self.spoken();
        let Some(asked) = asked.filter(|asked| spoken > *asked && spoken >= times_over(self.evidence.passed())) else {
            return true;
        };
        let mut excess = spoken - asked;
        for run in self.runs.iter_mut().rev().filter(|run| run.kind.speaks()) {
            for part in [&mut run.usage.output_reasoning, &mut run.usage.output_text] {
                let off = excess.min(*part);
                *part -= off;
                excess -= off;
            }
        }
        false
    }

    /// Raises a report that stopped early to what passed; Messages reports one output token at the start. Input is
    /// taken as reported if any was, since some servers report it at the end only, and zeros before.
    fn add_what_passed(&mut self) {
        let estimate = self.evidence.estimate(self.times);
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

/// How often a model was run for an answer that does not list its runs.
fn runs_by_tools(reported: &Usage, asked_per_run: bool) -> u64 {
    let calls = reported.web_searches.saturating_add(reported.web_fetches);
    match asked_per_run {
        true => calls.saturating_add(1).min(RUNS_BY_TOOLS_MAX),
        false => 1,
    }
}

fn times_over(estimated: u64) -> u64 {
    estimated.saturating_mul(ABSURD_TIMES)
}

#[cfg(test)]
mod tests;
