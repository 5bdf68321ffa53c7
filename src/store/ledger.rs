//! The traits for storing accounts, quotas, holds, the consumption log and the hourly stability counters. Both engines implement
//! them and pass the same tests. This module also contains the feed of changed keys.

#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
pub(crate) mod stability_contract;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters, NodeHourCounters},
        keys::{KeyId, secret::KeyDigest},
        ledger::{
            AccountRecord, AccountView, AdmitCall, AdmitReply, KeySpend, LogDay, NodeId, OperationId, SpendByKey, Step,
            TopUp, TopUpReply,
            account::notices::{NoticeId, TakenNotices},
            consumption::Row,
            daily_sums::{DailySum, DailySums, SumSelector},
            lease::{LeaseCall, LeaseReply},
            period::Period,
        },
        money::NanoUsd,
    },
    store::{Changes, FEED_CHANGES_MAX, StoreError},
};

/// Maximum number of accounts on one page of a list.
pub(crate) const LIST_ACCOUNTS_MAX: usize = 1000;
/// Maximum number of steps that one call applies.
pub(crate) const APPLY_STEPS_MAX: usize = 256;
/// Maximum number of attempts to change an account's record. An attempt fails if another change was made first.
pub(crate) const RECORD_CONFLICTS_MAX: usize = 16;

/// Maximum number of settlements in one call if their requests were admitted from leases, for an engine in which such a
/// settlement costs as much as any other step.
pub(crate) const LEASED_STEPS_MAX: usize = 128;

/// Returns the first `max` of `steps`, and the value of `upto` for a call with these steps. If this omits steps, the value is 0,
/// because the given `upto` belongs to the last of all `steps`.
pub(crate) fn limit_steps(steps: &[Step], upto: u64, max: usize) -> (&[Step], u64) {
    match steps.split_at_checked(max) {
        Some((first, [_, ..])) => (first, 0),
        _ => (steps, upto),
    }
}

