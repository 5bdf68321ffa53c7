//! Builds the parts that deal with money: ledger, journal, settlement and billing, in the order of their dependencies.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::{join, join_all};
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    config::Config,
    journal::{Journal, JournalError, lanes::Lanes},
    money::{
        billing::{Billing, GraceLimits, LeaseLimits},
        notices::{Charged, Teller},
        settlement::{Settler, charge_left_over, wait_for_balances},
    },
    store::{
        KeyStore, embedded::handover::EmbeddedFiles, key_cache::KeyCache, ledger::LedgerStore,
        stability::StabilityStore,
    },
    telemetry::metrics::{self, Metrics},
    wiring::{
        StartError,
        lanes::{LeftLanes, applied},
        log_sinks::LogSinks,
        notices,
        store::Ledger,
    },
};

/// How long the last settlements may take to reach the store when the process ends; they are in the journal anyway.
const LAST_SETTLEMENTS_WAIT: Duration = Duration::from_secs(2);

/// The parts that deal with money.
pub(crate) struct Money {
    /// Accounts, quotas, holds and the log.
    pub ledger: Arc<dyn LedgerStore>,
    /// This node's record of what it owes.
    pub journal: Arc<Journal>,
    /// Those of processes that have ended.
    pub left: Arc<LeftLanes>,
    /// Admits and charges requests.
    pub billing: Billing,
    engine: Ledger,
    sinks: LogSinks,
    grace: GraceLimits,
    journal_folder: PathBuf,
    /// Ends after the last checkpoint, when `stop` has turned true.
    billing_task: JoinHandle<()>,
    /// End when the sinks have what they take at once of the own lane's rows, when `stop` has turned true.
    feeds: Vec<JoinHandle<()>>,
}

/// What the money is kept in.
pub(crate) struct Stores {
    /// The ledger.
    pub engine: Ledger,
    /// The keys.
    pub keys: Arc<dyn KeyStore>,
    /// The public record.
    pub stability: Arc<dyn StabilityStore>,
    /// Where rows of the log go.
    pub sinks: LogSinks,
}

