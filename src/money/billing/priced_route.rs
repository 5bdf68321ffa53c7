//! What a request's route costs, fixed at its admission.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::domain::{
    catalogue::route::{Leg, Route},
    money::price::Price,
};

/// A route with its prices. A price is found by the index of the leg that served ([`Leg::index`]).
#[derive(Clone, Debug)]
pub(crate) struct PricedRoute {
    /// The catalogue's name of the requested model.
    pub model: SmolStr,
    /// The preferred leg.
    pub first: PricedLeg,
    /// The further legs, in the route's order.
    pub others: Vec<PricedLeg>,
}

/// A provider that may serve the request, and its price for the model.
#[derive(Clone, Debug)]
pub(crate) struct PricedLeg {
    /// The provider's name, for the row.
    pub provider: SmolStr,
    pub price: Arc<Price>,
}

impl PricedRoute {
    /// The prices of a route; `None` if it has no leg.
    pub(crate) fn of(route: &Route) -> Option<Self> {
        let priced = |leg: &Leg| PricedLeg {
            provider: leg.provider.name.as_str().into(),
            price: Arc::clone(&leg.price),
        };
        let (first, others) = route.legs.split_first()?;
        Some(Self {
            model: route.model.name.as_str().into(),
            first: priced(first),
            others: others.iter().map(priced).collect(),
        })
    }

    /// The leg with this index. An index that no leg has, which no route gives, stands for the first.
    pub(crate) fn leg(&self, index: usize) -> &PricedLeg {
        let other = index.checked_sub(1).and_then(|index| self.others.get(index));
        other.unwrap_or(&self.first)
    }

    /// The prices of all legs.
    pub(super) fn prices(&self) -> impl Iterator<Item = &Price> {
        let legs = std::iter::once(&self.first).chain(&self.others);
        legs.map(|leg| &*leg.price)
    }
}
