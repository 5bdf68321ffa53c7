//! The lanes of the journal that others have left: what they owed is charged and settled, what they counted is told, and the
//! store can be told again what it forgets.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{
    config::JournalConfig,
    journal::{Journal, JournalError, Opened, lanes},
    money::{
        notices::Charged,
        settlement::{Settler, charge_left_over},
    },
    stability::Publisher,
    store::{KeyStore, ledger::LedgerStore, stability::StabilityStore},
    wiring::log_sinks::LogSinks,
};

/// How often lanes are looked for whose processes have ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
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
        let mut refused = BTreeSet::new();
        while timeout(LOOK_EVERY, stopped.wait_for(|stopped| *stopped)).await.is_err() {
            let looking = self.looking.lock().await;
            if !*looking {
                continue;
            }
            let settings = self.settings.clone();
            let found = tokio::task::spawn_blocking(move || (lanes::open_left(&settings, &mut refused), refused)).await;
            let Ok((found, refused_now)) = found else { return };
            refused = refused_now;
            for opened in found {
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
