//! Views of an account and its keys.

use super::Account;
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        account_record::AccountRecord,
        period::Period,
        view::{AccountView, KeySpend, SpendByKey},
    },
    money::NanoUsd,
};

impl Account {
    /// The account's settings by operators; the default record if the account does not exist.
    pub(crate) fn record(&self) -> AccountRecord {
        self.summary.as_ref().map(|summary| summary.record).unwrap_or_default()
    }

    /// The account as operators see it; `None` if it does not exist.
    pub(crate) fn view(&self, id: &str, now_ms: i64) -> Option<AccountView> {
        let summary = self.summary.as_ref()?;
        let (held, running) = self.holds.live_totals(now_ms);
        let (paid_today, paid_this_month) = summary.paid.sums_at(now_ms);
        Some(AccountView {
            id: id.to_owned(),
            balance: summary.balance,
            spent: summary.spent,
            held,
            running,
            record: summary.record,
            paid_today,
            paid_this_month,
            created_at: summary.created_at,
        })
    }

    /// The spending of each key in a period, without keys that have spent nothing.
    pub(crate) fn spend_by_key(&self, period: Period) -> SpendByKey {
        let of_keys = self.keys.iter().map(|(id, key)| (id.clone(), key.spent(period)));
        of_keys.filter(|(_, spent)| *spent > NanoUsd::ZERO).collect()
    }

    /// The spending of a key in the current periods; zeros for an unknown key.
    pub(crate) fn key_spend(&self, id: &KeyId, now_ms: i64) -> KeySpend {
        let spent = |period| self.keys.get(id).map_or(NanoUsd::ZERO, |key| key.spent(period));
        let [all, day, week, month] = Period::each_at(now_ms).map(spent);
        let (held, running) = self.holds.live_key_totals(id, now_ms);
        KeySpend {
            all,
            day,
            week,
            month,
            held,
            running,
        }
    }
}
