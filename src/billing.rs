//! The money of requests on their way: admission against the ledger, the journal's records, larger holds while an answer
//! runs, and the one settlement at its end. Nobody waits for the store but the admission.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    billing::{
        grace::Grace,
        growth::{Bound, Growth},
        line::Lines,
        running::{Running, RunningRequests},
        uncertain::Uncertain,
        wanted::dearest,
    },
    clock,
    domain::{
        consumption::{Row, UsageSource},
        key::KeyRecord,
        ledger::{Admission, Admit, Admitted, Denied, Grant, NodeId, Record},
        money::NanoUsd,
        price::Price,
    },
    journal::{Journal, REQUEST_BYTES},
    store::{StoreError, ledger::LedgerStore},
};

pub mod bill;
pub mod grace;
mod growth;
mod line;
pub mod running;
mod standing;
#[cfg(test)]
mod tests;
mod uncertain;
mod wanted;

pub use bill::{Bill, Consumed, Progress};
pub use line::{Place, WaitingMax};
pub use wanted::Wanted;

/// How often running requests are written to the journal.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(800);
/// How often the node says that its holds are alive; a third of their lease.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// The money side of all requests of this node.
#[derive(Clone)]
pub struct Billing {
    shared: Arc<Shared>,
}

/// What bills share.
pub(crate) struct Shared {
    ledger: Arc<dyn LedgerStore>,
    journal: Arc<Journal>,
    node: NodeId,
    running: RunningRequests,
    grace: Grace,
    /// Who waits for what running requests hold.
    lines: Arc<Lines>,
    free: Price,
    /// Admissions whose answer did not come: each may have put a hold that nobody knows of.
    uncertain: Uncertain,
    /// Accounts whose balance was low when they were last asked for.
    low: Mutex<HashSet<String>>,
    counters: Counters,
}

/// What has been charged since the start.
#[derive(Debug, Default)]
struct Counters {
    rows: [AtomicU64; 3],
    cost: AtomicI64,
    failed: AtomicU64,
    excess_max: AtomicI64,
    offline: AtomicU64,
}

/// What an admitted request got, from the store or from its key's grace.
struct Held {
    hold: NanoUsd,
    at_ms: i64,
    watermark: u64,
    /// The account's balance; `None`: the store could not say.
    balance: Option<NanoUsd>,
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// A limit, or the key itself.
    Denied(Denied),
    /// The key was changed: read it again, then ask again.
    StaleKey,
    /// The store is away, and the key's grace is used up.
    StoreAway,
    /// What it costs could not be recorded.
    JournalFull,
}

impl std::fmt::Debug for Billing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Billing")
            .field("node", &self.shared.node)
            .finish_non_exhaustive()
    }
}

impl Billing {
    /// Bills over a ledger and this node's journal; each key may commit `grace` while the ledger is away.
    pub fn new(ledger: Arc<dyn LedgerStore>, journal: Arc<Journal>, grace: NanoUsd) -> Self {
        let node = journal.node().clone();
        Self {
            shared: Arc::new(Shared {
                ledger,
                journal,
                node,
                running: RunningRequests::default(),
                grace: Grace::new(grace),
                lines: Arc::default(),
                free: Price::free(),
                uncertain: Uncertain::default(),
                low: Mutex::default(),
                counters: Counters::default(),
            }),
        }
    }

    /// Asks the ledger, in one round trip, and records the admission before it is given.
    pub async fn admit(&self, wanted: Wanted<'_>) -> Result<Bill, NotAdmitted> {
        let shared = &self.shared;
        let Ok(mut reservation) = shared.journal.reserve(REQUEST_BYTES) else {
            return Err(NotAdmitted::JournalFull);
        };
        let estimate = wanted.estimate();
        let Wanted {
            key, mut row, prices, ..
        } = wanted;
        let (ended_key, ended_account) = shared.journal.pending(&key.account, &key.id);
        let ask = Admit {
            node: shared.node.clone(),
            request: row.request_id.clone(),
            key: key.clone(),
            estimate: estimate.cost,
            tokens: estimate.tokens,
            ended_key,
            ended_account,
        };
        let Held {
            hold,
            at_ms,
            watermark,
            balance,
        } = shared.hold(key, &ask).await?;
        row.admitted_ms = at_ms;
        row.cost_nano_usd = dearest(&prices, &row.usage);
        if let Some((_, price)) = prices.first() {
            price.version().clone_into(&mut row.price_version);
        }
        let running = Arc::new(Running::new(
            row.request_id.clone(),
            key.account.clone(),
            key.id.clone(),
            at_ms,
            Growth::new(hold, estimate.output, Bound::of(&key.terms, balance, estimate.cost)),
        ));
        let admitted = Record::Admit(Box::new(Admitted {
            row: row.clone(),
            tokens_estimated: estimate.tokens,
        }));
        let recorded = shared.journal.append(&admitted, &mut reservation);
        shared.running.add(Arc::clone(&running));
        let bill = Bill {
            shared: Arc::clone(shared),
            running,
            row,
            prices,
            reservation,
            tokens_estimated: estimate.tokens,
            watermark,
            next_look: None,
            closed: false,
        };
        if let Err(error) = recorded {
            tracing::error!(%error, "an admission could not be recorded");
            shared.failed();
            return Err(NotAdmitted::JournalFull);
        }
        Ok(bill)
    }

