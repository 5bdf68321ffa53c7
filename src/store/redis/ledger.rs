//! The ledger that all nodes share: accounts, quotas, holds and daily sums in Redis, with every operation as one script. Also the
//! rows of the consumption log, if the log is kept in Redis.
//!
//! All Redis keys of an account have one hash tag, `{<namespace>:a:<account>}`, so that a script about the account is one atomic
//! step in a cluster too. Scripts get the name of the first key and derive the other names from it. While a cluster moves the
//! hash slot, a call of a script waits until one server has all keys that the script uses. The keys are:
//! - `:state` is the account: `balance`, `spent`, `created`, its record (`revision`, `suspended` and its terms), `gen` (see
//!   below), `wm:<node>` the watermark of each node, `sum:<node>` the node's last row in the sums, `k:<key>` the last seen terms
//!   of each key, `b:...` the used part of each rate limit. `recall`, `near`, `near:<key>`, `near_pace` and `near_pace:<key>` say
//!   when leases have to be returned (`recalls.lua`). While a backup is being restored, there is `restored` instead of `balance`,
//!   and the account does not exist yet,
//! - `:nodes` contains the nodes that have holds, `:held:<node>` their holds and when these expire,
//! - `:spent:<period>` maps each key to its spending in the period, in nano-USD. It is removed some days after the period,
//! - `:operations` contains the stored operations on the balance,
//! - `:notices` contains the waiting notices (`notices.lua`),
//! - `:sums:<day>` contains the sums of the rows of a day (`daily_sums.lua`),
//! - `:log:<day>` contains the rows of a day as JSON, in the order in which they were applied, if the log is kept in Redis.
//!
//! `{<namespace>:accounts}:index` contains the names of all accounts, in order. A name is added after the account is written.
//! Each process adds the name again when it first changes the account in an epoch, because the index may have lost it.
//!
//! A Redis that was emptied must not report that an account does not exist, or that nothing was spent. The key store's generation
//! shows whether Redis was emptied. Each account stores the generation to which it belongs. Before an account is reported as
//! missing, the generation is checked.

mod answer;
mod archive;
mod arguments;
mod batch;
mod daily_sums;
mod stored_account;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashSet},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            AccountChange, AccountRecord, AccountView, AdmitCall, AdmitReply, Denial, KeySpend, NodeId, OperationId,
            SpendByKey, Step, TopUp, TopUpReply,
            account::notices::{NoticeId, TakenNotices},
            daily_sums::{DailySum, DailySums, SumSelector},
            lease::{LeaseCall, LeaseChange, LeaseReply},
            period::Period,
        },
        money::NanoUsd,
    },
    store::{
        StoreError,
        ledger::{APPLY_STEPS_MAX, LEASED_STEPS_MAX, LIST_ACCOUNTS_MAX, LedgerStore, limit_steps},
        redis::{
            ADMIN_BUDGET, RedisStore,
            ledger::{answer::LedgerReply, batch::BatchItem},
            link::{CallPolicy, KeyNaming},
            scripts::{LedgerScripts, RedisScript, ScriptCall},
        },
    },
};

/// Maximum number of settlements in one call if their requests were admitted from leases and no rows are kept. Similar
/// settlements are then sent as one group, and the cost for Redis depends mainly on the number of groups.
const ROWLESS_STEPS_MAX: usize = 2048;
/// Maximum number of accounts that are queried at the same time.
const AT_ONCE: usize = 32;

/// The ledger on a Redis store's connections, which [`crate::store::KeyStore::run`] maintains.
pub struct RedisLedger {
    store: Arc<RedisStore>,
    entered: KnownAccounts,
    /// Whether it was logged that Redis does not have the accounts of this installation.
    alarmed: AtomicBool,
    /// Whether the log is kept in Redis. If it is, settlements append their rows to it, and a restore adds the rows of the backup
    /// to it.
    keeps_rows: bool,
    #[cfg(test)]
    clock: Option<TestTime>,
}

/// The clock of a test. Returns the time in milliseconds since the Unix epoch.
#[cfg(test)]
pub(super) type TestTime = Arc<dyn Fn() -> i64 + Send + Sync>;

