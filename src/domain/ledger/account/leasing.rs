//! Leases at the account: how much a lease gets, and when all leases are recalled.
//!
//! **Growth.** A lease grows only under these conditions: It began today (UTC). The account exists and is not suspended. The
//! key is neither revoked nor expired, and its mirror has the revision in the call. A lease begins only if it gets a part of
//! every rate that it wants. If it wants slots, it must get some of them, too: see [`super::pace`]. The growth is the wanted
//! amount, limited to 1/[`PART_OF_LEFT`] of the remaining balance. It is also limited to 1/[`ALL_PART_OF_LEFT`] of the remaining
//! balance; the amounts of all leases are subtracted from this limit. If the key has a quota, two further limits apply. They are
//! computed in the same way from the remaining quota and the amounts of the key's leases. If the growth would be less than
//! 1/[`PART_OF_WANTED`] of the wanted amount, the lease does not grow. Divisions round down. When a lease of a key grows, the
//! nearness of the balance and of the key's quota ends (see Recall). The nearness of other keys' quotas does not end. If a busy
//! key could end that nearness repeatedly, the requests of the other keys would be delayed forever.
//!
//! **Sequence.** A call has no effect if its `turn` is not higher than that of the last call about the lease. It does not even
//! renew the holder's node lease. A lease begins only if its number is higher than all numbers in earlier calls of its holder for
//! the key. So a late or repeated call has no effect, even after the end of its lease. The exception is a call that arrives after
//! the holder's node lease has lapsed.
//!
//! **Charges.** If a settlement names a lease, its cost is subtracted from the lease's amount, down to zero. The remaining
//! balance and the remaining quota therefore do not change.
//!
//! **Recall.** Each reply about a lease contains the recall mark, a number. When the mark rises, holders return the parts of
//! leases that they do not need. The mark rises by one when the account's record changes, when a negative amount is added to
//! the balance, and when a key with leases gets a higher revision. It also rises when rates or slots become near, and when money
//! becomes near. The balance is near when the remaining balance is less than the amounts of all leases. A quota is near when the
//! remaining quota is less than the amounts of the key's leases. This is checked after a hold is granted or refused, and after a
//! top-up is granted. After the mark has risen because the balance or a quota became near, it does not rise again for this reason
//! until a lease grows. The state of being near, with the time at which it began, is called nearness.
//!
//! **Top-ups.** If nothing remains of the balance or of the quota, a top-up is refused, with one exception. The reply is
//! [`TopUpReply::Recalling`] if leases have a part of this balance or quota, and its nearness began less than [`RECALL_MS`]
//! ago. The top-up itself can begin the nearness.

use crate::domain::{
    QuickMap,
    keys::{KeyId, terms::KeyTerms},
    ledger::{
        AccountChange, TopUpReply,
        account::{Account, bounded, holds::Hold, key::KeyMirror},
        lease::{
            ALL_PART_OF_LEFT, LeaseCall, LeaseChange, LeaseGrant, LeaseId, LeaseReply, PART_OF_LEFT, PART_OF_WANTED,
            RECALL_MS, day_of,
        },
    },
    money::NanoUsd,
};

