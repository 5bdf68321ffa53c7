//! The money side: ledger, journal, settlement and billing, built in the order of their dependence.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    billing::Billing,
    config::Config,
    domain::{consumption::UsageSource, money::NanoUsd},
    journal::{Journal, Opened},
    metrics::{Metrics, MoneyFigures},
    settlement::{self, Settlement},
    store::{KeyStore, ledger::LedgerStore},
    wiring::StartError,
};

/// How long the last settlements may take to reach the store when the process ends; they are in the journal anyway.
const LAST_SETTLEMENTS_WAIT: Duration = Duration::from_secs(2);

/// What deals with money.
pub struct Money {
    /// Accounts, quotas, holds and the log.
    pub ledger: Arc<dyn LedgerStore>,
    /// This node's record of what it owes.
    pub journal: Arc<Journal>,
    /// Carries the journal to the ledger.
    pub settlement: Arc<Settlement>,
    /// The requests' side.
    pub billing: Billing,
    grace: NanoUsd,
    damaged: u64,
    /// Ends after the last checkpoint, when `stop` has turned true.
    billing_task: JoinHandle<()>,
}

impl Money {
    /// Opens the journal, charges what a process before left open, and starts the background tasks.
    pub fn build(
        config: &Config,
        ledger: Arc<dyn LedgerStore>,
        keys: Arc<dyn KeyStore>,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Self, StartError> {
        let Opened {
            journal,
            unsettled,
            damaged,
            ..
        } = Journal::open(&config.journal).map_err(|error| StartError::failed("the journal", error))?;
        settlement::settle_left_over(&journal, unsettled).map_err(|error| StartError::failed("the journal", error))?;
        let settlement = Settlement::new(Arc::clone(&journal), Arc::clone(&ledger), keys);
        background.spawn(Arc::clone(&settlement).run(stopped.clone()));
        let billing = Billing::new(Arc::clone(&ledger), Arc::clone(&journal), config.money.grace);
        let billing_task = background.spawn(billing.clone().run(stopped.clone()));
        Ok(Self {
            ledger,
            journal,
            settlement,
            billing,
            grace: config.money.grace,
            damaged,
            billing_task,
        })
    }

    /// Has the figures read when somebody scrapes.
    pub fn observe(&self, metrics: &Metrics) {
        let (billing, journal) = (self.billing.clone(), Arc::clone(&self.journal));
        let (grace, damaged) = (self.grace, self.damaged);
        metrics.sample(move |metrics| {
            let rows = billing.rows().map(|(source, total)| (source_name(source), total));
            metrics.money_is(&MoneyFigures {
                charged: u64::try_from(billing.charged().nanos()).unwrap_or(0),
                rows: rows.to_vec(),
                offline: billing.offline(),
                failures: billing.failures().saturating_add(journal.failures()),
                grace: grace.nanos(),
                grace_committed: billing.grace_committed().nanos(),
                excess_max: billing.excess_max().nanos(),
                accounts_low: billing.accounts_low(),
                unacknowledged: journal.unacknowledged_steps(),
                oldest_ms: journal.oldest_unacknowledged_ms(),
                journal_bytes: journal.bytes(),
                journal_damaged: damaged,
            });
        });
    }

    /// Waits, within bounds, for the last settlements to reach the store.
    pub async fn end(self) {
        let _ = self.billing_task.await;
        if tokio::time::timeout(LAST_SETTLEMENTS_WAIT, self.settlement.drained()).await.is_err() {
            tracing::warn!("the store has not taken the last settlements; they are in the journal and will be sent at the next start");
        }
    }
}

fn source_name(source: UsageSource) -> &'static str {
    match source {
        UsageSource::Reported => "reported",
        UsageSource::Partial => "partial",
        UsageSource::Estimated => "estimated",
    }
}
