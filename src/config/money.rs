//! `[money]`: what happens to a request's money where the store cannot be asked.

use serde::Deserialize;

use super::values::Values;
use crate::domain::money::NanoUsd;

/// As typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMoney {
    grace_usd: Option<String>,
    grace_account_usd: Option<String>,
}

/// Checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoneyConfig {
    /// What each key may commit on this node while the store is away.
    pub grace: NanoUsd,
    /// The same for all keys of an account together.
    pub grace_account: NanoUsd,
}

/// 0.10 USD: some requests of most models, and bounded by keys times nodes.
const GRACE_DEFAULT: NanoUsd = NanoUsd::from_nanos(100_000_000);
/// 1 USD: the grace of ten keys.
const GRACE_ACCOUNT_DEFAULT: NanoUsd = NanoUsd::from_nanos(1_000_000_000);

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawMoney) -> MoneyConfig {
    let account = raw.grace_account_usd.as_deref();
    MoneyConfig {
        grace: amount(values, "grace_usd", raw.grace_usd.as_deref(), GRACE_DEFAULT),
        grace_account: amount(values, "grace_account_usd", account, GRACE_ACCOUNT_DEFAULT),
    }
}

fn amount(values: &mut Values<'_>, name: &str, given: Option<&str>, default: NanoUsd) -> NanoUsd {
    match given.map(NanoUsd::parse_usd) {
        None => default,
        Some(Ok(amount)) if amount >= NanoUsd::ZERO => amount,
        Some(Ok(_)) => {
            values.wrong(&["money", name], "an amount of 0 or more");
            default
        }
        Some(Err(error)) => {
            values.wrong(&["money", name], error);
            default
        }
    }
}
