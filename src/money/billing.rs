//! Billing of running requests: admission by the ledger, records in the journal, top-ups while an answer is in progress, and one
//! settlement at its end. Only admission waits for the store. Background work writes checkpoints to the journal, renews holds at
//! the ledger, ends unconfirmed holds, and makes the calls about leases.

mod admission;
mod bill;
mod denials;
mod engine;
mod grace;
mod growth;
mod last_seen;
mod leases;
mod queue;
mod tally;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use smol_str::SmolStr;
use tokio::sync::watch;

use crate::{
    config::money::QueueLimits,
    domain::{
        faults::refusal::Refusal,
        keys::KeyRecord,
        ledger::{
            AdmitCall, AdmittedRequest, Denial, ProviderState, Record,
            consumption::{CRASH, PriceModifiers, Row, UsageSource},
            lease::{LeaseCall, LeaseReply},
        },
        money::NanoUsd,
        wire::usage::Usage,
    },
    edges::clock,
    journal::{Journal, REQUEST_BYTES, Reservation},
    money::billing::{
        admission::EstimatedCost,
        engine::{BilledRequest, BillingEngine, GrantedHold, NotAdmitted},
        growth::{HoldGrowth, SpendCap},
        queue::QueuePosition,
    },
    store::{key_cache::KeyCache, ledger::LedgerStore, time::StoreTime},
};

pub(crate) use crate::money::billing::admission::{Admission, AdmissionStart, QueueTicket};
pub(crate) use crate::money::billing::admission::{AdmissionRequest, FoundKey};
pub(crate) use crate::money::billing::bill::{Bill, Consumption, NextSample, RequestProgress};
pub(crate) use crate::money::billing::last_seen::GraceLimits;
pub(crate) use crate::money::billing::leases::LeaseLimits;

/// The interval at which the node renews its holds in the store and reads the store's clock. It is a third of the time after
/// which a hold expires.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// The service that bills all requests of this node. Clones share its state.
#[derive(Clone)]
pub(crate) struct Billing {
    engine: Arc<BillingEngine>,
}

/// The result of trying to admit a request without waiting.
#[allow(clippy::large_enum_variant, reason = "to box it would allocate for each request")]
enum FirstStep {
    Answered(Result<Bill, NotAdmitted>),
    /// The ledger must be called to decide.
    Asks(Box<PreparedAdmitCall>),
}

/// A prepared call to the ledger for a hold, with the other data that the admission needs.
struct PreparedAdmitCall {
    ask: AdmitCall,
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
    /// Creates the service with a ledger and this node's journal. If a key's record may have changed, it is read again from
    /// `keys`. While the ledger is unreachable, requests are admitted up to the limits in `grace`. Keys with many requests get
    /// leases, up to the limits in `leases`; `None` disables leases.
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

    /// Tries to admit a request. `key` is the record of the request's key on which the decision is based. This method first uses
    /// [`Billing::try_admit_now`]. If that method cannot decide, this method calls the ledger once.
    async fn try_admit(&self, key: &Arc<KeyRecord>, request: &AdmissionRequest<'_>) -> Result<Bill, NotAdmitted> {
        match self.try_admit_now(key, request) {
            FirstStep::Answered(answer) => answer,
            FirstStep::Asks(question) => self.ask_ledger(*question, request).await,
        }
    }

    /// Tries to admit a request without waiting. `key` is the record of the request's key on which the decision is based. The
    /// request is admitted from the key's lease, or by a ledger that can answer at once. If the request is admitted, this method
    /// records the admission in the journal before it returns.
    fn try_admit_now(&self, key: &Arc<KeyRecord>, request: &AdmissionRequest<'_>) -> FirstStep {
        let engine = &self.engine;
        let Ok(reservation) = engine.journal.reserve(REQUEST_BYTES) else {
            return FirstStep::Answered(Err(Refusal::JournalFull.into()));
        };
        let cost = request.estimated_cost();
        if let Some(granted) = engine.allocate(key, cost.total, request.estimate.tokens()) {
            return FirstStep::Answered(self.open_bill(key, request, (cost, reservation), granted));
        }
        let ask = self.admit_call(key, request, cost.total);
        match engine.obtain_hold_now(&ask) {
            Some(answer) => FirstStep::Answered(
                answer.and_then(|granted| self.open_bill(key, request, (cost, reservation), granted)),
            ),
            None => FirstStep::Asks(Box::new(PreparedAdmitCall { ask, cost, reservation })),
        }
    }

    /// Calls the ledger for a hold, because [`Billing::try_admit_now`] could not decide. Returns the request's bill.
    async fn ask_ledger(
        &self,
        question: PreparedAdmitCall,
        request: &AdmissionRequest<'_>,
    ) -> Result<Bill, NotAdmitted> {
        let PreparedAdmitCall { ask, cost, reservation } = question;
        let granted = self.engine.obtain_hold(&ask).await?;
        self.open_bill(&ask.key, request, (cost, reservation), granted)
    }

