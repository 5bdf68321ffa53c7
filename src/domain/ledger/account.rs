//! The reference model of one account: what every ledger store does, without any engine. Engines in another language obey
//! the same rules to the letter, in integers that a double counts exactly.
//!
//! **Amounts** that come in are first held within ±[`NanoUsd::MAX`], and so is every sum. Estimates and charges below zero
//! count as zero.
//!
//! **Being there.** An account comes into being with the first step applied to it, or the first [`AccountRecord`]. One that is
//! not there keeps nothing: neither keys nor holds. `created_at` is the time of the first [`Change::Open`] that comes, 0 before.
//!
//! **Keys** are mirrored: revision, whether revoked, end, terms. [`Account::admit`] goes: (1) drop the nodes whose lease has
//! passed; (2) a hold that is there answers, and nothing else is looked at or changed; (3) a revision lower than the
//! mirrored one is [`AdmitReply::StaleKey`]; (4) a higher one, or the first, replaces the mirror if the account is there, and
//! stays also when the request is refused; (5) the checks, in the order of [`Denial`], all before the next write: the key's
//! end is compared with `now_ms / 1000` rounded down; concurrency is that of the key, then of the account; rates are the
//! key's requests, the key's tokens, the account's requests, the account's tokens; (6) buckets, hold and lease are written.
//!
//! **What is left** is `balance - held`, and `quota - spent - held` where the key has a quota. Of the quota, `spent` is the
//! key's counter of the period of now for the key's reset, and `held` the sum of its holds that were admitted in that very
//! period; of the balance, `held` is the sum of all holds. At zero or less of one the request is refused, the balance first:
//! exhausted where it is spent already, held where running requests have the rest. The hold is the least of the estimate and both. A top-up does the same with the period of the hold's admission and the
//! quota as it is now; it looks at neither state, suspension nor rates, and nothing or less is never granted.
//!
//! **Running** are the live holds, also those of zero. From those of the asking node its `ended_key` or `ended_account` is
//! taken, not below zero; the holds of other nodes count in full, and so do places of leases in which nothing runs. As many as
//! the limit, or more: refused.
//!
//! **Rates**: see [`bucket`]. **Holds and leases**: see [`holds`]. A lease becomes [`super::node::LEASE_MS`] from now when a hold is
//! granted, when a top-up is granted, and by [`Account::renew`] where the node has holds. No other call touches it.
//!
//! **Steps** need no clock. A settlement ends the node's hold of that request, if there is one; takes the cost from the
//! balance; adds it to the account's `spent` and to the key's four counters of the time of its admission; and corrects the
//! token buckets that are there. The key need not be known.
//!
//! **Notices.** A settlement that brings a key's spending to a part of its quota, or the balance to what counts as low, is
//! noted: see [`notices`]. **Leases** are holds too: see [`leasing`], and [`pace`] for what they have of rates and places.
//!
//! **Operations.** An amount that comes with an id counts once for it: see [`operations`]. **Payments** count in the balance,
//! and on their day and in their month: see [`paid_in`].
//!
//! **Counters** of a key are by period. Those that ended more than 7 days before now may be dropped, `all` never.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use self::{
    amounts::{bounded, charge, sum},
    bucket::Buckets,
    holds::{Hold, Holds},
    key::{AccountKey, Mirror},
    notices::Notices,
    operations::{Operations, Recorded},
    paid_in::PaidIn,
    recall::Recall,
};
use super::{
    account_record::AccountRecord,
    admission::{Admit, AdmitReply, Denial, Grant, QuotaUse},
    node::NodeId,
    period::{self, Period},
    step::{Change, Settlement, Step},
    top_up::{TopUp, ToppedUp},
};
use crate::domain::{
    keys::{key::KeyId, terms::KeyTerms},
    ledger::consumption::Row,
    money::NanoUsd,
    quick_map::QuickMap,
};

mod amounts;
pub(crate) mod bucket;
pub(crate) mod holds;
pub(crate) mod key;
mod leasing;
pub(crate) mod notices;
mod noticing;
pub(crate) mod operations;
mod pace;
pub(crate) mod paid_in;
mod recall;
#[cfg(test)]
mod tests;
pub(crate) mod transient;
mod viewing;

