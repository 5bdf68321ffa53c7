//! The billing of this node: admits requests, and keeps what they hold alive while they run.

use std::{sync::Arc, time::Duration};

use smol_str::SmolStr;
use tokio::sync::watch;

use crate::{
    config::money::WaitingMax,
    domain::{
        keys::key::KeyRecord,
        ledger::{Admit, Admitted, Change, Denial, Record, consumption::Request},
        money::NanoUsd,
    },
    journal::{Journal, REQUEST_BYTES},
    money::billing::{
        bill::Bill,
        engine::{BillingEngine, GrantedHold, NotAdmitted},
        growth::{Bound, Growth},
        last_seen::GraceLimits,
        leases::LeaseLimits,
        queue::QueuePosition,
        running::Running,
        wanted::Wanted,
    },
    store::{ledger::LedgerStore, time::StoreTime},
};

/// How often the consumption of running requests is written to the journal.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(700);
/// How often the node renews the lease of its holds and reads the store's clock: a third of the lease.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Bills all requests of this node. Clones share the state.
#[derive(Clone)]
pub(crate) struct Billing {
    pub(super) engine: Arc<BillingEngine>,
}

impl std::fmt::Debug for Billing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Billing")
            .field("node", &self.engine.node)
            .finish_non_exhaustive()
    }
}

impl Billing {
    /// Bills over a ledger and this node's journal. While the ledger is unreachable, requests are admitted within
    /// `grace`. Keys that ask often get leases within `leases`.
    pub(crate) fn new(
        ledger: Arc<dyn LedgerStore>,
        journal: Arc<Journal>,
        grace: GraceLimits,
        leases: Option<LeaseLimits>,
    ) -> Self {
        Self {
            engine: Arc::new(BillingEngine::new(ledger, journal, grace, leases)),
        }
    }

    /// Admits out of the key's lease, or else asks the ledger in one round trip; and records the admission in the journal before it returns.
    pub(crate) async fn admit(&self, wanted: Wanted<'_>) -> Result<Bill, NotAdmitted> {
        let engine = &self.engine;
        let Ok(mut reservation) = engine.journal.reserve(REQUEST_BYTES) else {
            return Err(NotAdmitted::JournalFull);
        };
        let key = &wanted.key;
        let cost = wanted.estimated_cost();
        let granted = match engine.cut(key, cost.whole, wanted.estimate.tokens()) {
            Some(granted) => granted,
            None => engine.hold(&self.ask(&wanted, cost.whole)).await?,
        };
        let running = Arc::new(Running::new(
            wanted.request_id.clone(),
            key.account.clone(),
            key.id.clone(),
            granted.at_ms,
            Growth::new(
                granted.seat.hold,
                cost.output,
                Bound::of(&key.terms, granted.balance, cost.whole),
            ),
        ));
        let admitted = Admitted {
            lease: granted.part.map(|part| engine.leases.id(part)),
            ..admitted(&wanted, cost.uncached_input, &granted)
        };
        let record = Record::Admit(Box::new(admitted));
        let recorded = engine.journal.append(&record, &mut reservation);
        engine.running.add(Arc::clone(&running));
        let bill = Bill {
            engine: Arc::clone(engine),
            running,
            // The record is taken apart again, so that its texts are not copied.
            admitted: match record {
                Record::Admit(admitted) => Some(admitted),
                _ => None,
            },
            granted,
            route: Arc::clone(wanted.route),
            reservation,
            looked: None,
        };
        if let Err(error) = recorded {
            tracing::error!(%error, "an admission could not be recorded");
            engine.counters.failed();
            return Err(NotAdmitted::JournalFull);
        }
        Ok(bill)
    }

    fn ask(&self, wanted: &Wanted<'_>, estimate: NanoUsd) -> Admit {
        let (engine, key) = (&self.engine, &wanted.key);
        let (ended_key, ended_account) = engine.journal.pending(&key.account, &key.id);
        Admit {
            node: engine.node.clone(),
            request: wanted.request_id.clone(),
            key: Arc::clone(key),
            estimate,
            tokens: wanted.estimate.tokens(),
            ended_key,
            ended_account,
        }
    }

    /// Writes checkpoints and renews the lease until `shutdown` turns true.
    pub(crate) async fn run(self, mut shutdown: watch::Receiver<bool>) {
        let mut checkpoint = tokio::time::interval(CHECKPOINT_EVERY);
        let mut renew = tokio::time::interval(RENEW_EVERY);
        let mut epochs = self.engine.ledger.epochs();
        let mut watching = true;
        let leases = tokio::spawn(Arc::clone(&self.engine).keep_leases(shutdown.clone()));
        loop {
            tokio::select! {
                _ = checkpoint.tick() => self.engine.checkpoint(),
                _ = renew.tick() => self.renew(),
                // After an outage the store learns at once which requests still run, and which holds to end.
                moved = epochs.changed(), if watching => {
                    watching = moved.is_ok();
                    if watching {
                        // What the store had lent out it may have forgotten.
                        self.engine.leases.recall(|_| true);
                        self.renew();
                    }
                }
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
        }
        self.engine.checkpoint();
        // It ends by itself.
        let _ = leases.await;
    }

    fn renew(&self) {
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move {
            engine.time.ask(&*engine.ledger).await;
            engine.renew().await;
        });
    }

    /// The store's clock, as this node knows it.
    pub(crate) fn time(&self) -> &Arc<StoreTime> {
        &self.engine.time
    }

    /// An operator has changed an account on this node. A suspended account gets no further grace here, and nothing more is
    /// admitted by what a lease knew before.
    pub(crate) fn account_changed(&self, account: &str, change: &Change) {
        self.engine.leases.recall(|key| key.account == account);
        if matches!(change, Change::Suspend) {
            self.engine.grace.stopped(account);
        }
    }

    /// The denial that a request of this key gets because others already wait; it must queue behind them. `None` if
    /// nobody waits.
    pub(crate) fn waits_behind(&self, key: &KeyRecord) -> Option<Denial> {
        self.engine.queues.ahead(&key.account, &key.id)
    }

    /// A place at the end of the queue for what was denied; `None` if `max` are waiting already.
    pub(crate) fn wait_behind(&self, key: &KeyRecord, denied: Denial, max: WaitingMax) -> Option<QueuePosition> {
        let ended = self.engine.journal.acknowledgements(&key.account);
        self.engine.queues.join((&key.account, &key.id), denied, ended, max)
    }

    /// The number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.engine.queues.waiting()
    }
}

/// The record of an admission out of no lease.
fn admitted(wanted: &Wanted<'_>, input_cost: NanoUsd, granted: &GrantedHold) -> Admitted {
    let first = &wanted.route.first;
    Admitted {
        request: Request {
            admitted_ms: granted.at_ms,
            id: wanted.request_id.clone(),
            account: wanted.key.account.clone(),
            key: wanted.key.id.clone(),
            protocol: SmolStr::new_static(wanted.protocol.as_str()),
            model_asked: wanted.model_asked.into(),
            model: wanted.route.model.clone(),
            stream: wanted.stream,
            tags: wanted.tags.to_vec(),
            hold: Some(granted.seat.hold),
        },
        provider: first.provider.clone(),
        price_version: first.price.version().into(),
        input_tokens: wanted.estimate.input.total(),
        input_cost,
        latency_ms: wanted.latency_ms,
        tokens_estimated: wanted.estimate.tokens(),
        lease: None,
    }
}
