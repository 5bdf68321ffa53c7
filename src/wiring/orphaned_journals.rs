//! Settles orphaned journals, whose processes have ended: charges their open requests, settles their steps, and publishes their
//! counts. If the store has lost writes, the steps are settled again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    config::{JournalConfig, JournalSink},
    journal::{Journal, JournalError, OpenedJournal, handle},
    money::{
        notices::ChargedAccounts,
        settlement::{Settler, charge_left_over},
    },
    stability::Publisher,
    store::{
        KeyStore,
        embedded::ledger::AccountTable,
        ledger::{LedgerStore, StabilityStore},
    },
    wiring::log_sinks::LogSinks,
};

/// The interval of the search for orphaned journals while another process has a journal in the same folder. Otherwise,
/// `LOOK_EVERY_ALONE` applies.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY_ALONE: Duration = Duration::from_secs(5);
/// The maximum time to wait for each task of a journal to end.
const END_WAIT: Duration = Duration::from_secs(2);

/// The orphaned journals that this process has open, and the search for further ones.
pub(crate) struct OrphanedJournals {
    settings: JournalConfig,
    ledger: Arc<dyn LedgerStore>,
    keys: Arc<dyn KeyStore>,
    stability: Arc<dyn StabilityStore>,
    charged: Arc<ChargedAccounts>,
    sinks: LogSinks,
    open: Mutex<Vec<OrphanedJournal>>,
    /// Whether to search for further journals. The mutex is locked while journals are opened.
    looking: tokio::sync::Mutex<bool>,
    /// Notified when the search is to be resumed.
    again: Notify,
}

/// An orphaned journal that this process has open, with the tasks that settle it.
struct OrphanedJournal {
    journal: Arc<Journal>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl OrphanedJournals {
    /// Starts without any open journal.
    pub(super) fn new(
        settings: JournalConfig,
        ledger: Arc<dyn LedgerStore>,
        keys: Arc<dyn KeyStore>,
        stability: Arc<dyn StabilityStore>,
        charged: Arc<ChargedAccounts>,
        sinks: LogSinks,
    ) -> Self {
        Self {
            settings,
            ledger,
            keys,
            stability,
            charged,
            sinks,
            open: Mutex::default(),
            looking: tokio::sync::Mutex::new(true),
            again: Notify::new(),
        }
    }

    /// Adopts an orphaned journal: charges its open requests, and starts to settle it.
    ///
    /// # Errors
    /// The journal has no room for the charges. The requests are charged when the journal is opened again.
    pub(super) async fn adopt(&self, opened: OpenedJournal) -> Result<(), JournalError> {
        let journal = charge_left_over(opened, &*self.ledger).await?;
        let stop = watch::Sender::new(false);
        let settler = Settler::new(
            Arc::clone(&journal),
            Arc::clone(&self.ledger),
            Arc::clone(&self.keys) as _,
        )
        .with_charged(Arc::clone(&self.charged));
        let (settled, told) = (stop.subscribe(), stop.subscribe());
        let publisher = Publisher::new(
            Arc::clone(&journal) as _,
            Arc::clone(&self.stability),
            journal.node().clone(),
        );
        let mut tasks = vec![
            tokio::spawn(async move { settler.run(settled).await }),
            tokio::spawn(Arc::new(publisher).run(told)),
        ];
        tasks.extend(self.sinks.feeds(&journal, &stop.subscribe()).map(tokio::spawn));
        self.open.lock().push(OrphanedJournal { journal, stop, tasks });
        Ok(())
    }

    /// Searches for further orphaned journals until `stopped` turns true.
    pub(super) async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let (mut refused, mut pause) = (BTreeSet::new(), LOOK_EVERY);
        loop {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = self.again.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = LOOK_EVERY_ALONE;
            let looking = self.looking.lock().await;
            if !*looking {
                continue;
            }
            let settings = self.settings.clone();
            let found =
                tokio::task::spawn_blocking(move || (handle::open_orphaned(&settings, &mut refused), refused)).await;
            let Ok((found, refused_now)) = found else { return };
            refused = refused_now;
            // This process has its own journal and the orphaned journals open. Any further journal in use belongs to another
            // process.
            if found.in_use > self.open.lock().len() + 1 {
                pause = LOOK_EVERY;
            }
            for opened in found.opened {
                let node = opened.journal.node().clone();
                match self.adopt(opened).await {
                    Ok(()) => {
                        tracing::info!(%node, "another weir process has ended; this process settles the requests in the journal of the ended process")
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot yet charge the unsettled requests in the journal of a process that has ended; weir tries again")
                    }
                }
            }
        }
    }

