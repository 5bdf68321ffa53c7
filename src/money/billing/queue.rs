//! Queues of waiting requests. A request waits if the key's quota or the account's balance would suffice without the holds of
//! running requests. It also waits if a rate limit or a concurrency limit would suffice without the parts that leases occupy.
//!
//! Requests that wait for the same limit are in one queue, in order of arrival. Only the first request calls the store, because a
//! limit that denies the first request denies all of them. The first request calls again when the store has applied settlements
//! of the account from this node. It also calls again after a pause, because holds of other nodes may have ended. A request that
//! arrives while there is a queue joins the queue without a call.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::sync::{Notify, futures::OwnedNotified};

use crate::{
    config::money::QueueLimits,
    domain::{
        keys::KeyId,
        ledger::{Denial, LimitScope},
    },
};

/// The minimum interval between two calls of the store for one queue.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// The maximum time that the first request in a queue waits for a hold to end on this node. After this time, the request calls
/// the store. The time doubles with each denial, up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// All queues of this node.
#[derive(Debug, Default)]
pub(super) struct Queues {
    waiting: Mutex<WaitingRequests>,
}

#[derive(Debug, Default)]
struct WaitingRequests {
    /// The queues by account. Accounts without waiting requests are not in the map.
    accounts: HashMap<SmolStr, AccountQueues>,
    count: usize,
    next_id: u64,
}

#[derive(Debug, Default)]
struct AccountQueues {
    /// The queues by key, for limits of the key; `None` is the queue for limits of the account.
    queues: HashMap<Option<KeyId>, Queue>,
    count: usize,
}

#[derive(Debug)]
struct Queue {
    /// The last denial that requests of this queue got.
    denial: Denial,
    /// The time that the first request waits before it calls the store. `None` if it calls at once, because the request before it
    /// was admitted or refused.
    pause: Option<Duration>,
    waiting: VecDeque<(u64, Arc<Notify>)>,
}

/// A request's position in a queue. The request leaves the queue when this is dropped.
#[derive(Debug)]
pub(super) struct QueuePosition {
    queues: Arc<Queues>,
    account: SmolStr,
    queue: Option<KeyId>,
    id: u64,
    /// Notified when this position becomes the first.
    front: Arc<Notify>,
    /// Notified when holds of the account have ended on this node.
    ended: Arc<Notify>,
    news: OwnedNotified,
}

impl Queues {
    /// Returns the last denial in the queue that a new request must join; `None` if there is no such queue.
    pub(super) fn blocking_denial(&self, account: &str, key: &KeyId) -> Option<Denial> {
        let waiting = self.waiting.lock();
        let queues = &waiting.accounts.get(account)?.queues;
        let queue = queues.get(&None).or_else(|| queues.get(&Some(key.clone())))?;
        Some(queue.denial)
    }

    /// Adds a request to the queue for the limit that denied it. Returns `None` if `max` requests are waiting already. `ended` is
    /// notified when holds of the account have ended.
    pub(super) fn join(
        self: &Arc<Self>,
        (account, key): (&str, &KeyId),
        denial: Denial,
        ended: Arc<Notify>,
        max: QueueLimits,
    ) -> Option<QueuePosition> {
        let mut waiting = self.waiting.lock();
        let of_account = waiting.accounts.get(account).map_or(0, |account| account.count);
        if waiting.count >= max.all || of_account >= max.account {
            return None;
        }
        waiting.next_id += 1;
        let id = waiting.next_id;
        let front = Arc::new(Notify::new());
        let queue = queue_for(key, denial);
        waiting.push(account, &queue, denial, (id, Arc::clone(&front)));
        Some(QueuePosition {
            queues: Arc::clone(self),
            account: account.into(),
            queue,
            id,
            front,
            news: Arc::clone(&ended).notified_owned(),
            ended,
        })
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().count
    }
}

fn queue_for(key: &KeyId, denial: Denial) -> Option<KeyId> {
    let is_of_key = match denial {
        Denial::QuotaHeld(_) => true,
        Denial::Concurrency { scope, .. } | Denial::RateLimited { scope, .. } => scope == LimitScope::Key,
        Denial::BalanceHeld
        | Denial::KeyRevoked
        | Denial::KeyExpired
        | Denial::AccountUnknown
        | Denial::AccountSuspended
        | Denial::BalanceExhausted
        | Denial::QuotaExhausted(_) => false,
    };
    is_of_key.then(|| key.clone())
}

