//! The reference model of one account: the behaviour of every ledger store, without any storage. Stores that are written in
//! another language follow exactly the same rules, and use only integers that a double represents exactly.
//!
//! **Amounts.** Amounts in calls and steps are clamped to ±[`NanoUsd::MAX`], and so is every sum. Negative estimates and charges
//! are treated as zero.
//!
//! **Existence.** An account is created by the first step that is applied to it, or by its first [`AccountRecord`]. Before that,
//! it has no keys and no holds. `created_at` is the time in the first [`AccountChange::Open`] that arrives, and 0 before that
//! step arrives.
//!
//! **Keys.** The account has a mirror of each key's record, with revision, revocation, expiry and terms. [`Account::admit`] has
//! these steps:
//!
//! 1. It removes the nodes whose node lease has lapsed.
//! 2. If the request already has a hold, it returns that hold without further checks or changes.
//! 3. If the call's revision of the key is lower than the mirrored one, it replies [`AdmitReply::StaleKey`].
//! 4. It mirrors the record in the call, provided that the account exists, and that the call's revision is higher than the
//!    mirrored one or no record is mirrored. It does so even if the request is refused afterwards.
//! 5. It makes all checks, in the order of [`Denial`], before it writes anything else. The key's expiry is compared with
//!    `now_ms / 1000`, rounded down. Concurrency is checked for the key, then for the account. Rates are checked for the key's
//!    requests, the key's tokens, the account's requests, and the account's tokens, in this order.
//! 6. It writes the rate buckets, the hold and the node lease.
//!
//! **Remaining money.** The remaining balance is `balance - held`, where `held` is the sum of all holds. If the key has a quota,
//! the remaining quota is `quota - spent - held`. Here, `spent` is the key's counter of the quota's current period, and `held`
//! is the sum of the key's holds that began in this period. If the remaining balance or quota is zero or less, the request is
//! refused; the balance is checked first. The denial is "exhausted" if all money is spent, and "held" if running requests hold
//! the unspent money. The hold is the lowest of the estimate, the remaining balance and the remaining quota. A top-up uses the
//! same computation, with the period of the hold's admission and the current quota. It ignores rates, suspension, and the state
//! of the key. It never grants an amount of zero or less.
//!
//! **Running requests** are the live holds, including holds of zero. `ended_key` or `ended_account` is subtracted from the number
//! of the calling node's own holds, down to zero. The holds of other nodes count in full, and so do free slots of leases. A
//! request is refused if the number of running requests has reached the limit.
//!
//! **Rates** are described in [`bucket`], and **holds and leases** in [`holds`]. Four things set the end of the node lease to
//! `LEASE_MS` from now: a granted hold, a granted top-up, [`Account::renew`] for a node with holds, and [`Account::lease`] for
//! the lease's holder. Nothing else changes it.
//!
//! **Steps** need no clock. A settlement ends the node's hold for its request, if such a hold exists. It subtracts the cost from
//! the balance, and adds it to the account's `spent` and to the four counters of the key for the time of admission. It corrects
//! the token buckets that exist. The account need not have the key.
//!
//! **Notices.** A settlement records a notice when a key's spending reaches a percentage of its quota, or when the balance
//! reaches its low mark: see [`notices`]. **Leases** of budget are holds, too: see [`leasing`], and see [`pace`] for their rates
//! and slots.
//!
//! **Operations.** An amount with an operation id is applied only once for each id: see [`operations`]. **Payments** change the
//! balance, and are included in the sums of their day and month: see [`PaidIn`].
//!
//! **Counters** of a key are stored for each period. A store may drop the counters of a period that ended more than 7 days ago,
//! but never the counter of all spending.

pub(crate) mod bucket;
pub(crate) mod holds;
pub(crate) mod key;
mod leasing;
pub(crate) mod notices;
pub(crate) mod operations;
mod pace;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::domain::{
    QuickMap,
    keys::{KeyId, terms::KeyTerms},
    ledger::{
        AccountChange, AccountRecord, AdmitCall, AdmitReply, Denial, Grant, QuotaUse, Settlement, Step, TopUp,
        TopUpReply,
        account::{
            bucket::RateBuckets,
            holds::{Hold, Holds},
            key::{AccountKey, KeyMirror},
            leasing::Recall,
            notices::Notices,
            operations::{Operations, PaidIn, RecordedOperation},
        },
        consumption::Row,
        ids::NodeId,
        period::{self, Period},
        reports::{AccountView, KeySpend, SpendByKey},
    },
    money::NanoUsd,
};

