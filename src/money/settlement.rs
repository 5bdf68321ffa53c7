//! Settlement: sends the journal's steps to the store. The store applies each step once and in order, even across outages.
//!
//! Each account with unacknowledged steps has one task that sends them in order. If the store is unreachable, the steps are sent
//! later. If the store may have lost acknowledged writes ([`LedgerStore::epochs`]), the settlement asks the store for the
//! watermark of each account that is in the journal, and sends the missing steps again. It also sends the last records of keys
//! and accounts again.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream};
use smol_str::SmolStr;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

use crate::{
    domain::ledger::Record,
    journal::{Journal, JournalError},
    money::notices::ChargedAccounts,
    store::{
        KeyHealer, StoreError,
        ledger::{APPLY_STEPS_MAX, LedgerStore},
    },
};

mod account;
#[cfg(test)]
mod tests;

pub(crate) use crate::money::settlement::account::charge_left_over;
pub(crate) use crate::money::settlement::account::wait_for_balances;
#[cfg(test)]
use crate::money::settlement::account::{settle_left_over, settle_possibly_settled};

/// Maximum number of concurrent calls to the store.
const CALLS_MAX: usize = 16;
/// The pause after a failed call. It doubles with each further failure, up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The task that sends the journal's steps to the store.
#[derive(Clone)]
pub(crate) struct Settler {
    journal: Arc<Journal>,
    store: Arc<dyn LedgerStore>,
    keys: Arc<dyn KeyHealer>,
    calls: Arc<Semaphore>,
    /// The record of accounts that were charged.
    charged: Arc<ChargedAccounts>,
    /// The pause after an account's first failed call.
    pause: Duration,
}

/// The result of a background task of [`Settler::run`].
enum FinishedTask {
    /// All steps of the account are acknowledged.
    Account(SmolStr),
    /// All watermarks were read from the store. These accounts may have steps to send.
    Checked(Vec<(SmolStr, Recheck)>),
    /// The last records of keys and accounts have been sent again.
    Healed,
}

/// The reason why an account must be checked again; `None` if no check is necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Recheck {
    None,
    /// There may be further steps to send.
    Steps,
    /// The store may have lost steps, so its watermark must be read.
    Watermark,
}

/// The running tasks by account, with the rechecks that were requested while these tasks were running.
#[derive(Default)]
struct Tasks {
    set: JoinSet<FinishedTask>,
    lanes: HashMap<SmolStr, Recheck>,
    checking: bool,
    check_again: bool,
    healing: bool,
    heal_again: bool,
}

impl Settler {
    /// Creates a settler that sends the steps of `journal` to `store`, and the journal's records of keys to `keys`.
    pub(crate) fn new(journal: Arc<Journal>, store: Arc<dyn LedgerStore>, keys: Arc<dyn KeyHealer>) -> Self {
        Self {
            journal,
            store,
            keys,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            charged: Arc::default(),
            pause: PAUSE_MIN,
        }
    }

    /// Sets the record of accounts that were charged.
    pub(crate) fn with_charged(self, charged: Arc<ChargedAccounts>) -> Self {
        Self { charged, ..self }
    }

    /// Runs until `shutdown` becomes true. Steps that have not been sent by then stay in the journal.
    /// [`Journal::wait_until_acknowledged`] completes when all steps are acknowledged.
    pub(crate) async fn run(&self, mut shutdown: watch::Receiver<bool>) {
        let mut epochs = self.store.epochs();
        epochs.mark_changed();
        let mut watching = true;
        let mut tasks = Tasks::default();
        loop {
            tokio::select! {
                _ = shutdown.wait_for(|down| *down) => break,
                moved = epochs.changed(), if watching => {
                    // A store that has been dropped reports no further epochs.
                    watching = moved.is_ok();
                    if watching {
                        self.start_check(&mut tasks);
                        self.start_restoring(&mut tasks);
                    }
                }
                woken = self.journal.wait_for_steps() => {
                    for account in woken {
                        self.start_sending(&mut tasks, account, Recheck::Steps);
                    }
                }
                Some(done) = tasks.set.join_next() => self.on_task_end(&mut tasks, done),
            }
        }
        tasks.set.shutdown().await;
    }

