//! Builds the parts that deal with money: ledger, journal, settlement and billing, in the order of their dependencies.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    config::Config,
    domain::wire::usage::UsageSource,
    journal::{Journal, JournalError, Opened},
    money::{
        billing::{Billing, GraceLimits},
        settlement::{Settler, judge_possibly_settled, settle_left_over},
    },
    store::{KeyStore, ledger::LedgerStore},
    telemetry::metrics::{Metrics, MoneyFigures},
    wiring::{StartError, store::Ledger},
};

/// How long the last settlements may take to reach the store when the process ends; they are in the journal anyway.
const LAST_SETTLEMENTS_WAIT: Duration = Duration::from_secs(2);

/// How long the start waits for that.
const RELEASE_WAIT: Duration = Duration::from_millis(500);

/// The parts that deal with money.
pub(crate) struct Money {
    /// Accounts, quotas, holds and the log.
    pub ledger: Arc<dyn LedgerStore>,
    /// This node's record of what it owes.
    pub journal: Arc<Journal>,
    /// Admits and charges requests.
    pub billing: Billing,
    engine: Ledger,
    grace: GraceLimits,
    journal_folder: PathBuf,
    /// Ends after the last checkpoint, when `stop` has turned true.
    billing_task: JoinHandle<()>,
}

impl Money {
    /// Opens the journal, charges what a process before left open, and starts the background tasks.
    pub(crate) fn build(
        config: &Config,
        engine: Ledger,
        keys: Arc<dyn KeyStore>,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Self, StartError> {
        let Opened {
            journal,
            unsettled,
            possibly_settled,
            ..
        } = Journal::open(&config.journal).map_err(journal_failed)?;
        if let Ledger::Embedded(embedded) = &engine {
            let begun = embedded.begin(journal.accounts_known());
            begun.map_err(|error| StartError::failed("the embedded ledger", error))?;
        }
        let cut: BTreeSet<String> = unsettled
            .iter()
            .map(|(admitted, _)| admitted.request.account.clone())
            .collect();
        let ledger = engine.store();
        settle_left_over(&journal, unsettled).map_err(journal_failed)?;
        if !possibly_settled.is_empty() {
            background
                .block_on(judge_possibly_settled(&journal, &*ledger, possibly_settled))
                .map_err(journal_failed)?;
        }
        if let Ledger::Embedded(embedded) = &engine {
            let (embedded, stopped) = (Arc::clone(embedded), stopped.clone());
            background.spawn(async move { embedded.run(stopped).await });
        }
        background.block_on(release(&*ledger, &journal, &cut));
        let settler = Settler::new(Arc::clone(&journal), Arc::clone(&ledger), keys);
        let settled = stopped.clone();
        background.spawn(async move { settler.run(settled).await });
        let grace = GraceLimits {
            key: config.money.grace,
            account: config.money.grace_account,
        };
        let billing = Billing::new(Arc::clone(&ledger), Arc::clone(&journal), grace);
        let billing_task = background.spawn(billing.clone().run(stopped.clone()));
        Ok(Self {
            ledger,
            journal,
            billing,
            engine,
            grace,
            journal_folder: config.journal.path.clone(),
            billing_task,
        })
    }

    /// Has the figures read when somebody scrapes.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        let (billing, journal) = (self.billing.clone(), Arc::clone(&self.journal));
        let grace = self.grace;
        let folder = self.journal_folder.clone();
        metrics.sample(move |metrics| {
            let rows = billing.rows().map(|(source, total)| (source_name(source), total));
            metrics.money_is(&MoneyFigures {
                charged: u64::try_from(billing.charged().nanos()).unwrap_or(0),
                rows: rows.to_vec(),
                offline: billing.offline(),
                failures: billing.failures().saturating_add(journal.failures()),
                grace: grace.key.nanos(),
                grace_account: grace.account.nanos(),
                grace_committed: billing.grace_committed().nanos(),
                held: billing.held().nanos(),
                held_waiting: billing.waiting(),
                excess_max: billing.excess_max().nanos(),
                accounts_low: billing.accounts_low(),
                unacknowledged: journal.unacknowledged_steps(),
                oldest_ms: journal.oldest_unacknowledged_ms(),
                journal_bytes: journal.bytes(),
                journal_disk_free: free_bytes(&folder).unwrap_or(0),
                journal_damaged: journal.damaged_parts(),
                journal_up: journal.shut().is_none(),
                journal_lost: journal.lost_steps(),
            });
        });
    }

    /// Waits, within bounds, for the last settlements to reach the store. Before the background is told to stop.
    pub(crate) async fn settle(&self) {
        if tokio::time::timeout(LAST_SETTLEMENTS_WAIT, self.journal.drained())
            .await
            .is_err()
        {
            tracing::warn!(
                "the store has not taken the last settlements: they are in the journal, and are sent at the next start"
            );
        }
    }

    /// Waits for the last of it to be written. After the background was told to stop.
    pub(crate) async fn end(self) {
        let _ = self.billing_task.await;
        if let Ledger::Embedded(embedded) = &self.engine
            && let Err(error) = embedded.flush().await
        {
            tracing::warn!(%error, "the ledger's file lacks the last changes: they are in the journal, and are applied at the next start");
        }
    }
}

fn journal_failed(error: JournalError) -> StartError {
    StartError::failed("the journal", error)
}

/// What is free on the disk of a folder for a process without privileges.
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Ends what a process before held for requests that died with it. Before the first admission: nothing of this process is
/// held yet.
async fn release(ledger: &dyn LedgerStore, journal: &Journal, accounts: &BTreeSet<String>) {
    let all = join_all(accounts.iter().map(|account| ledger.release(journal.node(), account)));
    match tokio::time::timeout(RELEASE_WAIT, all).await {
        Ok(ended) if ended.iter().all(Result::is_ok) => {}
        // Their settlements end them, too.
        Ok(_) | Err(_) => tracing::debug!("the holds of requests that were cut could not be ended at once"),
    }
}

fn source_name(source: UsageSource) -> &'static str {
    match source {
        UsageSource::Reported => "reported",
        UsageSource::Partial => "partial",
        UsageSource::Estimated => "estimated",
    }
}
