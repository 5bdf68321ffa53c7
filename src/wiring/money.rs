//! Builds the parts that deal with money, in the order of their dependencies: ledger, journal, settlement, billing and notices.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::{join, join_all};
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    config::{Config, money::NoticesConfig, secret_source},
    domain::keys::secret::Secret,
    journal::{Journal, JournalError, handle::ProcessJournals},
    money::{
        billing::{Billing, GraceLimits, LeaseLimits},
        notices::{ChargedAccounts, NoticeSettings, Notifier, Webhook},
        settlement::{Settler, charge_left_over, wait_for_balances},
    },
    store::{
        KeyStore,
        embedded::handover::EmbeddedFiles,
        key_cache::KeyCache,
        ledger::{LedgerStore, StabilityStore},
    },
    telemetry::metrics::{self, Metrics},
    wiring::{
        StartError,
        log_sinks::{self, LogSinks},
        orphaned_journals::{OrphanedJournals, record_applied},
        store::LedgerEngine,
    },
};

/// The maximum time that an ending process waits for the store to apply the last steps. Steps that the store has not applied by
/// then remain in the journal.
const LAST_SETTLEMENTS_WAIT: Duration = Duration::from_secs(2);

/// The parts of the process that deal with money.
pub(crate) struct MoneyParts {
    /// The ledger, with accounts, quotas and holds.
    pub ledger: Arc<dyn LedgerStore>,
    /// The journal of this process.
    pub journal: Arc<Journal>,
    /// The journals of processes that have ended.
    pub left: Arc<OrphanedJournals>,
    /// Admits and charges requests.
    pub billing: Billing,
    engine: LedgerEngine,
    sinks: LogSinks,
    grace: GraceLimits,
    journal_folder: PathBuf,
    /// The background task of billing. When `stop` turns true, it writes the last checkpoint and ends.
    billing_task: JoinHandle<()>,
    /// The tasks that feed the sinks from this process's journal. When `stop` turns true, they pass on the remaining rows for at
    /// most one second, and end.
    feeds: Vec<JoinHandle<()>>,
}

/// The stores that the parts for money use.
pub(crate) struct MoneyStores {
    /// The ledger, with its engine.
    pub engine: LedgerEngine,
    /// The keys.
    pub keys: Arc<dyn KeyStore>,
    /// The public record of models' performance.
    pub stability: Arc<dyn StabilityStore>,
    /// The sinks of the consumption log.
    pub sinks: LogSinks,
}

