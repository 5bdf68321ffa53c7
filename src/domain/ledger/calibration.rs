//! Learning from finished requests. For each model, weir learns the ratio of the reported tokens to its own estimates. For each
//! key and model, weir learns how many tokens a request usually reads from a cache, writes to a cache, and generates.
//!
//! A cache stores the beginning of a prompt. There are two predictions of the number of tokens that a request reads from a cache.
//! Each is compared with every finished request:
//!
//! - **Like the last request**: the number of tokens that the last request read. This prediction is right if prompts have the
//!   same beginning. It is also right if nothing is ever read from a cache.
//! - **All but the new turns**: the number of tokens up to the model's last answer, because this part of the conversation was
//!   sent before. This prediction is right for agents, even for many conversations at the same time.
//!
//! The prediction with the smaller recent error is used. A prediction of cached tokens is used only after it was right at least
//! once. So if a key's requests never read from a cache, the hold covers their input in full.

#[cfg(test)]
mod tests;

use crate::domain::{
    money::{NanoUsd, price::Price},
    wire::{tokens::TokenFactor, usage::Usage},
};

/// The minimum number of tokens of a request from which weir learns. Both the estimated and the reported number must be at least
/// this high. In smaller requests, providers have added most of the tokens.
pub(crate) const LEARN_TOKENS_MIN: u64 = 50;
/// The minimum and the maximum ratio that is learned from one request, in millionths.
const RATIO_MIN: i64 = MILLION / 4;
const RATIO_MAX: i64 = MILLION * 4;
const MILLION: i64 = 1_000_000;
/// Each request moves the factor by 1/8 of its distance to the request's own ratio.
const STEP_DIVISOR: i64 = 8;
/// Each request moves the factor by at most 1/20 of its value, so that a few extreme requests have little effect.
const STEP_MAX_DIVISOR: i64 = 20;

/// The ratio of the reported tokens to weir's estimates, learned from finished requests. Each model has one for input and one for
/// output.
///
/// It is a clamped moving average. A request moves it by at most 1/20 of its value, towards a ratio that is clamped to the range
/// from 1/4 to 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calibration {
    /// The ratio in millionths.
    factor: i64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { factor: MILLION }
    }
}

impl Calibration {
    /// Learns from a finished request. `estimated` is weir's estimate without this factor, and `reported` is the number of tokens
    /// that the provider reported.
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

    /// Returns the factor for estimates. It is 1 before anything was learned.
    pub(crate) fn factor(&self) -> TokenFactor {
        u32::try_from((self.factor + 500) / 1_000).map_or(TokenFactor::ONE, TokenFactor::thousandths)
    }
}

/// The minimum number of output tokens that a hold covers, unless the request or the model has a lower limit.
pub(crate) const OUTPUT_TOKENS_MIN: u64 = 64;
/// The number of output tokens that a hold covers if nothing was learned about a key's requests to a model. The hold grows while
/// the answer is running.
pub(crate) const OUTPUT_TOKENS_UNKNOWN: u64 = 2_048;
/// The maximum of token counts. Higher counts are reduced to it, so that sums cannot overflow.
const COUNT_MAX: u64 = 1 << 40;

/// The usual number of output tokens of one key's requests to one model, as a moving average. About half of the requests generate
/// more tokens than this, and their holds grow while they run. Because holds can grow, the hold of a request need not be much
/// higher than its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypicalOutput {
    /// The average, in sixteenths of a token.
    average: u64,
}

impl TypicalOutput {
    /// Creates the average from the first request.
    pub(crate) fn new(output_tokens: u64) -> Self {
        Self {
            average: output_tokens.min(COUNT_MAX) * 16,
        }
    }

    /// Learns from a finished request. `output_tokens` is the number of all its output tokens.
    pub(crate) fn learn(&mut self, output_tokens: u64) {
        let now = output_tokens.min(COUNT_MAX) * 16;
        self.average = self.average - self.average / 8 + now / 8;
    }

    /// Returns the average in tokens, at least [`OUTPUT_TOKENS_MIN`].
    pub(crate) fn tokens(&self) -> u64 {
        (self.average / 16).max(OUTPUT_TOKENS_MIN)
    }
}

/// Returns the number of output tokens that a hold covers. It is the usual number, but at most the limit of the request and that
/// of the model.
pub(crate) fn output_estimate(max_tokens: Option<u64>, usual: Option<&TypicalOutput>, model_max: Option<u64>) -> u64 {
    usual
        .map_or(OUTPUT_TOKENS_UNKNOWN, TypicalOutput::tokens)
        .min(max_tokens.unwrap_or(u64::MAX))
        .min(model_max.unwrap_or(u64::MAX))
}