/// The accounts of one installation, with their money.
///
/// Every method is atomic, even if other nodes call it at the same time, and uses only the store's own clock. If a future is
/// dropped, the store stays consistent. If a change returns [`StoreError::Unavailable`], it is unknown whether it happened. A
/// hold that was placed without the node's knowledge ends with [`LedgerStore::release`] or when the node's holds expire. Sending
/// steps again has no second effect.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Checks key, account, quota, balance and limits in the order of [`crate::domain::ledger::Denial`], and places a hold.
    /// Renews the node's holds on the account.
    ///
    /// A request that already has a hold gets the same hold again, and nothing changes.
    async fn admit(&self, ask: &AdmitCall) -> Result<AdmitReply, StoreError>;

    /// Returns the reply of [`LedgerStore::admit`] if the engine can give it without waiting. Otherwise, returns `None` and
    /// changes nothing. The caller must then call [`LedgerStore::admit`].
    fn admit_now(&self, _ask: &AdmitCall) -> Option<AdmitReply> {
        None
    }

    /// Enlarges the hold of a running request, or the lease from which the request was admitted.
    async fn top_up(&self, ask: &TopUp) -> Result<TopUpReply, StoreError>;

    /// Begins, grows, shrinks or ends a lease of budget, and returns the state of the lease and its account. Renews the holder's
    /// holds on the account. A late or repeated call changes nothing, except that it can begin an ended lease again. Such a lease
    /// ends when its holder's node lease lapses.
    async fn lease(&self, ask: &LeaseCall) -> Result<LeaseReply, StoreError>;

    /// Applies a node's steps of one account in order. At most [`APPLY_STEPS_MAX`] steps are applied, or at most
    /// [`LedgerStore::batch_steps_max`] if all of them settle requests that were admitted from leases. A step is applied if and
    /// only if its `seq` is one more than the watermark. Steps at or below the watermark are skipped, and a gap ends the call.
    /// Returns the watermark after the call. In the same atomic change, the rows of the settlements are added to the daily sums,
    /// and to the log if it is kept in the store ([`LogLists`]). An account that does not exist is created without a balance.
    ///
    /// `upto` is the number that the last row among the steps has in the node's journal, or 0 if none of the steps has a row
    /// ([`LedgerStore::summed_up_to`]).
    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step], upto: u64) -> Result<u64, StoreError>;

    /// Maximum number of settlements per call of [`LedgerStore::apply`] if all of their requests were admitted from leases.
    fn batch_steps_max(&self) -> usize {
        LEASED_STEPS_MAX
    }

    /// Replaces an account's record if it still equals `from`, and recalls the account's leases. Returns `false` if the record
    /// differs from `from`; then nothing has changed. If the record already equals `to`, this returns `true` and changes nothing,
    /// so that a repeated call has only one effect. An account that does not exist is treated as having the default record.
    /// Setting any other record creates the account.
    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError>;

    /// Sends the store an account's former record again, because a failover may have lost it. [`AccountRecord::healed`] decides
    /// which parts are used. Returns [`StoreError::Busy`] if other calls kept changing the record.
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
        Err(StoreError::Busy(format!(
            "cannot restore the record of account `{account}`, because it keeps changing; try again"
        )))
    }

    /// Returns the number of the last of a node's steps that the store has applied to an account; 0 if it has applied none. After
    /// a failover that lost steps, the number is lower than before.
    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError>;

    /// Renews the node's holds on these accounts: they expire [`crate::domain::ledger::ids::LEASE_MS`] from now. If the renewal
    /// fails for some accounts, the others are renewed nevertheless.
    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError>;

    /// Ends all holds of a node on an account without a charge. A node does this when it starts, to end the holds of its previous
    /// process.
    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError>;

    /// Returns one account; `None` if it does not exist.
    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError>;

    /// Returns the amount that an operation added to an account. An account stores only a limited number of operations
    /// ([`crate::domain::ledger::account::operations::OPERATIONS_MAX`]). Returns `None` if the account does not exist, or if it
    /// does not store the operation.
    async fn operation_amount(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError>;

    /// Returns up to `limit` (at most [`LIST_ACCOUNTS_MAX`]) accounts after `after`, sorted by name.
    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError>;

    /// Returns the spending of a key in the current periods.
    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError>;

    /// Returns the spending of each key of an account in a period. Keys without any spending are omitted. Counters of a period
    /// that ended more than 7 days ago may have been removed.
    async fn spent(&self, account: &str, period: Period) -> Result<SpendByKey, StoreError>;

    /// Returns daily sums of an account by day, subject and model. `days` are days since the Unix epoch, in UTC. The sums of a
    /// day include the rows whose requests ended on that day. The sums are stored for
    /// [`crate::domain::ledger::consumption::RETENTION_DAYS`].
    async fn sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError>;

    /// Returns, for each node with rows in the daily sums, the number of the last of these rows. This is the row's number in the
    /// node's journal. The sums include exactly the node's rows up to that number.
    async fn summed_up_to(&self, account: &str) -> Result<BTreeMap<NodeId, u64>, StoreError>;

    /// Replaces all sums of a day in one atomic step if the account exists and its sums still count exactly `seen` requests.
    /// Returns whether the sums were replaced. If not, nothing has changed.
    async fn put_sums(&self, account: &str, day: i64, sums: &DailySums, seen: u64) -> Result<bool, StoreError>;

    /// Takes the due notices of an account (quota thresholds that were reached, and low balances), at most
    /// [`crate::domain::ledger::account::notices::TAKEN_MAX`]. Until [`LedgerStore::acknowledge_notices`] acknowledges a
    /// notice, the notice can be taken again after a pause. The first pause is `pause_ms`, and each further pause is twice as
    /// long.
    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError>;

    /// Removes notices that were delivered.
    async fn acknowledge_notices(&self, account: &str, told: &[NoticeId]) -> Result<(), StoreError>;

    /// Returns the time by the store's clock, in milliseconds since the Unix epoch.
    async fn now_ms(&self) -> Result<i64, StoreError>;

    /// Returns a receiver that changes whenever the store may have lost acknowledged writes, for example after a reconnect or
    /// when another server becomes master. A node with a journal then compares watermarks. Never changes in an engine that loses
    /// nothing.
    fn epochs(&self) -> watch::Receiver<u64>;
}

/// Maximum number of rows on one page of the log.
pub(crate) const LOG_ROWS_MAX: usize = 1000;
/// Maximum number of rows that one call restores.
pub(crate) const PUT_ROWS_MAX: usize = 200;

/// The lists of rows by account and day, to which settlements append rows if the log is kept in the store.
#[async_trait]
pub(crate) trait LogLists: Send + Sync {
    /// Returns an account's rows whose requests ended on a day (days since the Unix epoch, UTC), in the order in which the rows
    /// were applied. Skips the first `skip` rows, and returns up to `limit` (at most [`LOG_ROWS_MAX`]) rows. Rows older than
    /// [`crate::domain::ledger::consumption::RETENTION_DAYS`] have been removed.
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError>;

    /// Returns those of `days` on which an account has rows, earliest first.
    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError>;

