//! The account's side of leases: what is granted, and when all of it is to come back.
//!
//! **Growth.** A lease grows only if the account is there and not suspended, the key is known here with the revision that is
//! told, neither revoked nor expired; and if it began today (UTC). Of rates and places it gets what [`super::pace`] says. It begins
//! only if it gets some of each that it wants.
//! It gets the least of what is wanted, of a [`PART_OF_LEFT`] of what is left, and of what an [`ALL_PART_OF_LEFT`] of that
//! exceeds all leases by; the same for the key's quota, with the leases of the key. If that is less than a [`PART_OF_WANTED`] of what
//! is wanted, it gets nothing. Each division is rounded down. A growth ends the nearness (below) of the balance and of its key's
//! quota. That of other keys' stays: a busy key would end it again and again, and what the others ask for be put off for ever.
//!
//! **Turns.** A question whose number is not above that of the last one about the lease changes nothing, not even the holder's
//! lease. A lease begins only if its number is above all those of its holder and key that were asked about. So a question that comes
//! late, or twice, does no harm, not even behind the end of its lease; unless it is later than the holder's lease.
//!
//! **Charges.** A settlement that names a lease takes its cost from it, as far as that goes. So what is left stays as it is.
//!
//! **Recall.** The mark moves by one with another record of the account, an amount below zero, and a later revision of a
//! key that has leases. It also moves when rates or places come near, and when less is left of the balance than leases have, or of the quota than leases of
//! the key have: looked at when a hold was granted or refused and when a top-up was granted, in that order behind it, and once
//! for each of the two until a lease grows. That is the nearness of the balance, or of the key's quota, with its time.
//!
//! **Top-ups** for which nothing is left are [`ToppedUp::Recalling`] instead of refused while there are leases that the limit
//! counts, from the beginning of its nearness (which they may be) until [`RECALL_MS`] later.

use super::{Account, amounts::bounded, holds::Hold, key::Mirror};
use crate::domain::{
    keys::{key::KeyId, terms::KeyTerms},
    ledger::{
        lease::{
            ALL_PART_OF_LEFT, AskLease, LeaseAnswer, LeaseChange, LeaseId, Leased, PART_OF_LEFT, PART_OF_WANTED,
            RECALL_MS, day_of,
        },
        step::Change,
        top_up::ToppedUp,
    },
    money::NanoUsd,
};

impl Account {
    /// See [`crate::store::ledger::LedgerStore::lease`].
    pub(crate) fn lease(&mut self, ask: &AskLease, now_ms: i64) -> LeaseAnswer {
        self.holds.drop_lapsed(now_ms);
        let (holder, name) = (&ask.lease.holder, ask.lease.hold());
        let known = self.holds.get(holder, &name);
        let known = known
            .filter(|hold| hold.lease.is_some() && hold.key == ask.key)
            .cloned();
        let before = known.as_ref().and_then(|hold| hold.lease).unwrap_or_default();
        if known.is_some() && ask.turn <= before.turn {
            return self.leased(ask, now_ms);
        }
        let since_ms = known.as_ref().map_or(now_ms, |hold| hold.at_ms);
        let grows = matches!(ask.change, LeaseChange::Grow(_)) && self.may_grow(ask, since_ms, now_ms);
        let paced = self.paced(ask, before, grows, now_ms);
        let may_be = known.is_some() || self.may_begin(ask, now_ms);
        match (ask.change, &known) {
            _ if !may_be => return LeaseAnswer::Gone,
            (LeaseChange::End, Some(_)) => {
                self.keep_pace(&ask.key, &paced);
                self.holds.end(holder, &name);
                return LeaseAnswer::Gone;
            }
            (LeaseChange::End | LeaseChange::Return(_), None) => return LeaseAnswer::Gone,
            (LeaseChange::Return(amount), Some(_)) => self.holds.draw(holder, &name, amount),
            (LeaseChange::Grow(wanted), _) => {
                let more = if grows {
                    self.growth(ask, bounded(wanted), now_ms)
                } else {
                    None
                };
                match (&known, more) {
                    (None, Some(amount)) if paced.is_whole => {
                        let lease = Hold {
                            key: ask.key.clone(),
                            amount,
                            at_ms: now_ms,
                            lease: Some(paced.lease),
                        };
                        self.holds.put(holder, &name, lease, now_ms);
                        self.recall.began(&ask.key);
                    }
                    (None, _) => return LeaseAnswer::Refused,
                    (Some(_), Some(more)) => self.holds.enlarge(holder, &name, more, now_ms),
                    (Some(_), None) => {}
                }
                if more.is_some() {
                    self.recall.grew(&ask.key);
                }
            }
        }
        self.keep_pace(&ask.key, &paced);
        self.holds.update_lease(holder, &name, paced.lease);
        self.holds.renew(holder, now_ms);
        self.leased(ask, now_ms)
    }

    fn may_begin(&mut self, ask: &AskLease, now_ms: i64) -> bool {
        let LeaseId { holder, number } = &ask.lease;
        self.summary.is_none() || self.holds.may_begin(holder, &ask.key, *number, now_ms)
    }