impl MoneyParts {
    /// Charges the open requests in the journals of earlier processes, builds the parts, and starts their background tasks.
    pub(crate) fn build(
        config: &Config,
        stores: MoneyStores,
        key_cache: &Arc<KeyCache>,
        lanes: ProcessJournals,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Self, StartError> {
        let MoneyStores {
            engine,
            keys,
            stability,
            sinks,
        } = stores;
        if let LedgerEngine::Embedded(embedded) = &engine {
            let begun = embedded.ledger.begin(lanes.accounts_known());
            begun.map_err(|error| StartError::failed("cannot open the embedded ledger", error))?;
        }
        let ProcessJournals { own, orphaned: others } = lanes;
        let ledger = engine.store();
        let journal = background
            .block_on(charge_left_over(own, &*ledger))
            .map_err(journal_failed)?;
        let charged = Arc::<ChargedAccounts>::default();
        let settler = Settler::new(Arc::clone(&journal), Arc::clone(&ledger), Arc::clone(&keys) as _);
        let settler = settler.with_charged(Arc::clone(&charged));
        let told = notice_settings(&config.notices)?;
        let teller = Notifier::new(Arc::clone(&ledger), Arc::clone(&keys), Arc::clone(&charged), told);
        background.spawn(teller.run(stopped.clone()));
        let settled = stopped.clone();
        background.spawn(async move { settler.run(settled).await });
        let feeds: Vec<JoinHandle<()>> = sinks
            .feeds(&journal, stopped)
            .map(|feed| background.spawn(feed))
            .collect();
        let left = Arc::new(OrphanedJournals::new(
            config.journal.clone(),
            Arc::clone(&ledger),
            keys,
            stability,
            charged,
            sinks.clone(),
        ));
        for lane in others {
            background.block_on(left.adopt(lane)).map_err(journal_failed)?;
        }
        background.spawn(Arc::clone(&left).run(stopped.clone()));
        start_write_behind(&engine, &left, &journal, background, stopped);
        log_sinks::compare_log_homes(config, &engine, journal.node(), background, stopped)?;
        let grace = GraceLimits {
            key: config.money.grace,
            account: config.money.grace_account,
        };
        let leases = lease_limits(config, &engine);
        let (of_ledger, of_journal) = (Arc::clone(&ledger), Arc::clone(&journal));
        let billing = Billing::new(of_ledger, of_journal, Arc::clone(key_cache), grace, leases);
        let billing_task = background.spawn(billing.clone().run(stopped.clone()));
        Ok(Self {
            ledger,
            journal,
            left,
            billing,
            engine,
            sinks,
            grace,
            journal_folder: config.journal.path.clone(),
            billing_task,
            feeds,
        })
    }

    /// Returns the embedded store, which an upgrade hands over to the successor. `None` if the store is Redis.
    pub(super) fn embedded(&self) -> Option<Arc<EmbeddedFiles>> {
        match &self.engine {
            LedgerEngine::Embedded(embedded) => Some(Arc::clone(embedded)),
            LedgerEngine::Redis(_) => None,
        }
    }

    /// Adds a sampler that copies the figures about money to the metrics.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        let (billing, journal) = (self.billing.clone(), Arc::clone(&self.journal));
        let left = Arc::clone(&self.left);
        let (grace, sinks) = (self.grace, self.sinks.clone());
        let folder = self.journal_folder.clone();
        metrics.add_sampler(move |metrics| {
            let mut lanes = left.journals();
            lanes.push(Arc::clone(&journal));
            sinks.copy_figures(metrics, &lanes);
            let sum = |figure: fn(&Journal) -> u64| lanes.iter().map(|lane| figure(lane)).sum::<u64>();
            let oldest = lanes.iter().map(|lane| lane.oldest_unacknowledged_ms()).max();
            let of = &metrics.journal;
            of.unacknowledged.set(sum(Journal::unacknowledged_steps));
            of.oldest_ms.set(oldest.unwrap_or(0));
            of.bytes.set(sum(Journal::bytes));
            of.disk_free.set(free_bytes(&folder).unwrap_or(0));
            of.up.set(journal.unavailability().is_none());
            of.damaged.set(sum(Journal::damaged_parts));
            of.lost.raise_to(sum(Journal::lost_steps));
            of.failures
                .raise_to(billing.failures().saturating_add(sum(Journal::failures)));
            copy_billing_figures(&metrics.money, &billing, grace);
        });
    }

    /// From now on, passes rows to the log backend without delay, because this process gets no further requests.
    pub(crate) fn hurry(&self) {
        self.sinks.hurry();
    }

    /// Waits until the store has applied the last steps, but at most for [`LAST_SETTLEMENTS_WAIT`]. Must be called before the
    /// background tasks stop.
    pub(crate) async fn settle(&self) {
        let drained = join(self.journal.wait_until_acknowledged(), self.left.drained());
        if tokio::time::timeout(LAST_SETTLEMENTS_WAIT, drained).await.is_err() {
            tracing::warn!(
                "the store has not applied the last steps of some accounts; the steps are in the journal, and weir sends them at the next start"
            );
        }
    }

    /// Waits until everything is written. Must be called after the background tasks were stopped.
    pub(crate) async fn end(self) {
        let _ = self.billing_task.await;
        join(self.left.close_all(), join_all(self.feeds)).await;
        if let LedgerEngine::Embedded(embedded) = &self.engine
            && let Err(error) = embedded.ledger.flush().await
        {
            tracing::warn!(%error, "cannot write the last changes to the ledger's file; the changes are in the journal, and weir applies them at the next start");
        }
    }
}

