//! Amounts as a ledger counts them.

use crate::domain::{ledger::step::Settlement, money::NanoUsd};

/// The cost of a settlement as it is charged: zero or more, and no more than can be counted.
pub(super) fn charge(settlement: &Settlement) -> NanoUsd {
    bounded(settlement.cost).max(NanoUsd::ZERO)
}

/// An amount, held within ±[`NanoUsd::MAX`].
pub(super) fn bounded(amount: NanoUsd) -> NanoUsd {
    let most = NanoUsd::MAX.nanos();
    NanoUsd::from_nanos(amount.nanos().clamp(-most, most))
}

/// A sum, held within ±[`NanoUsd::MAX`], as are its parts before.
pub(super) fn sum(one: NanoUsd, other: NanoUsd) -> NanoUsd {
    bounded(bounded(one).saturating_add(bounded(other)))
}