/// An account with its keys and its holds. The default value is an account that does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    summary: Option<AccountSummary>,
    keys: QuickMap<KeyId, AccountKey>,
    buckets: RateBuckets,
    holds: Holds,
    recall: Recall,
    operations: Operations,
    notices: Notices,
}

/// The durable state of an account, except its keys and operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccountSummary {
    /// The sum of all credits and adjustments, minus all charges.
    pub balance: NanoUsd,
    /// The sum of all charges.
    pub spent: NanoUsd,
    /// The settings that operators have made for the account.
    pub record: AccountRecord,
    /// The time at which the account was created, in seconds since the Unix epoch; 0 until the account's first `Open` step
    /// arrives. Charges can arrive before this step.
    pub created_at: i64,
    /// The sums of payments on the most recent day that has payments, and in the most recent month that has payments.
    #[serde(default)]
    pub paid: PaidIn,
    /// The number of the last applied step, by node.
    pub watermarks: BTreeMap<NodeId, u64>,
    /// For each node, the number of its last row that the daily sums include. Rows are numbered in the node's journal.
    pub summed: BTreeMap<NodeId, u64>,
}

/// The hold and the quota of a request that has passed all checks, and the rate buckets after its admission.
struct CheckedAdmission {
    hold: NanoUsd,
    key: RateBuckets,
    account: RateBuckets,
    quota: Option<QuotaUse>,
}

