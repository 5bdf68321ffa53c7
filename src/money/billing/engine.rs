//! The state that all bills of this node share, the running requests among it, and how a request gets its hold.

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
        keys::key::{KeyId, KeyRecord},
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

/// The state that all bills share.
pub(super) struct BillingEngine {
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) journal: Arc<Journal>,
    /// Rereads the record of a key.
    pub(super) keys: Arc<KeyCache>,
    pub(super) denials: Denials,
    pub(super) node: NodeId,
    pub(super) time: Arc<StoreTime>,
    pub(super) running: RunningRequests,
    pub(super) grace: Grace,
    pub(super) leases: Leases,
    /// Requests that wait for holds of running requests.
    pub(super) queues: Arc<Queues>,
    /// Holds that the store may have from admissions that it has not answered.
    pub(super) unconfirmed: UnconfirmedHolds,
    pub(super) counters: BillingCounters,
}

/// Why a request was not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    /// The store denied it: a limit, the account, or the key itself.
    Denied(Denial),
    /// The key's record has changed: read it again and retry.
    StaleKey,
    /// It is refused without asking the store again.
    Refused(Refusal),
}

impl NotAdmitted {
    /// Whether this may come from an outdated record of the key.
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

    /// The refusal for a denial of this key.
    pub(super) fn refusal(&self, key: &KeyRecord, denial: Denial) -> Refusal {
        Refusal::from_denial(denial, key.terms.reset, self.time.now_seconds(clock::instant()))
    }

    /// The hold from a ledger that can answer at once; `None` if [`Self::obtain_hold`] must ask it.
    pub(super) fn obtain_hold_now(&self, ask: &AdmitCall) -> Option<Result<GrantedHold, NotAdmitted>> {
        let asked = clock::instant();
        let answer = self.ledger.admit_now(ask)?;
        Some(self.on_admit_reply(ask, &answer, asked))
    }

    /// Asks the ledger for a hold, and admits by grace while it is unreachable.
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
                // The request's settlement ends the hold that the store may have.
                doubt.disarm();
                Ok(GrantedHold {
                    seat,
                    at_ms: self.time.now_ms(at),
                    at,
                    watermark: 0,
                    balance: None,
                    quota: None,
                    // The account's terms are unknown, so the narrower right applies.
                    provider_state: ProviderState::Own,
                    allocation: None,
                })
            }
        }
    }

    /// The hold that the ledger's reply grants; records the reply.
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

    /// Gives back unused leases of this node that count against the limit in `denial`.
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

    /// Admits a request without the store, if its grace allows.
    fn admit_by_grace(&self, ask: &AdmitCall, error: &StoreError) -> Result<CountedRequest, Refusal> {
        tracing::debug!(%error, "the ledger did not answer");
        if matches!(error, StoreError::Busy(_)) {
            // The store is only busy and can admit a retry: no grace.
            return Err(Refusal::StoreUnavailable);
        }
        let seat = self.grace.admit(ask).map_err(|denial| match denial {
            // This denial is not the store's, so it is neither confirmed nor remembered, and no request queues for it.
            Some(denial) => self.refusal(&ask.key, denial),
            None => Refusal::StoreUnavailable,
        })?;
        self.counters.grace_admissions.fetch_add(1, Ordering::Relaxed);
        Ok(seat)
    }
}

/// How often the consumption of running requests is written to the journal.
pub(super) const CHECKPOINT_EVERY: Duration = Duration::from_millis(700);
/// How long before a checkpoint a request's consumption is sampled for it. A crash loses at most this and one interval.
const SAMPLE_LEAD: Duration = Duration::from_millis(150);

/// The number of shards, so that requests do not contend for one lock.
const SHARDS: usize = 16;

/// The hold of an admitted request, with the state of account and key at its admission.
#[derive(Debug)]
pub(super) struct GrantedHold {
    /// What it adds to this node's own counts.
    pub(super) seat: CountedRequest,
    /// When it was admitted by the store's clock, in milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
    /// The same time by this node's monotonic clock.
    pub(super) at: Instant,
    /// The last step of this node that the store had applied then.
    pub(super) watermark: u64,
    /// The account's balance then; `None` if the store could not be asked.
    pub(super) balance: Option<NanoUsd>,
    /// The key's quota then; `None` if the key has no quota or the store could not be asked.
    pub(super) quota: Option<QuotaUse>,
    /// The provider state that the request may name.
    pub(super) provider_state: ProviderState,
    /// Its allocation, if it was admitted from a lease.
    pub(super) allocation: Option<AllocationId>,
}

