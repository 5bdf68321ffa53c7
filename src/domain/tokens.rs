//! How many tokens a text has, without a tokenizer: bytes are counted by what they are, and each kind is worth a
//! fixed part of a token.
//!
//! It is for texts whose usage no provider has reported: what passed before a stream broke off, what a request may
//! cost, what a running answer has cost so far. Within 10 % of o200k on prose in English, Chinese, Japanese, Korean,
//! Russian and German, on code and on JSON of some KB (`tests/golden/tokens/`); other tokenizers differ from o200k by
//! a factor per model that [`calibration`](crate::domain::calibration) learns. Less exact: languages that were not
//! weighted in the fit (Italian, Polish, Ukrainian: up to 20 %), and texts of a few words.
//!
//! Only what passes can be counted. Reasoning that a provider keeps to itself is seen by nobody but the provider: if it
//! does not report it, it is not billed.

pub mod bill;
mod factors;
pub mod input;
mod steps;

#[cfg(test)]
mod tests;

pub use factors::Factors;
use steps::{CLASS, FIRST_PLACE, KINDS, STEPS, Step};

/// Tokens for bytes that cannot be read (compressed in an unknown way, or no JSON): one for so many bytes.
pub const UNREADABLE_BYTES_PER_TOKEN: u64 = 4;

/// How many bytes of each kind a text has. Constant in size; any split of the same bytes gives the same counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharClasses {
    counts: [u64; KINDS],
    place: u8,
}

impl Default for CharClasses {
    fn default() -> Self {
        Self {
            counts: [0; KINDS],
            place: FIRST_PLACE,
        }
    }
}

impl CharClasses {
    /// Counts the next bytes of the text; a cut may lie within a character. Bytes that are no UTF-8 count as something.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        // None of the defaults is ever taken: the tables are as large as their indices.
        let nothing = Step {
            kind: steps::NOTHING,
            place: FIRST_PLACE,
        };
        let mut place = self.place;
        for byte in bytes {
            let class = CLASS.get(usize::from(*byte)).copied().unwrap_or(0);
            let row = STEPS.get(usize::from(place));
            let step = row
                .and_then(|row| row.get(usize::from(class)))
                .copied()
                .unwrap_or(nothing);
            place = step.place;
            if let Some(count) = self.counts.get_mut(usize::from(step.kind)) {
                *count = count.wrapping_add(1);
            }
        }
        self.place = place;
    }

    /// The text ends here, and another one begins: no word goes on.
    pub fn end_text(&mut self) {
        self.place = FIRST_PLACE;
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// The estimate in tokens, rounded up.
    pub fn tokens(&self, factors: &Factors) -> u64 {
        let millionths = self
            .counts
            .iter()
            .zip(&factors.0)
            .map(|(count, factor)| count.saturating_mul(u64::from(*factor)))
            .fold(0, u64::saturating_add);
        millionths.div_ceil(1_000_000)
    }
}

/// The estimate for bytes that cannot be read.
pub fn unreadable_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(UNREADABLE_BYTES_PER_TOKEN)
}
