//! `[money]`: grace without the store, and waiting for holds of running requests.

use std::time::Duration;

use serde::Deserialize;

use super::values::Values;
use crate::domain::money::NanoUsd;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMoney {
    grace_usd: Option<String>,
    grace_account_usd: Option<String>,
    held_wait_ms: Option<u64>,
    held_waiting_max: Option<u64>,
    held_waiting_account_max: Option<u64>,
}

/// How many requests may wait for what running ones hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingMax {
    /// On this node.
    pub all: usize,
    pub account: usize,
}

/// The section, checked and with defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoneyConfig {
    /// What each key may commit on this node while the store is away.
    pub grace: NanoUsd,
    /// The same for all keys of an account together.
    pub grace_account: NanoUsd,
    /// How long a request waits for what running ones hold.
    pub held_wait: Duration,
    /// How many requests may wait for what running ones hold.
    pub held_waiting_max: WaitingMax,
}

/// 0.10 USD: some requests of most models, and bounded by keys times nodes.
const GRACE_DEFAULT: NanoUsd = NanoUsd::from_nanos(100_000_000);
/// 1 USD: the grace of ten keys.
const GRACE_ACCOUNT_DEFAULT: NanoUsd = NanoUsd::from_nanos(1_000_000_000);

/// As long as a person waits without a thought.
const HELD_WAIT_MS: u64 = 1_000;
const HELD_WAITING_MAX: u64 = 1_024;
const HELD_WAITING_ACCOUNT_MAX: u64 = 64;

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawMoney) -> MoneyConfig {
    let account = raw.grace_account_usd.as_deref();
    let mut waiting = |name, given, default| values.count(&["money", name], given, default, 1..=65_536);
    let held_waiting_max = WaitingMax {
        all: waiting("held_waiting_max", raw.held_waiting_max, HELD_WAITING_MAX),
        account: waiting(
            "held_waiting_account_max",
            raw.held_waiting_account_max,
            HELD_WAITING_ACCOUNT_MAX,
        ),
    };
    MoneyConfig {
        grace: amount(values, "grace_usd", raw.grace_usd.as_deref(), GRACE_DEFAULT),
        grace_account: amount(values, "grace_account_usd", account, GRACE_ACCOUNT_DEFAULT),
        held_wait: values.millis(&["money", "held_wait_ms"], raw.held_wait_ms, HELD_WAIT_MS, 0..=60_000),
        held_waiting_max,
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
