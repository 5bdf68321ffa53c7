//! How an account and its keys look from outside.

use super::Account;
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        period::{self, Periods},
        view::{AccountView, KeySpend, Spent},
    },
    money::NanoUsd,
};

impl Account {
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
            suspended: summary.suspended,
            terms: summary.terms,
            paid_today,
            paid_this_month,
            created_at: summary.created_at,
        })
    }

    /// What each key has spent in a period, by its name; those that have spent nothing are left out.
    pub(crate) fn spent(&self, period: &str) -> Spent {
        let of_keys = self.keys.iter().map(|(id, key)| (id.clone(), key.spent(period)));
        of_keys.filter(|(_, spent)| *spent > NanoUsd::ZERO).collect()
    }

    /// What a key has spent, in the periods of now; zeroes for one that is not known.
    pub(crate) fn key_spend(&self, id: &KeyId, now_ms: i64) -> KeySpend {
        let periods = Periods::at(now_ms);
        let spent = |period: &str| self.keys.get(id).map_or(NanoUsd::ZERO, |key| key.spent(period));
        let (held, running) = self.holds.live_key(id, now_ms);
        KeySpend {
            all: spent(period::ALL),
            day: spent(&periods.day),
            week: spent(&periods.week),
            month: spent(&periods.month),
            held,
            running,
        }
    }
}
