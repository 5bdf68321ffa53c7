//! Passes rows of the consumption log to sinks, and reads the log.
//!
//! A row is stored in one place, the log backend. Either the store is the log backend and gets each row with its settlement, or a
//! sink is the log backend and gets its rows from the journal. A request never writes rows to a sink itself. For each sink and
//! each lane of the journal, a [`Feeder`] reads rows in the order of their numbers and hands them over in batches. A sink stores
//! its watermark in the same transaction as the rows, so it has each row exactly once even after a crash. The journal retains the
//! rows that a sink lacks. Settlement does not wait for sinks.
//!
//! A reader gets the rows in the log backend together with the rows that the log backend has not acknowledged yet ([`reading`]).
//! [`proof`] compares the rows with the daily sums. [`LogPageQuery`] and [`NewestRowsQuery`] are the queries that a log backend
//! answers.

pub(crate) mod backfill;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod counters;
pub(crate) mod events;
mod feeder;
pub(crate) mod files;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod own_journal;
pub(crate) mod postgres;
pub(crate) mod proof;
pub(crate) mod reading;
pub(crate) mod store_log;
mod tail;

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use smol_str::SmolStr;
use thiserror::Error;

use crate::{
    domain::{
        faults::stability::Hour,
        keys::KeyId,
        ledger::{
            NodeId,
            consumption::Row,
            log_query::{LogFilter, LogPosition},
        },
    },
    edges::clock,
    journal::NumberedRow,
    sinks::{reading::LogReader, store_log::StoreLog, tail::LogTails},
    store::StoreError,
};

pub(crate) use crate::sinks::feeder::Feeder;

/// Consecutive rows of one lane of the journal, handed to a sink together. A row is identified by the name of its lane
/// together with its number in that lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The name of the lane that the rows come from.
    pub node: NodeId,
    /// The sink's watermark before the batch: the sink has all rows of the lane with lower numbers, and no others.
    pub after: u64,
    /// The sink's watermark after the batch. It is greater than `after`.
    pub upto: u64,
    /// The rows whose numbers are at least `after` and less than `upto`, in the order of their numbers. There is at least one.
    /// The numbers may have gaps. Rows that were lost because of damage or a full disk are missing.
    pub rows: Vec<Arc<NumberedRow>>,
}

/// The reason why a sink did not append a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SinkError {
    /// The batch does not begin at the sink's watermark. The sink has not changed.
    #[error(
        "cannot append the batch: it must begin with row {watermark} of the lane, which is the first row that the sink does not have"
    )]
    OutOfOrder {
        /// The sink's current watermark for the lane.
        watermark: u64,
    },
    /// The sink cannot be reached, or has refused the batch. It is not known whether the sink has stored the batch. The message
    /// contains the reason, and says what an operator can do, if anything. It contains no secret.
    #[error("{0}")]
    Unavailable(String),
}

/// A consumer of rows: a log backend that the journal feeds, or the billing events.
///
/// Dropping the future of a call leaves the sink consistent: it has the complete batch and the new watermark, or neither. Lanes
/// are independent: they can be fed concurrently, also by several processes. Only one task at a time feeds a lane.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Returns the sink's name in metrics, messages and settings ([`crate::config::JournalSink::name`]).
    fn name(&self) -> &'static str;

    /// Returns the maximum size and age of the batches that this sink gets.
    fn batching(&self) -> BatchLimits;

    /// Returns the sink's watermark for the lane of `node`: the sink has all rows of the lane with lower numbers. It is 0 if the
    /// sink has no row of the lane. The watermark is durable: it decreases only if the sink loses rows.
    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError>;

    /// Appends the rows of a batch and sets the lane's watermark to [`Batch::upto`], in one atomic and durable change.
    ///
    /// If the watermark is at least [`Batch::upto`], the sink has the batch already, and nothing changes. If the watermark is
    /// lower than [`Batch::upto`] and differs from [`Batch::after`], the result is [`SinkError::OutOfOrder`].
    async fn append(&self, batch: &Batch) -> Result<(), SinkError>;
}

