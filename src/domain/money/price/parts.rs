//! The sum over several models: each run at its own model's price and in its own prompt's tier, rounded once.

use std::sync::Arc;

use crate::domain::{
    money::{
        NanoUsd,
        price::{counted::Exact, part::Part, versioned::Price},
    },
    wire::usage::{Modifiers, Run, RunKind, Usage},
};

/// The most parts of one row. A part is a group of runs of one kind, model and tier; an answer with advice, a
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
    /// The catalogue model whose price is used, if that is another one.
    pub priced_as: Option<String>,
    pub price: Arc<Price>,
}

/// What a request is charged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The whole charge.
    pub cost: NanoUsd,
    /// The parts of the charge. Empty if price and usage suffice to compute it.
    pub parts: Vec<Part>,
}

/// The runs of one kind, model and tier.
struct Group<'a> {
    kind: RunKind,
    other: Option<&'a OtherModel>,
    price: &'a Price,
    above_input_tokens: u64,
    usage: Usage,
}

impl Group<'_> {
    fn is_like(&self, new: &Self) -> bool {
        (self.kind, self.other, self.above_input_tokens) == (new.kind, new.other, new.above_input_tokens)
    }

    fn sum(&self, usage: &Usage, modifiers: &Modifiers) -> Exact {
        let modifiers = modifiers.of_run(self.kind);
        self.price.sum_in_tier(usage, &modifiers, self.above_input_tokens)
    }
}

/// Charges `usage` for a model of this name and price. If there are `runs`, `usage` is their sum.
pub(crate) fn charge(model: &str, price: &Price, usage: &Usage, modifiers: &Modifiers, runs: &[PricedRun]) -> Charge {
    let groups = grouped(price, modifiers, runs);
    let own_tier = price.tier_above(usage, modifiers);
    let is_plain = |group: &Group<'_>| {
        group.kind == RunKind::Answer && group.other.is_none() && group.above_input_tokens == own_tier
    };
    if groups.iter().all(is_plain) {
        return Charge {
            cost: price.cost(usage, modifiers),
            parts: Vec::new(),
        };
    }
    // The fee of the request is the first part's; the shares are the steps of the rounded sum, so that they add up to it.
    let mut sum = price.request_fee(usage);
    let mut before = NanoUsd::ZERO;
    let mut parts = Vec::with_capacity(groups.len());
    for group in groups {
        sum = sum.plus(group.sum(&group.usage, modifiers));
        let after = sum.rounded_up();
        let version = Some(group.price.version()).filter(|version| *version != price.version());
        parts.push(Part {
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

fn grouped<'a>(price: &'a Price, modifiers: &Modifiers, runs: &'a [PricedRun]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for PricedRun { run, other } in runs {
        let new = Group {
            kind: run.kind,
            other: other.as_ref(),
            price: other.as_ref().map_or(price, |other| &other.price),
            above_input_tokens: 0,
            usage: run.usage,
        };
        let new = Group {
            above_input_tokens: new.price.tier_above(&run.usage, &modifiers.of_run(run.kind)),
            ..new
        };
        let same = groups.iter().position(|group| group.is_like(&new));
        let place = match same {
            None if groups.len() >= PARTS_MAX => dearest(&groups, &run.usage, modifiers),
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
fn dearest(groups: &[Group<'_>], usage: &Usage, modifiers: &Modifiers) -> Option<usize> {
    let sums = groups.iter().map(|group| group.sum(usage, modifiers)).enumerate();
    sums.max_by_key(|(_, sum)| *sum).map(|(at, _)| at)
}

/// The charge of a row once more, from what its parts say and the prices they name; `price` finds one by the name of a
/// catalogue model. `None` if one is not there.
#[cfg(test)]
fn recomputed(
    price: &Price,
    usage: &Usage,
    modifiers: &Modifiers,
    parts: &[Part],
    find: impl Fn(&str) -> Option<Arc<Price>>,
) -> Option<NanoUsd> {
    let mut sum = price.request_fee(usage);
    for part in parts {
        let modifiers = modifiers.of_run(part.run);
        let price = find(part.priced_as.as_ref().unwrap_or(&part.model))?;
        sum = sum.plus(price.sum_in_tier(&part.usage, &modifiers, part.above_input_tokens));
    }
    Some(sum.rounded_up())
}

#[cfg(test)]
mod tests;
