//! What leases tell this node of accounts and keys, and what is admitted out of them.

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::{Grant, Scope},
        money::NanoUsd,
    },
    money::billing::{last_seen::LastSeen, tally::Seat},
};

impl LastSeen {
    /// The store has told how account and key stand. Unless it `admits` requests by that, whoever was refused stays so: a lease
    /// that has ended is told of although its account is suspended.
    pub(in crate::money::billing) fn told(&mut self, key: &KeyRecord, grant: &Grant, admits: bool, now_ms: i64) {
        if let Some(account) = self.account(&key.account, now_ms) {
            account.tally.told(grant.watermark, now_ms);
            account.rates = grant.account_rates;
            if admits || account.balance.is_some() {
                account.balance = Some(grant.balance);
            }
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.tally.told(grant.watermark, now_ms);
            known.note_quota(key, grant.quota.as_ref());
            known.rates = key.terms.rates;
            if admits {
                known.denied = None;
            }
        }
    }

    /// A request was admitted out of a lease.
    pub(in crate::money::billing) fn leased(
        &mut self,
        key: &KeyRecord,
        hold: NanoUsd,
        tokens: u64,
        now_ms: i64,
    ) -> Seat {
        let seat = Seat { hold, on_grace: false };
        if let Some(account) = self.account(&key.account, now_ms) {
            let taken = account.tally.take(Scope::Account, &account.rates, tokens, now_ms);
            account.tally.begin(seat, taken.ok());
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            let taken = known.tally.take(Scope::Key, &known.rates, tokens, now_ms);
            known.tally.begin(seat, taken.ok());
        }
        seat
    }
}
