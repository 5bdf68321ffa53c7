//! The state that all bills of this node share, including the running requests, and the way in which a request gets its hold.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use smol_str::SmolStr;
use tokio::sync::Notify;

use crate::{
    domain::{
        QuickMap,
        faults::refusal::Refusal,
        keys::{KeyId, KeyRecord},
        ledger::{AdmitCall, AdmitReply, Checkpoint, Denial, LimitScope, NodeId, ProviderState, QuotaUse},
        money::NanoUsd,
    },
    edges::clock,
    journal::Journal,
    money::billing::{
        denials::Denials,
        grace::{Grace, UnconfirmedHolds},
        growth::{HoldGrowth, TopUpAnswer},
        last_seen::GraceLimits,
        leases::{AllocationId, LeaseLimits, Leases},
        queue::Queues,
        tally::{BillingCounters, CountedRequest},
    },
    store::{StoreError, key_cache::KeyCache, ledger::LedgerStore, time::StoreTime},
};

/// The state that all bills of this node share.
pub(super) struct BillingEngine {
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) journal: Arc<Journal>,
    /// The key cache, from which a key's record can be read again.
    pub(super) keys: Arc<KeyCache>,
    pub(super) denials: Denials,
    pub(super) node: NodeId,
    pub(super) time: Arc<StoreTime>,
    pub(super) running: RunningRequests,
    pub(super) grace: Grace,
    pub(super) leases: Leases,
    /// The queues of requests that wait for holds of running requests.
    pub(super) queues: Arc<Queues>,
    /// Holds that may exist in the store, from admission calls that the store has not answered.
    pub(super) unconfirmed: UnconfirmedHolds,
    pub(super) counters: BillingCounters,
}

/// The reason why a request was not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    /// The store denied the request, because of a limit, the account, or the key itself.
    Denied(Denial),
    /// The key's record has changed since it was cached. It must be read again before another try.
    StaleKey,
    /// The request is refused without another call to the store.
    Refused(Refusal),
}

impl NotAdmitted {
    /// Whether the request may have been denied because of an outdated record of its key.
    pub(super) fn may_be_outdated(&self) -> bool {
        match self {
            Self::StaleKey => true,
            Self::Denied(denial) => denial.depends_on_key(),
            Self::Refused(_) => false,
        }
    }
}

impl From<Refusal> for NotAdmitted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl BillingEngine {
    pub(super) fn new(
        ledger: Arc<dyn LedgerStore>,
        journal: Arc<Journal>,
        keys: Arc<KeyCache>,
        grace: GraceLimits,
        leases: Option<LeaseLimits>,
    ) -> Self {
        let time = Arc::new(StoreTime::new(clock::instant()));
        Self {
            denials: Denials::new(Arc::clone(&ledger), Arc::clone(&time)),
            ledger,
            keys,
            node: journal.node().clone(),
            journal,
            time,
            running: RunningRequests::default(),
            grace: Grace::new(grace),
            leases: Leases::new(leases),
            queues: Arc::default(),
            unconfirmed: UnconfirmedHolds::default(),
            counters: BillingCounters::default(),
        }
    }

    /// Returns the refusal that a client gets for a denial of this key.
    pub(super) fn refusal(&self, key: &KeyRecord, denial: Denial) -> Refusal {
        Refusal::from_denial(denial, key.terms.reset, self.time.now_seconds(clock::instant()))
    }

    /// Returns the hold or denial from a ledger that can answer at once; `None` if [`Self::obtain_hold`] must call it.
    pub(super) fn obtain_hold_now(&self, ask: &AdmitCall) -> Option<Result<GrantedHold, NotAdmitted>> {
        let asked = clock::instant();
        let answer = self.ledger.admit_now(ask)?;
        Some(self.on_admit_reply(ask, &answer, asked))
    }