/// One running request.
#[derive(Debug)]
pub(super) struct BilledRequest {
    /// weir's request id.
    pub(super) request: SmolStr,
    /// The account that pays.
    pub(super) account: SmolStr,
    /// The key that the request was made with.
    pub(super) key: KeyId,
    /// What it was granted at its admission.
    pub(super) granted: GrantedHold,
    growth: Mutex<HoldGrowth>,
    /// Whether the answer must end.
    is_over: AtomicBool,
    /// What has been consumed since the last checkpoint in the journal.
    news: Mutex<Option<Checkpoint>>,
}

impl BilledRequest {
    /// A request that was admitted with a hold.
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

    /// The amount held for it.
    pub(super) fn hold(&self) -> NanoUsd {
        self.growth.lock().hold()
    }

    /// Updates the cost so far. Returns the top-up to request, if one is needed, and the cost at which to call this again.
    pub(super) fn on_cost(&self, cost: NanoUsd, now: Instant) -> (Option<NanoUsd>, Option<NanoUsd>) {
        let mut growth = self.growth.lock();
        let more = growth.next_top_up(cost, now);
        if growth.must_stop(cost) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        (more, growth.next_sample())
    }

    /// Applies the answer to a top-up.
    pub(super) fn on_top_up(&self, answer: TopUpAnswer) {
        self.growth.lock().on_answer(answer);
    }

    /// Whether a top-up is being requested.
    #[cfg(test)]
    pub(super) fn is_asking(&self) -> bool {
        self.growth.lock().is_asking()
    }

    /// Whether the answer must end: its hold cannot grow, and the key's terms allow no more.
    pub(super) fn must_stop(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// All running requests of this node, in shards.
#[derive(Debug, Default)]
pub(super) struct RunningRequests {
    shards: [Mutex<QuickMap<SmolStr, Arc<BilledRequest>>>; SHARDS],
    /// When the last checkpoint was taken.
    checkpoint: Mutex<Option<Instant>>,
    /// Notified when a request has recorded its consumption.
    noted: Notify,
}

impl RunningRequests {
    /// Adds a request.
    pub(super) fn add(&self, running: Arc<BilledRequest>) {
        if let Some(mut shard) = self.shard(&running.request) {
            shard.insert(running.request.clone(), running);
        }
    }

    /// Removes a request.
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

    /// Waits until a request has recorded its consumption since the last call, and returns when the next checkpoint is due: at
    /// least [`CHECKPOINT_EVERY`] after the last one, and late enough to include requests that are sampled for it now. For one
    /// caller.
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

    /// When a request that is sampled now is to be sampled for a checkpoint: shortly before the next one, so that each checkpoint
    /// needs one sample, which is fresh.
    pub(super) fn next_sample(&self, now: Instant) -> Instant {
        let due = |last: Instant| last + CHECKPOINT_EVERY - SAMPLE_LEAD;
        let next = self.checkpoint.lock().map_or(now, due);
        if next > now {
            return next;
        }
        // This sample was for that checkpoint.
        (next + CHECKPOINT_EVERY).max(now + SAMPLE_LEAD)
    }

    /// The checkpoints of requests that have consumed something since the last call.
    pub(super) fn take_changed(&self) -> Vec<Checkpoint> {
        let all = self.shards.iter().flat_map(|shard| {
            let shard = shard.lock();
            shard.values().cloned().collect::<Vec<_>>()
        });
        all.filter_map(|running| running.news.lock().take()).collect()
    }

    /// The accounts with holds for running requests, and the ids of those requests.
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

    /// The sum of their holds.
    pub(super) fn held(&self) -> NanoUsd {
        self.shards.iter().fold(NanoUsd::ZERO, |sum, shard| {
            let shard = shard.lock();
            shard
                .values()
                .fold(sum, |sum, running| sum.saturating_add(running.hold()))
        })
    }

    /// The request's shard. Request ids end in random characters, which spread them evenly.
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
