//! The billing of this node: admits requests, and keeps what they hold alive while they run.

use std::{pin::pin, sync::Arc, time::Duration};

use smol_str::SmolStr;
use tokio::sync::watch;

use crate::{
    config::money::WaitingMax,
    domain::{
        faults::refusal::Refusal,
        keys::key::KeyRecord,
        ledger::{
            Admit, Admitted, Denial, ProviderState, Record,
            consumption::{CRASH, Modifiers, Row, UsageSource},
        },
        money::NanoUsd,
        wire::usage::Usage,
    },
    journal::{Journal, REQUEST_BYTES, Reservation},
    money::billing::{
        admission_request::{AdmissionRequest, EstimatedCost},
        bill::Bill,
        engine::{BillingEngine, NotAdmitted},
        growth::{Bound, Growth},
        last_seen::GraceLimits,
        leases::LeaseLimits,
        queue::QueuePosition,
        running::{GrantedHold, Running},
    },
    store::{key_cache::KeyCache, ledger::LedgerStore, time::StoreTime},
};

/// How often the node renews the lease of its holds and reads the store's clock: a third of the lease.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Bills all requests of this node. Clones share the state.
#[derive(Clone)]
pub(crate) struct Billing {
    pub(super) engine: Arc<BillingEngine>,
}

/// How far an attempt to admit a request has come without waiting.
#[allow(clippy::large_enum_variant, reason = "to box it would allocate for each request")]
pub(super) enum FirstStep {
    Answered(Result<Bill, NotAdmitted>),
    /// The ledger has to be asked.
    Asks(Box<Question>),
}

/// What the ledger is asked, and what was prepared for the admission.
pub(super) struct Question {
    ask: Admit,
    cost: EstimatedCost,
    reservation: Reservation,
}

impl std::fmt::Debug for Billing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Billing")
            .field("node", &self.engine.node)
            .finish_non_exhaustive()
    }
}

impl Billing {
    /// Bills over a ledger and this node's journal. A key's record that has changed is read again out of `keys`. While the
    /// ledger is unreachable, requests are admitted within `grace`. Keys that ask often get leases within `leases`.
    pub(crate) fn new(
        ledger: Arc<dyn LedgerStore>,
        journal: Arc<Journal>,
        keys: Arc<KeyCache>,
        grace: GraceLimits,
        leases: Option<LeaseLimits>,
    ) -> Self {
        Self {
            engine: Arc::new(BillingEngine::new(ledger, journal, keys, grace, leases)),
        }
    }

    /// Admits a request by this record of its key: as [`Billing::try_now`] can, or else the ledger is asked in one round trip.
    pub(super) async fn try_admit(
        &self,
        key: &Arc<KeyRecord>,
        request: &AdmissionRequest<'_>,
    ) -> Result<Bill, NotAdmitted> {
        match self.try_now(key, request) {
            FirstStep::Answered(answer) => answer,
            FirstStep::Asks(question) => self.ask_ledger(*question, request).await,
        }
    }

    /// The first step of admitting a request by this record of its key, which waits for nothing: out of the key's lease, or
    /// by a ledger that is at hand. An admission is recorded in the journal before this returns.
    pub(super) fn try_now(&self, key: &Arc<KeyRecord>, request: &AdmissionRequest<'_>) -> FirstStep {
        let engine = &self.engine;
        let Ok(reservation) = engine.journal.reserve(REQUEST_BYTES) else {
            return FirstStep::Answered(Err(Refusal::JournalFull.into()));
        };
        let cost = request.estimated_cost();
        if let Some(granted) = engine.cut(key, cost.whole, request.estimate.tokens()) {
            return FirstStep::Answered(self.open(key, request, (cost, reservation), granted));
        }
        let ask = self.question(key, request, cost.whole);
        match engine.hold_now(&ask) {
            Some(answer) => {
                FirstStep::Answered(answer.and_then(|granted| self.open(key, request, (cost, reservation), granted)))
            }
            None => FirstStep::Asks(Box::new(Question { ask, cost, reservation })),
        }
    }

    /// The second step, where the ledger has to be asked.
    pub(super) async fn ask_ledger(
        &self,
        question: Question,
        request: &AdmissionRequest<'_>,
    ) -> Result<Bill, NotAdmitted> {
        let Question { ask, cost, reservation } = question;
        let granted = self.engine.hold(&ask).await?;
        self.open(&ask.key, request, (cost, reservation), granted)
    }