impl Account {
    /// Creates an account from its durable state. It has no holds, and its rate buckets are full.
    pub(crate) fn from_stored(
        summary: AccountSummary,
        keys: impl IntoIterator<Item = (KeyId, AccountKey)>,
        operations: impl IntoIterator<Item = RecordedOperation>,
    ) -> Self {
        Self {
            summary: Some(summary),
            keys: keys.into_iter().collect(),
            operations: operations.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Returns the durable state; `None` if the account does not exist.
    pub(crate) fn summary(&self) -> Option<&AccountSummary> {
        self.summary.as_ref()
    }

    /// Returns the remembered operations. They are durable, too.
    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Returns the durable state of one of the account's keys; `None` if the account does not have the key.
    pub(crate) fn key(&self, id: &KeyId) -> Option<&AccountKey> {
        self.keys.get(id)
    }

    /// Returns the revision of the key's mirrored record; `None` if no record is mirrored.
    pub(crate) fn key_revision(&self, id: &KeyId) -> Option<u64> {
        self.keys.get(id)?.revision()
    }

    /// Decides whether to admit a request, as described for [`crate::store::ledger::LedgerStore::admit`].
    pub(crate) fn admit(&mut self, ask: &AdmitCall, now_ms: i64) -> AdmitReply {
        self.holds.drop_lapsed(now_ms);
        if let Some(hold) = self.holds.get(&ask.node, &ask.request) {
            let (amount, at_ms) = (hold.amount, hold.at_ms);
            let quota = self.quota_of(&ask.key.id, at_ms);
            return AdmitReply::Granted(self.grant(&ask.node, amount, at_ms, quota));
        }
        let Some(mirror) = AccountKey::current_mirror(self.keys.get(&ask.key.id), &ask.key) else {
            return AdmitReply::StaleKey;
        };
        let checked = self.check(ask, &mirror, now_ms);
        let pace_comes_near = self.record_near_rates(&ask.key.id, &mirror, now_ms);
        if self.summary.is_some() {
            self.recall_for_revision(&ask.key.id, &mirror);
            let key = self.keys.entry(ask.key.id.clone()).or_default();
            key.set_mirror(mirror);
            if let Ok(checked) = &checked {
                key.on_granted(checked.key.clone(), now_ms);
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
                self.holds.insert(&ask.node, &ask.request, hold, now_ms);
                AdmitReply::Granted(self.grant(&ask.node, checked.hold, now_ms, checked.quota))
            }
        };
        let money_comes_near = self.record_near_money(&ask.key.id, &mirror.terms, now_ms, now_ms);
        self.recall.mark += u64::from(pace_comes_near || money_comes_near);
        answer
    }

    fn check(&self, ask: &AdmitCall, mirror: &KeyMirror, now_ms: i64) -> Result<CheckedAdmission, Denial> {
        mirror.check(now_ms.div_euclid(1000))?;
        let account = self.summary.as_ref().ok_or(Denial::AccountUnknown)?;
        if account.record.suspended {
            return Err(Denial::AccountSuspended);
        }
        if account.balance <= NanoUsd::ZERO {
            return Err(Denial::BalanceExhausted);
        }
        let mut left = self.remaining_balance();
        if left <= NanoUsd::ZERO {
            return Err(Denial::BalanceHeld);
        }
        let quota = self.quota_use(&mirror.terms, &ask.key.id, now_ms);
        if let Some(quota) = quota {
            if quota.spent >= quota.quota {
                return Err(Denial::QuotaExhausted(quota));
            }
            let of_quota = self.remaining_quota(&mirror.terms, &ask.key.id, now_ms, &quota);
            if of_quota <= NanoUsd::ZERO {
                return Err(Denial::QuotaHeld(quota));
            }
            left = left.min(of_quota);
        }
        let (key, account) = self.check_rates(ask, &mirror.terms.rates, now_ms)?;
        let hold = bounded(ask.estimate).max(NanoUsd::ZERO).min(left);
        Ok(CheckedAdmission {
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

    fn remaining_balance(&self) -> NanoUsd {
        let balance = self.summary.as_ref().map_or(NanoUsd::ZERO, |it| it.balance);
        balance.saturating_sub(self.holds.held())
    }

    /// Returns the [`Account::quota_use`] of a key, computed with the terms in the mirror of the key's record.
    fn quota_of(&self, id: &KeyId, at_ms: i64) -> Option<QuotaUse> {
        let terms = self.keys.get(id).map(AccountKey::terms).unwrap_or_default();
        self.quota_use(&terms, id, at_ms)
    }

    /// Returns a key's quota and the amount spent in the period that contains `at_ms`; `None` if the key has no quota.
    fn quota_use(&self, terms: &KeyTerms, id: &KeyId, at_ms: i64) -> Option<QuotaUse> {
        let quota = bounded(terms.quota?);
        let period = Period::of(terms.reset, at_ms);
        Some(QuotaUse {
            quota,
            spent: self.keys.get(id).map_or(NanoUsd::ZERO, |key| key.spent(period)),
            resets_at: period::resets_at(terms.reset, at_ms),
        })
    }

    /// Returns the remaining quota in the period that contains `at_ms`.
    fn remaining_quota(&self, terms: &KeyTerms, id: &KeyId, at_ms: i64, used: &QuotaUse) -> NanoUsd {
        let held = self.holds.held_in(id, Period::of(terms.reset, at_ms));
        used.quota.saturating_sub(used.spent).saturating_sub(held)
    }

    /// Enlarges the hold of a running request, as described for [`crate::store::ledger::LedgerStore::top_up`].
    pub(crate) fn top_up(&mut self, ask: &TopUp, now_ms: i64) -> TopUpReply {
        self.holds.drop_lapsed(now_ms);
        let Some(hold) = self.holds.get(&ask.node, &ask.request) else {
            return TopUpReply::NoHold;
        };
        let (key, at_ms) = (hold.key.clone(), hold.at_ms);
        let terms = self.keys.get(&key).map(AccountKey::terms).unwrap_or_default();
        let mut left = self.remaining_balance();
        if let Some(quota) = self.quota_use(&terms, &key, at_ms) {
            left = left.min(self.remaining_quota(&terms, &key, at_ms, &quota));
        }
        let asked = bounded(ask.more);
        if asked <= NanoUsd::ZERO {
            return TopUpReply::Refused;
        }
        if left <= NanoUsd::ZERO {
            return self.refuse_or_recall(&key, now_ms);
        }
        let more = asked.min(left);
        self.holds.enlarge(&ask.node, &ask.request, more, now_ms);
        self.recall.mark += u64::from(self.record_near_money(&key, &terms, at_ms, now_ms));
        TopUpReply::Granted(more)
    }

    /// Applies steps, as described for [`crate::store::ledger::LedgerStore::apply`]. Returns the new watermark, and the rows that
    /// are added to the log.
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
            rows.extend(self.apply_step(node, step));
            let summary = self.summary.get_or_insert_default();
            summary.watermarks.insert(node.clone(), watermark);
        }
        if watermark > before && upto > 0 && steps.last().is_some_and(|last| last.seq == watermark) {
            self.summary.get_or_insert_default().summed.insert(node.clone(), upto);
        }
        (watermark, rows)
    }

    fn apply_step(&mut self, node: &NodeId, step: &Step) -> Option<Arc<Row>> {
        self.recall_for_change(&step.change);
        let summary = self.summary.get_or_insert_default();
        match &step.change {
            AccountChange::Settle(settlement) => {
                let before = summary.balance;
                summary.settle(settlement);
                match &settlement.lease {
                    Some(lease) => self.holds.draw(&lease.holder, &lease.hold_name(), charge(settlement)),
                    None => self.holds.end(node, &settlement.request),
                }
                let (estimated, used) = (settlement.tokens_estimated, settlement.tokens_used);
                self.buckets.correct(&summary.record.terms.rates, estimated, used);
                self.keys.entry(settlement.key.clone()).or_default().settle(settlement);
                self.record_notices((node, step.seq), settlement, before);
                return settlement.row.clone();
            }
            AccountChange::Open { balance, at, operation } => {
                if summary.created_at == 0 {
                    summary.created_at = *at;
                }
                if self.operations.record(operation.as_ref(), bounded(*balance)) {
                    summary.pay(*balance, *at);
                }
            }
            AccountChange::Credit { amount, at, operation } | AccountChange::Adjust { amount, at, operation } => {
                if self.operations.record(operation.as_ref(), bounded(*amount)) {
                    summary.pay(*amount, *at);
                }
            }
        }
        None
    }

    /// Replaces the account's record, as described for [`crate::store::ledger::LedgerStore::set_terms`].
    pub(crate) fn set_terms(&mut self, from: &AccountRecord, to: &AccountRecord) -> bool {
        let present = self.record();
        if present == *from && from != to {
            self.recall.mark += 1;
            self.summary.get_or_insert_default().record = *to;
            return true;
        }
        present == *to
    }

    /// Returns the number of the node's last applied step; 0 if no step was applied.
    pub(crate) fn watermark(&self, node: &NodeId) -> u64 {
        let marks = self.summary.as_ref().map(|it| &it.watermarks);
        marks.and_then(|marks| marks.get(node)).copied().unwrap_or(0)
    }

    /// Renews the node lease of a node that has live holds.
    pub(crate) fn renew(&mut self, node: &NodeId, now_ms: i64) {
        self.holds.drop_lapsed(now_ms);
        self.holds.renew(node, now_ms);
    }

    /// Ends all holds of a node without a charge.
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

/// Returns the charge for a settlement: its cost, clamped to the range from zero to [`NanoUsd::MAX`].
fn charge(settlement: &Settlement) -> NanoUsd {
    bounded(settlement.cost).max(NanoUsd::ZERO)
}

/// Returns the amount, clamped to ±[`NanoUsd::MAX`].
fn bounded(amount: NanoUsd) -> NanoUsd {
    let most = NanoUsd::MAX.nanos();
    NanoUsd::from_nanos(amount.nanos().clamp(-most, most))
}

/// Returns the sum of two amounts. Each of them and the sum are clamped to ±[`NanoUsd::MAX`].
fn sum(one: NanoUsd, other: NanoUsd) -> NanoUsd {
    bounded(bounded(one).saturating_add(bounded(other)))
}

impl Account {
    /// Returns the settings that operators have made for the account. Returns the default record if the account does not exist.
    pub(crate) fn record(&self) -> AccountRecord {
        self.summary.as_ref().map(|summary| summary.record).unwrap_or_default()
    }

    /// Returns the account as operators see it; `None` if it does not exist.
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

    /// Returns the spending of each key in a period. Keys without spending are left out.
    pub(crate) fn spend_by_key(&self, period: Period) -> SpendByKey {
        let of_keys = self.keys.iter().map(|(id, key)| (id.clone(), key.spent(period)));
        of_keys.filter(|(_, spent)| *spent > NanoUsd::ZERO).collect()
    }

    /// Returns the spending of a key in the current periods. All amounts are zero if the account does not have the key.
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