/// Copies the figures of billing to the metrics.
fn copy_billing_figures(of: &metrics::MoneyMetrics, billing: &Billing, grace: GraceLimits) {
    of.charged
        .raise_to(u64::try_from(billing.charged().nanos()).unwrap_or(0));
    for (source, total) in billing.rows() {
        of.billed.with_labels([source.as_str().into()]).raise_to(total);
    }
    of.admitted_offline.raise_to(billing.grace_admissions());
    of.admitted_leased.raise_to(billing.lease_admissions());
    let (leases, leased) = billing.leases();
    of.leases.set(leases);
    for (part, bound) in [
        ("request", billing.excess_max()),
        ("lease", leased),
        ("grace", grace.key),
        ("grace_account", grace.account),
    ] {
        of.overspend_bound.with_labels([part.into()]).set(bound.nanos());
    }
    of.grace_committed.set(billing.grace_committed().nanos());
    of.held.set(billing.held().nanos());
    of.held_waiting.set(billing.waiting());
    of.accounts_low.set(billing.low_accounts());
}

/// Starts the task that writes an embedded ledger's file and reports to the journals which steps the file contains. Before this
/// function returns, the ledger applies all steps that are in the journals but not in the ledger's file. Does nothing if the
/// ledger is in Redis.
fn start_write_behind(
    engine: &LedgerEngine,
    left: &Arc<OrphanedJournals>,
    own: &Arc<Journal>,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) {
    let LedgerEngine::Embedded(embedded) = engine else {
        return;
    };
    let (ledger, stopped) = (Arc::clone(&embedded.ledger), stopped.clone());
    let (left, own) = (Arc::clone(left), Arc::clone(own));
    let journals = move || -> Vec<Arc<Journal>> { left.journals().into_iter().chain([Arc::clone(&own)]).collect() };
    let at_start = journals();
    background.spawn(async move { ledger.run(stopped, |books| record_applied(journals(), books)).await });
    background.block_on(wait_for_balances(&at_start, &*embedded.ledger));
}

fn journal_failed(error: JournalError) -> StartError {
    StartError::failed("cannot use the journal", error)
}

/// Returns the free space on a folder's disk that is available to a process without privileges, in bytes. `None` if the free
/// space cannot be read.
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Returns the limits of leases. `None` if leases are switched off or the ledger is embedded. An embedded ledger grants no
/// leases, because calls to it need no network.
fn lease_limits(config: &Config, engine: &LedgerEngine) -> Option<LeaseLimits> {
    let is_lent = matches!(engine, LedgerEngine::Redis(_)) && config.leases.enabled;
    is_lent.then_some(LeaseLimits {
        requests_per_second: config.leases.requests_per_second,
        max: config.leases.max,
    })
}

/// Returns the settings of notices, with the secret that signs them.
pub(super) fn notice_settings(config: &NoticesConfig) -> Result<NoticeSettings, StartError> {
    let wrong = |why: String| StartError::Configuration(format!("[notices] secret: {why}"));
    let secret = notice_secret(config).map_err(wrong)?;
    let webhook = config.webhook().zip(secret);
    let webhook = webhook.map(|((url, _), secret)| Webhook::new(url.clone(), &secret, config.timeout));
    Ok(NoticeSettings {
        quota_percent: config.quota_percent,
        webhook: webhook.transpose().map_err(wrong)?,
        retry: config.retry,
    })
}

/// Returns the secret that signs notices. `None` if no receiver is configured.
///
/// # Errors
/// The secret is missing, or cannot be used for signatures.
pub(super) fn notice_secret(config: &NoticesConfig) -> Result<Option<Secret>, String> {
    let Some((_, reference)) = config.webhook() else {
        return Ok(None);
    };
    let secret = secret_source::read(reference)?;
    let secret = secret.ok_or_else(|| secret_source::missing(reference))?;
    Webhook::check(&secret).map_err(|why| format!("{reference}: {why}"))?;
    Ok(Some(secret))
}
