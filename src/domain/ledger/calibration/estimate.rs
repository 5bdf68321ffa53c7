//! The expected tokens of a request, before it is sent.

use crate::domain::{
    money::{NanoUsd, price::Price},
    wire::usage::Usage,
};

/// The expected tokens of a request. Holds and rate limits are computed from it. It cannot be billed: it never becomes the usage
/// of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Input tokens.
    pub input: InputEstimate,
    /// Output tokens.
    pub output: u64,
}

/// Expected input tokens by price category. The parts do not overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputEstimate {
    /// Neither read from a cache nor written to one.
    pub uncached: u64,
    /// Read from a cache.
    pub cache_read: u64,
    /// Written to a short-lived cache.
    pub cache_write_short: u64,
    /// Written to a long-lived cache.
    pub cache_write_long: u64,
}

impl InputEstimate {
    /// All input tokens.
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
    /// Input and output tokens together.
    pub(crate) fn tokens(&self) -> u64 {
        self.input.total().saturating_add(self.output)
    }

    /// The expected cost, at the price of the most expensive modality.
    pub(crate) fn cost(&self, price: &Price) -> NanoUsd {
        price.maximum_cost(&usage(&self.input, self.output), &Default::default())
    }

    /// The expected cost of the input, at the price of the most expensive modality.
    pub(crate) fn input_cost(&self, price: &Price) -> NanoUsd {
        price.maximum_cost(&usage(&self.input, 0), &Default::default())
    }

    /// The expected cost of the input as uncached text: a row of an estimate says no more than that.
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
