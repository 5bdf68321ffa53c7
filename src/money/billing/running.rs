//! The running requests of this node: what each has consumed, for the journal's checkpoints, and which accounts they hold money
//! of, for the renewal of their holds.

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
        keys::key::KeyId,
        ledger::{Checkpoint, ProviderState, QuotaUse},
        money::NanoUsd,
        quick_map::QuickMap,
    },
    edges::clock,
    money::billing::{
        growth::{HoldGrowth, TopUpAnswer},
        leases::AllocationId,
        tally::CountedRequest,
    },
};

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
