//! How an account and its keys look from outside.

use super::Account;
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        account_record::AccountRecord,
        period::Period,
        view::{AccountView, KeySpend, Spent},
    },
    money::NanoUsd,
};

impl Account {
    /// What operators have set; of an account that is not there, the record of one of which nothing was set.
    pub(crate) fn record(&self) -> AccountRecord {
        self.summary.as_ref().map(|summary| summary.record).unwrap_or_default()
    }

    /// How operators see it; `None`: it is not there.
    pub(crate) fn view(&self, id: &str, now_ms: i64) -> Option<AccountView> {
        let summary = self.summary.as_ref()?;
        let (held, running) = self.holds.live(now_ms);
        let (paid_today, paid_this_month) = summary.paid.at(now_ms);
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

    /// What each key has spent in a period; those that have spent nothing are left out.
    pub(crate) fn spent(&self, period: Period) -> Spent {
        let of_keys = self.keys.iter().map(|(id, key)| (id.clone(), key.spent(period)));
        of_keys.filter(|(_, spent)| *spent > NanoUsd::ZERO).collect()
    }

    /// What a key has spent, in the periods of now; zeroes for one that is not known.
    pub(crate) fn key_spend(&self, id: &KeyId, now_ms: i64) -> KeySpend {
        let spent = |period| self.keys.get(id).map_or(NanoUsd::ZERO, |key| key.spent(period));
        let [all, day, week, month] = Period::each_at(now_ms).map(spent);
        let (held, running) = self.holds.live_key(id, now_ms);
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
