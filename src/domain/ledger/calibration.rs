//! Learns from finished requests: the ratio of a model's tokens to the estimate, and how much a key's requests to a model
//! usually read from a cache, write to it and generate.
//!
//! Caches work on the beginning of a prompt. So there are two ways to predict how much is read, and each is tested on every
//! finished request:
//!
//! - **like the last request**: as many tokens as the last request read. Right where the same beginning recurs, and where nothing
//!   is ever read.
//! - **all but the new turns**: a continued conversation was sent before, up to the model's last answer. Right for agents, also
//!   for many conversations at once.
//!
//! The prediction that was less wrong recently is used. Neither is used before it has been right once: a key whose requests
//! never read from a cache is held for in full.

mod estimate;
mod input;

pub(crate) use estimate::Estimate;
#[cfg(test)]
pub(crate) use estimate::InputEstimate;
pub(crate) use input::TypicalInput;

use crate::domain::wire::tokens::TokenFactor;

/// Requests with fewer tokens, estimated or reported, are ignored, because most of their tokens are added by providers.
pub(crate) const LEARN_TOKENS_MIN: u64 = 50;
/// The bounds of one request's ratio, in millionths.
const RATIO_MIN: i64 = MILLION / 4;
const RATIO_MAX: i64 = MILLION * 4;
const MILLION: i64 = 1_000_000;
/// Each request moves the factor by 1/8 of the way to its own ratio.
const STEP_DIVISOR: i64 = 8;
/// Each request moves the factor by at most 1/20 of itself, so that a few absurd requests have little effect.
const STEP_MAX_DIVISOR: i64 = 20;

/// The factor of a model, learned from the usage of its finished requests. One is kept for input and one for output.
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
    /// Learns from a finished request: its estimate without any factor, and the tokens that the provider reported.
    pub(crate) fn learn(&mut self, estimated: u64, reported: u64) {
        if estimated < LEARN_TOKENS_MIN || reported < LEARN_TOKENS_MIN {
            return;
        }
        let ratio = scaled(reported, MILLION.unsigned_abs(), estimated);
        let ratio = i64::try_from(ratio).unwrap_or(RATIO_MAX).clamp(RATIO_MIN, RATIO_MAX);
        let step_max = self.factor / STEP_MAX_DIVISOR;
        let step = ((ratio - self.factor) / STEP_DIVISOR).clamp(-step_max, step_max);
        self.factor = (self.factor + step).clamp(RATIO_MIN, RATIO_MAX);
    }

    /// The factor; 1 before anything was learned.
    pub(crate) fn factor(&self) -> TokenFactor {
        u32::try_from((self.factor + 500) / 1_000).map_or(TokenFactor::ONE, TokenFactor::thousandths)
    }
}

/// The minimum number of output tokens to hold for, unless a limit is lower.
pub(crate) const OUTPUT_TOKENS_MIN: u64 = 64;
/// The output tokens to hold for when nothing is known of a key's requests to a model. The hold grows while the answer runs.
pub(crate) const OUTPUT_TOKENS_UNKNOWN: u64 = 2_048;
/// Counts are capped at this number, so that sums cannot overflow.
const COUNT_MAX: u64 = 1 << 40;

/// The usual output of one key's requests to one model: a moving average. About half of the requests generate more; their holds
/// grow while they run, so the hold stays near the use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypicalOutput {
    /// The average, in sixteenths of a token.
    average: u64,
}

impl TypicalOutput {
    /// The average after the first request.
    pub(crate) fn new(output_tokens: u64) -> Self {
        Self {
            average: output_tokens.min(COUNT_MAX) * 16,
        }
    }

    /// Learns from a finished request, with all its output tokens.
    pub(crate) fn learn(&mut self, output_tokens: u64) {
        let now = output_tokens.min(COUNT_MAX) * 16;
        self.average = self.average - self.average / 8 + now / 8;
    }

    /// The average, at least [`OUTPUT_TOKENS_MIN`].
    pub(crate) fn tokens(&self) -> u64 {
        (self.average / 16).max(OUTPUT_TOKENS_MIN)
    }
}

/// The output tokens to hold for: the usual number, but at most the limits of the request and the model.
pub(crate) fn output_estimate(max_tokens: Option<u64>, usual: Option<&TypicalOutput>, model_max: Option<u64>) -> u64 {
    usual
        .map_or(OUTPUT_TOKENS_UNKNOWN, TypicalOutput::tokens)
        .min(max_tokens.unwrap_or(u64::MAX))
        .min(model_max.unwrap_or(u64::MAX))
}

/// `value * times / over`, rounded down; saturates.
fn scaled(value: u64, times: u64, over: u64) -> u64 {
    let over = over.max(1);
    match value.checked_mul(times) {
        Some(product) => product / over,
        None => u64::try_from(u128::from(value) * u128::from(times) / u128::from(over)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests;
