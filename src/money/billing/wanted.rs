//! What a request asks to be admitted with, and what it may cost.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::{calibration::Estimate, tag::Tag},
        money::{NanoUsd, price::Price},
        wire::protocol::Protocol,
    },
    money::billing::priced_route::PricedRoute,
};

/// A request that asks for admission.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Its key, as this node knows it.
    pub key: Arc<KeyRecord>,
    /// weir's request id.
    pub request_id: SmolStr,
    /// The protocol of the requested operation.
    pub protocol: Protocol,
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
    /// Milliseconds since the request's arrival.
    pub latency_ms: u64,
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

impl Wanted<'_> {
    pub(super) fn estimated_cost(&self) -> EstimatedCost {
        let dearest = |cost: fn(&Estimate, &Price) -> NanoUsd| self.route.dearest(|price| cost(&self.estimate, price));
        let whole = dearest(Estimate::cost);
        let input = dearest(Estimate::input_cost);
        EstimatedCost {
            whole,
            output: whole.saturating_sub(input).max(NanoUsd::ZERO),
            uncached_input: dearest(Estimate::uncached_cost),
        }
    }
}