    /// Calls the ledger for a hold. While the ledger is unreachable, admits by grace.
    pub(super) async fn obtain_hold(&self, ask: &AdmitCall) -> Result<GrantedHold, NotAdmitted> {
        let doubt = self.unconfirmed.begin(ask);
        let asked = clock::instant();
        match self.ledger.admit(ask).await {
            Ok(answer) => {
                doubt.disarm();
                self.on_admit_reply(ask, &answer, asked)
            }
            Err(error) => {
                let at = clock::instant();
                let seat = self.admit_by_grace(ask, &error)?;
                // A hold that may exist in the store ends with the request's settlement.
                doubt.disarm();
                Ok(GrantedHold {
                    seat,
                    at_ms: self.time.now_ms(at),
                    at,
                    watermark: 0,
                    balance: None,
                    quota: None,
                    // The account's terms are unknown, so the stricter rule applies.
                    provider_state: ProviderState::Own,
                    allocation: None,
                })
            }
        }
    }

    /// Records the ledger's reply, and returns the hold that it grants.
    fn on_admit_reply(&self, ask: &AdmitCall, answer: &AdmitReply, asked: Instant) -> Result<GrantedHold, NotAdmitted> {
        let at = clock::instant();
        let grant = match answer {
            AdmitReply::Granted(grant) => grant,
            &AdmitReply::Refused(denial) => {
                self.grace.on_denied(&ask.key, denial);
                self.recall_leases(&ask.key, denial);
                return Err(NotAdmitted::Denied(denial));
            }
            AdmitReply::StaleKey => return Err(NotAdmitted::StaleKey),
        };
        self.time.record(grant.at_ms, asked, at);
        Ok(GrantedHold {
            seat: self.grace.on_granted(ask, grant),
            at_ms: grant.at_ms,
            at,
            watermark: grant.watermark,
            balance: Some(grant.balance),
            quota: grant.quota,
            provider_state: grant.provider_state,
            allocation: None,
        })
    }

    /// Ends the leases of this node that count against the limit in `denial`, so that their unused parts become free.
    fn recall_leases(&self, asking: &KeyRecord, denial: Denial) {
        match denial {
            Denial::BalanceHeld => self.leases.recall(|key| key.account == asking.account),
            Denial::QuotaHeld(_) => self.leases.recall(|key| key.id == asking.id),
            Denial::Concurrency { scope, lent: true, .. } | Denial::RateLimited { scope, lent: true, .. } => {
                match scope {
                    LimitScope::Key => self.leases.recall(|key| key.id == asking.id),
                    LimitScope::Account => self.leases.recall(|key| key.account == asking.account),
                }
            }
            Denial::Concurrency { lent: false, .. }
            | Denial::RateLimited { lent: false, .. }
            | Denial::KeyRevoked
            | Denial::KeyExpired
            | Denial::AccountUnknown
            | Denial::AccountSuspended
            | Denial::BalanceExhausted
            | Denial::QuotaExhausted(_) => {}
        }
    }

    /// Admits a request without the store, if its key and account have grace left.
    fn admit_by_grace(&self, ask: &AdmitCall, error: &StoreError) -> Result<CountedRequest, Refusal> {
        tracing::debug!(%error, "an admission call to the ledger failed");
        if matches!(error, StoreError::Busy(_)) {
            // The store is only busy and can admit the client's next try, so grace does not apply.
            return Err(Refusal::StoreUnavailable);
        }
        let seat = self.grace.admit(ask).map_err(|denial| match denial {
            // This denial is not the store's, so it is neither confirmed nor remembered, and no request waits for it.
            Some(denial) => self.refusal(&ask.key, denial),
            None => Refusal::StoreUnavailable,
        })?;
        self.counters.grace_admissions.fetch_add(1, Ordering::Relaxed);
        Ok(seat)
    }
}

/// The interval at which the consumption of running requests is written to the journal.
pub(super) const CHECKPOINT_EVERY: Duration = Duration::from_millis(700);
/// A request's consumption is sampled this long before each checkpoint. A crash loses at most the consumption of this time plus
/// one checkpoint interval.
const SAMPLE_LEAD: Duration = Duration::from_millis(150);

/// Number of shards of the running requests, so that requests do not contend for one lock.
const SHARDS: usize = 16;

/// The hold of an admitted request, with the state of account and key at its admission.
#[derive(Debug)]
pub(super) struct GrantedHold {
    /// The request's part in this node's own counts.
    pub(super) seat: CountedRequest,
    /// The time of the admission by the store's clock, in milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
    /// The time of the admission by this node's monotonic clock.
    pub(super) at: Instant,
    /// The last step of this node that the store had applied at the admission.
    pub(super) watermark: u64,
    /// The account's balance at the admission; `None` if the store could not be reached.
    pub(super) balance: Option<NanoUsd>,
    /// The use of the key's quota at the admission; `None` if the key has no quota or the store could not be reached.
    pub(super) quota: Option<QuotaUse>,
    /// The provider state that the request may refer to.
    pub(super) provider_state: ProviderState,
    /// The request's allocation; `None` if it was not admitted from a lease.
    pub(super) allocation: Option<AllocationId>,
}

