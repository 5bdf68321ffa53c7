//! Learns from finished requests: how far a model's tokens are from the estimate, and how much a key's requests to a
//! model usually read from a cache and put out.

mod estimate;
mod input;

pub(crate) use estimate::Estimate;
#[cfg(test)]
pub(crate) use estimate::InputEstimate;
pub(crate) use input::TypicalInput;

use crate::domain::wire::tokens::Factor;

/// Requests with fewer tokens, estimated or reported, are ignored, because the tokens that providers add dominate in
/// them.
pub(crate) const LEARN_TOKENS_MIN: u64 = 50;
/// The bounds of one request's ratio, in millionths.
const RATIO_MIN: i64 = MILLION / 4;
const RATIO_MAX: i64 = MILLION * 4;
const MILLION: i64 = 1_000_000;
/// The factor moves by this fraction of the way to a request's own ratio: one part in so many.
const PART: i64 = 8;
/// It moves by at most this fraction of itself, so that a few absurd requests have little effect.
const STEP_MAX_PART: i64 = 20;

/// The factor of a model, learnt from what its finished requests reported. One for input and one for output are kept.
///
/// A clamped moving average: each request moves it by at most a twentieth, towards a ratio of at least 1/4 and at most 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calibration {
    /// The factor, in millionths.
    factor: i64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { factor: MILLION }
    }
}

impl Calibration {
    /// A finished request: what was estimated for it without any factor, and what the provider reported.
    pub(crate) fn learn(&mut self, estimated: u64, reported: u64) {
        if estimated < LEARN_TOKENS_MIN || reported < LEARN_TOKENS_MIN {
            return;
        }
        let ratio = scaled(reported, MILLION.unsigned_abs(), estimated);
        let ratio = i64::try_from(ratio).unwrap_or(RATIO_MAX).clamp(RATIO_MIN, RATIO_MAX);
        let step_max = self.factor / STEP_MAX_PART;
        let step = ((ratio - self.factor) / PART).clamp(-step_max, step_max);
        self.factor = (self.factor + step).clamp(RATIO_MIN, RATIO_MAX);
    }

    /// The factor; 1 before anything was learnt.
    pub(crate) fn factor(&self) -> Factor {
        u32::try_from((self.factor + 500) / 1_000).map_or(Factor::ONE, Factor::thousandths)
    }
}

/// The fewest output tokens held for, unless a limit is lower.
pub(crate) const OUTPUT_TOKENS_MIN: u64 = 64;
/// The output tokens held for when nothing is known of a key's requests to a model. The hold grows while the answer
/// runs.
pub(crate) const OUTPUT_TOKENS_UNKNOWN: u64 = 2_048;
/// Larger counts are taken for this one, so that sums cannot overflow.
const COUNT_MAX: u64 = 1 << 40;

/// What one key's requests to one model usually put out: a moving average. Half of them put out more; their holds grow while
/// they run, and what is held is near what is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypicalOutput {
    /// The average, in sixteenths of a token.
    average: u64,
}

impl TypicalOutput {
    /// The first request.
    pub(crate) fn new(output_tokens: u64) -> Self {
        Self {
            average: output_tokens.min(COUNT_MAX) * 16,
        }
    }

    /// One more finished request, with all its output tokens.
    pub(crate) fn learn(&mut self, output_tokens: u64) {
        let now = output_tokens.min(COUNT_MAX) * 16;
        self.average = self.average - self.average / 8 + now / 8;
    }

    /// The average, at least [`OUTPUT_TOKENS_MIN`].
    pub(crate) fn tokens(&self) -> u64 {
        (self.average / 16).max(OUTPUT_TOKENS_MIN)
    }
}

/// The output tokens to hold for: the usual ones, but at most the request's limit and the model's.
pub(crate) fn output_estimate(max_tokens: Option<u64>, usual: Option<&TypicalOutput>, model_max: Option<u64>) -> u64 {
    usual
        .map_or(OUTPUT_TOKENS_UNKNOWN, TypicalOutput::tokens)
        .min(max_tokens.unwrap_or(u64::MAX))
        .min(model_max.unwrap_or(u64::MAX))
}

/// `value * times / over`, rounded down; what is larger than can be counted is the most that can.
fn scaled(value: u64, times: u64, over: u64) -> u64 {
    let over = over.max(1);
    match value.checked_mul(times) {
        Some(product) => product / over,
        None => u64::try_from(u128::from(value) * u128::from(times) / u128::from(over)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests;