impl Account {
    /// Begins, changes or ends a lease, as described for [`crate::store::ledger::LedgerStore::lease`].
    pub(crate) fn lease(&mut self, ask: &LeaseCall, now_ms: i64) -> LeaseReply {
        self.holds.drop_lapsed(now_ms);
        let (holder, name) = (&ask.lease.holder, ask.lease.hold_name());
        let known = self.holds.get(holder, &name);
        let known = known
            .filter(|hold| hold.lease.is_some() && hold.key == ask.key)
            .cloned();
        let before = known.as_ref().and_then(|hold| hold.lease).unwrap_or_default();
        if known.is_some() && ask.turn <= before.turn {
            return self.lease_reply(ask, now_ms);
        }
        let since_ms = known.as_ref().map_or(now_ms, |hold| hold.at_ms);
        let grows = matches!(ask.change, LeaseChange::Grow(_)) && self.can_grow(ask, since_ms, now_ms);
        let paced = self.plan_rates(ask, before, grows, now_ms);
        let may_be = known.is_some() || self.register_lease(ask, now_ms);
        match (ask.change, &known) {
            _ if !may_be => return LeaseReply::Gone,
            (LeaseChange::End, Some(_)) => {
                self.store_rates(&ask.key, &paced);
                self.holds.end(holder, &name);
                return LeaseReply::Gone;
            }
            (LeaseChange::End | LeaseChange::Return(_), None) => return LeaseReply::Gone,
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
                        self.holds.insert(holder, &name, lease, now_ms);
                        self.recall.on_lease_began(&ask.key);
                    }
                    (None, _) => return LeaseReply::Refused,
                    (Some(_), Some(more)) => self.holds.enlarge(holder, &name, more, now_ms),
                    (Some(_), None) => {}
                }
                if more.is_some() {
                    self.recall.on_lease_grew(&ask.key);
                }
            }
        }
        self.store_rates(&ask.key, &paced);
        self.holds.update_lease(holder, &name, paced.lease);
        self.holds.renew(holder, now_ms);
        self.lease_reply(ask, now_ms)
    }

    fn register_lease(&mut self, ask: &LeaseCall, now_ms: i64) -> bool {
        let LeaseId { holder, number } = &ask.lease;
        self.summary.is_none() || self.holds.register_lease(holder, &ask.key, *number, now_ms)
    }

    fn lease_reply(&self, ask: &LeaseCall, now_ms: i64) -> LeaseReply {
        let hold = self.holds.get(&ask.lease.holder, &ask.lease.hold_name());
        hold.map_or(LeaseReply::Gone, |hold| {
            LeaseReply::Held(LeaseGrant {
                since_ms: hold.at_ms,
                recall: self.recall.mark,
                allowance: self.lease_allowance(&ask.key, &hold.lease.unwrap_or_default()),
                grant: self.grant(&ask.node, hold.amount, now_ms, self.quota_of(&ask.key, now_ms)),
            })
        })
    }

    /// Whether a lease that began at `since_ms` is allowed to grow.
    fn can_grow(&self, ask: &LeaseCall, since_ms: i64, now_ms: i64) -> bool {
        let is_open = self.summary.as_ref().is_some_and(|account| !account.record.suspended);
        let mirror = self.keys.get(&ask.key).and_then(|key| key.mirror);
        let is_served = mirror
            .is_some_and(|mirror| mirror.revision == ask.revision && mirror.check(now_ms.div_euclid(1000)).is_ok());
        is_open && is_served && day_of(since_ms) == day_of(now_ms)
    }

    /// Returns the growth of a lease that is allowed to grow; `None` if the growth would be too small.
    fn growth(&self, ask: &LeaseCall, wanted: NanoUsd, now_ms: i64) -> Option<NanoUsd> {
        let mirror = self.keys.get(&ask.key)?.mirror?;
        let mut more = wanted.min(lendable_part(self.remaining_balance(), self.holds.leased()));
        if let Some(left) = self.remaining_quota_now(&mirror, &ask.key, now_ms) {
            more = more.min(lendable_part(left, self.holds.leased_key(&ask.key)));
        }
        let least = wanted.nanos().div_euclid(PART_OF_WANTED);
        (more > NanoUsd::ZERO && more.nanos() >= least).then_some(more)
    }

    fn remaining_quota_now(&self, mirror: &KeyMirror, key: &KeyId, now_ms: i64) -> Option<NanoUsd> {
        let used = self.quota_use(&mirror.terms, key, now_ms)?;
        Some(self.remaining_quota(&mirror.terms, key, now_ms, &used))
    }

    /// Recalls the leases because a key's record is replaced by one with a higher revision.
    pub(super) fn recall_for_revision(&mut self, key: &KeyId, later: &KeyMirror) {
        let known = self.keys.get(key).and_then(|key| key.mirror);
        if known.is_some_and(|known| known.revision < later.revision) && self.holds.leased_key(key) > NanoUsd::ZERO {
            self.recall.mark += 1;
        }
    }

    /// Recalls the leases if the change adds a negative amount to the balance.
    pub(super) fn recall_for_change(&mut self, change: &AccountChange) {
        let is_less = match change {
            AccountChange::Open { balance: amount, .. }
            | AccountChange::Credit { amount, .. }
            | AccountChange::Adjust { amount, .. } => *amount < NanoUsd::ZERO,
            AccountChange::Settle(_) => false,
        };
        self.recall.mark += u64::from(is_less);
    }

    /// Records whether the balance and the key's quota are near. Returns whether one of them has just become near. The quota is
    /// that of the period that contains `at_ms`.
    pub(super) fn record_near_money(&mut self, key: &KeyId, terms: &KeyTerms, at_ms: i64, now_ms: i64) -> bool {
        let leased = self.holds.leased();
        if self.summary.is_none() || leased <= NanoUsd::ZERO {
            return false;
        }
        let of_key = self.holds.leased_key(key);
        let quota_is_near = || {
            let used = self.quota_use(terms, key, at_ms);
            used.is_some_and(|used| self.remaining_quota(terms, key, at_ms, &used) < of_key)
        };
        let are_near = [
            (None, self.remaining_balance() < leased),
            (Some(key), of_key > NanoUsd::ZERO && quota_is_near()),
        ];
        let come_near = are_near.map(|(limit, is_near)| (limit, is_near && self.recall.near_since(limit).is_none()));
        for (limit, _) in come_near.into_iter().filter(|(_, comes_near)| *comes_near) {
            self.recall.set_near(limit, now_ms);
        }
        come_near.iter().any(|(_, comes_near)| *comes_near)
    }

    /// Returns the reply to a top-up when nothing remains of the balance or of the key's quota.
    pub(super) fn refuse_or_recall(&mut self, key: &KeyId, now_ms: i64) -> TopUpReply {
        let (limit, counted) = match self.remaining_balance() <= NanoUsd::ZERO {
            true => (None, self.holds.leased()),
            false => (Some(key), self.holds.leased_key(key)),
        };
        if counted <= NanoUsd::ZERO {
            return TopUpReply::Refused;
        }
        let since = self.recall.near_since(limit).unwrap_or_else(|| {
            self.recall.mark += 1;
            self.recall.set_near(limit, now_ms);
            now_ms
        });
        if now_ms.saturating_sub(since) < RECALL_MS {
            TopUpReply::Recalling
        } else {
            TopUpReply::Refused
        }
    }
}