/// One running request, which is billed.
#[derive(Debug)]
pub(super) struct BilledRequest {
    /// weir's request id.
    pub(super) request: SmolStr,
    /// The account that pays.
    pub(super) account: SmolStr,
    /// The key with which the request was made.
    pub(super) key: KeyId,
    /// The hold that the request was granted at its admission.
    pub(super) granted: GrantedHold,
    growth: Mutex<HoldGrowth>,
    /// Whether the answer must end because its hold cannot grow.
    is_over: AtomicBool,
    /// The consumption so far; `None` if it has not changed since the last checkpoint in the journal.
    news: Mutex<Option<Checkpoint>>,
}

impl BilledRequest {
    /// Creates a running request that was admitted with a hold.
    pub(super) fn new(
        request: SmolStr,
        account: SmolStr,
        key: KeyId,
        granted: GrantedHold,
        growth: HoldGrowth,
    ) -> Self {
        Self {
            request,
            account,
            key,
            granted,
            growth: Mutex::new(growth),
            is_over: AtomicBool::new(false),
            news: Mutex::default(),
        }
    }

    /// The amount held for the request at present.
    pub(super) fn hold(&self) -> NanoUsd {
        self.growth.lock().hold()
    }

    /// Updates the cost so far. Returns the top-up to request (`None` if no top-up is needed) and the cost at which to call this
    /// again (`None` if no cost requires another call).
    pub(super) fn on_cost(&self, cost: NanoUsd, now: Instant) -> (Option<NanoUsd>, Option<NanoUsd>) {
        let mut growth = self.growth.lock();
        let more = growth.next_top_up(cost, now);
        if growth.must_stop(cost) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        (more, growth.next_sample())
    }

    /// Applies the ledger's answer to a top-up.
    pub(super) fn on_top_up(&self, answer: TopUpAnswer) {
        self.growth.lock().on_answer(answer);
    }

    /// Whether a top-up has been requested and not answered yet.
    #[cfg(test)]
    pub(super) fn is_asking(&self) -> bool {
        self.growth.lock().is_asking()
    }

