//! What a request is billed for: what the provider reported, as far as it did and as far as it can be true.
//!
//! | what happened | billed | source |
//! |---|---|---|
//! | the provider reported its usage and ended its answer | as reported; a zero is a zero | `reported` |
//! | it ended its answer and reported nothing | the estimates of input and of the text that passed | `estimated` |
//! | the answer broke off, or the client left, after a report | the report; output the larger of it and the text that passed | `partial` |
//! | the same, before any report | the estimates; before the first byte, input only | `estimated` |
//! | it answered 400 or above, without a report | nothing | `estimated` |
//! | no answer came (connection failed, silent, cut before its head), and the client had not left | nothing | `estimated` |
//! | a report of more than the model can take or give, and of four times the estimate | as if nothing was reported | `estimated` |
//!
//! What a model can take or give and nobody has written down is bounded by [`INPUT_PLAUSIBLE`] and [`OUTPUT_PLAUSIBLE`], what
//! tools are called by [`CALLS_PLAUSIBLE`]: a provider's slip costs hundreds of dollars at most, not millions.
//!
//! Reasoning that a provider does not show is in its report only: an answer that broke off before is billed without it. So
//! the answers of models that may reason so are read to their end when a client leaves ([`crate::domain::rules::OnClientGone`]).

use crate::domain::{calibration::Factor, consumption::UsageSource, usage::Usage};

/// A report beyond what the model can do is not believed if it is also so many times the estimate.
pub const ABSURD_TIMES: u64 = 4;
/// The input tokens that a model is taken to have room for at most where its context is not known: as many as the largest
/// context on offer.
pub const INPUT_PLAUSIBLE: u64 = 10_000_000;
/// The output tokens of one answer that are believed where the model's most is not known: several times the most on offer,
/// hidden reasoning included.
pub const OUTPUT_PLAUSIBLE: u64 = 1_000_000;
/// The searches, and the fetches, of one answer that are believed.
pub const CALLS_PLAUSIBLE: u64 = 10_000;

/// What is known of a request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// What the provider has reported so far; in parts, where a protocol reports in parts.
    pub reported: Option<Usage>,
    /// How the request ended.
    pub end: End,
    /// The estimate of its input, without factor: [`crate::domain::json_scan::Scan::input_tokens`].
    pub input_scanned: u64,
    /// The estimate of the text that passed, without factor: [`crate::domain::protocol::Observer::output_estimate`].
    pub output_observed: u64,
    /// The model's factor for input.
    pub input_factor: Factor,
    /// The model's factor for output.
    pub output_factor: Factor,
    /// Input tokens that the model takes, if known.
    pub context_tokens: Option<u64>,
    /// Output tokens that the model gives, if known.
    pub output_tokens_max: Option<u64>,
}

/// How a request ended, as far as its bill is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The provider ended its answer itself, with a success: its report is final.
    Whole,
    /// The provider answered with this status of 400 or above, or put an error into its answer (the status that stands for
    /// it), and no content had passed.
    Refused,
    /// The answer broke off: cut, silent for too long, failed after content had passed, ended by weir.
    Cut,
    /// The client left; the provider had been sent the request.
    ClientLeft,
    /// No answer came, and none is expected.
    NoAnswer,
}

/// The usage to bill, and where it comes from. The text that passed is billed as `output_text`.
pub fn bill(evidence: &Evidence) -> (Usage, UsageSource) {
    let estimate = estimate(evidence);
    let reported = evidence
        .reported
        .filter(|reported| !is_absurd(reported, &estimate, evidence));
    match (reported, evidence.end) {
        (Some(reported), End::Whole | End::Refused) => (reported, UsageSource::Reported),
        (Some(reported), End::Cut | End::ClientLeft | End::NoAnswer) => {
            (at_least_what_passed(reported, &estimate), UsageSource::Partial)
        }
        (None, End::Whole | End::Cut | End::ClientLeft) => (estimate, UsageSource::Estimated),
        (None, End::Refused | End::NoAnswer) => (Usage::default(), UsageSource::Estimated),
    }
}

/// What the request is billed for where nothing is reported: all input as uncached, all text as output.
fn estimate(evidence: &Evidence) -> Usage {
    let within = |tokens: u64, max: Option<u64>| tokens.min(max.unwrap_or(u64::MAX));
    Usage {
        input_uncached: within(
            evidence.input_factor.apply(evidence.input_scanned),
            evidence.context_tokens,
        ),
        output_text: within(
            evidence.output_factor.apply(evidence.output_observed),
            evidence.output_tokens_max,
        ),
        ..Usage::default()
    }
}

/// A report that stopped early says less than what passed (Messages reports one output token at the start). Input is taken
/// as reported if any was; some servers report it at the end only, and zeros before.
fn at_least_what_passed(reported: Usage, estimate: &Usage) -> Usage {
    let missing_output = estimate.output_total().saturating_sub(reported.output_total());
    let input_uncached = if reported.input_total() == 0 {
        estimate.input_uncached
    } else {
        reported.input_uncached
    };
    Usage {
        input_uncached,
        output_text: reported.output_text.saturating_add(missing_output),
        ..reported
    }
}

/// Whether either side is more than the model can do and far more than what weir has seen. Hidden reasoning may be any
/// multiple of the text, so the latter alone says nothing.
fn is_absurd(reported: &Usage, estimate: &Usage, evidence: &Evidence) -> bool {
    let beyond =
        |tokens: u64, estimated: u64, max: u64| tokens > max && tokens >= estimated.saturating_mul(ABSURD_TIMES);
    beyond(
        reported.input_total(),
        estimate.input_total(),
        evidence.context_tokens.unwrap_or(INPUT_PLAUSIBLE),
    ) || beyond(
        reported.output_total(),
        estimate.output_total(),
        evidence.output_tokens_max.unwrap_or(OUTPUT_PLAUSIBLE),
    ) || reported.web_searches.max(reported.web_fetches) > CALLS_PLAUSIBLE
}

#[cfg(test)]
mod tests;