/// The read access to a log backend.
#[async_trait]
pub trait LogBackend: Send + Sync {
    /// Returns the log backend's name, which is its value in the setting `[log] home`. Messages and answers use the same
    /// name.
    fn name(&self) -> &'static str;

    /// Reads one page of the rows whose requests ended on the query's day. The page has rows of all lanes.
    async fn page(&self, ask: &LogPageQuery) -> Result<RowPage, LogBackendError>;

    /// Reads the most recent rows of a key. Reads only rows whose requests ended on one of `days`. Returns at most `limit` rows,
    /// and at most [`PAGE_ROWS_MAX`].
    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<LatestKeyRows, LogBackendError>;

    /// Reads the most recent rows that match a filter. The default implementation divides the time into slices, and reads the
    /// pages of one slice after another.
    async fn newest(&self, ask: &NewestRowsQuery) -> Result<NewestRows, LogBackendError> {
        reading::newest(ask, |page| Box::pin(async move { self.page(&page).await })).await
    }

    /// Returns the watermark of each lane from which the log backend has rows. `None` means that the log backend has each row
    /// as soon as it is settled, and so needs no watermarks.
    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError>;
}

/// A log backend that gets its rows from the journal.
pub(crate) trait FedLogBackend: LogBackend + Sink {}

impl<H: LogBackend + Sink> FedLogBackend for H {}

/// The open log backend that the setting `[log] home` names.
#[derive(Clone)]
pub(crate) enum OpenLogBackend {
    /// A sink that gets its rows from the journal.
    Fed(FedLog),
    /// The store, which gets each row with its settlement.
    Store(Arc<StoreLog>),
}

/// A log backend that gets its rows from the journal, with the statistics and the tails of its feeders.
#[derive(Clone)]
pub(crate) struct FedLog {
    /// The log backend itself.
    pub(crate) home: Arc<dyn FedLogBackend>,
    /// The statistics of the log backend's feeders.
    pub(crate) stats: Arc<SinkStats>,
    /// The rows that were read from the journal and that the log backend has not acknowledged.
    pub(crate) tails: LogTails,
}

/// The log backend that the setting `[log] former_home` names. It is read in addition to the current one.
#[derive(Clone)]
pub(crate) enum FormerLogBackend {
    /// A Redis store with lists of rows.
    Store(Arc<StoreLog>),
    /// Any log backend except the store.
    Elsewhere(Arc<dyn LogBackend>),
}

impl FedLog {
    /// Wraps a log backend that has no feeders yet.
    pub(crate) fn new(home: Arc<dyn FedLogBackend>) -> Self {
        Self {
            home,
            stats: Arc::default(),
            tails: LogTails::default(),
        }
    }

    /// Returns the log backend's name in the setting `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        LogBackend::name(&*self.home)
    }
}

impl OpenLogBackend {
    /// Returns the log backend's name in the setting `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fed(fed) => fed.name(),
            Self::Store(store) => store.name(),
        }
    }

    /// Creates a reader of this log backend and, if there is one, of the former log backend.
    pub(crate) fn reading(&self, former: Option<&FormerLogBackend>) -> LogReader {
        let former = former.map(|former| match former {
            FormerLogBackend::Store(store) => Arc::clone(store) as Arc<dyn LogBackend>,
            FormerLogBackend::Elsewhere(home) => Arc::clone(home),
        });
        match self {
            Self::Fed(fed) => LogReader::new(Arc::clone(&fed.home) as _, former).with_tails(fed.tails.clone()),
            Self::Store(store) => LogReader::new(Arc::clone(store) as _, former),
        }
    }
}

impl FormerLogBackend {
    /// Returns the log backend for reading.
    pub(crate) fn as_backend(&self) -> &dyn LogBackend {
        match self {
            Self::Store(store) => &**store,
            Self::Elsewhere(home) => &**home,
        }
    }
}

/// The maximum number of rows on one page. All rows of a page are in memory together.
pub const PAGE_ROWS_MAX: usize = 4096;