    /// Appends rows to a day. These are rows that the store has lost although it has applied their steps. Charges and sums do not
    /// change. A call may contain at most [`PUT_ROWS_MAX`] rows. Returns `false` if the account does not exist; then nothing has
    /// changed.
    async fn put_rows(&self, account: &str, day: i64, rows: &[Row]) -> Result<bool, StoreError>;

    /// Removes the rows of a day in one atomic step if their number still equals the number in `seen`. Returns whether the
    /// numbers were equal. The sums of the rows stay. The rows cannot be restored: call this only for rows that the log backend
    /// certainly has.
    async fn remove(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError>;
}

/// Maximum number of shares in one call.
pub(crate) const SHARES_MAX: usize = 256;
/// Maximum number of hours that one call reads.
pub(crate) const HOURS_MAX: i64 = 256;

/// The hourly stability counters of one installation.
///
/// A share always contains all counters of one node for one hour. So storing shares repeatedly, late, or out of order has the
/// same effect as storing the greatest share once. If a future is dropped, the store stays consistent.
#[async_trait]
pub(crate) trait StabilityStore: Send + Sync {
    /// Replaces the node's share of an hour if the new share has a greater [`NodeHourCounters::watermark`]. Otherwise, nothing
    /// changes for that hour. Each hour changes atomically. A call may contain at most [`SHARES_MAX`] shares. Shares of hours
    /// that ended [`crate::domain::ledger::consumption::RETENTION_DAYS`] ago or earlier may be ignored.
    async fn put_shares(&self, node: &NodeId, shares: &[NodeHourCounters]) -> Result<(), StoreError>;

    /// Returns the sums over all nodes for each hour from `first` to `last`, both included. An hour without requests may be
    /// missing. If there are more than [`HOURS_MAX`] hours, returns the last ones. Unreadable parts are omitted, with a warning
    /// in the log.
    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, ModelCounters>, StoreError>;

    /// Returns a receiver that changes whenever the store may have lost acknowledged writes. Nodes then store their shares again.
    fn epochs(&self) -> watch::Receiver<u64>;
}

/// Returns the hours from `first` to `last`, both included. If there are more than [`HOURS_MAX`] of them, returns only the last
/// [`HOURS_MAX`] hours.
pub(crate) fn hours(first: Hour, last: Hour) -> impl Iterator<Item = Hour> {
    let first = first.max(last.plus(1 - HOURS_MAX));
    (first.number()..=last.number()).map(Hour::from_number)
}

/// A feed of changes: a version, which increases with each change, and the digests of the last [`FEED_CHANGES_MAX`] changes.
#[derive(Debug, Default)]
pub(super) struct Feed {
    version: u64,
    /// The digests of the changes from `version - len + 1` to `version`.
    changes: VecDeque<Vec<KeyDigest>>,
}

impl Feed {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Adds one change to the feed.
    pub(super) fn push(&mut self, digests: Vec<KeyDigest>) {
        self.version += 1;
        if self.changes.len() == FEED_CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(digests);
    }

    pub(super) fn since(&self, version: u64) -> Changes {
        let behind = self
            .version
            .checked_sub(version)
            .and_then(|behind| usize::try_from(behind).ok());
        let skipped = behind.and_then(|behind| self.changes.len().checked_sub(behind));
        Changes {
            version: self.version,
            digests: skipped.map(|skipped| self.changes.iter().skip(skipped).flatten().copied().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> KeyDigest {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        KeyDigest::from_bytes(bytes)
    }

    #[test]
    fn it_says_what_came_after_a_version() {
        let mut feed = Feed::default();
        assert_eq!(
            feed.since(0),
            Changes {
                version: 0,
                digests: Some(vec![])
            }
        );
        feed.push(vec![digest(1)]);
        feed.push(vec![digest(2), digest(3)]);
        assert_eq!(
            feed.since(1),
            Changes {
                version: 2,
                digests: Some(vec![digest(2), digest(3)])
            }
        );
        assert_eq!(feed.since(0).digests.unwrap().len(), 3);
        assert_eq!(feed.since(3).digests, None, "the store is behind the caller");
    }

    #[test]
    fn it_keeps_no_more_than_its_limit() {
        let mut feed = Feed::default();
        for number in 0..=FEED_CHANGES_MAX {
            feed.push(vec![digest(number)]);
        }
        assert_eq!(feed.since(0).digests, None);
        assert_eq!(feed.since(1).digests.unwrap().len(), FEED_CHANGES_MAX);
    }
}
