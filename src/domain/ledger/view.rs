//! Views of accounts and keys for operators.

use std::collections::BTreeMap;

use crate::domain::{
    keys::{key::KeyId, terms::QuotaReset},
    ledger::account_record::AccountRecord,
    money::NanoUsd,
};

/// The spending of keys, without keys that have spent nothing.
pub(crate) type SpendByKey = BTreeMap<KeyId, NanoUsd>;

/// An account as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// The account's name.
    pub id: String,
    /// All credits and adjustments, less all charges. Holds are not subtracted.
    pub balance: NanoUsd,
    /// All charges so far: the sum of the cost of all its rows.
    pub spent: NanoUsd,
    /// The sum of the holds of running requests.
    pub held: NanoUsd,
    /// The number of running requests.
    pub running: u64,
    /// Its settings by operators.
    pub record: AccountRecord,
    /// Credits and adjustments of today, by the store's clock (UTC).
    pub paid_today: NanoUsd,
    /// Credits and adjustments of this month.
    pub paid_this_month: NanoUsd,
    /// When it was created, in seconds since the Unix epoch.
    pub created_at: i64,
}

impl AccountView {
    /// Whether a payment is due: the balance is at or below its low mark, or at zero, where nothing is admitted.
    pub(crate) fn is_low(&self) -> bool {
        self.balance <= self.record.terms.low_balance.unwrap_or_default().max(NanoUsd::ZERO)
    }
}

/// The spending and the holds of a key.
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
    /// The number of running requests.
    pub running: u64,
}

impl KeySpend {
    /// The spending in the current period of a quota with this reset.
    pub(crate) fn for_reset(&self, reset: QuotaReset) -> NanoUsd {
        match reset {
            QuotaReset::None => self.all,
            QuotaReset::Daily => self.day,
            QuotaReset::Weekly => self.week,
            QuotaReset::Monthly => self.month,
        }
    }
}
