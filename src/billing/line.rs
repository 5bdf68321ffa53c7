//! Who waits because running requests hold all that is left: of a key's quota, or of an account's balance.
//!
//! Those that wait for the same stand in one line, first come, first asked for again; only who stands in front is asked for,
//! for what is refused to one is refused to all. In front it is asked for again when the store has taken over settlements of
//! the account from this node, and after a pause otherwise, because other nodes' holds end as well. Who comes anew while a
//! line stands goes behind it without a question.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, futures::OwnedNotified};

use crate::{
    billing::Billing,
    domain::{
        key::{KeyId, KeyRecord},
        ledger::Denied,
    },
};

/// A line's questions are at least so far apart.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long the one in front waits for a hold to end on this node, at first and at most; twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// How many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingMax {
    /// On this node.
    pub all: usize,
    /// Of one account.
    pub account: usize,
}

/// All lines of this node.
#[derive(Debug, Default)]
pub(super) struct Lines {
    standing: Mutex<Standing>,
}

#[derive(Debug, Default)]
struct Standing {
    /// By account. Those without anybody are not there.
    accounts: HashMap<String, OfAccount>,
    waiting: usize,
    next_id: u64,
}

#[derive(Debug, Default)]
struct OfAccount {
    /// For a key's quota, or for the account's balance (`None`).
    lines: HashMap<Option<KeyId>, Line>,
    waiting: usize,
}

#[derive(Debug)]
struct Line {
    /// What they were told who wait here.
    denied: Denied,
    /// How long the one in front waits before it is asked for; `None`: the one before it waits for nothing any more.
    pause: Option<Duration>,
    waiting: VecDeque<(u64, Arc<Notify>)>,
}

/// A place in a line. Left when dropped.
#[derive(Debug)]
pub struct Place {
    lines: Arc<Lines>,
    account: String,
    line: Option<KeyId>,
    id: u64,
    /// Told when it stands in front.
    front: Arc<Notify>,
    /// Told when holds of the account have ended on this node.
    ended: Arc<Notify>,
    news: OwnedNotified,
}

impl Billing {
    /// What a request of this key is told that comes while others wait for what is held; it is to wait behind them. `None`:
    /// nobody waits.
    pub fn waits_behind(&self, key: &KeyRecord) -> Option<Denied> {
        self.shared.lines.ahead(&key.account, &key.id)
    }

    /// A place behind all that wait for the same; `None` where as many wait as may.
    pub fn wait_behind(&self, key: &KeyRecord, denied: Denied, max: WaitingMax) -> Option<Place> {
        let ended = self.shared.journal.acknowledgements(&key.account);
        self.shared.lines.join((&key.account, &key.id), denied, ended, max)
    }

    /// How many requests wait for what running ones hold.
    pub fn waiting(&self) -> usize {
        self.shared.lines.waiting()
    }
}

impl Lines {
    /// What a request of this key is told that may not come before those who wait; `None`: nobody waits.
    pub(super) fn ahead(&self, account: &str, key: &KeyId) -> Option<Denied> {
        let standing = self.lock();
        let lines = &standing.accounts.get(account)?.lines;
        let line = lines.get(&None).or_else(|| lines.get(&Some(key.clone())))?;
        Some(line.denied)
    }

    /// The last place of the line for what was denied; `None` where as many wait as may. `ended` is told when holds of the
    /// account have ended.
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

    /// How many wait.
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
    /// Waits until it is to be asked for. Whoever was asked for in vain calls it again, after [`Place::refused`].
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
        // What ends while the question is on its way is news for the next.
        self.news = Arc::clone(&self.ended).notified_owned();
    }

    /// It was asked for in vain. Where it is something else now that is held it stands in that line from now on, at its end.
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

    /// It waits for nothing any more: what it was told, or got, may be had by the next, who is asked for at once.
    pub fn done(self) {
        if let Some(line) = self.lines.lock().line(&self.account, &self.line) {
            line.pause = None;
        }
    }

    /// What is said to those who wait here.
    pub fn denied(&self) -> Option<Denied> {
        let mut standing = self.lines.lock();
        standing.line(&self.account, &self.line).map(|line| line.denied)
    }

    /// Where it stands in front: how long it waits before it is asked for.
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