/// The reason why a log backend returned no rows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogBackendError {
    /// The log backend cannot be read. The message says why, and what to do.
    #[error("the log backend cannot be read: {0}")]
    Unavailable(String),
    /// The store is the log backend, and a call of the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The most recent rows of all accounts cannot be read, because too many accounts have rows in the time range. Contains the
    /// maximum number of accounts.
    #[error(
        "cannot read the newest rows: more than {0} accounts have rows in this time range; name an account, or read the oldest rows first"
    )]
    TooManyAccounts(usize),
}

/// A query for one page of the rows whose requests ended on one day. The rows are in the order of [`LogPosition`].
#[derive(Clone, Debug)]
pub struct LogPageQuery {
    /// A filter. Every returned row matches it.
    pub filter: LogFilter,
    /// The day on which the requests of the rows ended, in days since the Unix epoch (UTC).
    pub day: i64,
    /// The page begins with the first row after this position.
    pub after: LogPosition,
    /// The maximum number of rows, at most [`PAGE_ROWS_MAX`]. If several rows have the same position as the last row, the page
    /// has all of them, even beyond `limit`.
    pub limit: usize,
    /// The time at which the reader began to read the log. The reader reads its first page after this time. Rows that are added
    /// after this time may be missing.
    pub began: Instant,
    /// The time at which a log backend stops scanning rows. It scans some rows even if this time has passed. `None` means no
    /// deadline.
    pub until: Option<Instant>,
}

/// One page of the rows of a day.
#[derive(Clone, Debug, Default)]
pub struct RowPage {
    /// The rows, in the order of [`LogPosition`]. If a row is stored twice, both copies are on the same page.
    pub rows: Vec<Row>,
    /// The lane and the number of each row of `rows`. Empty if the store is the log backend, because its rows have no numbers.
    pub numbers: Vec<(NodeId, u64)>,
    /// The position up to which all rows are on this page or an earlier one. `None` if the day has no further rows.
    pub next: Option<LogPosition>,
    /// The number of rows that were scanned for this page and that belong to the account of `next`. The query for the next page
    /// need not scan these rows again.
    pub looked_at: usize,
}

/// A query for the most recent rows.
#[derive(Clone, Debug)]
pub struct NewestRowsQuery {
    /// A filter. Every returned row matches it.
    pub filter: LogFilter,
    /// The position at which the previous page ended; only older rows are read. `None` for the first page.
    pub from: Option<NewestCursor>,
    /// The maximum number of returned rows.
    pub limit: usize,
    /// The time at which scanning stops. Some rows are scanned even if this time has passed.
    pub until: Instant,
}

/// One page of the most recent rows.
#[derive(Clone, Debug, Default)]
pub struct NewestRows {
    /// The rows, ordered from the most recent to the oldest.
    pub rows: Vec<Row>,
    /// The position at which the next page of older rows begins. `None` if there are no older rows.
    pub next: Option<NewestCursor>,
    /// The number of rows that were scanned for this page.
    pub looked_at: usize,
}

/// A position in the log for reading from new to old: all newer rows have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewestCursor {
    /// A position in the store's lists of rows.
    InLists(ListsCursor),
    /// A position in rows that are ordered by the end of their requests.
    InSlices(SliceCursor),
}

/// A position in the store's lists of rows of one day. There is one list for each account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListsCursor {
    /// The day of the lists, in days since the Unix epoch (UTC).
    pub day: i64,
    /// The number of unread rows in the day's list of each account. An account has no entry if none of its rows of this day has
    /// been read.
    pub left: BTreeMap<String, usize>,
}

/// A position in rows that are ordered by the end of their requests. The row at the position and all newer rows have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceCursor {
    /// The time at which the request of the row at the position ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The account of the row at the position. Empty if all rows whose requests ended at `time_ms` have been read.
    pub account: SmolStr,
    /// The id of the request of the row at the position.
    pub request_id: SmolStr,
    /// The length of the time slice to be read next, in milliseconds.
    pub length_ms: i64,
}

