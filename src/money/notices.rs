//! Tells what is about to be over: reads the notices that the ledger keeps, writes a line in the log for each, sends it to the
//! webhook, and has the ledger forget it then.
//!
//! A notice is sent at least once: what cannot be sent, or whose answer does not come, stays with the ledger and is taken again
//! after a pause, by whichever node; so does what a node had taken when it ended. It has its line in the log of each process that has
//! taken it, once, and so at least one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, future::join_all, stream};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use self::webhook::Webhook;
use crate::{
    domain::{
        keys::{key::KeyId, thresholds::Thresholds},
        ledger::notice::{Notice, NoticeOf},
        money::NanoUsd,
    },
    edges::clock,
    store::{
        KeyStore, StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LedgerStore},
    },
};

mod message;
pub(crate) mod webhook;

/// How often an account is asked at most, however fast it is charged.
const PAUSE: Duration = Duration::from_secs(1);
/// How often all accounts are asked: what a node that ended for good has left is found so.
const ROUND: Duration = Duration::from_secs(600);
/// When a round that did not come to its end begins anew.
const ROUND_AGAIN: Duration = Duration::from_secs(10);
/// Accounts that are asked at one time.
const AT_ONCE: usize = 8;
/// Accounts that are remembered for later. Others are found by the next round.
const REMEMBERED_MAX: usize = 10_000;
/// Notices that are remembered to have their line in the log. Of more, some may get another one.
const SAID_MAX: usize = 10_000;

/// The accounts that were charged and not asked since.
#[derive(Debug, Default)]
pub(crate) struct Charged {
    names: Mutex<BTreeSet<String>>,
    woken: Notify,
}

impl Charged {
    /// An account was charged: it may have something to tell.
    pub(crate) fn note(&self, account: &str) {
        let mut names = self.names.lock();
        if names.len() < REMEMBERED_MAX && !names.contains(account) {
            names.insert(account.to_owned());
            drop(names);
            self.woken.notify_one();
        }
    }
}

/// What is told, and how.
#[derive(Debug)]
pub(crate) struct NoticeSettings {
    /// The parts of a quota that are told where neither key nor account says it.
    pub quota_percent: Thresholds,
    /// Where to; `None`: to the log alone.
    pub webhook: Option<Webhook>,
    /// The pause after the first attempt that fails. Longer than an attempt may take.
    pub retry: Duration,
}

/// The task that tells.
pub(crate) struct Teller {
    ledger: Arc<dyn LedgerStore>,
    keys: Arc<dyn KeyStore>,
    charged: Arc<Charged>,
    settings: NoticeSettings,
    /// The ids of notices whose line this process has written, and which the ledger has not forgotten yet.
    said: Mutex<BTreeSet<String>>,
}

impl Teller {
    pub(crate) fn new(
        ledger: Arc<dyn LedgerStore>,
        keys: Arc<dyn KeyStore>,
        charged: Arc<Charged>,
        settings: NoticeSettings,
    ) -> Self {
        Self {
            ledger,
            keys,
            charged,
            settings,
            said: Mutex::default(),
        }
    }