    fn on_task_end(&self, tasks: &mut Tasks, done: Result<FinishedTask, tokio::task::JoinError>) {
        match done {
            Ok(FinishedTask::Account(account)) => {
                let recheck = tasks.lanes.remove(&account).unwrap_or(Recheck::None);
                if recheck > Recheck::None {
                    self.start_sending(tasks, account, recheck);
                }
            }
            Ok(FinishedTask::Checked(accounts)) => {
                tasks.checking = false;
                for (account, recheck) in accounts {
                    self.start_sending(tasks, account, recheck);
                }
                if std::mem::take(&mut tasks.check_again) {
                    self.start_check(tasks);
                }
            }
            Ok(FinishedTask::Healed) => {
                tasks.healing = false;
                if std::mem::take(&mut tasks.heal_again) {
                    self.start_restoring(tasks);
                }
            }
            Err(error) => {
                // It is unknown which task failed, so everything is checked again.
                tracing::error!(%error, "a settlement task failed unexpectedly; all accounts are checked again");
                *tasks = Tasks::default();
                self.start_check(tasks);
                self.start_restoring(tasks);
                for account in self.journal.account_names() {
                    self.start_sending(tasks, account, Recheck::Watermark);
                }
            }
        }
    }

    /// Starts the account's task. If the task is already running, records the recheck for it.
    fn start_sending(&self, tasks: &mut Tasks, account: SmolStr, recheck: Recheck) {
        if let Some(kept) = tasks.lanes.get_mut(&account) {
            *kept = recheck.max(*kept);
            return;
        }
        tasks.lanes.insert(account.clone(), Recheck::None);
        let settler = self.clone();
        tasks.set.spawn(async move {
            settler.settle_account(&account, recheck == Recheck::Watermark).await;
            FinishedTask::Account(account)
        });
    }

    fn start_check(&self, tasks: &mut Tasks) {
        if std::mem::replace(&mut tasks.checking, true) {
            tasks.check_again = true;
            return;
        }
        let settler = self.clone();
        tasks
            .set
            .spawn(async move { FinishedTask::Checked(settler.read_watermarks().await) });
    }

    fn start_restoring(&self, tasks: &mut Tasks) {
        if std::mem::replace(&mut tasks.healing, true) {
            tasks.heal_again = true;
            return;
        }
        let settler = self.clone();
        tasks.set.spawn(async move {
            settler.restore_records().await;
            FinishedTask::Healed
        });
    }

    /// Reads the watermark of every account once. Returns the accounts with the recheck that each needs.
    async fn read_watermarks(&self) -> Vec<(SmolStr, Recheck)> {
        let accounts = self.journal.account_names();
        let asked = stream::iter(accounts).map(|account| async move {
            match self.read_watermark(&account).await {
                Ok(()) => (account, Recheck::Steps),
                Err(error) => {
                    tracing::debug!(%account, %error, "cannot read the account's watermark from the store");
                    (account, Recheck::Watermark)
                }
            }
        });
        asked.buffer_unordered(CALLS_MAX).collect().await
    }

    /// Sends the last records of all keys and accounts in the journal to the store again.
    async fn restore_records(&self) {
        let mut pause = self.pause;
        let mut left: VecDeque<Record> = VecDeque::new();
        let mut read = false;
        while !read || !left.is_empty() {
            if !read {
                match self.blocking(Journal::last_records).await {
                    Ok(records) => {
                        left.extend(records);
                        read = true;
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot read the records of keys and accounts from the journal; trying again");
                        back_off(&mut pause).await;
                    }
                }
                continue;
            }
            let Some(record) = left.pop_front() else { break };
            let healed = match &record {
                Record::Key { digest, record } => self.keys.heal(digest, record).await,
                Record::KeyGone { id, revision } => self.keys.heal_gone(id, *revision).await,
                Record::Account { account, record } => self.store.heal_terms(account, record).await,
                Record::Admit(_) | Record::Checkpoints(_) | Record::Step { .. } => Ok(()),
            };
            match healed {
                Ok(()) => pause = self.pause,
                Err(StoreError::Unavailable(_) | StoreError::Busy(_)) => {
                    left.push_front(record);
                    back_off(&mut pause).await;
                }
                Err(error) => {
                    tracing::error!(%error, "the store rejects a record of a key or an account from the journal; the record is skipped")
                }
            }
        }
    }

    /// Runs `work` on a thread for blocking calls, because it reads the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Journal) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let journal = Arc::clone(&self.journal);
        let done = tokio::task::spawn_blocking(move || work(&journal)).await;
        done.unwrap_or(Err(JournalError::NotDurable))
    }
}

/// Waits for the pause and doubles it, up to its maximum.
async fn back_off(pause: &mut Duration) {
    tokio::time::sleep(*pause).await;
    *pause = pause.saturating_mul(2).min(PAUSE_MAX);
}