    /// Closes all journals for the successor, and stops searching for further ones.
    pub(super) async fn close_all(&self) {
        *self.looking.lock().await = false;
        let lanes = std::mem::take(&mut *self.open.lock());
        for lane in &lanes {
            lane.stop.send_replace(true);
        }
        for lane in lanes {
            for task in lane.tasks {
                // If a task does not end, the journal remains open, and the successor opens it later.
                let _ = timeout(END_WAIT, task).await;
            }
        }
    }

    /// Resumes the search for orphaned journals.
    pub(super) async fn resume_looking(&self) {
        *self.looking.lock().await = true;
        self.again.notify_one();
    }

    /// Waits until the store has applied all steps that are in these journals now.
    pub(super) async fn drained(&self) {
        for journal in self.journals() {
            journal.wait_until_acknowledged().await;
        }
    }

    /// Returns the journals that this process has open.
    pub(super) fn journals(&self) -> Vec<Arc<Journal>> {
        let open = self.open.lock();
        open.iter().map(|lane| Arc::clone(&lane.journal)).collect()
    }
}

/// Determines which of the journals' steps the ledger has applied. The returned closure tells the journals that the store's file
/// contains these steps. Leaves out a journal that counts steps as applied although the ledger lacks them. This can happen until
/// the journal's settlement has read the ledger's watermark.
pub(super) fn record_applied(journals: Vec<Arc<Journal>>, books: &AccountTable) -> impl FnOnce() + use<> {
    let known = journals.into_iter().filter_map(|journal| {
        let before = journal.acknowledged_before();
        let has = |account| books.watermark(journal.node(), account) >= journal.acknowledged_step(account);
        let has_all = journal.account_names().iter().all(|account| has(account));
        has_all.then_some((journal, before))
    });
    let known: Vec<(Arc<Journal>, u64)> = known.collect();
    move || {
        for (journal, before) in known {
            journal.set_sink_position(JournalSink::EMBEDDED_STORE.name, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::{AccountChange, Step},
        journal::STEP_BYTES_MAX,
        store::embedded::ledger::EmbeddedLedger,
    };

    /// Returns the number of bytes in the journal that the store has not confirmed as written.
    fn unwritten(journal: &Journal) -> u64 {
        journal.sink_lag_bytes(JournalSink::EMBEDDED_STORE.name)
    }

    #[tokio::test]
    async fn a_journal_is_told_of_steps_that_the_ledger_has_and_of_none_that_it_lacks() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(|| 0_i64));
        let settings = JournalConfig {
            path: folder.path().join("journal"),
            segment_bytes: 1 << 20,
            keep: Duration::from_secs(86_400),
            sync: Duration::from_millis(1),
            sinks: vec![JournalSink::EMBEDDED_STORE],
        };
        let journal = Journal::open(&settings).unwrap().journal;
        let ledger = EmbeddedLedger::open(&folder.path().join("store"), clock).unwrap();
        let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
        journal
            .append_step("acme", AccountChange::nothing(), 0, &mut room)
            .unwrap();
        let tell = || record_applied(vec![Arc::clone(&journal)], &ledger.books());

        // The journal's former process had an acknowledgement whose change is not in the store's file.
        journal.acknowledge("acme", 1);
        tell()();
        assert!(unwritten(&journal) > 0);

        let step = Step {
            seq: 1,
            change: AccountChange::nothing(),
        };
        assert_eq!(ledger.apply(journal.node(), "acme", &[step], 0).await, Ok(1));
        let written = tell();
        let last = journal.end();
        // Records that follow later are not in the file with it.
        journal
            .append_step(
                "acme",
                AccountChange::nothing(),
                0,
                &mut journal.reserve(STEP_BYTES_MAX).unwrap(),
            )
            .unwrap();
        ledger.flush().await.unwrap();
        written();
        assert_eq!(unwritten(&journal), journal.end().offset - last.offset);
    }
}
