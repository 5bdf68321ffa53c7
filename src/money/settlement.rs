//! Sends the journal's steps to the store: every step once, in order, whatever happens to the store meanwhile.
//!
//! Each account with unacknowledged steps has one task that sends them, which keeps their order. An unreachable store
//! delays only the steps. If the store may have forgotten something ([`LedgerStore::epochs`]), it is asked for the
//! watermark of every account in the journal, and what it lacks is sent again; so are the last records of keys and accounts.

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
    money::notices::Charged,
    store::{
        KeyHealer, StoreError,
        ledger::{APPLY_STEPS_MAX, LedgerStore},
    },
};

mod first_balances;
mod lane;
mod left_over;
#[cfg(test)]
mod tests;

pub(crate) use first_balances::wait_for_balances;
pub(crate) use left_over::charge_left_over;
#[cfg(test)]
use left_over::{judge_possibly_settled, settle_left_over};

/// The most concurrent calls to the store.
const CALLS_MAX: usize = 16;
/// The pause after a failed call: at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The task that sends steps to the store.
#[derive(Clone)]
pub(crate) struct Settler {
    journal: Arc<Journal>,
    store: Arc<dyn LedgerStore>,
    keys: Arc<dyn KeyHealer>,
    calls: Arc<Semaphore>,
    /// Accounts that were charged are noted there.
    charged: Arc<Charged>,
    /// The pause after an account's first failed call.
    pause: Duration,
}

/// The result of one task of [`Settler::run`].
enum Done {
    /// All steps of the account are acknowledged.
    Account(SmolStr),
    /// The store was asked for all watermarks; these accounts have steps to send.
    Checked(Vec<(SmolStr, Recheck)>),
    /// The last records of keys and accounts were sent again.
    Healed,
}

/// Why an account must be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Recheck {
    None,
    /// There may be further steps.
    Steps,
    /// The store may have forgotten steps.
    Watermark,
}

/// The running tasks by account, and the rechecks that arrived for them meanwhile.
#[derive(Default)]
struct Tasks {
    set: JoinSet<Done>,
    lanes: HashMap<SmolStr, Recheck>,
    checking: bool,
    check_again: bool,
    healing: bool,
    heal_again: bool,
}

impl Settler {
    /// Sends the steps of this journal to this store.
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

    /// The same, noting there which accounts were charged.
    pub(crate) fn noting(self, charged: Arc<Charged>) -> Self {
        Self { charged, ..self }
    }

    /// Runs until `shutdown` turns true. Steps that are not sent then stay in the journal; [`Journal::drained`]
    /// completes when there are none.
    pub(crate) async fn run(&self, mut shutdown: watch::Receiver<bool>) {
        let mut epochs = self.store.epochs();
        epochs.mark_changed();
        let mut watching = true;
        let mut tasks = Tasks::default();
        loop {
            tokio::select! {
                _ = shutdown.wait_for(|down| *down) => break,
                moved = epochs.changed(), if watching => {
                    // A dropped store reports no further epochs.
                    watching = moved.is_ok();
                    if watching {
                        self.check(&mut tasks);
                        self.heal(&mut tasks);
                    }
                }
                woken = self.journal.woken() => {
                    for account in woken {
                        self.send(&mut tasks, account, Recheck::Steps);
                    }
                }
                Some(done) = tasks.set.join_next() => self.done(&mut tasks, done),
            }
        }
        tasks.set.shutdown().await;
    }

    fn done(&self, tasks: &mut Tasks, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Account(account)) => {
                let recheck = tasks.lanes.remove(&account).unwrap_or(Recheck::None);
                if recheck > Recheck::None {
                    self.send(tasks, account, recheck);
                }
            }
            Ok(Done::Checked(accounts)) => {
                tasks.checking = false;
                for (account, recheck) in accounts {
                    self.send(tasks, account, recheck);
                }
                if std::mem::take(&mut tasks.check_again) {
                    self.check(tasks);
                }
            }
            Ok(Done::Healed) => {
                tasks.healing = false;
                if std::mem::take(&mut tasks.heal_again) {
                    self.heal(tasks);
                }
            }
            Err(error) => {
                // The failed task is unknown, so everything is looked at again.
                tracing::error!(%error, "a settlement task failed");
                *tasks = Tasks::default();
                self.check(tasks);
                self.heal(tasks);
                for account in self.journal.accounts() {
                    self.send(tasks, account, Recheck::Watermark);
                }
            }
        }
    }

    /// Starts the account's task, or notes the rechecks for the running one.
    fn send(&self, tasks: &mut Tasks, account: SmolStr, recheck: Recheck) {
        if let Some(kept) = tasks.lanes.get_mut(&account) {
            *kept = recheck.max(*kept);
            return;
        }
        tasks.lanes.insert(account.clone(), Recheck::None);
        let settler = self.clone();
        tasks.set.spawn(async move {
            settler.lane(&account, recheck == Recheck::Watermark).await;
            Done::Account(account)
        });
    }

    fn check(&self, tasks: &mut Tasks) {
        if std::mem::replace(&mut tasks.checking, true) {
            tasks.check_again = true;
            return;
        }
        let settler = self.clone();
        tasks.set.spawn(async move { Done::Checked(settler.ask_all().await) });
    }

    fn heal(&self, tasks: &mut Tasks) {
        if std::mem::replace(&mut tasks.healing, true) {
            tasks.heal_again = true;
            return;
        }
        let settler = self.clone();
        tasks.set.spawn(async move {
            settler.heal_all().await;
            Done::Healed
        });
    }

    /// Asks for the watermark of every account once.
    async fn ask_all(&self) -> Vec<(SmolStr, Recheck)> {
        let accounts = self.journal.accounts();
        let asked = stream::iter(accounts).map(|account| async move {
            match self.ask(&account).await {
                Ok(()) => (account, Recheck::Steps),
                Err(error) => {
                    tracing::debug!(%account, %error, "the store does not tell how far the account is settled");
                    (account, Recheck::Watermark)
                }
            }
        });
        asked.buffer_unordered(CALLS_MAX).collect().await
    }

    /// Sends the last records of all keys and accounts of the journal to the store again.
    async fn heal_all(&self) {
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
                        tracing::error!(%error, "what the journal knows of keys and accounts cannot be read");
                        rest(&mut pause).await;
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
                    rest(&mut pause).await;
                }
                Err(error) => tracing::error!(%error, "a key or an account of the journal cannot be told to the store"),
            }
        }
    }

    /// Runs a closure that reads the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Journal) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let journal = Arc::clone(&self.journal);
        let done = tokio::task::spawn_blocking(move || work(&journal)).await;
        done.unwrap_or(Err(JournalError::NotDurable))
    }
}

/// Waits for the pause and doubles it.
async fn rest(pause: &mut Duration) {
    tokio::time::sleep(*pause).await;
    *pause = pause.saturating_mul(2).min(PAUSE_MAX);
}