/// The most recent rows of one key.
#[derive(Clone, Debug, Default)]
pub struct LatestKeyRows {
    /// The rows, ordered from the most recent to the oldest.
    pub rows: Vec<Row>,
    /// Whether `rows` has all rows of the requested days, or as many as the requested limit.
    pub is_complete: bool,
}

impl LogPageQuery {
    /// Creates a query for the first page of a day's rows.
    pub fn new(filter: LogFilter, day: i64, limit: usize) -> Self {
        Self {
            filter,
            day,
            after: LogPosition::default(),
            limit,
            began: clock::instant(),
            until: None,
        }
    }

    /// Creates a query for the first page of an account's rows whose requests ended on a day.
    pub fn for_day(account: &str, day: i64, limit: usize) -> Self {
        Self::new(LogFilter::of_day(account, day), day, limit)
    }
}

impl RowPage {
    /// Creates a page from rows that were read until there were `limit` rows or the day ended. A page with fewer than `limit`
    /// rows is the last one.
    fn from_rows(numbered: Vec<(NodeId, NumberedRow)>, limit: usize) -> Self {
        let split = numbered
            .into_iter()
            .map(|(lane, NumberedRow { number, row })| (row, (lane, number)));
        let (rows, numbers): (Vec<Row>, _) = split.unzip();
        let last = rows.last().filter(|_| rows.len() >= limit);
        Self {
            next: last.map(LogPosition::of),
            rows,
            numbers,
            looked_at: 0,
        }
    }
}

impl SliceCursor {
    /// The length of the first time slice that is read, in milliseconds.
    const LENGTH_MS: i64 = 3_600_000;

    /// Creates a position at which all rows whose requests ended at `time_ms` or later have been read.
    fn at_time(time_ms: i64) -> Self {
        Self {
            time_ms,
            account: SmolStr::default(),
            request_id: SmolStr::default(),
            length_ms: Self::LENGTH_MS,
        }
    }

    /// Creates the position of `row`. This row and all newer rows have been read. `length_ms` is the length of the next time
    /// slice.
    fn at_row(row: &Row, length_ms: i64) -> Self {
        Self {
            time_ms: row.time_ms,
            account: row.account.clone(),
            request_id: row.request_id.clone(),
            length_ms,
        }
    }

    /// Returns the sort key of the row at this position. Unread rows have a smaller [`time_key`].
    fn sort_key(&self) -> (i64, &str, &str) {
        (self.time_ms, &self.account, &self.request_id)
    }
}

/// Returns the key by which rows are sorted. It consists of the end of the request, the account and the request id.
fn time_key(row: &Row) -> (i64, &str, &str) {
    (row.time_ms, &row.account, &row.request_id)
}

/// Returns whether the deadline `until` has passed. `None` means no deadline.
fn has_passed(until: Option<Instant>) -> bool {
    until.is_some_and(|until| clock::instant() >= until)
}

/// The maximum number of rows in a batch, and how long a batch waits for more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The maximum number of rows in a batch; at least 1. All rows of a batch are in memory together.
    pub rows_max: usize,
    /// The condition under which a batch with fewer than `rows_max` rows is handed over.
    pub linger: Linger,
}

/// The condition under which a batch is handed over although it has room for more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// The batch is handed over when this time has passed since its first row was read.
    For(Duration),
    /// The batch belongs to the hour in which the request of its first row ended. It has no rows of later hours. It is handed
    /// over shortly after the end of this hour, according to this machine's clock. It is handed over earlier if the given
    /// duration has passed since its first row was read.
    HourOr(Duration),
}

/// The time for which a batch waits for late rows after the end of its hour, in milliseconds. Rows that are read later are in the
/// next batch.
const HOUR_SLACK_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

impl BatchLimits {
    /// Returns whether a row can be in a batch. The row's request ended at `row_ms`, and the request of the batch's first row
    /// ended at `first_ms`. Both are in milliseconds since the Unix epoch.
    fn fits(&self, first_ms: i64, row_ms: i64) -> bool {
        match self.linger {
            Linger::For(_) => true,
            // A row of the previous hour that comes a little late fits too. A row that is further away does not, even if a clock
            // was wrong.
            Linger::HourOr(_) => {
                let (first, row) = (
                    Hour::from_unix_ms(first_ms).number(),
                    Hour::from_unix_ms(row_ms).number(),
                );
                (first - 1..=first).contains(&row)
            }
        }
    }

