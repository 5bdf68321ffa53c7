//! What a request asks to be admitted with, and what it may cost.

use std::sync::Arc;

use crate::domain::{consumption::Row, key::KeyRecord, money::NanoUsd, price::Price, usage::Usage};

/// A request that asks for admission.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its key, as this node knows it.
    pub key: &'a KeyRecord,
    /// The row so far. Its usage is the estimated input without cache reads, which is charged if nothing else is ever
    /// known.
    pub row: Row,
    /// The expected usage, from which the hold is computed.
    pub expected: Usage,
    /// Its price at each provider that may serve it.
    pub prices: Vec<(String, Arc<Price>)>,
}

/// What a request is expected to cost at the most expensive of its providers, and its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    /// The whole cost.
    pub(super) cost: NanoUsd,
    /// The part of the cost that the output causes.
    pub(super) output: NanoUsd,
    /// Input and output tokens together.
    pub(super) tokens: u64,
}

impl Wanted<'_> {
    pub(super) fn estimate(&self) -> Estimate {
        let expected = &self.expected;
        let input = Usage {
            output_text: 0,
            output_reasoning: 0,
            ..*expected
        };
        let cost = dearest(&self.prices, expected);
        Estimate {
            cost,
            output: cost.saturating_sub(dearest(&self.prices, &input)).max(NanoUsd::ZERO),
            tokens: expected.input_total().saturating_add(expected.output_total()),
        }
    }
}

/// What a usage costs at the most expensive of the providers.
pub(super) fn dearest(prices: &[(String, Arc<Price>)], usage: &Usage) -> NanoUsd {
    let costs = prices.iter().map(|(_, price)| price.cost(usage, &Default::default()));
    costs.max().unwrap_or_default()
}