    /// Opens the bill of a request that was granted its hold, and records the admission.
    fn open(
        &self,
        key: &KeyRecord,
        request: &AdmissionRequest<'_>,
        (cost, mut reservation): (EstimatedCost, Reservation),
        granted: GrantedHold,
    ) -> Result<Bill, NotAdmitted> {
        let engine = &self.engine;
        let record = Record::Admit(Box::new(Admitted {
            row: Arc::new(row(key, request, cost.uncached_input, &granted)),
            tokens_estimated: request.estimate.tokens(),
            lease: granted.part.map(|part| engine.leases.id(part)),
        }));
        let bound = Bound::of(&key.terms, granted.balance, cost.whole);
        let growth = Growth::new(granted.seat.hold, cost.output, bound);
        let running = Arc::new(Running::new(
            request.request_id.clone(),
            key.account.clone(),
            key.id.clone(),
            granted,
            growth,
        ));
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
            route: Arc::clone(request.route),
            reservation,
        };
        if let Err(error) = recorded {
            tracing::error!(%error, "an admission could not be recorded");
            engine.counters.failed();
            return Err(Refusal::JournalFull.into());
        }
        Ok(bill)
    }

    fn question(&self, key: &Arc<KeyRecord>, request: &AdmissionRequest<'_>, estimate: NanoUsd) -> Admit {
        let engine = &self.engine;
        let (ended_key, ended_account) = engine.journal.pending(&key.account, &key.id);
        Admit {
            node: engine.node.clone(),
            request: request.request_id.clone(),
            key: Arc::clone(key),
            estimate,
            tokens: request.estimate.tokens(),
            ended_key,
            ended_account,
        }
    }

    /// Writes checkpoints and renews the lease until `shutdown` turns true.
    pub(crate) async fn run(self, mut shutdown: watch::Receiver<bool>) {
        let mut renew = tokio::time::interval(RENEW_EVERY);
        let mut epochs = self.engine.ledger.epochs();
        let mut watching = true;
        let mut checkpoints = pin!(self.engine.keep_checkpoints());
        let leases = tokio::spawn(Arc::clone(&self.engine).keep_leases(shutdown.clone()));
        loop {
            tokio::select! {
                () = &mut checkpoints => {}
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
    pub(crate) fn account_changed(&self, account: &str, is_suspended: bool) {
        self.engine.leases.recall(|key| key.account == account);
        if is_suspended {
            self.engine.grace.stopped(&account.into());
        }
    }

    /// Counts a refused request in the rate of its key, on this node: it takes as much of that as one that is served.
    pub(crate) fn count_refused(&self, key: &KeyRecord) {
        self.engine.grace.count_refused(key);
    }

    /// Which state at providers an account may name: only its own, if the store does not answer.
    pub(crate) async fn provider_state(&self, account: &str) -> ProviderState {
        let found = self.engine.ledger.account(account).await.ok().flatten();
        found
            .map(|account| account.record.terms.provider_state)
            .unwrap_or_default()
    }

    /// The denial that a request of this key gets because others already wait; it must queue behind them. `None` if
    /// nobody waits.
    pub(super) fn waits_behind(&self, key: &KeyRecord) -> Option<Denial> {
        self.engine.queues.ahead(&key.account, &key.id)
    }

    /// A place at the end of the queue for what was denied; `None` if `max` are waiting already.
    pub(super) fn wait_behind(&self, key: &KeyRecord, denial: Denial, max: WaitingMax) -> Option<QueuePosition> {
        let ended = self.engine.journal.acknowledgements(&key.account);
        self.engine.queues.join((&key.account, &key.id), denial, ended, max)
    }

    /// The number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.engine.queues.waiting()
    }
}

/// The row of a request that has just been admitted.
fn row(key: &KeyRecord, request: &AdmissionRequest<'_>, input_cost: NanoUsd, granted: &GrantedHold) -> Row {
    let first = &request.route.first;
    let latency = granted.at.saturating_duration_since(request.arrived);
    Row {
        time_ms: granted.at_ms,
        admitted_ms: granted.at_ms,
        request_id: request.request_id.clone(),
        account: key.account.clone(),
        key_id: key.id.clone(),
        protocol: SmolStr::new_static(request.operation.protocol().as_str()),
        model_asked: request.model_asked.into(),
        model: request.route.model.clone(),
        provider: first.provider.clone(),
        status: 0,
        outcome: SmolStr::new_static(CRASH),
        stream: request.stream,
        tags: request.tags.to_vec(),
        usage: Usage {
            input_uncached: request.estimate.input.total(),
            ..Usage::default()
        },
        usage_source: UsageSource::Estimated,
        parts: Vec::new(),
        modifiers: Modifiers::default(),
        price_version: first.price.version().into(),
        cost_nano_usd: input_cost,
        latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
        ttft_ms: None,
        hold_nano_usd: Some(granted.seat.hold),
        attempts: None,
    }
}
