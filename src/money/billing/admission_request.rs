//! The request for admission, and its estimated cost.

use std::{sync::Arc, time::Instant};

use smol_str::SmolStr;

use crate::{
    config::money::MoneyConfig,
    domain::{
        catalogue::route::PricedRoute,
        keys::{key::KeyRecord, secret::KeyDigest},
        ledger::{calibration::Estimate, tag::Tag},
        money::NanoUsd,
        wire::operation::Operation,
    },
};

/// A key that the key cache has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundKey<'a> {
    /// The digest by which its record can be read again.
    pub digest: &'a KeyDigest,
    /// Its record in this node's cache.
    pub record: &'a Arc<KeyRecord>,
}

/// A request that asks for admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionRequest<'a> {
    /// The caller's key.
    pub key: FoundKey<'a>,
    /// weir's request id.
    pub request_id: &'a SmolStr,
    /// The requested operation.
    pub operation: Operation,
    /// The model's name as the client gave it.
    pub model_asked: &'a str,
    /// The client wants a streamed answer.
    pub stream: bool,
    /// The tags that the client gave.
    pub(crate) tags: &'a [Tag],
    /// The requested model, and its price at each provider that may serve it.
    pub route: &'a Arc<PricedRoute>,
    /// Its expected usage.
    pub estimate: Estimate,
    /// When its head arrived.
    pub arrived: Instant,
    /// The configuration's `[money]`: how long, and with how many others, it may queue.
    pub limits: &'a MoneyConfig,
}

/// The expected cost of a request at the most expensive of its providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EstimatedCost {
    /// The total cost, which is the hold.
    pub(super) total: NanoUsd,
    /// The part of the cost that the output causes.
    pub(super) output: NanoUsd,
    /// The cost of its input without a cache: charged if nothing else becomes known.
    pub(super) uncached_input: NanoUsd,
}

impl AdmissionRequest<'_> {
    pub(super) fn estimated_cost(&self) -> EstimatedCost {
        let [mut whole, mut input, mut uncached_input] = [NanoUsd::ZERO; 3];
        for price in self.route.prices() {
            whole = whole.max(self.estimate.cost(price));
            input = input.max(self.estimate.input_cost(price));
            uncached_input = uncached_input.max(self.estimate.uncached_cost(price));
        }
        EstimatedCost {
            total: whole,
            output: whole.saturating_sub(input).max(NanoUsd::ZERO),
            uncached_input,
        }
    }
}