impl RedisLedger {
    /// Creates the ledger in the same Redis as the keys. If `keeps_rows` is true, the log is kept there. Otherwise no rows are
    /// written; existing lists can still be read ([`crate::store::ledger::LogLists`]).
    pub fn new(store: Arc<RedisStore>, keeps_rows: bool) -> Self {
        Self {
            store,
            entered: KnownAccounts::default(),
            alarmed: AtomicBool::new(false),
            keeps_rows,
            #[cfg(test)]
            clock: None,
        }
    }

    /// Returns the Redis store that the ledger is in.
    pub(crate) fn store(&self) -> &Arc<RedisStore> {
        &self.store
    }

    /// Creates a ledger that keeps rows and whose time a test sets.
    #[cfg(test)]
    pub(super) fn with_clock(store: Arc<RedisStore>, clock: TestTime) -> Self {
        Self {
            clock: Some(clock),
            ..Self::new(store, true)
        }
    }

    /// Prepares a call of a script about an account, with the arguments that every such script takes.
    fn prepare<'a>(&self, script: &'a RedisScript, account: &str) -> ScriptCall<'a> {
        let mut call = script.call();
        call.key(format!("{{{}:a:{account}}}:state", self.store.namespace))
            .arg(self.now())
            .arg(self.store.generation.get().map_or("", String::as_str));
        call
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have a clock of their own")]
    fn now(&self) -> &'static str {
        ""
    }

    #[cfg(test)]
    fn now(&self) -> String {
        self.clock
            .as_ref()
            .map_or_else(String::new, |clock| clock().to_string())
    }

    async fn send(&self, call: &ScriptCall<'_>, effort: CallPolicy) -> Result<LedgerReply, StoreError> {
        self.store
            .link
            .call(call, effort, KeyNaming::Made)
            .await
            .map(LedgerReply::new)
    }

    /// Makes a call. Returns the status of the answer, and the values after the status. The status "missing" for an account
    /// is accepted only if this is the Redis that the node knows.
    async fn call(&self, call: &ScriptCall<'_>, effort: CallPolicy) -> Result<(String, LedgerReply), StoreError> {
        let mut answer = self.send(call, effort).await?;
        let status = answer.text()?;
        let known = match status.as_str() {
            "lost" => Err(StoreError::Unavailable(
                "redis contains an account of another installation; restore this installation's data".to_owned(),
            )),
            "missing" => self.store.check_generation().await,
            _ => Ok(()),
        };
        match known {
            Ok(()) => self.alarmed.store(false, Ordering::Relaxed),
            Err(error) => {
                if !self.alarmed.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "redis does not have the accounts of this installation, so no request is admitted");
                }
                return Err(error);
            }
        }
        Ok((status, answer))
    }

    /// Makes a call that reads an account, and evaluates the answer with `read`. Returns the default value for an account that
    /// does not exist.
    async fn read<T: Default>(
        &self,
        call: &ScriptCall<'_>,
        read: impl FnOnce(LedgerReply) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (status, answer) = self.call(call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        if status == "missing" {
            Ok(T::default())
        } else {
            read(answer)
        }
    }

    async fn apply_items(
        &self,
        (node, account): (&NodeId, &str),
        pieces: &[BatchItem<'_>],
        upto: u64,
        may_create: bool,
    ) -> Result<(String, LedgerReply), StoreError> {
        let mut call = self.prepare(&self.scripts().apply, account);
        call.arg(node.as_str()).arg(u8::from(may_create)).arg(upto);
        batch::add_arguments(&mut call, pieces, self.keeps_rows)?;
        // Steps that are sent twice have only one effect.
        self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await
    }

    fn scripts(&self) -> &LedgerScripts {
        &self.store.ledger_scripts
    }

    /// Calls a script about a node and an account. Ignores the answer unless it is an error.
    async fn call_for_node(&self, script: &RedisScript, node: &NodeId, account: &str) -> Result<(), StoreError> {
        let mut call = self.prepare(script, account);
        call.arg(node.as_str());
        self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await.map(drop)
    }
}

#[async_trait]
impl LedgerStore for RedisLedger {
    async fn admit(&self, ask: &AdmitCall) -> Result<AdmitReply, StoreError> {
        let mut call = self.prepare(&self.scripts().admit, &ask.key.account);
        arguments::admit(&mut call, ask);
        // If a request is admitted twice, it has only one hold.
        let (status, answer) = self.call(&call, CallPolicy::Read(self.store.budget)).await?;
        match status.as_str() {
            "granted" => answer.grant().map(AdmitReply::Granted),
            "refused" => answer.denial(),
            "stale" => Ok(AdmitReply::StaleKey),
            "missing" => Ok(AdmitReply::Refused(Denial::AccountUnknown)),
            _ => Err(answer::unknown_answer()),
        }
    }

    async fn top_up(&self, ask: &TopUp) -> Result<TopUpReply, StoreError> {
        let mut call = self.prepare(&self.scripts().top_up, &ask.account);
        arguments::top_up(&mut call, ask);
        let (status, answer) = self.call(&call, CallPolicy::Write(self.store.budget)).await?;
        answer.topped_up(&status)
    }

    async fn lease(&self, ask: &LeaseCall) -> Result<LeaseReply, StoreError> {
        let mut call = self.prepare(&self.scripts().lease, &ask.account);
        arguments::lease(&mut call, ask);
        // A lease call that is sent twice has only one effect.
        let (status, answer) = self.call(&call, CallPolicy::Read(self.store.budget)).await?;
        match (status.as_str(), ask.change) {
            ("held", _) => answer.lease_grant().map(LeaseReply::Held),
            ("refused", _) | ("missing", LeaseChange::Grow(_)) => Ok(LeaseReply::Refused),
            ("gone" | "missing", _) => Ok(LeaseReply::Gone),
            _ => Err(answer::unknown_answer()),
        }
    }

    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step], upto: u64) -> Result<u64, StoreError> {
        let is_batch = steps.iter().all(batch::is_leased);
        let max = if is_batch {
            self.batch_steps_max().max(APPLY_STEPS_MAX)
        } else {
            APPLY_STEPS_MAX
        };
        let (mut steps, mut upto) = limit_steps(steps, upto, max);
        let at = (node, account);
        let mut pieces = batch::batch_items(steps);
        let (mut status, mut answer) = self.apply_items(at, &pieces, upto, false).await?;
        let is_new = status == "missing";
        if is_new {
            // The account may be created, because this is the Redis that the node knows.
            (status, answer) = self.apply_items(at, &pieces, upto, true).await?;
        }
        if status == "each" {
            (steps, upto) = limit_steps(steps, upto, APPLY_STEPS_MAX);
            pieces = steps.iter().map(BatchItem::One).collect();
            (status, answer) = self.apply_items(at, &pieces, upto, is_new).await?;
        }
        if status != "ok" {
            return Err(answer::unknown_answer());
        }
        let watermark = answer.number()?;
        let opened = steps
            .iter()
            .any(|step| matches!(step.change, AccountChange::Open { .. }));
        if watermark > 0 {
            self.enter(account, is_new || opened).await?;
        }
        Ok(watermark)
    }

    fn batch_steps_max(&self) -> usize {
        match self.keeps_rows {
            true => LEASED_STEPS_MAX,
            false => ROWLESS_STEPS_MAX,
        }
    }

    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError> {
        self.replace_record(account, from, to).await
    }

    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError> {
        let mut call = self.prepare(&self.scripts().watermark, account);
        call.arg(node.as_str());
        self.read(&call, |mut answer| answer.number()).await
    }

    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError> {
        let renew = &self.scripts().renew;
        let calls: Vec<_> = accounts
            .iter()
            .map(|account| self.call_for_node(renew, node, account))
            .collect();
        // All calls are awaited even if some fail, because the others may go to another master.
        let told: Vec<Result<(), StoreError>> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        told.into_iter().collect()
    }

    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError> {
        self.call_for_node(&self.scripts().release, node, account).await
    }

    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError> {
        let call = self.prepare(&self.scripts().account, id);
        self.read(&call, |answer| answer.account(id).map(Some)).await
    }

    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError> {
        let limit = limit.min(LIST_ACCOUNTS_MAX);
        let mut after = after.unwrap_or_default().to_owned();
        let mut views = Vec::new();
        // A name in the index may be that of an account that a failover has lost. Then the page has a further account
        // instead.
        while views.len() < limit {
            let names = self.names(&after, limit - views.len()).await?;
            let Some(last) = names.last() else { break };
            after.clone_from(last);
            let calls: Vec<_> = names.iter().map(|name| self.account(name)).collect();
            let page: Vec<_> = stream::iter(calls).buffered(AT_ONCE).try_collect().await?;
            views.extend(page.into_iter().flatten());
        }
        if views.is_empty() {
            self.store.check_generation().await?;
        }
        Ok(views)
    }

    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError> {
        let mut call = self.prepare(&self.scripts().key_spend, account);
        call.arg(key.as_str());
        self.read(&call, LedgerReply::key_spend).await
    }

    async fn spent(&self, account: &str, period: Period) -> Result<SpendByKey, StoreError> {
        let mut call = self.prepare(&self.scripts().spent, account);
        call.arg(period.to_string());
        self.read(&call, LedgerReply::spent).await
    }

    async fn sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError> {
        self.daily_sums(account, days, of).await
    }

    async fn summed_up_to(&self, account: &str) -> Result<BTreeMap<NodeId, u64>, StoreError> {
        let call = self.prepare(&self.scripts().summed, account);
        self.read(&call, LedgerReply::summed).await
    }

    async fn put_sums(&self, account: &str, day: i64, sums: &DailySums, seen: u64) -> Result<bool, StoreError> {
        self.replace_sums(account, day, sums, seen).await
    }

    async fn operation_amount(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError> {
        let mut call = self.prepare(&self.scripts().operation, account);
        call.arg(id.as_str());
        let (status, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        if status == "missing" { Ok(None) } else { answer.amount() }
    }

    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError> {
        let mut call = self.prepare(&self.scripts().take_notices, account);
        call.arg(pause_ms);
        let (status, answer) = self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        if status == "missing" {
            Ok(TakenNotices::default())
        } else {
            answer.taken_notices()
        }
    }

    async fn acknowledge_notices(&self, account: &str, told: &[NoticeId]) -> Result<(), StoreError> {
        let mut call = self.prepare(&self.scripts().told, account);
        for of in told {
            call.arg(of.store_name());
        }
        // If a notice is removed twice, that has only one effect.
        self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await.map(drop)
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        // In a test, the test's clock is the store's.
        match self.now().parse() {
            Ok(now_ms) => Ok(now_ms),
            Err(_) => self.store.now_ms().await,
        }
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.store.link.epochs()
    }
}

/// Maximum number of accounts in [`KnownAccounts`]. If there are more, all are dropped. Each account is then entered into the
/// index again when it is next changed.
const ENTERED_MAX: usize = 100_000;

/// The accounts that this process has entered into the index in one epoch of the store, so that not every change needs two round
/// trips. In the next epoch, they may be missing from the index again.
#[derive(Default)]
struct KnownAccounts(Mutex<(u64, HashSet<String>)>);

impl KnownAccounts {
    fn contains(&self, account: &str, epoch: u64) -> bool {
        let entered = self.0.lock();
        entered.0 == epoch && entered.1.contains(account)
    }

    fn insert(&self, account: &str, epoch: u64) {
        let mut entered = self.0.lock();
        if entered.0 != epoch || entered.1.len() >= ENTERED_MAX {
            *entered = (epoch, HashSet::new());
        }
        entered.1.insert(account.to_owned());
    }
}

impl RedisLedger {
    fn index(&self) -> String {
        format!("{{{}:accounts}}:index", self.store.namespace)
    }

    /// Enters an account into the index. Does nothing if the account is not new and this process has already entered it.
    async fn enter(&self, account: &str, is_new: bool) -> Result<(), StoreError> {
        let epoch = *self.store.link.epochs().borrow();
        if !is_new && self.entered.contains(account, epoch) {
            return Ok(());
        }
        let mut call = self.scripts().enter.call();
        call.key(self.index()).arg(account);
        self.send(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        self.entered.insert(account, epoch);
        Ok(())
    }

    /// Returns up to `limit` names of accounts after `after`.
    async fn names(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut call = self.scripts().names.call();
        call.key(self.index()).arg(after).arg(limit);
        let (_, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        Ok(answer.remaining().collect())
    }
}