impl WaitingRequests {
    fn push(&mut self, account: &str, queue: &Option<KeyId>, denial: Denial, who: (u64, Arc<Notify>)) {
        let account = self.accounts.entry(account.into()).or_default();
        let queue = account.queues.entry(queue.clone()).or_insert_with(|| Queue {
            denial,
            pause: Some(PAUSE_MIN),
            waiting: VecDeque::new(),
        });
        queue.waiting.push_back(who);
        account.count += 1;
        self.count += 1;
    }

    fn queue(&mut self, account: &str, queue: &Option<KeyId>) -> Option<&mut Queue> {
        self.accounts.get_mut(account)?.queues.get_mut(queue)
    }
}

impl QueuePosition {
    /// Waits until this request may call the store. After a denial, call [`QueuePosition::on_denied`] and then this again.
    pub(super) async fn wait_for_turn(&mut self) {
        let pause = loop {
            match self.pause_if_first() {
                Some(pause) => break pause,
                None => self.front.notified().await,
            }
        };
        if let Some(pause) = pause {
            tokio::time::sleep(ASK_EVERY).await;
            let news = std::mem::replace(&mut self.news, Arc::clone(&self.ended).notified_owned());
            // It is time to call the store, whether holds have ended or the pause is over.
            let _ = tokio::time::timeout(pause, news).await;
        }
        // A hold that ends during the call to the store is noticed at the next turn.
        self.news = Arc::clone(&self.ended).notified_owned();
    }

    /// Records that the store has denied the request again. If another limit denied it, the request moves to the end of that
    /// limit's queue.
    pub(super) fn on_denied(&mut self, key: &KeyId, denial: Denial) {
        let queue = queue_for(key, denial);
        let mut waiting = self.queues.waiting.lock();
        if queue != self.queue {
            self.leave(&mut waiting);
            self.queue = queue;
            waiting.push(&self.account, &self.queue, denial, (self.id, Arc::clone(&self.front)));
        } else if let Some(queue) = waiting.queue(&self.account, &self.queue) {
            queue.denial = denial;
            let longer = queue.pause.map_or(PAUSE_MIN, |pause| pause.saturating_mul(2));
            queue.pause = Some(longer.min(PAUSE_MAX));
        }
    }

    /// Leaves the queue, because the request was admitted or refused. The next request calls the store at once, because it may
    /// get the same answer.
    pub(super) fn leave_answered(self) {
        if let Some(queue) = self.queues.waiting.lock().queue(&self.account, &self.queue) {
            queue.pause = None;
        }
    }

    /// The last denial that requests of this queue got; `None` if the request is in no queue.
    pub(super) fn denial(&self) -> Option<Denial> {
        let mut waiting = self.queues.waiting.lock();
        waiting.queue(&self.account, &self.queue).map(|queue| queue.denial)
    }

    /// Returns the pause before this request calls the store. The outer value is `None` if the request is not the first in its
    /// queue; the inner one is `None` if there is no pause.
    fn pause_if_first(&self) -> Option<Option<Duration>> {
        let mut waiting = self.queues.waiting.lock();
        let queue = waiting.queue(&self.account, &self.queue)?;
        let (first, _) = queue.waiting.front()?;
        (*first == self.id).then_some(queue.pause)
    }

    fn leave(&self, waiting: &mut WaitingRequests) {
        let Some(account) = waiting.accounts.get_mut(&self.account) else {
            return;
        };
        let Some(queue) = account.queues.get_mut(&self.queue) else {
            return;
        };
        let was_front = queue.waiting.front().is_some_and(|(id, _)| *id == self.id);
        queue.waiting.retain(|(id, _)| *id != self.id);
        if was_front && let Some((_, next)) = queue.waiting.front() {
            next.notify_one();
        }
        if queue.waiting.is_empty() {
            account.queues.remove(&self.queue);
        }
        account.count = account.count.saturating_sub(1);
        if account.count == 0 {
            waiting.accounts.remove(&self.account);
        }
        waiting.count = waiting.count.saturating_sub(1);
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let mut waiting = self.queues.waiting.lock();
        self.leave(&mut waiting);
    }
}
