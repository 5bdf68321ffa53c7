//! What a request wants to be admitted with: what is known of it, and what it may cost.

use std::sync::Arc;

use crate::domain::{consumption::Row, key::KeyRecord, money::NanoUsd, price::Price, usage::Usage};

/// A request that wants to be forwarded.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its key, as this node knows it.
    pub key: &'a KeyRecord,
    /// What is known of it already; usage is the estimate of its input, none of it cached: what it is billed for where nothing
    /// else is ever known.
    pub row: Row,
    /// What it is expected to use: what is held for it.
    pub expected: Usage,
    /// What it costs at each provider that may serve it.
    pub prices: Vec<(String, Arc<Price>)>,
}

/// What a request is expected to cost at the dearest of its providers, and to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    /// All of it.
    pub(super) cost: NanoUsd,
    /// Its output alone.
    pub(super) output: NanoUsd,
    /// Tokens, read or written.
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

/// What a use costs at the dearest of the providers.
pub(super) fn dearest(prices: &[(String, Arc<Price>)], usage: &Usage) -> NanoUsd {
    let costs = prices.iter().map(|(_, price)| price.cost(usage, &Default::default()));
    costs.max().unwrap_or_default()
}