    /// Returns how long a batch may still wait for rows. The request of its first row ended at `first_ms`, `since` is the time
    /// that has passed since this row was read, and `now_ms` is the current time.
    fn remaining_wait(&self, first_ms: i64, since: Duration, now_ms: i64) -> Duration {
        match self.linger {
            Linger::For(longest) => longest.saturating_sub(since),
            Linger::HourOr(longest) => {
                let complete = Hour::from_unix_ms(first_ms)
                    .number()
                    .saturating_add(1)
                    .saturating_mul(HOUR_MS)
                    + HOUR_SLACK_MS;
                let left = u64::try_from(complete.saturating_sub(now_ms)).unwrap_or(0);
                Duration::from_millis(left).min(longest.saturating_sub(since))
            }
        }
    }
}

/// The maximum disorder of rows, in milliseconds. Rows are read in the order in which they were recorded. The request of a row
/// ended at most this much earlier than the request of any row before it.
const DISORDER_MS: i64 = 3_600_000;

/// The statistics of a sink's feeders: totals since the start of the process, and which rows of each lane the sink lacks now.
#[derive(Debug, Default)]
pub(crate) struct SinkStats {
    rows: AtomicU64,
    failures: AtomicU64,
    lacking: Mutex<BTreeMap<NodeId, SinkLag>>,
}

/// The rows of a lane that a sink lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkLag {
    Nothing,
    /// The sink lacks a row and all later ones. That row's request ended at this time, in milliseconds since the Unix epoch.
    Since(i64),
    /// Not known, because the sink has not reported its watermark. Contains the time at which the request of the journal's oldest
    /// row ended, in milliseconds since the Unix epoch; `None` if the journal has no row or has not been read.
    Unknown(Option<i64>),
}

impl SinkLag {
    /// Selects the oldest row that the sink may lack, and returns the time at which this row's request ended. Returns `None` if
    /// the sink lacks no row, or if it is not known which rows the journal has.
    fn oldest(self) -> Option<i64> {
        match self {
            Self::Nothing => None,
            Self::Since(ms) => Some(ms),
            Self::Unknown(oldest) => oldest,
        }
    }
}