    /// Runs until `stopped` turns true. What is being sent then may be sent again.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.tell_all() => {}
        }
    }

    async fn tell_all(&self) {
        let mut waiting: BTreeMap<String, Instant> = BTreeMap::new();
        let mut round = clock::instant();
        loop {
            if round <= clock::instant() {
                let rest = self.round(&mut waiting).await;
                round = clock::instant() + rest;
            }
            let now = clock::instant();
            let mut names = std::mem::take(&mut *self.charged.names.lock());
            let due = waiting
                .iter()
                .filter(|(_, due)| **due <= now)
                .map(|(name, _)| name.clone());
            names.extend(due.collect::<Vec<_>>());
            waiting.retain(|_, due| *due > now);
            self.tell(names, &mut waiting).await;
            tokio::time::sleep(PAUSE).await;
            let next = waiting.values().min().map_or(round, |due| round.min(*due));
            tokio::select! {
                () = self.charged.woken.notified() => {}
                () = tokio::time::sleep(next.saturating_duration_since(clock::instant())) => {}
            }
        }
    }

    /// Asks all accounts once. Says when to do that again.
    async fn round(&self, waiting: &mut BTreeMap<String, Instant>) -> Duration {
        let mut after: Option<String> = None;
        loop {
            let page = match self.ledger.accounts(after.as_deref(), LIST_ACCOUNTS_MAX).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%error, "the store does not tell which accounts have notices");
                    return ROUND_AGAIN;
                }
            };
            let names: BTreeSet<String> = page.into_iter().map(|account| account.id).collect();
            let Some(last) = names.last().cloned() else {
                return ROUND;
            };
            after = Some(last);
            self.tell(names, waiting).await;
        }
    }

    /// Tells what these accounts have to tell, and notes when to ask which of them again.
    async fn tell(&self, names: BTreeSet<String>, waiting: &mut BTreeMap<String, Instant>) {
        let asked = stream::iter(names).map(|name| async move {
            let rest = self.tell_of(&name).await.unwrap_or_else(|error| {
                tracing::debug!(account = name, %error, "the store does not tell its notices");
                Some(ROUND_AGAIN)
            });
            (name, rest)
        });
        let mut answers = asked.buffer_unordered(AT_ONCE);
        while let Some((name, rest)) = answers.next().await {
            if let Some(rest) = rest
                && waiting.len() < REMEMBERED_MAX
            {
                waiting.insert(name, clock::instant() + rest);
            }
        }
    }

    /// Tells what one account has to tell now; answers with how long the rest of it waits.
    async fn tell_of(&self, account: &str) -> Result<Option<Duration>, StoreError> {
        let pause_ms = i64::try_from(self.settings.retry.as_millis()).unwrap_or(i64::MAX >> 16);
        let taken = self.ledger.take_notices(account, pause_ms).await?;
        if taken.lost > 0 {
            let lost = taken.lost;
            tracing::warn!(
                account,
                lost,
                "notices found no room while earlier ones could not be sent, and are lost"
            );
        }
        let sent = taken.notices.iter().map(|notice| self.send(account, notice));
        let sent = join_all(sent).await;
        let told = taken.notices.iter().zip(sent).filter(|(_, is_told)| *is_told);
        let told: Vec<NoticeOf> = told.map(|(notice, _)| notice.of.clone()).collect();
        if !told.is_empty() {
            self.ledger.told(account, &told).await?;
            let mut said = self.said.lock();
            for of in &told {
                said.remove(&message::id(account, of));
            }
        }
        let rest = taken.next_in_ms.and_then(|rest| u64::try_from(rest).ok());
        Ok(rest.map(Duration::from_millis))
    }

    /// Whether this part of a key's quota is told: as the key says, or else its account, or else the configuration. Where that
    /// cannot be looked up it is told: once too often is better than never.
    async fn is_wanted(&self, account: &str, key: &KeyId, percent: u8) -> bool {
        let of_key = match self.keys.by_id(key).await {
            Ok(view) => view.and_then(|view| view.record.terms.notify),
            Err(_) => return true,
        };
        let chosen = match (of_key, self.ledger.account(account).await) {
            (Some(chosen), _) => Some(chosen),
            (None, Ok(view)) => view.and_then(|view| view.record.terms.notify),
            (None, Err(_)) => return true,
        };
        chosen.unwrap_or(self.settings.quota_percent).has(percent)
    }

    /// Whether this process has not written the notice's line yet.
    fn is_new(&self, id: &str) -> bool {
        let mut said = self.said.lock();
        if said.len() >= SAID_MAX {
            said.clear();
        }
        said.insert(id.to_owned())
    }

    /// Tells one; whether that was done.
    async fn send(&self, account: &str, notice: &Notice) -> bool {
        if let NoticeOf::Quota { percent, key, .. } = &notice.of
            && !self.is_wanted(account, key, *percent).await
        {
            return true;
        }
        let id = message::id(account, &notice.of);
        // How often it was taken says nothing: whoever took it may have ended before it wrote the line.
        if self.is_new(&id) {
            say(account, notice);
        }
        let Some(webhook) = &self.settings.webhook else {
            return true;
        };
        let body = message::body(account, notice);
        match webhook.post(&id, body).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(account, id, tries = notice.tries, %error, "a notice could not be sent, it is tried again");
                false
            }
        }
    }
}

/// The line in the log.
fn say(account: &str, notice: &Notice) {
    let usd = |amount: NanoUsd| amount.to_string();
    let (reached, limit) = (usd(notice.reached), usd(notice.limit));
    match &notice.of {
        NoticeOf::Quota {
            percent, period, key, ..
        } => {
            let (key, period) = (key.as_str(), period.to_string());
            tracing::warn!(
                account,
                key,
                period,
                percent,
                spent_usd = reached,
                quota_usd = limit,
                "a key has spent a part of its quota"
            );
        }
        NoticeOf::Balance { .. } => {
            tracing::warn!(
                account,
                balance_usd = reached,
                low_balance_usd = limit,
                "the balance of an account has become low"
            );
        }
    }
}

#[cfg(test)]
mod tests;
