//! Queues of requests for which running requests hold all that is left: of a key's quota, or of an account's balance.
//!
//! Requests that wait for the same limit stand in one queue, in order of arrival. Only the first one asks the store,
//! because what is refused to it is refused to all. It asks again when the store has applied settlements of the account
//! from this node, and otherwise after a pause, because holds of other nodes end as well. A request that arrives while
//! there is a queue joins it without asking.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, futures::OwnedNotified};

use crate::{
    billing::Billing,
    config::money::WaitingMax,
    domain::{
        key::{KeyId, KeyRecord},
        ledger::Denied,
    },
};

/// The minimum time between two questions of one queue.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long the first in the queue waits for a hold to end on this node: at first and at most. The pause doubles each
/// time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// All queues of this node.
#[derive(Debug, Default)]
pub(super) struct Lines {
    standing: Mutex<Standing>,
}

#[derive(Debug, Default)]
struct Standing {
    /// By account, without the accounts for which nobody waits.
    accounts: HashMap<String, OfAccount>,
    waiting: usize,
    next_id: u64,
}

#[derive(Debug, Default)]
struct OfAccount {
    /// By key for a key's quota; `None` is the account's balance.
    lines: HashMap<Option<KeyId>, Line>,
    waiting: usize,
}

#[derive(Debug)]
struct Line {
    /// The last denial that the queue's requests got.
    denied: Denied,
    /// How long the first one waits before it asks; `None` to ask at once, because the one before it got an answer.
    pause: Option<Duration>,
    waiting: VecDeque<(u64, Arc<Notify>)>,
}

/// A request's place in a queue. It leaves the queue on drop.
#[derive(Debug)]
pub struct Place {
    lines: Arc<Lines>,
    account: String,
    line: Option<KeyId>,
    id: u64,
    /// Notified when the place becomes the first.
    front: Arc<Notify>,
    /// Notified when holds of the account have ended on this node.
    ended: Arc<Notify>,
    news: OwnedNotified,
}

impl Billing {
    /// The denial that a request of this key gets because others already wait; it must queue behind them. `None` if
    /// nobody waits.
    pub fn waits_behind(&self, key: &KeyRecord) -> Option<Denied> {
        self.shared.lines.ahead(&key.account, &key.id)
    }

    /// A place at the end of the queue for what was denied; `None` if `max` are waiting already.
    pub fn wait_behind(&self, key: &KeyRecord, denied: Denied, max: WaitingMax) -> Option<Place> {
        let ended = self.shared.journal.acknowledgements(&key.account);
        self.shared.lines.join((&key.account, &key.id), denied, ended, max)
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.shared.lines.waiting()
    }
}

impl Lines {
    /// The denial for a request that must not overtake those waiting; `None` if nobody waits.
    pub(super) fn ahead(&self, account: &str, key: &KeyId) -> Option<Denied> {
        let standing = self.lock();
        let lines = &standing.accounts.get(account)?.lines;
        let line = lines.get(&None).or_else(|| lines.get(&Some(key.clone())))?;
        Some(line.denied)
    }