    fn leased(&self, ask: &AskLease, now_ms: i64) -> LeaseAnswer {
        let hold = self.holds.get(&ask.lease.holder, &ask.lease.hold());
        hold.map_or(LeaseAnswer::Gone, |hold| {
            LeaseAnswer::Held(Leased {
                since_ms: hold.at_ms,
                recall: self.recall.mark,
                allowance: self.lease_allowance(&ask.key, &hold.lease.unwrap_or_default()),
                grant: self.grant(&ask.node, hold.amount, now_ms, self.quota_of(&ask.key, now_ms)),
            })
        })
    }

    /// Whether a lease that began then may grow.
    fn may_grow(&self, ask: &AskLease, since_ms: i64, now_ms: i64) -> bool {
        let is_open = self.summary.as_ref().is_some_and(|account| !account.record.suspended);
        let mirror = self.keys.get(&ask.key).and_then(|key| key.mirror);
        let is_served = mirror
            .is_some_and(|mirror| mirror.revision == ask.revision && mirror.check(now_ms.div_euclid(1000)).is_ok());
        is_open && is_served && day_of(since_ms) == day_of(now_ms)
    }

    /// By how much a lease that may grow does so; `None`: it does not.
    fn growth(&self, ask: &AskLease, wanted: NanoUsd, now_ms: i64) -> Option<NanoUsd> {
        let mirror = self.keys.get(&ask.key)?.mirror?;
        let mut more = wanted.min(part(self.left_of_balance(), self.holds.leased()));
        if let Some(left) = self.left_of_quota_now(&mirror, &ask.key, now_ms) {
            more = more.min(part(left, self.holds.leased_key(&ask.key)));
        }
        let least = wanted.nanos().div_euclid(PART_OF_WANTED);
        (more > NanoUsd::ZERO && more.nanos() >= least).then_some(more)
    }

    fn left_of_quota_now(&self, mirror: &Mirror, key: &KeyId, now_ms: i64) -> Option<NanoUsd> {
        let used = self.quota_use(&mirror.terms, key, now_ms)?;
        Some(self.left_of_quota(&mirror.terms, key, now_ms, &used))
    }

    /// A key's record is replaced by a later one.
    pub(super) fn recall_for_revision(&mut self, key: &KeyId, later: &Mirror) {
        let known = self.keys.get(key).and_then(|key| key.mirror);
        if known.is_some_and(|known| known.revision < later.revision) && self.holds.leased_key(key) > NanoUsd::ZERO {
            self.recall.mark += 1;
        }
    }

    /// An operator's change after which nothing may be admitted by what a node knew before.
    pub(super) fn recall_for_change(&mut self, change: &Change) {
        let is_less = match change {
            Change::Open { balance: amount, .. } | Change::Credit { amount, .. } | Change::Adjust { amount, .. } => {
                *amount < NanoUsd::ZERO
            }
            Change::Settle(_) => false,
        };
        self.recall.mark += u64::from(is_less);
    }

    /// Notes which of balance and quota are near. Whether one was not before. `at_ms` tells the quota's period.
    pub(super) fn money_comes_near(&mut self, key: &KeyId, terms: &KeyTerms, at_ms: i64, now_ms: i64) -> bool {
        let leased = self.holds.leased();
        if self.summary.is_none() || leased <= NanoUsd::ZERO {
            return false;
        }
        let of_key = self.holds.leased_key(key);
        let quota_is_near = || {
            let used = self.quota_use(terms, key, at_ms);
            used.is_some_and(|used| self.left_of_quota(terms, key, at_ms, &used) < of_key)
        };
        let are_near = [
            (None, self.left_of_balance() < leased),
            (Some(key), of_key > NanoUsd::ZERO && quota_is_near()),
        ];
        let come_near = are_near.map(|(limit, is_near)| (limit, is_near && self.recall.near_since(limit).is_none()));
        for (limit, _) in come_near.into_iter().filter(|(_, comes_near)| *comes_near) {
            self.recall.comes_near(limit, now_ms);
        }
        come_near.iter().any(|(_, comes_near)| *comes_near)
    }

    /// What a top-up gets of which nothing is left: of the balance, or else of the key's quota.
    pub(super) fn nothing_left(&mut self, key: &KeyId, now_ms: i64) -> ToppedUp {
        let (limit, counted) = match self.left_of_balance() <= NanoUsd::ZERO {
            true => (None, self.holds.leased()),
            false => (Some(key), self.holds.leased_key(key)),
        };
        if counted <= NanoUsd::ZERO {
            return ToppedUp::Refused;
        }
        let since = self.recall.near_since(limit).unwrap_or_else(|| {
            self.recall.mark += 1;
            self.recall.comes_near(limit, now_ms);
            now_ms
        });
        if now_ms.saturating_sub(since) < RECALL_MS {
            ToppedUp::Recalling
        } else {
            ToppedUp::Refused
        }
    }
}

/// What of an amount may be leased beside what is leased already.
fn part(left: NanoUsd, leased: NanoUsd) -> NanoUsd {
    let single = left.nanos().div_euclid(PART_OF_LEFT);
    let all = left.nanos().div_euclid(ALL_PART_OF_LEFT);
    NanoUsd::from_nanos(single.min(all.saturating_sub(leased.nanos())))
}
