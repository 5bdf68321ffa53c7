//! The requests that are running on this node: what each has consumed so far, for the journal's checkpoints, and which
//! accounts hold money for them, for the node's lease.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use crate::domain::{
    key::KeyId,
    ledger::{Checkpoint, OnExhausted},
    money::NanoUsd,
};

/// How many parts they are kept in, so that requests do not queue for one lock.
const SHARDS: usize = 16;

/// One running request.
#[derive(Debug)]
pub struct Running {
    /// weir's identifier of it.
    pub request: String,
    /// Who pays.
    pub account: String,
    /// With which key it was asked.
    pub key: KeyId,
    /// When it was admitted, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// What happens when its hold cannot grow.
    pub on_exhausted: OnExhausted,
    /// What is held for it, in nano-USD.
    hold: AtomicI64,
    /// A larger hold is being asked for.
    asking: AtomicBool,
    /// There was nothing left.
    exhausted: AtomicBool,
    /// What has been consumed and is not in the journal yet.
    news: Mutex<Option<Checkpoint>>,
}

impl Running {
    /// A request that was admitted with `hold`.
    pub fn new(
        request: String,
        account: String,
        key: KeyId,
        at_ms: i64,
        on_exhausted: OnExhausted,
        hold: NanoUsd,
    ) -> Self {
        Self {
            request,
            account,
            key,
            at_ms,
            on_exhausted,
            hold: AtomicI64::new(hold.nanos()),
            asking: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            news: Mutex::default(),
        }
    }

    /// What is held for it.
    pub fn hold(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.hold.load(Ordering::Relaxed))
    }

    /// Whether a larger hold may be asked for now; if so the caller asks, and says how that ended with
    /// [`Running::held_more`] or [`Running::nothing_left`].
    pub fn begin_asking(&self) -> bool {
        !self.exhausted.load(Ordering::Relaxed) && !self.asking.swap(true, Ordering::Relaxed)
    }

    /// The hold has grown; zero where the store could not say.
    pub fn held_more(&self, more: NanoUsd) {
        self.hold.fetch_add(more.nanos(), Ordering::Relaxed);
        self.asking.store(false, Ordering::Relaxed);
    }

    /// The hold cannot grow any more.
    pub fn nothing_left(&self) {
        self.exhausted.store(true, Ordering::Relaxed);
        self.asking.store(false, Ordering::Relaxed);
    }

    /// Whether the answer is to be ended: nothing is left, and the key wants it so.
    pub fn is_cut(&self) -> bool {
        self.on_exhausted == OnExhausted::Cut && self.exhausted.load(Ordering::Relaxed)
    }

    /// What has been consumed so far.
    pub fn note(&self, checkpoint: Checkpoint) {
        *lock(&self.news) = Some(checkpoint);
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct RunningRequests {
    shards: [Mutex<HashMap<String, Arc<Running>>>; SHARDS],
}

impl RunningRequests {
    /// Adds one.
    pub fn add(&self, running: Arc<Running>) {
        if let Some(mut shard) = self.shard(&running.request) {
            shard.insert(running.request.clone(), running);
        }
    }

    /// Takes one out.
    pub fn remove(&self, request: &str) {
        if let Some(mut shard) = self.shard(request) {
            shard.remove(request);
        }
    }

    /// The checkpoints that are news since the last call.
    pub fn take_news(&self) -> Vec<Checkpoint> {
        let all = self.shards.iter().flat_map(|shard| {
            let shard = lock(shard);
            shard.values().cloned().collect::<Vec<_>>()
        });
        all.filter_map(|running| lock(&running.news).take()).collect()
    }

    /// The accounts that hold money for running requests, each with those requests.
    pub fn by_account(&self) -> HashMap<String, HashSet<String>> {
        let mut accounts: HashMap<String, HashSet<String>> = HashMap::new();
        for shard in &self.shards {
            for running in lock(shard).values() {
                let requests = accounts.entry(running.account.clone()).or_default();
                requests.insert(running.request.clone());
            }
        }
        accounts
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// What is held for all of them.
    pub fn held(&self) -> NanoUsd {
        self.shards.iter().fold(NanoUsd::ZERO, |sum, shard| {
            let shard = lock(shard);
            shard
                .values()
                .fold(sum, |sum, running| sum.saturating_add(running.hold()))
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Request ids end in random characters.
    fn shard(&self, request: &str) -> Option<MutexGuard<'_, HashMap<String, Arc<Running>>>> {
        let byte = request.bytes().last().map_or(0, usize::from);
        self.shards.get(byte % SHARDS).map(lock)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        consumption::{Modifiers, UsageSource},
        usage::Usage,
    };

    fn running(request: &str, account: &str, on_exhausted: OnExhausted) -> Arc<Running> {
        let key = KeyId::parse("key_0000000000000001").unwrap();
        let hold = NanoUsd::from_nanos(10);
        Arc::new(Running::new(
            request.to_owned(),
            account.to_owned(),
            key,
            0,
            on_exhausted,
            hold,
        ))
    }

    #[test]
    fn a_larger_hold_is_asked_for_once_at_a_time_and_never_after_a_no() {
        let request = running("req_1", "a", OnExhausted::Cut);
        assert!(request.begin_asking());
        assert!(!request.begin_asking());
        request.held_more(NanoUsd::from_nanos(5));
        assert_eq!(request.hold(), NanoUsd::from_nanos(15));
        assert!(request.begin_asking());
        assert!(!request.is_cut());
        request.nothing_left();
        assert!(!request.begin_asking());
        assert!(request.is_cut());
    }

    #[test]
    fn an_answer_that_may_finish_is_not_cut() {
        let request = running("req_1", "a", OnExhausted::Finish);
        request.nothing_left();
        assert!(!request.is_cut());
    }

    #[test]
    fn news_are_taken_once() {
        let all = RunningRequests::default();
        let request = running("req_1", "a", OnExhausted::Finish);
        all.add(Arc::clone(&request));
        all.add(running("req_2", "a", OnExhausted::Finish));
        all.add(running("req_3", "b", OnExhausted::Finish));
        assert!(all.take_news().is_empty());
        request.note(Checkpoint {
            request: "req_1".to_owned(),
            status: 200,
            usage: Usage::default(),
            source: UsageSource::Estimated,
            modifiers: Modifiers::default(),
            parts: Vec::new(),
            cost: NanoUsd::from_nanos(1),
            provider: "p".to_owned(),
            latency_ms: 1,
            ttft_ms: None,
        });
        assert_eq!(all.take_news().len(), 1);
        assert!(all.take_news().is_empty());
        assert_eq!(all.by_account().get("a").map(HashSet::len), Some(2));
        assert_eq!(all.held(), NanoUsd::from_nanos(30));
        all.remove("req_1");
        assert_eq!(all.len(), 2);
    }
}
