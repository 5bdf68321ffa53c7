//! The lanes of the journal that others have left: what they owed is charged and settled, what they counted is told, and the
//! store can be told again what it forgets.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    config::{JournalConfig, JournalSink},
    journal::{Journal, JournalError, Opened, lanes},
    money::{
        notices::Charged,
        settlement::{Settler, charge_left_over},
    },
    stability::Publisher,
    store::{KeyStore, embedded::ledger::Books, ledger::LedgerStore, stability::StabilityStore},
    wiring::log_sinks::LogSinks,
};

/// How often lanes are looked for whose processes have ended, while another process has one; and otherwise.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY_ALONE: Duration = Duration::from_secs(5);
/// How long the tasks of a lane may take to end.
const END_WAIT: Duration = Duration::from_secs(2);

/// What settles the lanes that others have left.
pub(crate) struct LeftLanes {
    settings: JournalConfig,
    ledger: Arc<dyn LedgerStore>,
    keys: Arc<dyn KeyStore>,
    stability: Arc<dyn StabilityStore>,
    charged: Arc<Charged>,
    sinks: LogSinks,
    open: Mutex<Vec<Lane>>,
    /// Whether further ones are looked for. Locked while some are opened.
    looking: tokio::sync::Mutex<bool>,
    /// Notified when they are looked for again.
    again: Notify,
}

/// One of them.
struct Lane {
    journal: Arc<Journal>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl LeftLanes {
    /// None yet.
    pub(super) fn new(
        settings: JournalConfig,
        ledger: Arc<dyn LedgerStore>,
        keys: Arc<dyn KeyStore>,
        stability: Arc<dyn StabilityStore>,
        charged: Arc<Charged>,
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

    /// Takes one: charges what was running in it, and begins to settle it.
    ///
    /// # Errors
    /// The journal has no room for the charges. They are made when it is opened again.
    pub(super) async fn take(&self, opened: Opened) -> Result<(), JournalError> {
        let journal = charge_left_over(opened, &*self.ledger).await?;
        let stop = watch::Sender::new(false);
        let settler = Settler::new(
            Arc::clone(&journal),
            Arc::clone(&self.ledger),
            Arc::clone(&self.keys) as _,
        )
        .noting(Arc::clone(&self.charged));
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
        self.open.lock().push(Lane { journal, stop, tasks });
        Ok(())
    }

    /// Looks for further ones until `stopped` turns true.
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
            let found = tokio::task::spawn_blocking(move || (lanes::open_left(&settings, &mut refused), refused)).await;
            let Ok((found, refused_now)) = found else { return };
            refused = refused_now;
            // Of those in use one is written to here, and some have been left.
            if found.in_use > self.open.lock().len() + 1 {
                pause = LOOK_EVERY;
            }
            for opened in found.opened {
                let node = opened.journal.node().clone();
                match self.take(opened).await {
                    Ok(()) => {
                        tracing::info!(%node, "a process has ended: what it has left in the journal is settled here")
                    }
                    Err(error) => {
                        tracing::error!(%error, "what a process has left in the journal cannot be charged yet")
                    }
                }
            }
        }
    }

    /// Closes all of them, for the process that comes next, and looks for no others.
    pub(super) async fn leave(&self) {
        *self.looking.lock().await = false;
        let lanes = std::mem::take(&mut *self.open.lock());
        for lane in &lanes {
            lane.stop.send_replace(true);
        }
        for lane in lanes {
            for task in lane.tasks {
                // What it holds keeps the lane open for longer; the next process then opens it later.
                let _ = timeout(END_WAIT, task).await;
            }
        }
    }

    /// Looks for them again.
    pub(super) async fn look_again(&self) {
        *self.looking.lock().await = true;
        self.again.notify_one();
    }

    /// Waits until the store has all that they owe now.
    pub(super) async fn drained(&self) {
        for journal in self.journals() {
            journal.drained().await;
        }
    }

    /// The journals that are open.
    pub(super) fn journals(&self) -> Vec<Arc<Journal>> {
        let open = self.open.lock();
        open.iter().map(|lane| Arc::clone(&lane.journal)).collect()
    }
}

/// Notes how far journals know their steps as applied; what it returns tells them that all of these are in the store's file. A
/// journal that knows of more than the ledger has is told nothing: its settlement has not asked yet.
pub(super) fn applied(journals: Vec<Arc<Journal>>, books: &Books) -> impl FnOnce() + use<> {
    let known = journals.into_iter().filter_map(|journal| {
        let before = journal.acknowledged_before();
        let has = |account| books.applied(journal.node(), account) >= journal.acknowledged_step(account);
        let has_all = journal.accounts().iter().all(|account| has(account));
        has_all.then_some((journal, before))
    });
    let known: Vec<(Arc<Journal>, u64)> = known.collect();
    move || {
        for (journal, before) in known {
            journal.sink_has(JournalSink::EMBEDDED_STORE.name, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::{Change, Step},
        journal::STEP_BYTES_MAX,
        store::embedded::ledger::EmbeddedLedger,
    };

    /// How much of the journal the store is not known to have written.
    fn unwritten(journal: &Journal) -> u64 {
        journal.sink_behind_bytes(JournalSink::EMBEDDED_STORE.name)
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
        journal.append_step("acme", Change::nothing(), 0, &mut room).unwrap();
        let tell = || applied(vec![Arc::clone(&journal)], &ledger.books());

        // Its process before had an answer of which the file has nothing.
        journal.acknowledged("acme", 1);
        tell()();
        assert!(unwritten(&journal) > 0);

        let step = Step {
            seq: 1,
            change: Change::nothing(),
        };
        assert_eq!(ledger.apply(journal.node(), "acme", &[step], 0).await, Ok(1));
        let written = tell();
        let last = journal.end();
        // What comes behind it is not in the file with it.
        journal
            .append_step(
                "acme",
                Change::nothing(),
                0,
                &mut journal.reserve(STEP_BYTES_MAX).unwrap(),
            )
            .unwrap();
        ledger.flush().await.unwrap();
        written();
        assert_eq!(unwritten(&journal), journal.end().offset - last.offset);
    }
}