    /// The last place in the queue for what was denied; `None` if `max` are waiting already. `ended` is notified when
    /// holds of the account have ended.
    pub(super) fn join(
        self: &Arc<Self>,
        (account, key): (&str, &KeyId),
        denied: Denied,
        ended: Arc<Notify>,
        max: WaitingMax,
    ) -> Option<Place> {
        let mut standing = self.lock();
        let of_account = standing.accounts.get(account).map_or(0, |account| account.waiting);
        if standing.waiting >= max.all || of_account >= max.account {
            return None;
        }
        standing.next_id += 1;
        let id = standing.next_id;
        let front = Arc::new(Notify::new());
        let line = line_for(key, denied);
        standing.push(account, &line, denied, (id, Arc::clone(&front)));
        Some(Place {
            lines: Arc::clone(self),
            account: account.to_owned(),
            line,
            id,
            front,
            news: Arc::clone(&ended).notified_owned(),
            ended,
        })
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line_for(key: &KeyId, denied: Denied) -> Option<KeyId> {
    matches!(denied, Denied::QuotaHeld(_)).then(|| key.clone())
}

impl Standing {
    fn push(&mut self, account: &str, line: &Option<KeyId>, denied: Denied, who: (u64, Arc<Notify>)) {
        let account = self.accounts.entry(account.to_owned()).or_default();
        let line = account.lines.entry(line.clone()).or_insert_with(|| Line {
            denied,
            pause: Some(PAUSE_MIN),
            waiting: VecDeque::new(),
        });
        line.waiting.push_back(who);
        account.waiting += 1;
        self.waiting += 1;
    }

    fn line(&mut self, account: &str, line: &Option<KeyId>) -> Option<&mut Line> {
        self.accounts.get_mut(account)?.lines.get_mut(line)
    }
}

impl Place {
    /// Waits until this request may ask the store. After a denial, call [`Place::refused`] and then this again.
    pub async fn turn(&mut self) {
        let pause = loop {
            match self.in_front() {
                Some(pause) => break pause,
                None => self.front.notified().await,
            }
        };
        if let Some(pause) = pause {
            tokio::time::sleep(ASK_EVERY).await;
            let news = std::mem::replace(&mut self.news, Arc::clone(&self.ended).notified_owned());
            // Either way it is time to ask.
            let _ = tokio::time::timeout(pause, news).await;
        }
        // A hold that ends while the question runs counts for the next turn.
        self.news = Arc::clone(&self.ended).notified_owned();
    }

    /// The store has denied the request again. If it was denied for another limit, it moves to the end of that limit's
    /// queue.
    pub fn refused(&mut self, key: &KeyId, denied: Denied) {
        let line = line_for(key, denied);
        let mut standing = self.lines.lock();
        if line != self.line {
            self.leave(&mut standing);
            self.line = line;
            standing.push(&self.account, &self.line, denied, (self.id, Arc::clone(&self.front)));
        } else if let Some(line) = standing.line(&self.account, &self.line) {
            line.denied = denied;
            let longer = line.pause.map_or(PAUSE_MIN, |pause| pause.saturating_mul(2));
            line.pause = Some(longer.min(PAUSE_MAX));
        }
    }

    /// The request leaves the queue with an answer. The next one asks at once, since it may get the same.
    pub fn done(self) {
        if let Some(line) = self.lines.lock().line(&self.account, &self.line) {
            line.pause = None;
        }
    }

    /// The last denial that this queue's requests got.
    pub fn denied(&self) -> Option<Denied> {
        let mut standing = self.lines.lock();
        standing.line(&self.account, &self.line).map(|line| line.denied)
    }

    /// If this place is the first: the pause before it asks.
    fn in_front(&self) -> Option<Option<Duration>> {
        let mut standing = self.lines.lock();
        let line = standing.line(&self.account, &self.line)?;
        let (first, _) = line.waiting.front()?;
        (*first == self.id).then_some(line.pause)
    }

    fn leave(&self, standing: &mut Standing) {
        let Some(account) = standing.accounts.get_mut(&self.account) else {
            return;
        };
        let Some(line) = account.lines.get_mut(&self.line) else {
            return;
        };
        let was_front = line.waiting.front().is_some_and(|(id, _)| *id == self.id);
        line.waiting.retain(|(id, _)| *id != self.id);
        if was_front && let Some((_, next)) = line.waiting.front() {
            next.notify_one();
        }
        if line.waiting.is_empty() {
            account.lines.remove(&self.line);
        }
        account.waiting = account.waiting.saturating_sub(1);
        if account.waiting == 0 {
            standing.accounts.remove(&self.account);
        }
        standing.waiting = standing.waiting.saturating_sub(1);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut standing = self.lines.lock();
        self.leave(&mut standing);
    }
}
