//! What operators see of accounts and keys.

use std::collections::BTreeMap;

use crate::domain::{
    keys::{key::KeyId, terms::Reset},
    ledger::account_record::AccountRecord,
    money::NanoUsd,
};

/// What keys have spent, by key; those that have spent nothing are left out.
pub(crate) type Spent = BTreeMap<KeyId, NanoUsd>;

/// An account as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// The account's name.
    pub id: String,
    /// What is left: all credits and adjustments, less all charges. Holds are not subtracted.
    pub balance: NanoUsd,
    /// All charges so far: the sum of the cost of all its rows.
    pub spent: NanoUsd,
    /// What is held for running requests.
    pub held: NanoUsd,
    /// How many requests are running.
    pub running: u64,
    /// What operators have set.
    pub record: AccountRecord,
    /// What was paid in today by the store's clock (UTC): credits and adjustments.
    pub paid_today: NanoUsd,
    /// What was paid in this month.
    pub paid_this_month: NanoUsd,
    /// When it was created, in seconds since the Unix epoch.
    pub created_at: i64,
}

impl AccountView {
    /// Whether somebody should pay in: the balance is at what counts as low, or at zero, where nothing is admitted.
    pub(crate) fn is_low(&self) -> bool {
        self.balance <= self.record.terms.low_balance.unwrap_or_default().max(NanoUsd::ZERO)
    }
}

/// What a key has spent and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySpend {
    /// Since the key's creation.
    pub all: NanoUsd,
    /// In the current day (UTC).
    pub day: NanoUsd,
    /// In the current ISO week (UTC).
    pub week: NanoUsd,
    /// In the current month (UTC).
    pub month: NanoUsd,
    /// Held for running requests.
    pub held: NanoUsd,
    /// How many requests are running.
    pub running: u64,
}

impl KeySpend {
    /// What was spent in the current period of a quota that begins anew so often.
    pub(crate) fn of(&self, reset: Reset) -> NanoUsd {
        match reset {
            Reset::None => self.all,
            Reset::Daily => self.day,
            Reset::Weekly => self.week,
            Reset::Monthly => self.month,
        }
    }
}
