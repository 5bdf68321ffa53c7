//! Charges of requests to which several models contribute.

use std::sync::Arc;

use crate::domain::{
    money::{
        NanoUsd,
        price::{counted::ExactSum, part::CostShare, versioned::Price},
    },
    wire::usage::{PriceModifiers, Run, RunKind, Usage},
};

/// The maximum number of parts in one row. A part is a group of runs of one kind, model and tier; an answer with advice, a
/// compaction and a fallback has four. Further runs are added to the group whose price makes them most expensive.
pub(crate) const PARTS_MAX: usize = 4;

/// A run with the price of its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PricedRun {
    /// The run, with its usage.
    pub run: Run,
    /// The run's model and price; `None` if it is the requested model.
    pub other: Option<OtherModel>,
}

/// A model other than the requested one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherModel {
    /// The catalogue's name for it, or else the provider's.
    pub name: String,
    /// The catalogue model whose price is used, if it has another name.
    pub priced_as: Option<String>,
    pub price: Arc<Price>,
}

/// The charge of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The total.
    pub cost: NanoUsd,
    /// The parts of the charge; empty if price and usage suffice to compute it.
    pub parts: Vec<CostShare>,
}

/// The runs of one kind, model and tier.
struct RunGroup<'a> {
    kind: RunKind,
    other: Option<&'a OtherModel>,
    price: &'a Price,
    above_input_tokens: u64,
    usage: Usage,
}

impl RunGroup<'_> {
    fn is_same_group(&self, new: &Self) -> bool {
        (self.kind, self.other, self.above_input_tokens) == (new.kind, new.other, new.above_input_tokens)
    }

    fn sum(&self, usage: &Usage, modifiers: &PriceModifiers) -> ExactSum {
        let modifiers = modifiers.for_run(self.kind);
        self.price.sum_in_tier(usage, &modifiers, self.above_input_tokens)
    }
}

/// The charge for `usage` of a model with this name and price. If there are `runs`, `usage` is their sum.
pub(crate) fn charge(
    model: &str,
    price: &Price,
    usage: &Usage,
    modifiers: &PriceModifiers,
    runs: &[PricedRun],
) -> Charge {
    let groups = group_runs(price, modifiers, runs);
    let own_tier = price.tier_above(usage, modifiers);
    let is_plain = |group: &RunGroup<'_>| {
        group.kind == RunKind::Answer && group.other.is_none() && group.above_input_tokens == own_tier
    };
    if groups.iter().all(is_plain) {
        return Charge {
            cost: price.cost(usage, modifiers),
            parts: Vec::new(),
        };
    }
    // The request fee belongs to the first part. Each share is an increase of the rounded sum, so that the shares add up to it.
    let mut sum = price.request_fee(usage);
    let mut before = NanoUsd::ZERO;
    let mut parts = Vec::with_capacity(groups.len());
    for group in groups {
        sum = sum.plus(group.sum(&group.usage, modifiers));
        let after = sum.rounded_up();
        let version = Some(group.price.version()).filter(|version| *version != price.version());
        parts.push(CostShare {
            run: group.kind,
            model: group.other.map_or(model, |other| &other.name).to_owned(),
            usage: group.usage,
            priced_as: group.other.and_then(|other| other.priced_as.clone()),
            price_version: version.map(str::to_owned),
            above_input_tokens: group.above_input_tokens,
            cost_nano_usd: after.saturating_sub(before),
        });
        before = after;
    }
    Charge { cost: before, parts }
}

fn group_runs<'a>(price: &'a Price, modifiers: &PriceModifiers, runs: &'a [PricedRun]) -> Vec<RunGroup<'a>> {
    let mut groups: Vec<RunGroup<'a>> = Vec::new();
    for PricedRun { run, other } in runs {
        let new = RunGroup {
            kind: run.kind,
            other: other.as_ref(),
            price: other.as_ref().map_or(price, |other| &other.price),
            above_input_tokens: 0,
            usage: run.usage,
        };
        let new = RunGroup {
            above_input_tokens: new.price.tier_above(&run.usage, &modifiers.for_run(run.kind)),
            ..new
        };
        let same = groups.iter().position(|group| group.is_same_group(&new));
        let place = match same {
            None if groups.len() >= PARTS_MAX => most_expensive_group(&groups, &run.usage, modifiers),
            same => same,
        };
        match place.and_then(|at| groups.get_mut(at)) {
            Some(group) => group.usage = group.usage.plus(&run.usage),
            None => groups.push(new),
        }
    }
    groups
}

/// The group whose price makes this usage most expensive.
fn most_expensive_group(groups: &[RunGroup<'_>], usage: &Usage, modifiers: &PriceModifiers) -> Option<usize> {
    let sums = groups.iter().map(|group| group.sum(usage, modifiers)).enumerate();
    sums.max_by_key(|(_, sum)| *sum).map(|(at, _)| at)
}

/// Recomputes the charge of a row from its parts and the prices that they name; `find` returns the price of a catalogue model.
/// `None` if a price is missing.
#[cfg(test)]
fn recomputed(
    price: &Price,
    usage: &Usage,
    modifiers: &PriceModifiers,
    parts: &[CostShare],
    find: impl Fn(&str) -> Option<Arc<Price>>,
) -> Option<NanoUsd> {
    let mut sum = price.request_fee(usage);
    for part in parts {
        let modifiers = modifiers.for_run(part.run);
        let price = find(part.priced_as.as_ref().unwrap_or(&part.model))?;
        sum = sum.plus(price.sum_in_tier(&part.usage, &modifiers, part.above_input_tokens));
    }
    Some(sum.rounded_up())
}

#[cfg(test)]
mod tests;
