//! What a request asks to be admitted with, and what it may cost.

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

/// A key as the key cache returned it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundKey<'a> {
    /// The digest by which its record can be read again.
    pub digest: &'a KeyDigest,
    /// Its record, as this node knows it.
    pub record: &'a Arc<KeyRecord>,
}

/// A request that asks for admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionRequest<'a> {
    /// The key that it was made with.
    pub key: FoundKey<'a>,
    /// weir's request id.
    pub request_id: &'a SmolStr,
    /// The requested operation.
    pub operation: Operation,
    /// The model's name as the client gave it.
    pub model_asked: &'a str,
    /// The client wants a streamed answer.
    pub stream: bool,
    /// What the client attributes it to.
    pub(crate) tags: &'a [Tag],
    /// The requested model, and its price at each provider that may serve it.
    pub route: &'a Arc<PricedRoute>,
    /// What it is expected to use.
    pub estimate: Estimate,
    /// When its head arrived.
    pub arrived: Instant,
    /// The configuration's `[money]`: how long, and with how many others, it may wait for holds of running requests.
    pub limits: &'a MoneyConfig,
}

/// What a request is expected to cost at the most expensive of its providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EstimatedCost {
    /// The whole cost: what is held.
    pub(super) whole: NanoUsd,
    /// The part of the cost that the output causes.
    pub(super) output: NanoUsd,
    /// What its input costs without a cache: charged if nothing else is ever known.
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
            whole,
            output: whole.saturating_sub(input).max(NanoUsd::ZERO),
            uncached_input,
        }
    }
}
