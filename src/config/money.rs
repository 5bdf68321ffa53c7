//! `[money]`: what happens to a request's money where the store cannot be asked.

use serde::Deserialize;

use super::values::Values;
use crate::domain::money::NanoUsd;

/// As typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMoney {
    grace_usd: Option<String>,
}

/// Checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoneyConfig {
    /// What each key may commit on this node while the store is away.
    pub grace: NanoUsd,
}

/// 0.10 USD: some requests of most models, and bounded by keys times nodes.
const GRACE_DEFAULT: NanoUsd = NanoUsd::from_nanos(100_000_000);

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawMoney) -> MoneyConfig {
    let grace = match raw.grace_usd.as_deref().map(NanoUsd::parse_usd) {
        None => GRACE_DEFAULT,
        Some(Ok(grace)) if grace >= NanoUsd::ZERO => grace,
        Some(Ok(_)) => {
            values.wrong(&["money", "grace_usd"], "an amount of 0 or more");
            GRACE_DEFAULT
        }
        Some(Err(error)) => {
            values.wrong(&["money", "grace_usd"], error);
            GRACE_DEFAULT
        }
    };
    MoneyConfig { grace }
}
