//! Takes rows out of the store that the log's home has: those of days that were over long enough ago, a day of an account at a
//! time, once both are found to have the same.
//!
//! One node does it at a time; that two do is no harm, as the store takes a day out only while it is as it was compared. Rows
//! that come later, from a node that was away, are taken out by a later round.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use thiserror::Error;
use tokio::sync::{Mutex, watch};

use crate::{
    domain::ledger::{LogDay, NodeId, consumption::RETENTION_DAYS, usage_report},
    edges::clock,
    sinks::{
        comparison::{self, ComparisonError, ROWS_AT_ONCE, Source},
        figures::SinkFigures,
        fill::{self, FillError},
        home::{FedHome, LogHome},
    },
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LedgerStore},
    },
};

const DAY_MS: i64 = 24 * 3_600_000;
/// The name of the turn at this task.
const TASK: &str = "trim";
/// How long a node has it: some rounds, so that it is mostly the same one that tells what differs.
const TURN_MS: i64 = 3 * 3_600_000;
/// How often it is looked whether a day more may leave.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often all days are looked at, for rows that came late.
const ROUND_EVERY: Duration = Duration::from_secs(3600);
/// When a round that failed is begun anew.
const ROUND_AGAIN: Duration = Duration::from_secs(60);
/// When a day is compared again that differed, unless it changes before.
const COMPARE_AGAIN: Duration = Duration::from_secs(6 * 3600);
/// The most days that are remembered to differ. Beyond it none is compared that is not remembered.
const DIFFERING_MAX: usize = 10_000;

/// Totals since the start of the process, and what stays now.
#[derive(Debug, Default)]
pub(crate) struct TrimFigures {
    rows: AtomicU64,
    differing: AtomicU64,
    failures: AtomicU64,
}

impl TrimFigures {
    /// Rows that have left the store.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Days of accounts that stay because the home does not have what their sums say, as of the last round.
    pub(crate) fn differing(&self) -> u64 {
        self.differing.load(Ordering::Relaxed)
    }

    /// Rounds that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

/// What is trimmed, and by whom.
pub(crate) struct Trimming {
    /// Where the rows have to be.
    pub(crate) home: Arc<dyn FedHome>,
    /// How far it is fed.
    pub(crate) fed: Arc<SinkFigures>,
    /// Held while the home is filled from the store.
    pub(crate) filling: Arc<Mutex<()>>,
    /// Where they leave.
    pub(crate) ledger: Arc<dyn LedgerStore>,
    /// This node.
    pub(crate) node: NodeId,
    /// For how long the store keeps the rows of a day that is over.
    pub(crate) keep: Duration,
    /// Whether the home is brought what it lacks, unasked: where nobody else's journal can have it.
    pub(crate) fills: bool,
}

/// The task that takes rows out.
pub(crate) struct Trimmer {
    of: Trimming,
    figures: Arc<TrimFigures>,
    differing: HashMap<(String, i64), Differing>,
    /// The last round: the first day that it left alone, and when another one is due.
    last: Option<(i64, Instant)>,
    failing: bool,
}

/// A day that was found to differ.
struct Differing {
    seen: LogDay,
    again: Instant,
}

/// Why a round has ended early.
#[derive(Debug, Error)]
enum TrimError {
    #[error(transparent)]
    Comparison(#[from] ComparisonError),
    #[error(transparent)]
    Fill(#[from] FillError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Trimmer {
    pub(crate) fn new(of: Trimming, figures: Arc<TrimFigures>) -> Self {
        Self {
            of,
            figures,
            differing: HashMap::new(),
            last: None,
            failing: false,
        }
    }

    /// Runs until `stopped` turns true. A day that is about to leave then does or does not.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.work() => {}
        }
    }