impl SinkStats {
    fn record_rows(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    fn record_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the sink lacks a certain row of a lane and all later rows. That row's request ended at `from_ms`. `None`
    /// means that the sink lacks no row.
    fn set_lag(&self, node: &NodeId, from_ms: Option<i64>) {
        let lacking = from_ms.map_or(SinkLag::Nothing, SinkLag::Since);
        self.lacking.lock().insert(node.clone(), lacking);
    }

    /// Records that it is not known which rows of a lane the sink lacks. The request of the lane's oldest row ended at
    /// `oldest_ms`; `None` if the lane's oldest row is not known.
    fn set_lag_unknown(&self, node: &NodeId, oldest_ms: Option<i64>) {
        self.lacking.lock().insert(node.clone(), SinkLag::Unknown(oldest_ms));
    }

    /// Returns whether it is known which rows of a lane the sink lacks.
    fn is_lag_known(&self, node: &NodeId) -> bool {
        let lacking = self.lacking.lock().get(node).copied();
        lacking.is_some_and(|lacking| !matches!(lacking, SinkLag::Unknown(_)))
    }

    /// Removes a lane that this process no longer feeds.
    fn remove_lane(&self, node: &NodeId) {
        self.lacking.lock().remove(node);
    }

    /// Returns the number of rows that the sink has acknowledged since the start of the process.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Returns how many calls of the sink have failed since the start of the process.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the age of the oldest row that the sink lacks, in milliseconds. Only rows of this process's lanes are considered.
    /// Returns 0 if the sink lacks none of them. If it is not known which rows of a lane the sink lacks, the sink is assumed to
    /// lack all rows of that lane.
    pub(crate) fn behind_ms(&self, now_ms: i64) -> u64 {
        let lacking = self.lacking.lock();
        let oldest = lacking.values().filter_map(|lacking| lacking.oldest()).min();
        oldest.map_or(0, |oldest| u64::try_from(now_ms.saturating_sub(oldest)).unwrap_or(0))
    }

    /// Returns a time in milliseconds since the Unix epoch. The sink has each row of this process's lanes whose request ended
    /// before the returned time. Returns [`i64::MIN`] if it is not known which rows the sink lacks.
    pub(crate) fn complete_before(&self, now_ms: i64) -> i64 {
        let lacking = self.lacking.lock();
        let oldest = lacking.values().filter_map(|lacking| match lacking {
            SinkLag::Unknown(_) => Some(i64::MIN),
            SinkLag::Nothing | SinkLag::Since(_) => lacking.oldest(),
        });
        oldest.min().unwrap_or(now_ms).min(now_ms).saturating_sub(DISORDER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::contract::node;

    const HOURLY: BatchLimits = BatchLimits {
        rows_max: 10,
        linger: Linger::HourOr(Duration::from_secs(3660)),
    };

    #[test]
    fn an_hour_ends_with_the_first_row_of_another_one_but_for_those_that_are_late() {
        for (row_ms, taken) in [
            (0, true),
            (HOUR_MS - 1, true),
            (HOUR_MS, false),
            (-1, true),
            (-HOUR_MS - 1, false),
        ] {
            assert_eq!(HOURLY.fits(0, row_ms), taken, "{row_ms}");
        }
    }

    #[test]
    fn a_batch_waits_for_the_end_of_its_hour_and_never_longer_than_one_takes() {
        let left = |since, now_ms| HOURLY.remaining_wait(0, Duration::from_secs(since), now_ms).as_secs();
        assert_eq!(left(0, 0), 3660);
        assert_eq!(left(60, 60_000), 3600);
        assert_eq!(left(3660, 0), 0, "the clock stands still");
        assert_eq!(left(0, -86_400_000), 3660, "the clock is a day behind");
        assert_eq!(left(1, HOUR_MS + HOUR_SLACK_MS), 0);
        let soon = BatchLimits {
            linger: Linger::For(Duration::from_secs(2)),
            ..HOURLY
        };
        assert_eq!(
            soon.remaining_wait(0, Duration::from_secs(1), 0),
            Duration::from_secs(1)
        );
        assert_eq!(soon.remaining_wait(0, Duration::from_secs(3), 0), Duration::ZERO);
    }

    #[test]
    fn the_lane_that_is_furthest_behind_decides_what_is_complete() {
        let figures = SinkStats::default();
        let now = 100 * DISORDER_MS;
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - DISORDER_MS, 0)
        );
        figures.set_lag(&node(1), Some(now - 5));
        figures.set_lag(&node(2), Some(now - 50));
        figures.set_lag(&node(3), None);
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - 50 - DISORDER_MS, 50)
        );
        figures.remove_lane(&node(2));
        assert_eq!(figures.behind_ms(now), 5);
        figures.set_lag(&node(1), Some(now + 50));
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - DISORDER_MS, 0)
        );
    }

    #[test]
    fn a_lane_of_which_nothing_is_known_is_as_far_behind_as_its_oldest_row() {
        let figures = SinkStats::default();
        let now = 100 * DISORDER_MS;
        figures.set_lag_unknown(&node(1), None);
        assert_eq!((figures.complete_before(now), figures.behind_ms(now)), (i64::MIN, 0));
        figures.set_lag_unknown(&node(1), Some(now - 500));
        figures.set_lag(&node(2), Some(now - 5));
        assert_eq!((figures.complete_before(now), figures.behind_ms(now)), (i64::MIN, 500));
        assert_eq!(
            (figures.is_lag_known(&node(1)), figures.is_lag_known(&node(2))),
            (false, true)
        );
        figures.set_lag(&node(1), None);
        assert_eq!(figures.behind_ms(now), 5);
    }
}