    /// Whether the answer must end, because its hold cannot grow and its cost has reached the maximum that the key's terms allow.
    pub(super) fn must_stop(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// All running requests of this node, in shards.
#[derive(Debug, Default)]
pub(super) struct RunningRequests {
    shards: [Mutex<QuickMap<SmolStr, Arc<BilledRequest>>>; SHARDS],
    /// When the last checkpoint was taken; `None` before the first.
    checkpoint: Mutex<Option<Instant>>,
    /// Notified when a request has recorded its consumption.
    noted: Notify,
}

impl RunningRequests {
    /// Adds a running request.
    pub(super) fn add(&self, running: Arc<BilledRequest>) {
        if let Some(mut shard) = self.shard(&running.request) {
            shard.insert(running.request.clone(), running);
        }
    }

    /// Removes a request that has ended.
    pub(super) fn remove(&self, request: &str) {
        if let Some(mut shard) = self.shard(request) {
            shard.remove(request);
        }
    }

    /// Records the consumption of a request so far, for the next checkpoint.
    pub(super) fn record(&self, running: &BilledRequest, checkpoint: Checkpoint) {
        *running.news.lock() = Some(checkpoint);
        self.noted.notify_one();
    }

    /// Waits until a request has recorded consumption since the previous call of this method. Returns the time at which the next
    /// checkpoint is due. This time is at least [`CHECKPOINT_EVERY`] after the last checkpoint. It is late enough for the
    /// checkpoint to include requests whose consumption is being sampled now. Must have only one caller at a time.
    pub(super) async fn next_checkpoint(&self) -> Instant {
        self.noted.notified().await;
        let soon = clock::instant() + SAMPLE_LEAD;
        self.checkpoint
            .lock()
            .map_or(soon, |last| soon.max(last + CHECKPOINT_EVERY))
    }

    /// Records that a checkpoint is taken now.
    pub(super) fn on_checkpoint(&self, now: Instant) {
        *self.checkpoint.lock() = Some(now);
    }

    /// Returns the time of a request's next sample, if the current one is taken now. This time is shortly before a checkpoint, so
    /// that each checkpoint needs only one recent sample of the request.
    pub(super) fn next_sample(&self, now: Instant) -> Instant {
        let due = |last: Instant| last + CHECKPOINT_EVERY - SAMPLE_LEAD;
        let next = self.checkpoint.lock().map_or(now, due);
        if next > now {
            return next;
        }
        // This sample was taken for the checkpoint that is due, so the next one is for the checkpoint after it.
        (next + CHECKPOINT_EVERY).max(now + SAMPLE_LEAD)
    }

    /// Returns the checkpoints of all requests that have consumed something since the last call.
    pub(super) fn take_changed(&self) -> Vec<Checkpoint> {
        let all = self.shards.iter().flat_map(|shard| {
            let shard = shard.lock();
            shard.values().cloned().collect::<Vec<_>>()
        });
        all.filter_map(|running| running.news.lock().take()).collect()
    }

    /// The accounts with holds for running requests, each with the ids of these requests.
    pub(super) fn by_account(&self) -> HashMap<SmolStr, HashSet<SmolStr>> {
        let mut accounts: HashMap<SmolStr, HashSet<SmolStr>> = HashMap::new();
        for shard in &self.shards {
            for running in shard.lock().values() {
                let requests = accounts.entry(running.account.clone()).or_default();
                requests.insert(running.request.clone());
            }
        }
        accounts
    }

    /// The number of running requests.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// The sum of all running requests' holds.
    pub(super) fn held(&self) -> NanoUsd {
        self.shards.iter().fold(NanoUsd::ZERO, |sum, shard| {
            let shard = shard.lock();
            shard
                .values()
                .fold(sum, |sum, running| sum.saturating_add(running.hold()))
        })
    }

    /// Returns the locked shard of a request. Request ids end in random characters, so the requests are spread evenly over the
    /// shards.
    fn shard(&self, request: &str) -> Option<MutexGuard<'_, QuickMap<SmolStr, Arc<BilledRequest>>>> {
        let byte = request.bytes().last().map_or(0, usize::from);
        self.shards.get(byte % SHARDS).map(Mutex::lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{
            ledger::consumption::{PriceModifiers, UsageSource},
            wire::usage::Usage,
        },
        money::billing::growth::SpendCap,
    };

    fn running(request: &str, account: &str) -> Arc<BilledRequest> {
        let key = KeyId::parse("key_0000000000000001").unwrap();
        let hold = NanoUsd::from_nanos(10);
        let granted = GrantedHold {
            seat: CountedRequest { hold, by_grace: false },
            at_ms: 0,
            at: clock::instant(),
            watermark: 0,
            balance: None,
            quota: None,
            provider_state: ProviderState::Own,
            allocation: None,
        };
        let growth = HoldGrowth::new(hold, NanoUsd::from_nanos(4), SpendCap::None);
        Arc::new(BilledRequest::new(request.into(), account.into(), key, granted, growth))
    }

    #[test]
    fn news_are_taken_once() {
        let all = RunningRequests::default();
        let request = running("req_1", "a");
        all.add(Arc::clone(&request));
        all.add(running("req_2", "a"));
        all.add(running("req_3", "b"));
        assert!(all.take_changed().is_empty());
        let consumed = Checkpoint {
            request: "req_1".into(),
            status: 200,
            usage: Usage::default(),
            source: UsageSource::Estimated,
            modifiers: PriceModifiers::default(),
            parts: Vec::new(),
            cost: NanoUsd::from_nanos(1),
            provider: "p".into(),
            latency_ms: 1,
            ttft_ms: None,
            attempts: 1,
        };
        all.record(&request, consumed);
        assert_eq!(all.take_changed().len(), 1);
        assert!(all.take_changed().is_empty());
        assert_eq!(all.by_account().get("a").map(HashSet::len), Some(2));
        assert_eq!(all.held(), NanoUsd::from_nanos(30));
        all.remove("req_1");
        assert_eq!(all.len(), 2);
    }
}
