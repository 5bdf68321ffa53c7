//! The money of running requests: admission by the ledger, records in the journal, larger holds while an answer runs,
//! and one settlement at its end. Only admission waits for the store.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    billing::{
        figures::Counters,
        grace::Grace,
        growth::{Bound, Growth},
        last_seen::NotAlone,
        line::Lines,
        running::{Running, RunningRequests},
        tally::Seat,
        uncertain::Uncertain,
        wanted::dearest,
    },
    clock,
    domain::{
        ledger::{Admission, Admit, Admitted, Change, Denied, Grant, NodeId, ProviderState, Record},
        price::Price,
    },
    journal::{Journal, REQUEST_BYTES},
    store::{StoreError, ledger::LedgerStore, time::StoreTime},
};

pub mod bill;
mod figures;
mod grace;
mod growth;
mod last_seen;
mod line;
pub mod running;
mod standing;
mod tally;
#[cfg(test)]
mod tests;
mod uncertain;
mod upkeep;
mod wanted;

use bill::Held;
pub use bill::{Bill, Consumed, Progress};
pub use grace::GraceLimits;
pub use line::Place;
pub use wanted::Wanted;

/// How often the consumption of running requests is written to the journal.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(800);
/// How often the node renews the lease of its holds and reads the store's clock: a third of the lease.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Bills all requests of this node. Clones share the state.
#[derive(Clone)]
pub struct Billing {
    shared: Arc<Shared>,
}

/// The state that all bills share.
pub(crate) struct Shared {
    ledger: Arc<dyn LedgerStore>,
    journal: Arc<Journal>,
    node: NodeId,
    time: Arc<StoreTime>,
    running: RunningRequests,
    grace: Grace,
    /// Requests that wait for holds of running requests.
    lines: Arc<Lines>,
    free: Price,
    /// Admissions without an answer from the store; each may have left a hold there.
    uncertain: Uncertain,
    /// Accounts whose balance was low at their last admission.
    low: Mutex<HashSet<String>>,
    counters: Counters,
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The store denied it: a limit, the account, or the key itself.
    Denied(Denied),
    /// The store is unreachable, and this node's own counts exceed a rate or concurrency limit.
    DeniedAlone(Denied),
    /// The key's record has changed: read it again and retry.
    StaleKey,
    /// The store is unreachable or overloaded, and this node has no grace left for the key.
    StoreAway,
    /// The journal cannot record the request: it has no room, or its disk has failed.
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
    /// Bills over a ledger and this node's journal. While the ledger is unreachable, requests are admitted within
    /// `grace`.
    pub fn new(ledger: Arc<dyn LedgerStore>, journal: Arc<Journal>, grace: GraceLimits) -> Self {
        let node = journal.node().clone();
        Self {
            shared: Arc::new(Shared {
                ledger,
                journal,
                node,
                time: Arc::new(StoreTime::new(clock::instant())),
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

    /// Asks the ledger in one round trip, and records the admission in the journal before it returns.
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
        let held = shared.hold(&ask).await?;
        (row.admitted_ms, row.time_ms) = (held.at_ms, held.at_ms);
        row.cost_nano_usd = dearest(&prices, &row.usage);
        if let Some((_, price)) = prices.first() {
            price.version().clone_into(&mut row.price_version);
        }
        let running = Arc::new(Running::new(
            row.request_id.clone(),
            key.account.clone(),
            key.id.clone(),
            held.at_ms,
            Growth::new(
                held.seat.hold,
                estimate.output,
                Bound::of(&key.terms, held.balance, estimate.cost),
            ),
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
            held,
            prices,
            reservation,
            tokens_estimated: estimate.tokens,
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
                // After an outage the store learns at once which requests still run, and which holds to end.
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
        tokio::spawn(async move {
            shared.time.ask(&*shared.ledger).await;
            shared.renew().await;
        });
    }

    /// The store's clock, as this node knows it.
    pub fn time(&self) -> &Arc<StoreTime> {
        &self.shared.time
    }

    /// An operator has changed an account on this node. A suspended account gets no further grace here.
    pub fn account_changed(&self, account: &str, change: &Change) {
        if matches!(change, Change::Suspend) {
            self.shared.grace.stopped(account);
        }
    }
}

impl Shared {
    async fn hold(&self, ask: &Admit) -> Result<Held, NotAdmitted> {
        let doubt = self.uncertain.begin(ask);
        let asked = clock::instant();
        let answer = self.ledger.admit(ask).await;
        let at = clock::instant();
        match answer {
            Ok(answer) => {
                doubt.settled();
                let grant = match answer {
                    Admission::Granted(grant) => grant,
                    Admission::Refused(denied) => {
                        self.grace.refused(&ask.key, denied);
                        return Err(NotAdmitted::Denied(denied));
                    }
                    Admission::StaleKey => return Err(NotAdmitted::StaleKey),
                };
                self.note_balance(&ask.key.account, &grant);
                self.time.told(grant.at_ms, asked, at);
                Ok(Held {
                    seat: self.grace.granted(ask, &grant),
                    at_ms: grant.at_ms,
                    at,
                    watermark: grant.watermark,
                    balance: Some(grant.balance),
                    quota: grant.quota,
                    provider_state: grant.provider_state,
                })
            }
            Err(error) => {
                let seat = self.grace(ask, &error)?;
                // Its settlement ends the hold that the store may have.
                doubt.settled();
                Ok(Held {
                    seat,
                    at_ms: self.time.now_ms(at),
                    at,
                    watermark: 0,
                    balance: None,
                    quota: None,
                    // What the operator allows is unknown, so the narrower right applies.
                    provider_state: ProviderState::Own,
                })
            }
        }
    }

    /// Admits a request without the store, as far as the grace allows.
    fn grace(&self, ask: &Admit, error: &StoreError) -> Result<Seat, NotAdmitted> {
        tracing::debug!(%error, "the ledger did not answer");
        if matches!(error, StoreError::Busy(_)) {
            // The store is only busy: a retry is admitted normally.
            return Err(NotAdmitted::StoreAway);
        }
        let seat = self.grace.admit(ask).map_err(|no| match no {
            NotAlone::Nothing => NotAdmitted::StoreAway,
            NotAlone::Denied(denied) => NotAdmitted::DeniedAlone(denied),
        })?;
        self.counters.offline.fetch_add(1, Ordering::Relaxed);
        Ok(seat)
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