/// One account with its keys and its holds. The default one is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    summary: Option<AccountSummary>,
    keys: QuickMap<KeyId, AccountKey>,
    buckets: Buckets,
    holds: Holds,
    recall: Recall,
    operations: Operations,
    notices: Notices,
}

/// The durable part of an account, without keys and operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccountSummary {
    /// What is left: all credits and adjustments, less all charges.
    pub balance: NanoUsd,
    /// The sum of all charges.
    pub spent: NanoUsd,
    /// What operators have set.
    pub record: AccountRecord,
    /// When it was created, in seconds since the Unix epoch; 0 if it was charged before its creation.
    pub created_at: i64,
    /// What was paid in lately.
    #[serde(default)]
    pub paid: PaidIn,
    /// The last step applied of each node.
    pub watermarks: BTreeMap<NodeId, u64>,
    /// Of each node, up to which number of its journal its rows are in the daily sums.
    pub summed: BTreeMap<NodeId, u64>,
}

/// What a request that passes the checks is granted.
struct Checked {
    hold: NanoUsd,
    key: Buckets,
    account: Buckets,
    quota: Option<QuotaUse>,
}

impl Account {
    /// An account as it was kept: without holds, its buckets full.
    pub(crate) fn restored(
        summary: AccountSummary,
        keys: impl IntoIterator<Item = (KeyId, AccountKey)>,
        operations: impl IntoIterator<Item = Recorded>,
    ) -> Self {
        Self {
            summary: Some(summary),
            keys: keys.into_iter().collect(),
            operations: operations.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The durable part; `None` if the account does not exist.
    pub(crate) fn summary(&self) -> Option<&AccountSummary> {
        self.summary.as_ref()
    }

    /// The remembered operations, which are durable as well.
    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// The durable part of one of its keys.
    pub(crate) fn key(&self, id: &KeyId) -> Option<&AccountKey> {
        self.keys.get(id)
    }

    /// The revision of the key's mirrored record; `None` if it has none.
    pub(crate) fn key_revision(&self, id: &KeyId) -> Option<u64> {
        self.keys.get(id)?.revision()
    }

    /// See [`crate::store::ledger::LedgerStore::admit`].
    pub(crate) fn admit(&mut self, ask: &Admit, now_ms: i64) -> AdmitReply {
        self.holds.drop_lapsed(now_ms);
        if let Some(hold) = self.holds.get(&ask.node, &ask.request) {
            let (amount, at_ms) = (hold.amount, hold.at_ms);
            let quota = self.quota_of(&ask.key.id, at_ms);
            return AdmitReply::Granted(self.grant(&ask.node, amount, at_ms, quota));
        }
        let Some(mirror) = AccountKey::mirror(self.keys.get(&ask.key.id), &ask.key) else {
            return AdmitReply::StaleKey;
        };
        let checked = self.check(ask, &mirror, now_ms);
        let pace_comes_near = self.pace_comes_near(&ask.key.id, &mirror, now_ms);
        if self.summary.is_some() {
            self.recall_for_revision(&ask.key.id, &mirror);
            let key = self.keys.entry(ask.key.id.clone()).or_default();
            key.take_over(mirror);
            if let Ok(checked) = &checked {
                key.granted(checked.key.clone(), now_ms);
            }
        }
        let answer = match checked {
            Err(denied) => AdmitReply::Refused(denied),
            Ok(checked) => {
                self.buckets = checked.account;
                let hold = Hold {
                    key: ask.key.id.clone(),
                    amount: checked.hold,
                    at_ms: now_ms,
                    lease: None,
                };
                self.holds.put(&ask.node, &ask.request, hold, now_ms);
                AdmitReply::Granted(self.grant(&ask.node, checked.hold, now_ms, checked.quota))
            }
        };
        let money_comes_near = self.money_comes_near(&ask.key.id, &mirror.terms, now_ms, now_ms);
        self.recall.mark += u64::from(pace_comes_near || money_comes_near);
        answer
    }

    fn check(&self, ask: &Admit, mirror: &Mirror, now_ms: i64) -> Result<Checked, Denial> {
        mirror.check(now_ms.div_euclid(1000))?;
        let account = self.summary.as_ref().ok_or(Denial::AccountUnknown)?;
        if account.record.suspended {
            return Err(Denial::AccountSuspended);
        }
        if account.balance <= NanoUsd::ZERO {
            return Err(Denial::BalanceExhausted);
        }
        let mut left = self.left_of_balance();
        if left <= NanoUsd::ZERO {
            return Err(Denial::BalanceHeld);
        }
        let quota = self.quota_use(&mirror.terms, &ask.key.id, now_ms);
        if let Some(quota) = quota {
            if quota.spent >= quota.quota {
                return Err(Denial::QuotaExhausted(quota));
            }
            let of_quota = self.left_of_quota(&mirror.terms, &ask.key.id, now_ms, &quota);
            if of_quota <= NanoUsd::ZERO {
                return Err(Denial::QuotaHeld(quota));
            }
            left = left.min(of_quota);
        }
        let (key, account) = self.check_pace(ask, &mirror.terms.rates, now_ms)?;
        let hold = bounded(ask.estimate).max(NanoUsd::ZERO).min(left);
        Ok(Checked {
            hold,
            key,
            account,
            quota,
        })
    }

    fn grant(&self, node: &NodeId, hold: NanoUsd, at_ms: i64, quota: Option<QuotaUse>) -> Grant {
        let account = self.summary.as_ref();
        Grant {
            hold,
            at_ms,
            balance: account.map_or(NanoUsd::ZERO, |it| it.balance),
            low_balance: account.and_then(|it| it.record.terms.low_balance),
            quota,
            provider_state: account.map(|it| it.record.terms.provider_state).unwrap_or_default(),
            account_rates: account.map(|it| it.record.terms.rates).unwrap_or_default(),
            watermark: self.watermark(node),
        }
    }

    fn left_of_balance(&self) -> NanoUsd {
        let balance = self.summary.as_ref().map_or(NanoUsd::ZERO, |it| it.balance);
        balance.saturating_sub(self.holds.held())
    }

    /// The quota of a key by the terms that are known here, as [`Account::quota_use`].
    fn quota_of(&self, id: &KeyId, at_ms: i64) -> Option<QuotaUse> {
        let terms = self.keys.get(id).map(AccountKey::terms).unwrap_or_default();
        self.quota_use(&terms, id, at_ms)
    }

    /// The quota and what was spent of it in the period of a moment; `None` without a quota.
    fn quota_use(&self, terms: &KeyTerms, id: &KeyId, at_ms: i64) -> Option<QuotaUse> {
        let quota = bounded(terms.quota?);
        let period = Period::of(terms.reset, at_ms);
        Some(QuotaUse {
            quota,
            spent: self.keys.get(id).map_or(NanoUsd::ZERO, |key| key.spent(period)),
            resets_at: period::resets_at(terms.reset, at_ms),
        })
    }

    /// What is left of a quota in that period.
    fn left_of_quota(&self, terms: &KeyTerms, id: &KeyId, at_ms: i64, used: &QuotaUse) -> NanoUsd {
        let held = self.holds.held_in(id, Period::of(terms.reset, at_ms));
        used.quota.saturating_sub(used.spent).saturating_sub(held)
    }

    /// See [`crate::store::ledger::LedgerStore::top_up`].
    pub(crate) fn top_up(&mut self, ask: &TopUp, now_ms: i64) -> ToppedUp {
        self.holds.drop_lapsed(now_ms);
        let Some(hold) = self.holds.get(&ask.node, &ask.request) else {
            return ToppedUp::NoHold;
        };
        let (key, at_ms) = (hold.key.clone(), hold.at_ms);
        let terms = self.keys.get(&key).map(AccountKey::terms).unwrap_or_default();
        let mut left = self.left_of_balance();
        if let Some(quota) = self.quota_use(&terms, &key, at_ms) {
            left = left.min(self.left_of_quota(&terms, &key, at_ms, &quota));
        }
        let asked = bounded(ask.more);
        if asked <= NanoUsd::ZERO {
            return ToppedUp::Refused;
        }
        if left <= NanoUsd::ZERO {
            return self.nothing_left(&key, now_ms);
        }
        let more = asked.min(left);
        self.holds.enlarge(&ask.node, &ask.request, more, now_ms);
        self.recall.mark += u64::from(self.money_comes_near(&key, &terms, at_ms, now_ms));
        ToppedUp::Granted(more)
    }

    /// See [`crate::store::ledger::LedgerStore::apply`]: the watermark afterwards, and the rows that enter the log.
    pub(crate) fn apply(&mut self, node: &NodeId, steps: &[Step], upto: u64) -> (u64, Vec<Arc<Row>>) {
        let before = self.watermark(node);
        let mut watermark = before;
        let mut rows = Vec::new();
        for step in steps {
            if step.seq <= watermark {
                continue;
            }
            if step.seq - watermark > 1 {
                break;
            }
            watermark = step.seq;
            rows.extend(self.change(node, step));
            let summary = self.summary.get_or_insert_default();
            summary.watermarks.insert(node.clone(), watermark);
        }
        if watermark > before && upto > 0 && steps.last().is_some_and(|last| last.seq == watermark) {
            self.summary.get_or_insert_default().summed.insert(node.clone(), upto);
        }
        (watermark, rows)
    }

    fn change(&mut self, node: &NodeId, step: &Step) -> Option<Arc<Row>> {
        self.recall_for_change(&step.change);
        let summary = self.summary.get_or_insert_default();
        match &step.change {
            Change::Settle(settlement) => {
                let before = summary.balance;
                summary.settle(settlement);
                match &settlement.lease {
                    Some(lease) => self.holds.draw(&lease.holder, &lease.hold(), charge(settlement)),
                    None => self.holds.end(node, &settlement.request),
                }
                let (estimated, used) = (settlement.tokens_estimated, settlement.tokens_used);
                self.buckets.correct(&summary.record.terms.rates, estimated, used);
                self.keys.entry(settlement.key.clone()).or_default().settle(settlement);
                self.note_reached((node, step.seq), settlement, before);
                return settlement.row.clone();
            }
            Change::Open { balance, at, operation } => {
                if summary.created_at == 0 {
                    summary.created_at = *at;
                }
                if self.operations.note(operation.as_ref(), bounded(*balance)) {
                    summary.pay(*balance, *at);
                }
            }
            Change::Credit { amount, at, operation } | Change::Adjust { amount, at, operation } => {
                if self.operations.note(operation.as_ref(), bounded(*amount)) {
                    summary.pay(*amount, *at);
                }
            }
        }
        None
    }

    /// See [`crate::store::ledger::LedgerStore::set_terms`].
    pub(crate) fn set_terms(&mut self, from: &AccountRecord, to: &AccountRecord) -> bool {
        let present = self.record();
        if present == *from && from != to {
            self.recall.mark += 1;
            self.summary.get_or_insert_default().record = *to;
            return true;
        }
        present == *to
    }

    /// The last step of a node that was applied; 0 if none was.
    pub(crate) fn watermark(&self, node: &NodeId) -> u64 {
        let marks = self.summary.as_ref().map(|it| &it.watermarks);
        marks.and_then(|marks| marks.get(node)).copied().unwrap_or(0)
    }

    /// Renews the node's lease if it has live holds.
    pub(crate) fn renew(&mut self, node: &NodeId, now_ms: i64) {
        self.holds.drop_lapsed(now_ms);
        self.holds.renew(node, now_ms);
    }

    /// Ends all holds of a node, without a charge.
    pub(crate) fn release(&mut self, node: &NodeId) {
        self.holds.release(node);
    }
}

impl AccountSummary {
    fn pay(&mut self, amount: NanoUsd, at: i64) {
        self.balance = sum(self.balance, amount);
        self.paid.add(amount, at);
    }

    fn settle(&mut self, settlement: &Settlement) {
        let cost = charge(settlement);
        self.balance = sum(self.balance, NanoUsd::from_nanos(-cost.nanos()));
        self.spent = sum(self.spent, cost);
    }
}
