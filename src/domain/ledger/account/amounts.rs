//! Amounts, clamped to what a ledger can count.

use crate::domain::{ledger::step::Settlement, money::NanoUsd};

/// The cost of a settlement as it is charged: from zero to [`NanoUsd::MAX`].
pub(super) fn charge(settlement: &Settlement) -> NanoUsd {
    bounded(settlement.cost).max(NanoUsd::ZERO)
}

/// An amount, clamped to ±[`NanoUsd::MAX`].
pub(super) fn bounded(amount: NanoUsd) -> NanoUsd {
    let most = NanoUsd::MAX.nanos();
    NanoUsd::from_nanos(amount.nanos().clamp(-most, most))
}

/// The sum of two amounts; each of them and the sum are clamped to ±[`NanoUsd::MAX`].
pub(super) fn sum(one: NanoUsd, other: NanoUsd) -> NanoUsd {
    bounded(bounded(one).saturating_add(bounded(other)))
}