    /// Records in the journal that a request was admitted with its hold, and returns the request's bill.
    fn open_bill(
        &self,
        key: &KeyRecord,
        request: &AdmissionRequest<'_>,
        (cost, mut reservation): (EstimatedCost, Reservation),
        granted: GrantedHold,
    ) -> Result<Bill, NotAdmitted> {
        let engine = &self.engine;
        let record = Record::Admit(Box::new(AdmittedRequest {
            row: Arc::new(admission_row(key, request, cost.uncached_input, &granted)),
            tokens_estimated: request.estimate.tokens(),
            lease: granted.allocation.map(|part| engine.leases.lease_id(part)),
        }));
        let bound = SpendCap::of(&key.terms, granted.balance, cost.total);
        let growth = HoldGrowth::new(granted.seat.hold, cost.output, bound);
        let running = Arc::new(BilledRequest::new(
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
            // The admission is taken back out of the record, so that its strings need not be copied.
            admitted: match record {
                Record::Admit(admitted) => Some(admitted),
                _ => None,
            },
            route: Arc::clone(request.route),
            reservation,
        };
        if let Err(error) = recorded {
            tracing::error!(%error, "cannot record an admission in the journal; the request is refused");
            engine.counters.record_failure();
            return Err(Refusal::JournalFull.into());
        }
        Ok(bill)
    }

    fn admit_call(&self, key: &Arc<KeyRecord>, request: &AdmissionRequest<'_>, estimate: NanoUsd) -> AdmitCall {
        let engine = &self.engine;
        let (ended_key, ended_account) = engine.journal.pending_settlements(&key.account, &key.id);
        AdmitCall {
            node: engine.node.clone(),
            request: request.request_id.clone(),
            key: Arc::clone(key),
            estimate,
            tokens: request.estimate.tokens(),
            ended_key,
            ended_account,
        }
    }

    /// Writes checkpoints, and renews holds and leases, until `shutdown` becomes true.
    pub(crate) async fn run(self, mut shutdown: watch::Receiver<bool>) {
        let mut renew = tokio::time::interval(RENEW_EVERY);
        let mut epochs = self.engine.ledger.epochs();
        let mut watching = true;
        let mut checkpoints = pin!(self.engine.keep_checkpoints());
        let leases = tokio::spawn(Arc::clone(&self.engine).keep_leases(shutdown.clone()));
        loop {
            tokio::select! {
                () = &mut checkpoints => {}
                _ = renew.tick() => self.start_renewal(),
                // After an outage, the holds are renewed and the unconfirmed ones are ended at once.
                moved = epochs.changed(), if watching => {
                    watching = moved.is_ok();
                    if watching {
                        // The store may have lost the leases that it had granted.
                        self.engine.leases.recall(|_| true);
                        self.start_renewal();
                    }
                }
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
        }
        self.engine.checkpoint();
        // The leases' task ends by itself, because `shutdown` is true.
        let _ = leases.await;
    }

    fn start_renewal(&self) {
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move {
            engine.time.sync(&*engine.ledger).await;
            engine.renew().await;
        });
    }

    /// The store's clock, as estimated by this node.
    pub(crate) fn time(&self) -> &Arc<StoreTime> {
        &self.engine.time
    }

    /// Applies an operator's change to an account on this node. Leases with the old terms end, and a suspended account gets no
    /// further grace.
    pub(crate) fn account_changed(&self, account: &str, is_suspended: bool) {
        self.engine.leases.recall(|key| key.account == account);
        if is_suspended {
            self.engine.grace.suspend(&account.into());
        }
    }

    /// Counts a refused request against its key's rate limit on this node. A refused request counts as much as a served one.
    pub(crate) fn count_refused(&self, key: &KeyRecord) {
        self.engine.grace.count_refused(key);
    }

    /// Returns which provider state an account may refer to. If the store does not answer, the account may refer only to its own
    /// state.
    pub(crate) async fn provider_state(&self, account: &str) -> ProviderState {
        let found = self.engine.ledger.account(account).await.ok().flatten();
        found
            .map(|account| account.record.terms.provider_state)
            .unwrap_or_default()
    }

    /// If other requests already wait in a queue that a request of this key must join, returns the last denial in that queue.
    /// Otherwise, returns `None`.
    fn queue_denial(&self, key: &KeyRecord) -> Option<Denial> {
        self.engine.queues.blocking_denial(&key.account, &key.id)
    }

    /// Adds a request to the queue for the limit that denied it. Returns `None` if `max` requests are waiting already.
    fn enqueue(&self, key: &KeyRecord, denial: Denial, max: QueueLimits) -> Option<QueuePosition> {
        let ended = self.engine.journal.acknowledgements(&key.account);
        self.engine.queues.join((&key.account, &key.id), denial, ended, max)
    }

    /// The number of requests that wait in queues.
    pub(crate) fn waiting(&self) -> usize {
        self.engine.queues.waiting()
    }
}

/// Returns the initial row of a request, which is recorded at its admission.
fn admission_row(key: &KeyRecord, request: &AdmissionRequest<'_>, input_cost: NanoUsd, granted: &GrantedHold) -> Row {
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
        modifiers: PriceModifiers::default(),
        price_version: first.price.version().into(),
        cost_nano_usd: input_cost,
        latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
        ttft_ms: None,
        hold_nano_usd: Some(granted.seat.hold),
        attempts: None,
        transport: request.transport,
        translated: None,
        losses: Vec::new(),
    }
}

