//! Updates the table with grants and leases, and with the requests that they admit.

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::{Grant, LimitScope},
        money::NanoUsd,
    },
    money::billing::{
        last_seen::{LastSeen, SeenAccount, SeenKey},
        tally::CountedRequest,
    },
};

impl LastSeen {
    /// Records that the store has admitted a request. Also returns whether the account's balance has become low.
    pub(in crate::money::billing) fn on_granted(
        &mut self,
        key: &KeyRecord,
        grant: &Grant,
        tokens: u64,
        now_ms: i64,
    ) -> (CountedRequest, bool) {
        let seat = CountedRequest {
            hold: grant.hold,
            by_grace: false,
        };
        let mut becomes_low = false;
        if let Some(account) = self.account(&key.account, now_ms) {
            becomes_low = account.record_grant(grant, true, now_ms);
            account.begin(seat, tokens, now_ms);
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.record_grant(key, grant, true, now_ms);
            known.begin(seat, tokens, now_ms);
        }
        (seat, becomes_low)
    }

    /// Records the store's view of account and key. A recorded denial is kept unless the grant `admits` requests: the reply for a
    /// lease that has ended is a grant even if the account is suspended. Returns whether the balance has become low.
    pub(in crate::money::billing) fn record_grant(
        &mut self,
        key: &KeyRecord,
        grant: &Grant,
        admits: bool,
        now_ms: i64,
    ) -> bool {
        if let Some(known) = self.key(&key.id, now_ms) {
            known.record_grant(key, grant, admits, now_ms);
        }
        let account = self.account(&key.account, now_ms);
        account.is_some_and(|account| account.record_grant(grant, admits, now_ms))
    }

    /// Records that a request was admitted from a lease.
    pub(in crate::money::billing) fn on_lease_admission(
        &mut self,
        key: &KeyRecord,
        hold: NanoUsd,
        tokens: u64,
        now_ms: i64,
    ) -> CountedRequest {
        let seat = CountedRequest { hold, by_grace: false };
        if let Some(account) = self.account(&key.account, now_ms) {
            account.begin(seat, tokens, now_ms);
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.begin(seat, tokens, now_ms);
        }
        seat
    }

    /// The number of accounts whose balance was low when the store last reported it.
    pub(in crate::money::billing) fn low_accounts(&self) -> usize {
        self.accounts.values().filter(|account| account.is_low).count()
    }
}

impl SeenAccount {
    fn record_grant(&mut self, grant: &Grant, admits: bool, now_ms: i64) -> bool {
        self.tally.on_reply(grant.watermark, now_ms);
        self.rates = grant.account_rates;
        if admits || self.balance.is_some() {
            self.balance = Some(grant.balance);
        }
        let was_low = self.is_low;
        self.is_low = grant.low_balance.is_some_and(|low| grant.balance <= low);
        self.is_low && !was_low
    }

    fn begin(&mut self, seat: CountedRequest, tokens: u64, now_ms: i64) {
        let taken = self.tally.reserve(LimitScope::Account, &self.rates, tokens, now_ms);
        self.tally.begin(seat, taken.ok());
    }
}

impl SeenKey {
    fn record_grant(&mut self, key: &KeyRecord, grant: &Grant, admits: bool, now_ms: i64) {
        self.tally.on_reply(grant.watermark, now_ms);
        self.set_quota_use(key, grant.quota.as_ref());
        self.rates = key.terms.rates;
        if admits {
            self.denied = None;
        }
    }

    fn begin(&mut self, seat: CountedRequest, tokens: u64, now_ms: i64) {
        let taken = self.tally.reserve(LimitScope::Key, &self.rates, tokens, now_ms);
        self.tally.begin(seat, taken.ok());
    }
}
