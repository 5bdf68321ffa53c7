//! Rates and places: how fast a key and its account may ask, how many requests may run at one time, and what leases have of that.
//!
//! **A lease's part.** Where key or account have a limit per minute, a lease has been *given* so many requests or tokens since it
//! began, taken from the buckets ahead; its holder tells how much of that is *used*. The rest is lent. Where they have a limit of
//! concurrency it has *places*; those in which nothing runs are lent, and count as taken. Without a limit nothing is lent.
//!
//! **A question** first brings the buckets to now, with what was lent before it. What is used is the most that was told, and what is
//! given at least that. What is lent beyond what its holder wants is put back. With [`LeaseChange::Grow`]
//! it gets what is missing: the least of that, of a [`PART_OF_LEFT`] of what is left, and of what an [`ALL_PART_OF_LEFT`] of
//! that exceeds all that is lent by; of the key's bucket and of the account's. Nothing, if that is less than a [`PART_OF_WANTED`] of
//! what is missing, and nothing from where less than half of a limit is left. A lease begins only if it gets some of all that is missing.
//!
//! **Its end** puts back what is lent. What a holder had that is not heard of any more is lost: the buckets fill up.
//!
//! **Nearness.** A rate or the places are near when leases have more of them than is left. It is looked at before a request is
//! admitted or refused, of the key and of the account, moves the mark of recalls once, and ends for both when a lease of the key
//! begins.

use super::{
    Account,
    bucket::Buckets,
    holds::{LeaseHold, Lent},
    key::{AccountKey, Mirror},
};
use crate::domain::{
    keys::{key::KeyId, terms::Rates},
    ledger::{
        admission::{Admit, Denial, Scope},
        lease::{ALL_PART_OF_LEFT, AskLease, LeaseAllowance, LeaseChange, PART_OF_LEFT, PART_OF_WANTED, Rated},
    },
};

/// The limits of a key or an account, and how they stand at a moment.
struct Pace {
    rates: Rates,
    buckets: Buckets,
    running: u64,
    lent: Lent,
}

/// What a question makes of a lease's rates and places.
pub(super) struct Paced {
    /// The lease afterwards.
    pub(super) lease: LeaseHold,
    /// Whether it got some of each that it lacked.
    pub(super) is_whole: bool,
    key: Buckets,
    account: Buckets,
}

impl Account {
    /// The buckets of key and account after a request, or the limit that is reached.
    pub(super) fn check_pace(&self, ask: &Admit, of_key: &Rates, now_ms: i64) -> Result<(Buckets, Buckets), Denial> {
        let of_account = self
            .summary
            .as_ref()
            .map(|it| it.record.terms.rates)
            .unwrap_or_default();
        let (lent_key, lent) = (self.holds.lent_key(&ask.key.id), self.holds.lent());
        let running = self.holds.running_key(&ask.node, &ask.key.id, ask.ended_key);
        concurrency(Scope::Key, of_key.concurrency, running, lent_key)?;
        let running = self.holds.running(&ask.node, ask.ended_account);
        concurrency(Scope::Account, of_account.concurrency, running, lent)?;
        let full = Buckets::default();
        let key = self.keys.get(&ask.key.id).map_or(&full, AccountKey::buckets);
        let key = key.take(Scope::Key, of_key, ask.tokens, lent_key.rated, now_ms)?;
        let account = (self.buckets).take(Scope::Account, &of_account, ask.tokens, lent.rated, now_ms)?;
        Ok((key, account))
    }

    /// Notes which of key and account are near: a rate, or the places. Whether one was not before.
    pub(super) fn pace_comes_near(&mut self, key: &KeyId, mirror: &Mirror, now_ms: i64) -> bool {
        if self.summary.is_none() || self.holds.lent() == Lent::default() {
            return false;
        }
        let [of_key, of_account] = self.paces(key, &mirror.terms.rates, now_ms);
        let near = [(Some(key), of_key.is_near()), (None, of_account.is_near())];
        let near = near.map(|(of, is_near)| (of, is_near && !self.recall.pace_is_near(of)));
        for (of, _) in near.into_iter().filter(|(_, comes_near)| *comes_near) {
            self.recall.pace_comes_near(of);
        }
        near.iter().any(|(_, comes_near)| *comes_near)
    }

    /// What a question makes of a lease's rates and places, if it may grow; [`Account::keep_pace`] keeps it.
    pub(super) fn paced(&self, ask: &AskLease, before: LeaseHold, may_grow: bool, now_ms: i64) -> Paced {
        let terms = self.keys.get(&ask.key).map(AccountKey::terms).unwrap_or_default();
        let [mut key, mut account] = self.paces(&ask.key, &terms.rates, now_ms);
        let (of_key, of_account) = (key.lendable(), account.lendable());
        let part = |of: fn(&LeaseAllowance) -> Option<u64>| {
            let part = [of(&of_key), of(&of_account)].into_iter().flatten().min();
            part.map(|part| if may_grow { part } else { 0 })
        };
        let used = ask.used.max(before.used);
        let lent = before.given.max(used).beyond(used);
        let (free, places) = match ask.change {
            LeaseChange::End => (Rated::default(), 0),
            LeaseChange::Grow(_) | LeaseChange::Return(_) => (ask.free, ask.places),
        };
        let requests = step(lent.requests, free.requests, part(|it| it.requests)).unwrap_or_default();
        let tokens = step(lent.tokens, free.tokens, part(|it| it.tokens)).unwrap_or_default();
        let places = step(before.places, places, part(|it| it.places)).unwrap_or(Step {
            after: ask.running,
            ..Step::default()
        });
        let lent = Rated {
            requests: requests.after,
            tokens: tokens.after,
        };
        for pace in [&mut key, &mut account] {
            let (more, back) = (
                rated(&requests, &tokens, |it| it.more),
                rated(&requests, &tokens, |it| it.back),
            );
            pace.buckets.lend(&pace.rates, more, back);
        }
        Paced {
            lease: LeaseHold {
                running: ask.running,
                turn: ask.turn,
                used,
                given: used.plus(lent),
                places: places.after,
            },
            is_whole: requests.is_whole && tokens.is_whole && places.is_whole,
            key: key.buckets,
            account: account.buckets,
        }
    }