impl BillingEngine {
    /// Writes a checkpoint whenever a checkpoint is due and requests have consumed something. Never returns.
    async fn keep_checkpoints(&self) {
        loop {
            let due = self.running.next_checkpoint().await;
            tokio::time::sleep_until(due.into()).await;
            self.checkpoint();
        }
    }

    /// Writes a checkpoint of all requests that have consumed something since the last one.
    fn checkpoint(&self) {
        self.running.on_checkpoint(clock::instant());
        for _ in 0..self.journal.record_checkpoints(&self.running.take_changed()) {
            self.counters.record_failure();
        }
    }

    /// Renews the holds of running requests. Then ends the unconfirmed holds of each account for which the ledger can be reached.
    /// Keeps the other unconfirmed holds until the next renewal.
    async fn renew(&self) {
        let accounts: Vec<String> = self.running.by_account().into_keys().map(String::from).collect();
        let unconfirmed = self.unconfirmed.take_all();
        let renewed = self.ledger.renew(&self.node, &accounts).await;
        if let Err(error) = &renewed {
            tracing::debug!(%error, "cannot renew the holds of some or all running requests; trying again at the next renewal");
        }
        let mut there = HashMap::new();
        let mut open = Vec::new();
        for hold in unconfirmed {
            let is_there = match there.get(hold.account()) {
                Some(is_there) => *is_there,
                None => {
                    // One part of the ledger may be unreachable while another is not.
                    let account = [hold.account().to_owned()];
                    let is_there = renewed.is_ok() || self.ledger.renew(&self.node, &account).await.is_ok();
                    let [account] = account;
                    there.insert(account, is_there);
                    is_there
                }
            };
            if is_there && hold.end(&self.journal).is_ok() {
                continue;
            }
            if is_there {
                self.counters.record_failure();
            }
            open.push(hold);
        }
        self.unconfirmed.put_back(open);
    }
}

/// The interval at which a node with leases checks whether calls are due. A node without leases only checks whether keys can be
/// removed, at the interval `LOOK_EVERY_WITHOUT`.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_EVERY_WITHOUT: Duration = Duration::from_secs(2);
/// Maximum number of concurrent calls that return leases when the process ends. `GIVEN_BACK_WITHIN` is the timeout for all of
/// these calls together.
const AT_ONCE: usize = 16;
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(500);

impl BillingEngine {
    /// Admits a request from its key's lease; returns `None` if the store must be called.
    fn allocate(&self, key: &KeyRecord, estimate: NanoUsd, tokens: u64) -> Option<GrantedHold> {
        if !self.leases.is_enabled() {
            return None;
        }
        let now = clock::instant();
        let (part, cut) = self.leases.allocate(key, estimate, tokens, now)?;
        self.counters.lease_admissions.fetch_add(1, Ordering::Relaxed);
        Some(GrantedHold {
            seat: self.grace.on_lease_admission(key, estimate, tokens),
            at_ms: cut.at_ms,
            at: now,
            watermark: cut.grant.watermark,
            balance: Some(cut.grant.balance),
            quota: cut.grant.quota,
            provider_state: cut.grant.provider_state,
            allocation: Some(part),
        })
    }

    /// Requests and renews leases until `shutdown` becomes true, and then returns the leases to the store.
    async fn keep_leases(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        if !self.leases.is_enabled() {
            return;
        }
        loop {
            let pause = if self.leases.has_leases() {
                LOOK_EVERY
            } else {
                LOOK_EVERY_WITHOUT
            };
            tokio::select! {
                () = self.leases.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
            for ask in self.leases.due_calls(&self.node, clock::instant()) {
                let engine = Arc::clone(&self);
                tokio::spawn(async move { engine.call_lease(ask).await });
            }
        }
        self.leases.recall(|_| true);
        let questions = self.leases.due_calls(&self.node, clock::instant());
        let given_back = stream::iter(questions).for_each_concurrent(AT_ONCE, |ask| self.call_lease(ask));
        if tokio::time::timeout(GIVEN_BACK_WITHIN, given_back).await.is_err() {
            tracing::debug!("cannot return all leases in time; the remaining leases expire on their own");
        }
    }

    async fn call_lease(&self, ask: LeaseCall) {
        let asked = clock::instant();
        let answer = self.ledger.lease(&ask).await;
        let answered = clock::instant();
        if let Err(error) = &answer {
            tracing::debug!(lease = %ask.lease, %error, "a lease call to the ledger failed");
        }
        let answer = answer.ok();
        let key = self.leases.on_reply(&ask, answer.as_ref(), (asked, answered));
        if let (Some((key, goes_on)), Some(LeaseReply::Held(leased))) = (key, &answer) {
            self.time.record(leased.grant.at_ms, asked, answered);
            self.grace.record_grant(&key, &leased.grant, goes_on);
        }
    }
}
