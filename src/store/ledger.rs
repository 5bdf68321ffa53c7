//! The storage of accounts, quotas, holds and the consumption log: one contract, two engines, one test suite for both.

use std::{collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            AccountRecord, AccountView, Admit, AdmitReply, KeySpend, NodeId, OperationId, Spent, Step, TopUp, ToppedUp,
            daily_sums::{DailySum, DailySums, SumsOf},
            lease::{AskLease, LeaseAnswer},
            notice::{NoticeOf, TakenNotices},
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

/// The most accounts one page of a list has.
pub(crate) const LIST_ACCOUNTS_MAX: usize = 1000;
/// The most steps that one call applies.
pub(crate) const APPLY_STEPS_MAX: usize = 256;
/// How often a change of an account's record is decided again because another one came before it.
pub(crate) const RECORD_CONFLICTS_MAX: usize = 16;

/// The steps that one call applies, and up to where they come: that is known of the last one only.
pub(crate) fn applicable(steps: &[Step], upto: u64) -> (&[Step], u64) {
    match steps.split_at_checked(APPLY_STEPS_MAX) {
        Some((first, [_, ..])) => (first, 0),
        _ => (steps, upto),
    }
}

/// The money of one installation.
///
/// Every method is atomic, also against the same method on other nodes, and all time in it is the store's own. Dropping a
/// future leaves the store whole. [`StoreError::Unavailable`] to a change says only that it is not known whether it happened:
/// a hold that was put without the node knowing ends with [`LedgerStore::release`] or the node's lease, and steps are sent
/// again, which has no second effect.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Checks key, account, quota, balance and limits in the order of [`crate::domain::ledger::Denial`] and puts a hold.
    /// Renews the node's lease on the account.
    ///
    /// Admitting a request that has a hold already answers with that hold and changes nothing.
    async fn admit(&self, ask: &Admit) -> Result<AdmitReply, StoreError>;

    /// The answer of [`LedgerStore::admit`] where nothing has to be waited for; `None`: nothing has changed, and that is to be
    /// asked.
    fn admit_now(&self, _ask: &Admit) -> Option<AdmitReply> {
        None
    }

    /// Enlarges the hold of a running request, or the lease that it was admitted out of.
    async fn top_up(&self, ask: &TopUp) -> Result<ToppedUp, StoreError>;

    /// Lets a lease of budget begin, grow, shrink or end, and tells how it and its account stand. Renews the holder's lease.
    /// A question that comes late or twice changes nothing, unless it lets a lease begin that has ended: then that ends
    /// with its holder.
    async fn lease(&self, ask: &AskLease) -> Result<LeaseAnswer, StoreError>;

    /// Applies a node's steps of one account in order: each if and only if its `seq` is one more than the watermark; the
    /// ones at or below it are passed over, and a gap ends the work. Answers with the watermark after that. The rows of its
    /// settlements are counted in the daily sums in the same atomic change, and enter the log there, where the store is its home
    /// ([`LogLists`]). An account that is not there comes into being without a balance.
    /// `upto` is the number of the last row among them in the node's journal, or 0 if none of them has one
    /// ([`LedgerStore::summed`]).
    /// At most [`APPLY_STEPS_MAX`] steps.
    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step], upto: u64) -> Result<u64, StoreError>;

    /// Puts a record of an account in the place of the one that it was made from, and has its leases come back. `false`: the
    /// account stands otherwise, and nothing has changed. What stands already is `true` and no change, so a call that is made
    /// twice has one effect. Of an account that is not there the record is the default one; the first other one makes it.
    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError>;

    /// Tells the store again that this was an account's record, in case it has forgotten it: a failover loses what was
    /// acknowledged. [`AccountRecord::healed`] decides what holds. [`StoreError::Busy`]: others changed it all the time.
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
            "account `{account}` is changed again and again"
        )))
    }

    /// The last step of a node that is applied to an account; 0 if none is. Lower than before after a failover that lost
    /// something.
    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError>;

    /// Renews the node's lease on accounts where it has holds: [`crate::domain::ledger::node::LEASE_MS`] from now. Of all that the
    /// store can be asked for, also where it fails for others.
    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError>;

    /// Ends all holds of a node on an account, without a charge: what a node does at its start with what it left.
    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError>;

    /// One account; `None` if it is not there.
    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError>;

    /// What an operation added to an account, as long as that remembers it
    /// ([`crate::domain::ledger::account::operations::OPERATIONS_MAX`]); `None`: it is not known, or the account is not there.
    async fn operation(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError>;

    /// Up to `limit` (at most [`LIST_ACCOUNTS_MAX`]) accounts behind `after`, by name.
    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError>;

    /// What a key has spent, in the periods of now.
    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError>;

    /// What each key of an account has spent in a period; keys that have spent
    /// nothing are left out. Counters of a period that ended more than 7 days ago may be gone.
    async fn spent(&self, account: &str, period: Period) -> Result<Spent, StoreError>;

    /// Daily sums of an account (days since the Unix epoch, UTC), by day, subject and model: those of the rows that ended on that
    /// day. Kept for [`crate::domain::ledger::consumption::RETENTION_DAYS`].
    async fn sums(&self, account: &str, days: RangeInclusive<i64>, of: &SumsOf) -> Result<Vec<DailySum>, StoreError>;

    /// Of each node that has rows in the daily sums: the number of the last one in the node's journal. Its rows up to there are in
    /// the sums, and no others are.
    async fn summed(&self, account: &str) -> Result<BTreeMap<NodeId, u64>, StoreError>;

    /// Puts sums in the place of all that are kept of a day, in one atomic step, if those of the account still count as many
    /// requests as were `seen`. Answers whether they did; if not, and where the account is not there, nothing has changed.
    async fn put_sums(&self, account: &str, day: i64, sums: &DailySums, seen: u64) -> Result<bool, StoreError>;

    /// Takes what an account has to tell: parts of quotas that were reached and low balances, at most
    /// [`crate::domain::ledger::account::notices::TAKEN_MAX`]. What was taken is given to nobody for `pause_ms`, twice as long each further
    /// time, and then again, until it is [`LedgerStore::told`].
    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError>;

    /// Forgets notices that were told.
    async fn told(&self, account: &str, told: &[NoticeOf]) -> Result<(), StoreError>;

    /// The time by the store's clock, in milliseconds since the Unix epoch.
    async fn now_ms(&self) -> Result<i64, StoreError>;

    /// Moves whenever the store may have lost something it had acknowledged: another master, a reconnect. Whoever has a
    /// journal then compares watermarks. Never moves in an engine that loses nothing.
    fn epochs(&self) -> watch::Receiver<u64>;
}