    /// Keeps the buckets of a question.
    pub(super) fn keep_pace(&mut self, key: &KeyId, paced: &Paced) {
        self.buckets = paced.account.clone();
        if let Some(key) = self.keys.get_mut(key) {
            key.fill(paced.key.clone());
        }
    }

    /// The requests and tokens that a lease's holder may admit out of it.
    pub(super) fn lease_allowance(&self, key: &KeyId, lease: &LeaseHold) -> LeaseAllowance {
        let key = self.keys.get(key).map(AccountKey::terms).unwrap_or_default().rates;
        let account = self
            .summary
            .as_ref()
            .map(|it| it.record.terms.rates)
            .unwrap_or_default();
        let is_limited = |of: fn(&Rates) -> Option<u64>| of(&key).is_some() || of(&account).is_some();
        LeaseAllowance {
            requests: is_limited(|it| it.rpm).then_some(lease.given.requests),
            tokens: is_limited(|it| it.tpm).then_some(lease.given.tokens),
            places: is_limited(|it| it.concurrency).then_some(lease.places),
        }
    }

    /// Of the key and of the account.
    fn paces(&self, key: &KeyId, of_key: &Rates, now_ms: i64) -> [Pace; 2] {
        let of_account = self
            .summary
            .as_ref()
            .map(|it| it.record.terms.rates)
            .unwrap_or_default();
        let full = Buckets::default();
        let buckets = self.keys.get(key).map_or(&full, AccountKey::buckets);
        let pace = |rates: &Rates, buckets: &Buckets, running, lent: Lent| Pace {
            rates: *rates,
            buckets: buckets.at(rates, lent.rated, now_ms),
            running,
            lent,
        };
        let running_key = self.holds.live_key(key, now_ms).1;
        let running = self.holds.live(now_ms).1;
        [
            pace(of_key, buckets, running_key, self.holds.lent_key(key)),
            pace(&of_account, &self.buckets, running, self.holds.lent()),
        ]
    }
}

impl Pace {
    /// How many places nobody has; `None` without a limit.
    fn places(&self) -> Option<u64> {
        let taken = self.running.saturating_add(self.lent.places);
        Some(self.rates.concurrency?.saturating_sub(taken))
    }

    fn lendable(&self) -> LeaseAllowance {
        let (requests, tokens) = self.buckets.lendable(&self.rates, self.lent.rated);
        let places = self.places().map(|left| {
            let is_far = left.saturating_mul(2) >= self.rates.concurrency.unwrap_or(0);
            let (single, all) = (
                left / PART_OF_LEFT.unsigned_abs(),
                left / ALL_PART_OF_LEFT.unsigned_abs(),
            );
            let part = single.min(all.saturating_sub(self.lent.places));
            if is_far { part } else { 0 }
        });
        LeaseAllowance {
            requests,
            tokens,
            places,
        }
    }

    fn is_near(&self) -> bool {
        let places = self.places().is_some_and(|left| left < self.lent.places);
        places || self.buckets.are_near(self.lent.rated)
    }
}

/// What becomes of one thing that a lease has a part of. The default: it has none, and lacks none.
#[derive(Clone, Copy, Debug)]
struct Step {
    after: u64,
    more: u64,
    back: u64,
    is_whole: bool,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            after: 0,
            more: 0,
            back: 0,
            is_whole: true,
        }
    }
}

/// From what it has to what it wants, if it may get a part; `None` where nothing is limited.
fn step(has: u64, wants: u64, part: Option<u64>) -> Option<Step> {
    let (back, missing) = (has.saturating_sub(wants), wants.saturating_sub(has));
    let more = missing.min(part?);
    let is_enough = more > 0 && more >= missing / PART_OF_WANTED.unsigned_abs();
    let more = if is_enough { more } else { 0 };
    Some(Step {
        after: has.saturating_sub(back).saturating_add(more),
        more,
        back,
        is_whole: missing == 0 || is_enough,
    })
}

fn rated(requests: &Step, tokens: &Step, of: fn(&Step) -> u64) -> Rated {
    Rated {
        requests: of(requests),
        tokens: of(tokens),
    }
}

fn concurrency(scope: Scope, limit: Option<u64>, running: u64, lent: Lent) -> Result<(), Denial> {
    match limit {
        Some(limit) if running.saturating_add(lent.places) >= limit => Err(Denial::Concurrency {
            scope,
            limit,
            lent: lent.places > 0,
        }),
        _ => Ok(()),
    }
}