impl Money {
    /// Charges what processes before left open in the lanes of the journal, and starts the background tasks.
    pub(crate) fn build(
        config: &Config,
        stores: Stores,
        key_cache: &Arc<KeyCache>,
        lanes: Lanes,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Self, StartError> {
        let Stores {
            engine,
            keys,
            stability,
            sinks,
        } = stores;
        if let Ledger::Embedded(embedded) = &engine {
            let begun = embedded.ledger.begin(lanes.accounts_known());
            begun.map_err(|error| StartError::failed("the embedded ledger", error))?;
        }
        let Lanes { own, left: others } = lanes;
        let ledger = engine.store();
        let journal = background
            .block_on(charge_left_over(own, &*ledger))
            .map_err(journal_failed)?;
        let charged = Arc::<Charged>::default();
        let settler = Settler::new(Arc::clone(&journal), Arc::clone(&ledger), Arc::clone(&keys) as _);
        let settler = settler.noting(Arc::clone(&charged));
        let told = notices::settings(&config.notices)?;
        let teller = Teller::new(Arc::clone(&ledger), Arc::clone(&keys), Arc::clone(&charged), told);
        background.spawn(teller.run(stopped.clone()));
        let settled = stopped.clone();
        background.spawn(async move { settler.run(settled).await });
        let feeds: Vec<JoinHandle<()>> = sinks
            .feeds(&journal, stopped)
            .map(|feed| background.spawn(feed))
            .collect();
        let left = Arc::new(LeftLanes::new(
            config.journal.clone(),
            Arc::clone(&ledger),
            keys,
            stability,
            charged,
            sinks.clone(),
        ));
        for lane in others {
            background.block_on(left.take(lane)).map_err(journal_failed)?;
        }
        background.spawn(Arc::clone(&left).run(stopped.clone()));
        write_behind(&engine, &left, &journal, background, stopped);
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

    /// The embedded store, if it is one: what is handed over to the process that comes next.
    pub(super) fn embedded(&self) -> Option<Arc<EmbeddedFiles>> {
        match &self.engine {
            Ledger::Embedded(embedded) => Some(Arc::clone(embedded)),
            Ledger::Redis(_) => None,
        }
    }

    /// Has the figures read when somebody scrapes.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        let (billing, journal) = (self.billing.clone(), Arc::clone(&self.journal));
        let left = Arc::clone(&self.left);
        let (grace, sinks) = (self.grace, self.sinks.clone());
        let folder = self.journal_folder.clone();
        metrics.sample(move |metrics| {
            let mut lanes = left.journals();
            lanes.push(Arc::clone(&journal));
            sinks.tell(metrics, &lanes);
            let sum = |figure: fn(&Journal) -> u64| lanes.iter().map(|lane| figure(lane)).sum::<u64>();
            let oldest = lanes.iter().map(|lane| lane.oldest_unacknowledged_ms()).max();
            let of = &metrics.journal;
            of.unacknowledged.set(sum(Journal::unacknowledged_steps));
            of.oldest_ms.set(oldest.unwrap_or(0));
            of.bytes.set(sum(Journal::bytes));
            of.disk_free.set(free_bytes(&folder).unwrap_or(0));
            of.up.set(journal.shut().is_none());
            of.damaged.set(sum(Journal::damaged_parts));
            of.lost.reach(sum(Journal::lost_steps));
            of.failures
                .reach(billing.failures().saturating_add(sum(Journal::failures)));
            show_billing(&metrics.money, &billing, grace);
        });
    }

    /// No request comes to this process any more: rows of the log are not kept waiting for others.
    pub(crate) fn hurry(&self) {
        self.sinks.hurry();
    }

    /// Waits, within bounds, for the last settlements to reach the store. Before the background is told to stop.
    pub(crate) async fn settle(&self) {
        let drained = join(self.journal.drained(), self.left.drained());
        if tokio::time::timeout(LAST_SETTLEMENTS_WAIT, drained).await.is_err() {
            tracing::warn!(
                "the store has not taken the last settlements: they are in the journal, and are sent at the next start"
            );
        }
    }

    /// Waits for the last of it to be written. After the background was told to stop.
    pub(crate) async fn end(self) {
        let _ = self.billing_task.await;
        join(self.left.leave(), join_all(self.feeds)).await;
        if let Ledger::Embedded(embedded) = &self.engine
            && let Err(error) = embedded.ledger.flush().await
        {
            tracing::warn!(%error, "the ledger's file lacks the last changes: they are in the journal, and are applied at the next start");
        }
    }
}

/// Copies the figures of billing.
fn show_billing(of: &metrics::Money, billing: &Billing, grace: GraceLimits) {
    of.charged.reach(u64::try_from(billing.charged().nanos()).unwrap_or(0));
    for (source, total) in billing.rows() {
        of.billed.of([source.as_str().into()]).reach(total);
    }
    of.admitted_offline.reach(billing.offline());
    of.admitted_leased.reach(billing.leased());
    let (leases, leased) = billing.leases();
    of.leases.set(leases);
    for (part, bound) in [
        ("request", billing.excess_max()),
        ("lease", leased),
        ("grace", grace.key),
        ("grace_account", grace.account),
    ] {
        of.overspend_bound.of([part.into()]).set(bound.nanos());
    }
    of.grace_committed.set(billing.grace_committed().nanos());
    of.held.set(billing.held().nanos());
    of.held_waiting.set(billing.waiting());
    of.accounts_low.set(billing.accounts_low());
}

/// Has an embedded ledger write its file all the time, and tell the journals what is in it. Returns when it has what its file
/// lacked of them.
fn write_behind(
    engine: &Ledger,
    left: &Arc<LeftLanes>,
    own: &Arc<Journal>,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) {
    let Ledger::Embedded(embedded) = engine else { return };
    let (ledger, stopped) = (Arc::clone(&embedded.ledger), stopped.clone());
    let (left, own) = (Arc::clone(left), Arc::clone(own));
    let journals = move || -> Vec<Arc<Journal>> { left.journals().into_iter().chain([Arc::clone(&own)]).collect() };
    let at_start = journals();
    background.spawn(async move { ledger.run(stopped, |books| applied(journals(), books)).await });
    background.block_on(wait_for_balances(&at_start, &*embedded.ledger));
}

fn journal_failed(error: JournalError) -> StartError {
    StartError::failed("the journal", error)
}

/// What is free on the disk of a folder for a process without privileges.
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The limits of leases, where the ledger lends any: the embedded one is asked without a way to go.
fn lease_limits(config: &Config, engine: &Ledger) -> Option<LeaseLimits> {
    let is_lent = matches!(engine, Ledger::Redis(_)) && config.leases.enabled;
    is_lent.then_some(LeaseLimits {
        requests_per_second: config.leases.requests_per_second,
        max: config.leases.max,
    })
}