    /// Writes checkpoints and renews the lease until `shutdown` turns true.
    pub async fn run(self, mut shutdown: watch::Receiver<bool>) {
        let mut checkpoint = tokio::time::interval(CHECKPOINT_EVERY);
        let mut renew = tokio::time::interval(RENEW_EVERY);
        let mut epochs = self.shared.ledger.epochs();
        let mut watching = true;
        loop {
            tokio::select! {
                _ = checkpoint.tick() => self.shared.checkpoint(),
                _ = renew.tick() => self.renew(),
                // A store that is back is told at once which requests still run, and which never did.
                moved = epochs.changed(), if watching => {
                    watching = moved.is_ok();
                    if watching {
                        self.renew();
                    }
                }
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
        }
        self.shared.checkpoint();
    }

    fn renew(&self) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move { shared.renew().await });
    }

    /// How many accounts' balances were low when they were last asked for.
    pub fn accounts_low(&self) -> usize {
        lock(&self.shared.low).len()
    }

    /// How many requests are running.
    pub fn running(&self) -> usize {
        self.shared.running.len()
    }

    /// What is held for the requests that are running.
    pub fn held(&self) -> NanoUsd {
        self.shared.running.held()
    }

    /// What keys have committed while the store was away.
    pub fn grace_committed(&self) -> NanoUsd {
        self.shared.grace.committed()
    }

    /// How many rows were charged since the start, by where their figures come from.
    pub fn rows(&self) -> [(UsageSource, u64); 3] {
        let all = [UsageSource::Reported, UsageSource::Partial, UsageSource::Estimated];
        let mut rows = all.into_iter().zip(&self.shared.counters.rows);
        all.map(|source| {
            (
                source,
                rows.next().map_or(0, |(_, count)| count.load(Ordering::Relaxed)),
            )
        })
    }

    /// What was charged since the start.
    pub fn charged(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.shared.counters.cost.load(Ordering::Relaxed))
    }

    /// By how much a charge has exceeded its hold at most since the start: what a key can exceed its quota by, per request
    /// that runs when it is used up.
    pub fn excess_max(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.shared.counters.excess_max.load(Ordering::Relaxed))
    }

    /// Records that could not be written.
    pub fn failures(&self) -> u64 {
        self.shared.counters.failed.load(Ordering::Relaxed)
    }

    /// Requests admitted while the store was away.
    pub fn offline(&self) -> u64 {
        self.shared.counters.offline.load(Ordering::Relaxed)
    }
}

impl Shared {
    async fn hold(&self, key: &KeyRecord, ask: &Admit) -> Result<Held, NotAdmitted> {
        let doubt = self.uncertain.begin(ask);
        match self.ledger.admit(ask).await {
            Ok(answer) => {
                doubt.settled();
                let grant = match answer {
                    Admission::Granted(grant) => grant,
                    Admission::Refused(denied) => return Err(NotAdmitted::Denied(denied)),
                    Admission::StaleKey => return Err(NotAdmitted::StaleKey),
                };
                self.grace.end(&key.id);
                self.note_balance(&key.account, &grant);
                Ok(Held {
                    hold: grant.hold,
                    at_ms: grant.at_ms,
                    watermark: grant.watermark,
                    balance: Some(grant.balance),
                })
            }
            Err(error) => {
                let hold = self.grace(key, ask.estimate, &error)?;
                // Its settlement ends the hold that the store may have put.
                doubt.settled();
                Ok(Held {
                    hold,
                    at_ms: clock::unix_millis(),
                    watermark: 0,
                    balance: None,
                })
            }
        }
    }

    /// The store cannot be asked: what the key may commit all the same.
    fn grace(&self, key: &KeyRecord, estimate: NanoUsd, error: &StoreError) -> Result<NanoUsd, NotAdmitted> {
        tracing::debug!(%error, "the ledger did not answer");
        let hold = self.grace.commit(&key.id, estimate).ok_or(NotAdmitted::StoreAway)?;
        self.counters.offline.fetch_add(1, Ordering::Relaxed);
        Ok(hold)
    }

    fn checkpoint(&self) {
        for checkpoint in self.running.take_news() {
            let record = Record::Checkpoint(Box::new(checkpoint));
            let written = self
                .journal
                .reserve(0)
                .map(|mut none| self.journal.append(&record, &mut none).is_ok());
            if !written.unwrap_or(false) {
                self.failed();
            }
        }
    }

    async fn renew(&self) {
        let accounts: Vec<String> = self.running.by_account().into_keys().collect();
        let doubts = self.uncertain.take();
        match self.ledger.renew(&self.node, &accounts).await {
            Ok(()) => {
                let unwritten = doubts.into_iter().filter(|doubt| doubt.end(&self.journal).is_err());
                unwritten.for_each(|_| self.failed());
            }
            Err(error) => {
                tracing::debug!(%error, "the lease of running requests could not be renewed");
                self.uncertain.put_back(doubts);
            }
        }
    }

    fn note_balance(&self, account: &str, grant: &Grant) {
        let is_low = grant.low_balance.is_some_and(|low| grant.balance <= low);
        let mut low = lock(&self.low);
        if is_low && !low.contains(account) {
            low.insert(account.to_owned());
            tracing::warn!(account, balance_usd = %grant.balance, "the account's balance is low: add credit to it");
        } else if !is_low && !low.is_empty() {
            low.remove(account);
        }
    }

    fn charged(&self, row: &Row, hold: NanoUsd) {
        let [reported, partial, estimated] = &self.counters.rows;
        let rows = match row.usage_source {
            UsageSource::Reported => reported,
            UsageSource::Partial => partial,
            UsageSource::Estimated => estimated,
        };
        rows.fetch_add(1, Ordering::Relaxed);
        let cost = row.cost_nano_usd;
        self.counters.cost.fetch_add(cost.nanos(), Ordering::Relaxed);
        let excess = cost.saturating_sub(hold).nanos();
        self.counters.excess_max.fetch_max(excess, Ordering::Relaxed);
    }

    fn failed(&self) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