/// Returns `value * times / over`, rounded down; saturates on overflow.
fn scaled(value: u64, times: u64, over: u64) -> u64 {
    let over = over.max(1);
    match value.checked_mul(times) {
        Some(product) => product / over,
        None => u64::try_from(u128::from(value) * u128::from(times) / u128::from(over)).unwrap_or(u64::MAX),
    }
}

/// The expected tokens of a request, from which its hold and its part of the rate limits are computed. It is a type of its own,
/// so that it cannot accidentally be billed as the usage of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// The expected input tokens.
    pub input: InputEstimate,
    /// The expected number of output tokens.
    pub output: u64,
}

/// The expected input tokens by price category. Each token is in one category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputEstimate {
    /// The number of tokens that are neither read from a cache nor written to one.
    pub uncached: u64,
    /// The number of tokens that are read from a cache.
    pub cache_read: u64,
    /// The number of tokens that are written to a short-lived cache.
    pub cache_write_short: u64,
    /// The number of tokens that are written to a long-lived cache.
    pub cache_write_long: u64,
}

impl InputEstimate {
    /// Returns the number of all input tokens.
    pub(crate) fn total(&self) -> u64 {
        let parts = [
            self.uncached,
            self.cache_read,
            self.cache_write_short,
            self.cache_write_long,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

impl Estimate {
    /// Returns the number of input and output tokens together.
    pub(crate) fn tokens(&self) -> u64 {
        self.input.total().saturating_add(self.output)
    }

    /// Returns the expected cost, at the prices of the most expensive modality.
    pub(crate) fn cost(&self, price: &Price) -> NanoUsd {
        price.maximum_cost(&usage(&self.input, self.output), &Default::default())
    }

    /// Returns the expected cost of the input, at the prices of the most expensive modality.
    pub(crate) fn input_cost(&self, price: &Price) -> NanoUsd {
        price.maximum_cost(&usage(&self.input, 0), &Default::default())
    }

    /// Returns the expected cost of the input if all of it is uncached text. This cost is charged if the usage of the request
    /// does not become known.
    pub(crate) fn uncached_cost(&self, price: &Price) -> NanoUsd {
        let uncached = InputEstimate {
            uncached: self.input.total(),
            ..InputEstimate::default()
        };
        price.cost(&usage(&uncached, 0), &Default::default())
    }
}

fn usage(input: &InputEstimate, output: u64) -> Usage {
    Usage {
        input_uncached: input.uncached,
        cache_read: input.cache_read,
        cache_write_short: input.cache_write_short,
        cache_write_long: input.cache_write_long,
        output_text: output,
        ..Usage::default()
    }
}

/// Each request moves the averages of the errors and of the written shares by 1/4 of their distance to the request's own values.
const AVERAGE_DIVISOR: u64 = 4;
/// The integer that represents a share of 1: shares are in thousandths of the input that is not read from a cache.
const SHARE_ONE: u64 = 1_000;

/// The numbers of tokens that one key's requests to one model usually read from a cache and write to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypicalInput {
    /// The number of tokens that the last request read from a cache.
    read_last: u64,
    /// The average errors of the two predictions, in tokens: first "like the last request", then "all but the new turns".
    off_by_last: u64,
    off_by_turns: u64,
    /// The averages of the shares that are written to a short-lived and to a long-lived cache, in units of 1/[`SHARE_ONE`]. They
    /// are shares of the input that is not read from a cache.
    written_short: u64,
    written_long: u64,
    /// Whether anything was learned.
    is_known: bool,
}

impl TypicalInput {
    /// Learns from a finished request and its reported usage. `new` is the estimated number of its input tokens from the model's
    /// last answer onwards; `None` if the conversation has no answer yet.
    pub(crate) fn learn(&mut self, reported: &Usage, new: Option<u64>) {
        let input = reported.input_total();
        let read = reported.cache_read_total();
        let off = |guess: u64| guess.abs_diff(read);
        let by_last = off(self.read_last.min(input));
        let by_turns = off(all_but(input, new));
        let fresh = input.saturating_sub(read);
        let share = |part: u64| share_of(part, fresh);
        let (short, long) = (share(reported.cache_write_short), share(reported.cache_write_long));
        if self.is_known {
            self.off_by_last = towards(self.off_by_last, by_last);
            self.off_by_turns = towards(self.off_by_turns, by_turns);
            if fresh > 0 {
                self.written_short = towards(self.written_short, short);
                self.written_long = towards(self.written_long, long);
            }
        } else {
            (self.off_by_last, self.off_by_turns) = (by_last, by_turns);
            (self.written_short, self.written_long) = (short, long);
        }
        self.read_last = read;
        self.is_known = true;
    }

    /// Splits `input` tokens into the expected numbers of each category, whose sum is `input`. `new` is the number of those
    /// tokens from the model's last answer onwards; `None` if the conversation has no answer yet.
    pub(crate) fn estimate(&self, input: u64, new: Option<u64>) -> InputEstimate {
        let read = if self.off_by_turns < self.off_by_last {
            all_but(input, new)
        } else {
            self.read_last.min(input)
        };
        let fresh = input - read;
        let part = |share: u64| part_of(fresh, share);
        let (short, long) = (part(self.written_short), part(self.written_long));
        let short = short.min(fresh - long);
        InputEstimate {
            cache_read: read,
            cache_write_short: short,
            cache_write_long: long,
            uncached: fresh - long - short,
        }
    }
}

/// Returns the number of tokens of a conversation before its `new` tokens. Returns zero if the conversation has no answer yet.
fn all_but(input: u64, new: Option<u64>) -> u64 {
    new.map_or(0, |new| input.saturating_sub(new))
}

fn towards(usual: u64, now: u64) -> u64 {
    let step = usual.abs_diff(now).div_ceil(AVERAGE_DIVISOR);
    if now > usual { usual + step } else { usual - step }
}

fn share_of(part: u64, whole: u64) -> u64 {
    scaled(part, SHARE_ONE, whole).min(SHARE_ONE)
}

fn part_of(whole: u64, share: u64) -> u64 {
    scaled(whole, share, SHARE_ONE).min(whole)
}

#[cfg(test)]
mod input_tests {
    use proptest::prelude::*;

    use super::*;

    fn reported(uncached: u64, read: u64, written: u64) -> Usage {
        Usage {
            input_uncached: uncached,
            cache_read: read,
            cache_write_short: written,
            ..Usage::default()
        }
    }

    fn expected(uncached: u64, read: u64, written: u64) -> InputEstimate {
        InputEstimate {
            uncached,
            cache_read: read,
            cache_write_short: written,
            cache_write_long: 0,
        }
    }

    fn after(requests: &[(Usage, Option<u64>)]) -> TypicalInput {
        let mut usual = TypicalInput::default();
        for (usage, new) in requests {
            usual.learn(usage, *new);
        }
        usual
    }

    #[test]
    fn nothing_is_read_before_it_was_seen() {
        assert_eq!(TypicalInput::default().estimate(900, Some(100)), expected(900, 0, 0));
        // Written once is not read once.
        let written = after(&[(reported(0, 0, 150_000), None)]);
        assert_eq!(written.estimate(150_000, None), expected(0, 0, 150_000));
    }

    #[test]
    fn the_same_beginning_is_read_again() {
        let usual = after(&[(reported(0, 0, 150_000), None), (reported(20, 150_000, 0), None)]);
        let parts = usual.estimate(150_020, None);
        assert_eq!((parts.cache_read, parts.total()), (150_000, 150_020));
        // No more than there is.
        assert_eq!(usual.estimate(900, None).cache_read, 900);
    }

    #[test]
    fn conversations_side_by_side_are_read_up_to_their_last_answer() {
        let mut turns = Vec::new();
        for turn in 1..20 {
            turns.push((reported(0, 20_000 + turn * 3_000, 3_000), Some(3_000)));
            turns.push((reported(0, 100_000 + turn * 500, 500), Some(500)));
        }
        let usual = after(&turns);
        assert_eq!(usual.estimate(60_000, Some(2_000)), expected(0, 58_000, 2_000));
    }

    #[test]
    fn a_key_that_reads_no_cache_is_held_for_in_full() {
        let usual = after(&[(reported(9_000, 0, 0), Some(300)); 5]);
        assert_eq!(usual.estimate(12_000, Some(200)), expected(12_000, 0, 0));
        // And one whose cache has gone is so again soon.
        let mut requests = vec![(reported(0, 9_000, 300), Some(300)); 9];
        requests.extend([(reported(9_300, 0, 0), Some(300)); 2]);
        let usual = after(&requests);
        assert_eq!(usual.estimate(9_300, Some(300)).cache_read, 0);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_input(
            requests in prop::collection::vec((0..1_u64 << 53, 0..1_u64 << 53, 0..1_u64 << 53, any::<Option<u64>>()), 0..20),
            input: u64,
            new: Option<u64>,
        ) {
            let requests: Vec<_> = requests.into_iter().map(|(a, b, c, new)| (reported(a, b, c), new)).collect();
            prop_assert_eq!(after(&requests).estimate(input, new).total(), input);
        }
    }
}