/// Returns the amount by which a lease can grow. `left` is the remaining amount, and `leased` is the total amount of all leases.
fn lendable_part(left: NanoUsd, leased: NanoUsd) -> NanoUsd {
    let single = left.nanos().div_euclid(PART_OF_LEFT);
    let all = left.nanos().div_euclid(ALL_PART_OF_LEFT);
    NanoUsd::from_nanos(single.min(all.saturating_sub(leased.nanos())))
}

/// The recall mark of an account, and the limits that are near.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recall {
    /// The recall mark: a number that rises whenever all leases are recalled.
    pub(super) mark: u64,
    /// The time at which the balance became near, in milliseconds since the Unix epoch; `None` if it is not near or if a lease
    /// has grown since then.
    balance_near_ms: Option<i64>,
    /// The times at which quotas became near, by key, in milliseconds since the Unix epoch. A key is left out if one of its
    /// leases has grown since then.
    quotas_near_ms: QuickMap<KeyId, i64>,
    /// Whether a rate or the slots of the account became near, and no lease has begun since then.
    is_rate_near: bool,
    /// The keys whose rate or slots became near, and for which no lease has begun since then.
    rates_near: QuickMap<KeyId, ()>,
}

impl Recall {
    /// Returns the time at which the quota of the key `quota_of` became near. If `quota_of` is `None`, returns the time at which
    /// the balance became near. In both cases, returns `None` if this limit is not near.
    pub(super) fn near_since(&self, quota_of: Option<&KeyId>) -> Option<i64> {
        match quota_of {
            Some(key) => self.quotas_near_ms.get(key).copied(),
            None => self.balance_near_ms,
        }
    }

    /// Records that the quota of the key `quota_of` has become near. If `quota_of` is `None`, records that the balance has become
    /// near.
    pub(super) fn set_near(&mut self, quota_of: Option<&KeyId>, now_ms: i64) {
        match quota_of {
            Some(key) => drop(self.quotas_near_ms.insert(key.clone(), now_ms)),
            None => self.balance_near_ms = Some(now_ms),
        }
    }

    /// Whether a rate or the slots of the key `of` are near. If `of` is `None`, the rates and slots of the account are checked.
    pub(super) fn has_near_rate(&self, of: Option<&KeyId>) -> bool {
        of.map_or(self.is_rate_near, |key| self.rates_near.contains_key(key))
    }

    /// Records that a rate or the slots of the key `of` have become near. If `of` is `None`, records that a rate or the slots of
    /// the account have become near.
    pub(super) fn set_rate_near(&mut self, of: Option<&KeyId>) {
        match of {
            Some(key) => drop(self.rates_near.insert(key.clone(), ())),
            None => self.is_rate_near = true,
        }
    }

    /// Records that a lease of a key has begun. This ends the nearness of the rates and slots of the key and of the account.
    pub(super) fn on_lease_began(&mut self, key: &KeyId) {
        self.is_rate_near = false;
        self.rates_near.remove(key);
    }

    /// Records that a lease of a key has grown. This ends the nearness of the key's quota and of the balance.
    pub(super) fn on_lease_grew(&mut self, key: &KeyId) {
        self.balance_near_ms = None;
        self.quotas_near_ms.remove(key);
    }
}