    async fn work(&mut self) {
        loop {
            if let Err(error) = self.turn().await {
                self.figures.failures.fetch_add(1, Ordering::Relaxed);
                let again = clock::instant() + ROUND_AGAIN;
                self.last = Some((self.last.map_or(i64::MIN, |(until, _)| until), again));
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        %error,
                        "rows that the log's home has stay in the store, because both cannot be compared; it is tried again"
                    );
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// A round, if one is due.
    async fn turn(&mut self) -> Result<(), TrimError> {
        let now = clock::instant();
        if self.failing && self.last.is_some_and(|(_, due)| due > now) {
            return Ok(());
        }
        let now_ms = self.of.ledger.now_ms().await?;
        let keep_ms = i64::try_from(self.of.keep.as_millis()).unwrap_or(i64::MAX);
        let whole_before = self.of.fed.complete_before(now_ms).min(now_ms.saturating_sub(keep_ms));
        let until = whole_before.div_euclid(DAY_MS);
        let is_due = self.last.is_none_or(|(before, due)| until > before || due <= now);
        let first = now_ms.div_euclid(DAY_MS) - i64::from(RETENTION_DAYS);
        if until <= first || !is_due {
            return Ok(());
        }
        self.round(first, until).await?;
        self.last = Some((until, now + ROUND_EVERY));
        self.failing = false;
        Ok(())
    }

    /// Looks at all days from `first` to before `until` that have rows in the store.
    async fn round(&mut self, first: i64, until: i64) -> Result<(), TrimError> {
        if !self.has_turn().await? {
            self.differing.clear();
            self.figures.differing.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let mut before = std::mem::take(&mut self.differing);
        let mut after: Option<String> = None;
        loop {
            let page = self.of.ledger.accounts(after.as_deref(), LIST_ACCOUNTS_MAX).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            for account in page {
                for seen in self.of.ledger.log_days(&account.id, first..=until - 1).await? {
                    let place = (account.id.clone(), seen.day);
                    match before.remove(&place) {
                        _ if seen.rows == 0 => {}
                        Some(known) if known.seen == seen && known.again > clock::instant() => {
                            self.differing.insert(place, known);
                        }
                        None if self.differing.len() >= DIFFERING_MAX => {}
                        Some(_) | None => {
                            if !self.trim(place, seen).await? {
                                return Ok(());
                            }
                        }
                    }
                }
            }
        }
        self.tell();
        Ok(())
    }

    async fn has_turn(&self) -> Result<bool, StoreError> {
        self.of.ledger.take_turn(TASK, &self.of.node, TURN_MS).await
    }

    /// Takes a day out, if the home has it. `false`: another node has the turn now.
    async fn trim(&mut self, place: (String, i64), seen: LogDay) -> Result<bool, TrimError> {
        if !self.has_turn().await? {
            return Ok(false);
        }
        let account = place.0.as_str();
        if !self.is_there(account, &seen).await? && !self.filled(account, &seen).await? {
            let again = clock::instant() + COMPARE_AGAIN;
            self.differing.insert(place, Differing { seen, again });
            return Ok(true);
        }
        // Otherwise rows have come meanwhile: the next round has them.
        if self.of.ledger.trim(account, &seen).await? {
            self.figures.rows.fetch_add(seen.rows, Ordering::Relaxed);
            tracing::debug!(
                account,
                day = seen.day,
                rows = seen.rows,
                "the log's home has these rows, the store no longer"
            );
        }
        Ok(true)
    }

    async fn is_there(&self, account: &str, seen: &LogDay) -> Result<bool, ComparisonError> {
        comparison::is_there(&*self.of.home, &*self.of.ledger, account, seen, ROWS_AT_ONCE).await
    }

    /// Brings the home what it lacks, where that is done unasked; whether it has all then.
    async fn filled(&self, account: &str, seen: &LogDay) -> Result<bool, TrimError> {
        if !self.of.fills {
            return Ok(false);
        }
        let _turn = self.of.filling.lock().await;
        let end_ms = seen.day.saturating_add(1).saturating_mul(DAY_MS);
        let now_ms = self.of.ledger.now_ms().await?;
        if self.of.fed.complete_before(now_ms) < end_ms {
            return Ok(false);
        }
        let rows = fill::fill(
            &*self.of.home,
            Source::Store(&*self.of.ledger),
            (account, seen.day),
            end_ms,
        )
        .await?;
        if rows > 0 {
            tracing::info!(
                account,
                day = seen.day,
                rows,
                "rows that only the store had were brought to the log's home"
            );
        }
        Ok(self.is_there(account, seen).await?)
    }

    /// Says it when days begin to stay.
    fn tell(&self) {
        let differing = self.differing.len() as u64;
        let before = self.figures.differing.swap(differing, Ordering::Relaxed);
        if before == 0
            && let Some((account, day)) = self.differing.keys().next()
        {
            let date = usage_report::date(*day);
            tracing::warn!(
                days = differing,
                home = LogHome::name(&*self.of.home),
                "the store keeps rows longer because the log's home does not have what their daily sums say, for one of account \
                 `{account}` on {date}: `weir log verify --from {date} --until DATE` names what differs, `--fill` brings the home \
                 what it lacks"
            );
        }
    }
}

#[cfg(test)]
mod tests;
