//! The storage of accounts, quotas, holds, the consumption log and the hourly counters: one contract, two engines, one test
//! suite for both. Also the feed of changed keys.

use std::{collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            AccountRecord, AccountView, AdmitCall, AdmitReply, KeySpend, NodeId, OperationId, SpendByKey, Step, TopUp,
            TopUpReply,
            daily_sums::{DailySum, DailySums, SumSelector},
            lease::{LeaseCall, LeaseReply},
            notice::{NoticeId, TakenNotices},
            period::Period,
        },
        money::NanoUsd,
    },
    store::StoreError,
};

pub(crate) use lists::LogLists;
pub(crate) use lists::{LOG_ROWS_MAX, PUT_ROWS_MAX};

mod lists;

#[cfg(test)]
pub(crate) mod contract;

/// The maximum number of accounts on one page of a list.
pub(crate) const LIST_ACCOUNTS_MAX: usize = 1000;
/// The maximum number of steps that one call applies.
pub(crate) const APPLY_STEPS_MAX: usize = 256;
/// How often a change of an account's record is decided again because another change came first.
pub(crate) const RECORD_CONFLICTS_MAX: usize = 16;

/// The steps that one call applies, and their `upto`: 0 if steps remain, because it belongs to the last one.
pub(crate) fn limit_steps(steps: &[Step], upto: u64) -> (&[Step], u64) {
    match steps.split_at_checked(APPLY_STEPS_MAX) {
        Some((first, [_, ..])) => (first, 0),
        _ => (steps, upto),
    }
}

/// The accounts of one installation, with their money.
///
/// Every method is atomic, even against the same method on other nodes, and uses only the store's own clock. Dropping a
/// future leaves the store consistent. If a change returns [`StoreError::Unavailable`], it is unknown whether it happened: a
/// hold that was placed without the node's knowledge ends with [`LedgerStore::release`] or the node's lease, and steps are
/// sent again, which has no second effect.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Checks key, account, quota, balance and limits in the order of [`crate::domain::ledger::Denial`], and places a hold.
    /// Renews the node's lease on the account.
    ///
    /// A request that already has a hold gets that hold again, and nothing changes.
    async fn admit(&self, ask: &AdmitCall) -> Result<AdmitReply, StoreError>;

    /// The reply of [`LedgerStore::admit`], if it needs no waiting; `None` if nothing has changed and [`LedgerStore::admit`]
    /// has to be called.
    fn admit_now(&self, _ask: &AdmitCall) -> Option<AdmitReply> {
        None
    }

    /// Enlarges the hold of a running request, or the lease from which it was admitted.
    async fn top_up(&self, ask: &TopUp) -> Result<TopUpReply, StoreError>;

    /// Begins, grows, shrinks or ends a lease of budget, and returns the state of the lease and its account. Renews the
    /// holder's lease. A late or repeated call changes nothing, unless it begins a lease again that has ended: then that
    /// lease ends with its holder.
    async fn lease(&self, ask: &LeaseCall) -> Result<LeaseReply, StoreError>;

    /// Applies a node's steps of one account in order, at most [`APPLY_STEPS_MAX`]. A step is applied if and only if its
    /// `seq` is one more than the watermark; steps at or below the watermark are skipped, and a gap ends the work. Returns
    /// the watermark after that. In the same atomic change the rows of the settlements are counted in the daily sums, and
    /// enter the log if it is kept in the store ([`LogLists`]). An account that does not exist is created without a balance.
    ///
    /// `upto` is the number of the last row among the steps in the node's journal, or 0 if none of them has a row
    /// ([`LedgerStore::summed`]).
    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step], upto: u64) -> Result<u64, StoreError>;

    /// Replaces an account's record, if it still equals `from`, and recalls the account's leases. `false` if the record
    /// differs from `from`; then nothing has changed. If the record already equals `to`, this returns `true` and changes
    /// nothing, so a repeated call has one effect. The record of an account that does not exist is the default one; any other
    /// record creates the account.
    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError>;

    /// Repeats to the store that this was an account's record, in case it has lost that: a failover loses acknowledged
    /// writes. [`AccountRecord::healed`] decides what holds. [`StoreError::Busy`] if others kept changing the record.
    async fn heal_terms(&self, account: &str, told: &AccountRecord) -> Result<(), StoreError> {
        for _ in 0..RECORD_CONFLICTS_MAX {
            let present = self.account(account).await?.map(|view| view.record).unwrap_or_default();
            let Some(healed) = present.healed(told) else {
                return Ok(());
            };
            if self.set_terms(account, &present, &healed).await? {
                return Ok(());
            }
        }
        Err(StoreError::Busy(format!("others keep changing account `{account}`")))
    }

    /// The last step of a node that was applied to an account; 0 if none was. Lower than before after a failover that lost
    /// steps.
    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError>;

    /// Renews the node's lease on the accounts in which it has holds: until [`crate::domain::ledger::node::LEASE_MS`] from
    /// now. If it fails for some accounts, the others are renewed all the same.
    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError>;

    /// Ends all holds of a node on an account without a charge: what a node does at its start with the holds that it left.
    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError>;

    /// One account; `None` if it does not exist.
    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError>;

    /// The amount that an operation added to an account, as long as the account remembers it
    /// ([`crate::domain::ledger::account::operations::OPERATIONS_MAX`]); `None` if the operation or the account is unknown.
    async fn operation_amount(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError>;

    /// Up to `limit` (at most [`LIST_ACCOUNTS_MAX`]) accounts after `after`, by name.
    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError>;

    /// The spending of a key in the current periods.
    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError>;

    /// The spending of each key of an account in a period; keys without any are omitted. Counters of a period that ended more
    /// than 7 days ago may be gone.
    async fn spent(&self, account: &str, period: Period) -> Result<SpendByKey, StoreError>;

    /// Daily sums of an account (days since the Unix epoch, UTC), by day, subject and model: those of the rows that ended on
    /// that day. Retained for [`crate::domain::ledger::consumption::RETENTION_DAYS`].
    async fn sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError>;

    /// For each node with rows in the daily sums, the number of the last such row in the node's journal. The sums include
    /// exactly the node's rows up to that number.
    async fn summed_up_to(&self, account: &str) -> Result<BTreeMap<NodeId, u64>, StoreError>;

    /// Replaces all sums of a day in one atomic step, if the account's sums still count exactly `seen` requests, and returns
    /// whether they did. If not, or if the account does not exist, nothing has changed.
    async fn put_sums(&self, account: &str, day: i64, sums: &DailySums, seen: u64) -> Result<bool, StoreError>;

    /// Takes the due notices of an account: quota thresholds that were reached and low balances, at most
    /// [`crate::domain::ledger::account::notices::TAKEN_MAX`]. A notice that was taken is given to nobody for `pause_ms`,
    /// twice as long each further time, and then again, until [`LedgerStore::told`] acknowledges it.
    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError>;

    /// Removes notices that were delivered.
    async fn acknowledge_notices(&self, account: &str, told: &[NoticeId]) -> Result<(), StoreError>;

    /// The time by the store's clock, in milliseconds since the Unix epoch.
    async fn now_ms(&self) -> Result<i64, StoreError>;

    /// Changes whenever the store may have lost acknowledged writes: another master, a reconnect. A node with a journal then
    /// compares watermarks. Never changes in an engine that loses nothing.
    fn epochs(&self) -> watch::Receiver<u64>;
}
