//! Estimates the number of tokens in a text without a tokenizer. Each byte has a value, which is a fraction of a token and
//! depends on the kind of the byte.
//!
//! The estimate is used where the provider has not reported the usage: for an interrupted answer, for the possible cost of a
//! request, and for the cost so far of an answer that is still running. It is within 10 % of the tokenizer o200k on prose in
//! English, Chinese, Japanese, Korean, Russian and German, on code, and on JSON of a few KB (`tests/golden/tokens/`). A model
//! with another tokenizer counts more or fewer tokens than o200k in the same text.
//! [`calibration`](crate::domain::ledger::calibration) learns the factor between the two counts for each model. The estimate is
//! less exact for texts of a few words, and for languages that had no extra weight when the values were fitted (errors of up to
//! 20 % for Italian, Polish and Ukrainian).
//!
//! Only text that passes through weir can be counted. Hidden reasoning is not billed unless the provider reports it.

pub(crate) mod bill;
mod steps;
#[cfg(test)]
mod tests;

use crate::domain::wire::tokens::steps::{CLASS, FIRST_ROW, PACKED_STEPS};

/// The number of bytes per token that is assumed for content that cannot be read because its compression is unknown or because it
/// is not JSON.
pub(crate) const UNREADABLE_BYTES_PER_TOKEN: u64 = 4;

/// The number of bytes that the counting loop handles in one step.
const WORD_BYTES: usize = 8;

/// The token estimate of a text, computed from the kinds of its bytes. It has a constant size, and does not depend on how the
/// text is split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharClasses {
    /// The sum of the bytes' values, in millionths of an o200k token. Because weir stores this sum and not a count for each kind,
    /// the estimate has only sixteen bytes.
    worth: u64,
    row: u32,
}

impl Default for CharClasses {
    fn default() -> Self {
        Self {
            worth: 0,
            row: FIRST_ROW,
        }
    }
}

impl CharClasses {
    /// Counts the next bytes of the text. They can end within a character. Invalid UTF-8 is counted as well.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let (mut row, mut worth) = (self.row, 0);
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        for word in words {
            for byte in word {
                add_byte(&mut row, &mut worth, *byte);
            }
        }
        for byte in rest {
            add_byte(&mut row, &mut worth, *byte);
        }
        self.row = row;
        self.worth = self.worth.saturating_add(worth);
    }

    /// Ends the text, so that no word continues into the next text.
    pub fn end_text(&mut self) {
        self.row = FIRST_ROW;
    }

    /// Whether the estimate is zero, for example because no text was counted.
    pub fn is_empty(&self) -> bool {
        self.worth == 0
    }

    /// Returns the estimated number of tokens, rounded up.
    pub fn tokens(&self) -> u64 {
        self.worth.div_ceil(1_000_000)
    }
}

/// Adds the value of a byte to `worth`, and sets `row` to the row of the next place (see [`steps`]). The value depends on the
/// current place.
#[inline(always)]
fn add_byte(row: &mut u32, worth: &mut u64, byte: u8) {
    let class = CLASS.get(usize::from(byte)).copied().unwrap_or(0);
    // The table has an entry for every possible index, so the remainder does not change the index.
    let index = (*row + u32::from(class)) as usize % PACKED_STEPS.len();
    if let Some(turn) = PACKED_STEPS.get(index) {
        *row = turn.row;
        *worth += u64::from(turn.worth);
    }
}

/// Returns the estimated number of tokens in `bytes` bytes that cannot be read.
pub(crate) fn unreadable_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(UNREADABLE_BYTES_PER_TOKEN)
}

/// The factor by which a model's own token count differs from the estimate, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenFactor(u32);

impl TokenFactor {
    /// Creates a factor from its thousandths.
    pub(crate) const fn thousandths(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// The factor 1, which leaves an estimate unchanged.
    pub(crate) const ONE: Self = Self(1_000);

    /// Returns `tokens` times the factor, rounded up.
    pub(crate) fn apply(self, tokens: u64) -> u64 {
        if let Some(thousandths) = tokens.checked_mul(self.0.into()) {
            return thousandths.div_ceil(1_000);
        }
        let thousandths = u128::from(tokens) * u128::from(self.0);
        u64::try_from(thousandths.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

/// The number of kinds of bytes, including the kind `NOTHING`, whose bytes have the value zero.
const KINDS: usize = 80;

/// The value of a byte of each kind, in millionths of a token.
///
/// The values were fitted to the tokenizer o200k. No value is negative, and the values minimize the squared relative error over
/// about 2,500 texts of 3 KB. The texts are documentation, fiction, web pages and source code in about 30 languages. Texts in
/// English, Chinese, Russian, code, JSON and Markdown had three times the weight of the others. Texts in Ukrainian and Arabic had
/// a lower weight. The texts of `tests/golden/tokens/` were not among them.
const O200K: [u32; KINDS] = [
    0, 267_654, 767_685, 381_894, 683_593, 977_851, 509_102, 0, 256_857, 0, 0, 0, 0, 0, 0, 641_797, 0, 628_985,
    1_084_597, 0, 373_840, 851_929, 898_806, 485_110, 0, 0, 124_959, 3_187_927, 1_533_381, 2_103_995, 0, 1_157_149, 0,
    810_021, 0, 0, 1_308_779, 0, 1_156_845, 767_212, 0, 110_187, 0, 1_148_324, 1_416_082, 857_188, 0, 0, 430_604,
    1_380_608, 0, 0, 21_997, 338_008, 947_883, 89_655, 518_862, 447_699, 414_940, 150_000, 0, 206_060, 1_776_524, 0,
    806_297, 708_430, 1_614_998, 1_189_944, 0, 0, 631_810, 1_283_898, 0, 2_111_196, 170_479, 518_318, 1_095_742, 0,
    917_997, 51_763,
];

#[cfg(test)]
mod factor_tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_estimate_is_corrected_exactly_and_rounded_up(tokens in any::<u64>(), small in 0..10_000_000_u64, thousandths in 0..5_000_u32) {
            for tokens in [tokens, small] {
                let exact = (u128::from(tokens) * u128::from(thousandths)).div_ceil(1_000);
                let corrected = TokenFactor::thousandths(thousandths).apply(tokens);
                prop_assert_eq!(u128::from(corrected), exact.min(u128::from(u64::MAX)));
            }
        }
    }
}
