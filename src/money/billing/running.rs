//! The running requests of this node: what each has consumed, for the journal's checkpoints, and which accounts they
//! hold money of, for the node's lease.

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
        growth::{Growth, TopUpAnswer},
        leases::LeasePart,
        tally::Seat,
    },
};

/// How often the consumption of running requests is written to the journal.
pub(super) const CHECKPOINT_EVERY: Duration = Duration::from_millis(700);
/// How long before a checkpoint it is computed for it. A crash loses at most this and the time between two checkpoints.
const LOOKED_AHEAD: Duration = Duration::from_millis(150);

/// The number of shards, so that requests do not contend for one lock.
const SHARDS: usize = 16;

/// What an admitted request was granted, by the store or by its key's grace.
#[derive(Debug)]
pub(super) struct GrantedHold {
    /// Its entry in this node's own counts.
    pub(super) seat: Seat,
    /// When it was admitted by the store's clock, in milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
    /// The same time by this node's monotonic clock.
    pub(super) at: Instant,
    /// The last step of this node that the store had applied then.
    pub(super) watermark: u64,
    /// The account's balance then; `None` if the store could not be asked.
    pub(super) balance: Option<NanoUsd>,
    /// The key's quota then; `None` if it has none or the store could not be asked.
    pub(super) quota: Option<QuotaUse>,
    /// Which state at providers the request may name.
    pub(super) provider_state: ProviderState,
    /// Its part of the lease that it was admitted out of, if it was.
    pub(super) part: Option<LeasePart>,
}

/// One running request.
#[derive(Debug)]
pub(super) struct Running {
    /// weir's request id.
    pub(super) request: SmolStr,
    /// The account that pays.
    pub(super) account: SmolStr,
    /// The key that the request was made with.
    pub(super) key: KeyId,
    /// What it was granted at its admission.
    pub(super) granted: GrantedHold,
    growth: Mutex<Growth>,
    /// The answer must end.
    is_over: AtomicBool,
    /// What has been consumed since the last checkpoint in the journal.
    news: Mutex<Option<Checkpoint>>,
}

impl Running {
    /// A request that was admitted with a hold.
    pub(super) fn new(request: SmolStr, account: SmolStr, key: KeyId, granted: GrantedHold, growth: Growth) -> Self {
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

    /// Takes the cost so far. Returns the amount by which to grow the hold, if the store is to be asked, and the cost
    /// at which to look again.
    pub(super) fn costs(&self, cost: NanoUsd, now: Instant) -> (Option<NanoUsd>, Option<NanoUsd>) {
        let mut growth = self.growth.lock();
        let more = growth.wants(cost, now);
        if growth.is_over(cost) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        (more, growth.next_look())
    }

    /// The result of asking for a larger hold.
    pub(super) fn answered(&self, answer: TopUpAnswer) {
        self.growth.lock().answered(answer);
    }

    /// Whether a question for more has not ended yet.
    #[cfg(test)]
    pub(super) fn is_asking(&self) -> bool {
        self.growth.lock().is_asking()
    }

    /// Whether the answer must end: its hold cannot grow, and the key's terms allow no more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// All running requests of this node, in shards.
#[derive(Debug, Default)]
pub(super) struct RunningRequests {
    shards: [Mutex<QuickMap<SmolStr, Arc<Running>>>; SHARDS],
    /// When the last checkpoint was taken.
    checkpoint: Mutex<Option<Instant>>,
    /// Notified when a request has consumed something.
    noted: Notify,
}

impl RunningRequests {
    /// Adds a request.
    pub(super) fn add(&self, running: Arc<Running>) {
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

    /// Sets what a request has consumed so far, for the next checkpoint.
    pub(super) fn note(&self, running: &Running, checkpoint: Checkpoint) {
        *running.news.lock() = Some(checkpoint);
        self.noted.notify_one();
    }

    /// Waits until a request has consumed something since the last call, and returns when the next checkpoint is due: a while
    /// after the last one, and so late that requests which are looked at for it now have a part in it. For one caller.
    pub(super) async fn next_checkpoint(&self) -> Instant {
        self.noted.notified().await;
        let soon = clock::instant() + LOOKED_AHEAD;
        self.checkpoint
            .lock()
            .map_or(soon, |last| soon.max(last + CHECKPOINT_EVERY))
    }

    /// A checkpoint is taken now.
    pub(super) fn checkpointed(&self, now: Instant) {
        *self.checkpoint.lock() = Some(now);
    }

    /// When a request that is looked at now is to be looked at for a checkpoint: shortly before the next one, so that a request is
    /// looked at once for each and the checkpoint has what is new.
    pub(super) fn next_look(&self, now: Instant) -> Instant {
        let due = |last: Instant| last + CHECKPOINT_EVERY - LOOKED_AHEAD;
        let next = self.checkpoint.lock().map_or(now, due);
        if next > now {
            return next;
        }
        // This look was for that one.
        (next + CHECKPOINT_EVERY).max(now + LOOKED_AHEAD)
    }

    /// The checkpoints of requests that have consumed something since the last call.
    pub(super) fn take_news(&self) -> Vec<Checkpoint> {
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
    fn shard(&self, request: &str) -> Option<MutexGuard<'_, QuickMap<SmolStr, Arc<Running>>>> {
        let byte = request.bytes().last().map_or(0, usize::from);
        self.shards.get(byte % SHARDS).map(Mutex::lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{
            ledger::consumption::{Modifiers, UsageSource},
            wire::usage::Usage,
        },
        money::billing::growth::Bound,
    };

    fn running(request: &str, account: &str) -> Arc<Running> {
        let key = KeyId::parse("key_0000000000000001").unwrap();
        let hold = NanoUsd::from_nanos(10);
        let granted = GrantedHold {
            seat: Seat { hold, on_grace: false },
            at_ms: 0,
            at: clock::instant(),
            watermark: 0,
            balance: None,
            quota: None,
            provider_state: ProviderState::Own,
            part: None,
        };
        let growth = Growth::new(hold, NanoUsd::from_nanos(4), Bound::None);
        Arc::new(Running::new(request.into(), account.into(), key, granted, growth))
    }

    #[test]
    fn news_are_taken_once() {
        let all = RunningRequests::default();
        let request = running("req_1", "a");
        all.add(Arc::clone(&request));
        all.add(running("req_2", "a"));
        all.add(running("req_3", "b"));
        assert!(all.take_news().is_empty());
        let consumed = Checkpoint {
            request: "req_1".into(),
            status: 200,
            usage: Usage::default(),
            source: UsageSource::Estimated,
            modifiers: Modifiers::default(),
            parts: Vec::new(),
            cost: NanoUsd::from_nanos(1),
            provider: "p".into(),
            latency_ms: 1,
            ttft_ms: None,
            attempts: 1,
        };
        all.note(&request, consumed);
        assert_eq!(all.take_news().len(), 1);
        assert!(all.take_news().is_empty());
        assert_eq!(all.by_account().get("a").map(HashSet::len), Some(2));
        assert_eq!(all.held(), NanoUsd::from_nanos(30));
        all.remove("req_1");
        assert_eq!(all.len(), 2);
    }
}
