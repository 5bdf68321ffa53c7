//! What grants and leases tell this node of accounts and keys, and what is admitted by them.

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::{Grant, Scope},
        money::NanoUsd,
    },
    money::billing::{
        last_seen::{Account, Key, LastSeen},
        tally::Seat,
    },
};

impl LastSeen {
    /// The store has admitted a request. Whether the account's balance has become low by what it told.
    pub(in crate::money::billing) fn granted(
        &mut self,
        key: &KeyRecord,
        grant: &Grant,
        tokens: u64,
        now_ms: i64,
    ) -> (Seat, bool) {
        let seat = Seat {
            hold: grant.hold,
            on_grace: false,
        };
        let mut becomes_low = false;
        if let Some(account) = self.account(&key.account, now_ms) {
            becomes_low = account.note_grant(grant, true, now_ms);
            account.begin(seat, tokens, now_ms);
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.note_grant(key, grant, true, now_ms);
            known.begin(seat, tokens, now_ms);
        }
        (seat, becomes_low)
    }

    /// Notes how account and key stand at the store. Unless the grant `admits` requests, a refusal that is remembered stays: a
    /// lease that has ended is granted although its account is suspended. Returns whether the balance has become low.
    pub(in crate::money::billing) fn note_grant(
        &mut self,
        key: &KeyRecord,
        grant: &Grant,
        admits: bool,
        now_ms: i64,
    ) -> bool {
        if let Some(known) = self.key(&key.id, now_ms) {
            known.note_grant(key, grant, admits, now_ms);
        }
        let account = self.account(&key.account, now_ms);
        account.is_some_and(|account| account.note_grant(grant, admits, now_ms))
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
            account.begin(seat, tokens, now_ms);
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.begin(seat, tokens, now_ms);
        }
        seat
    }

    /// How many accounts' balances were low when the store last told of them.
    pub(in crate::money::billing) fn low(&self) -> usize {
        self.accounts.values().filter(|account| account.is_low).count()
    }
}

impl Account {
    fn note_grant(&mut self, grant: &Grant, admits: bool, now_ms: i64) -> bool {
        self.tally.told(grant.watermark, now_ms);
        self.rates = grant.account_rates;
        if admits || self.balance.is_some() {
            self.balance = Some(grant.balance);
        }
        let was_low = self.is_low;
        self.is_low = grant.low_balance.is_some_and(|low| grant.balance <= low);
        self.is_low && !was_low
    }

    fn begin(&mut self, seat: Seat, tokens: u64, now_ms: i64) {
        let taken = self.tally.take(Scope::Account, &self.rates, tokens, now_ms);
        self.tally.begin(seat, taken.ok());
    }
}

impl Key {
    fn note_grant(&mut self, key: &KeyRecord, grant: &Grant, admits: bool, now_ms: i64) {
        self.tally.told(grant.watermark, now_ms);
        self.note_quota(key, grant.quota.as_ref());
        self.rates = key.terms.rates;
        if admits {
            self.denied = None;
        }
    }

    fn begin(&mut self, seat: Seat, tokens: u64, now_ms: i64) {
        let taken = self.tally.take(Scope::Key, &self.rates, tokens, now_ms);
        self.tally.begin(seat, taken.ok());
    }
}
