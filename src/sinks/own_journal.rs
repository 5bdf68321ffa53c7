//! Verifies the log backend against the rows in this process's journals: the log backend must have each of these rows, with the
//! same charge. Can restore rows that the log backend had acknowledged and has lost. Rows that still have to be handed over or
//! settled are not compared.

mod bringing;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    ops::Range,
    str::FromStr,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use smol_str::SmolStr;
use thiserror::Error;

use crate::{
    domain::{
        ledger::{NodeId, consumption::Row, daily_sums},
        money::NanoUsd,
    },
    journal::{Journal, JournalError},
    sinks::{
        LogBackend, LogBackendError, OpenLogBackend, SinkError,
        backfill::{BATCH_ROWS, for_each_listed_row, for_each_row},
        own_journal::bringing::{FillTarget, RowsByDay},
    },
    store::{StoreError, ledger::LedgerStore},
};

/// The number of rows that are compared at once. Their hashes take about 40 MB of memory.
pub(crate) const ROWS_AT_ONCE: usize = 1_000_000;
/// The number of rows that are read from the disk at once.
const PIECE_ROWS: usize = 4096;
/// The maximum number of missing rows whose request ids are returned for an account and day.
const NAMED_MAX: usize = 5;

/// The journal's lanes that are open in this process.
#[derive(Debug, Default)]
pub(crate) struct OpenLanes(Mutex<BTreeMap<NodeId, Weak<Journal>>>);

/// A position in the journals of this process. The journals are ordered by lane. All rows before the position have been compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanePosition {
    node: NodeId,
    number: u64,
}

/// Selects the rows to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowSelection {
    /// The days on which the rows ended, in days since the Unix epoch (UTC).
    pub(crate) days: Range<i64>,
    /// The account of the rows; `None` for all accounts.
    pub(crate) account: Option<String>,
}

/// The result of comparing one portion of a journal, for one account and day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalDayFindings {
    /// The number of rows that were compared.
    pub(crate) rows: u64,
    /// The number of rows that the log backend lacked.
    pub(crate) missing: u64,
    /// The number of rows that have another charge in the log backend.
    pub(crate) differing: u64,
    /// The number of missing rows that were restored.
    pub(crate) brought: u64,
    /// The request ids of the first missing rows, at most [`NAMED_MAX`].
    pub(crate) named: Vec<String>,
}

/// The result of comparing one portion of the journals, by account and day, and the position of the next portion (`None` at the
/// end).
#[derive(Debug, Default)]
pub(crate) struct JournalPortion {
    pub(crate) days: BTreeMap<(SmolStr, i64), JournalDayFindings>,
    pub(crate) next: Option<LanePosition>,
}

impl OpenLanes {
    /// Adds an open lane.
    pub(crate) fn add(&self, journal: &Arc<Journal>) {
        let mut lanes = self.0.lock();
        lanes.retain(|_, lane| lane.strong_count() > 0);
        lanes.insert(journal.node().clone(), Arc::downgrade(journal));
    }

    /// Returns the watermark of the sink `sink` for the lane `node`, as its feeder has reported it. Returns 0 if this process
    /// does not have the lane open.
    pub(crate) fn sink_position(&self, node: &NodeId, sink: &str) -> u64 {
        let lane = self.0.lock().get(node).and_then(Weak::upgrade);
        lane.map_or(0, |lane| lane.sink_position(sink))
    }

    /// Returns the first open lane at or after a position, and the position at which the comparison of this lane begins. `None`
    /// if there is no such lane.
    fn first_from(&self, place: Option<&LanePosition>) -> Option<(LanePosition, Weak<Journal>)> {
        let lanes = self.0.lock();
        let mut open = lanes.iter().filter(|(_, lane)| lane.strong_count() > 0);
        let (node, lane) = open.find(|(node, _)| place.is_none_or(|place| **node >= place.node))?;
        let here = place.filter(|place| place.node == *node);
        let number = here.map_or(0, |place| place.number);
        let node = node.clone();
        Some((LanePosition { node, number }, Weak::clone(lane)))
    }

    /// Returns the first position after the lane `node`. `None` if `node` is the last lane.
    fn next_after(&self, node: &NodeId) -> Option<LanePosition> {
        let lanes = self.0.lock();
        let next = lanes.keys().find(|other| *other > node)?.clone();
        Some(LanePosition { node: next, number: 0 })
    }
}

impl std::fmt::Display for LanePosition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.node.as_str(), self.number)
    }
}

impl FromStr for LanePosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (node, number) = text.split_once('.').ok_or(())?;
        let (node, number) = (NodeId::parse(node).ok_or(())?, number.parse().map_err(|_| ())?);
        Ok(Self { node, number })
    }
}

impl RowSelection {
    fn matches(&self, row: &Row) -> bool {
        self.contains(&(row.account.clone(), daily_sums::day_of(row)))
    }

    fn contains(&self, (account, day): &(SmolStr, i64)) -> bool {
        self.days.contains(day) && self.account.as_ref().is_none_or(|name| name == account)
    }
}

/// Reads the selected rows of a lane.
struct LaneRowReader<'w> {
    lane: Weak<Journal>,
    wanted: &'w RowSelection,
    at: u64,
    /// A row number. The log backend had all rows with lower numbers at some time, and only these rows are read.
    watermark: u64,
}

impl LaneRowReader<'_> {
    /// Reads the next piece of the lane and returns its selected rows. Returns `None` at the end. The lane can be closed between
    /// calls.
    async fn next(&mut self) -> Result<Option<Vec<Row>>, OwnJournalError> {
        if self.at >= self.watermark {
            return Ok(None);
        }
        let journal = self.lane.upgrade().ok_or(OwnJournalError::Closed)?;
        let (at, watermark) = (self.at, self.watermark);
        let read = tokio::task::spawn_blocking(move || {
            let (mut rows, mut piece) = (journal.rows(at), Vec::new());
            while piece.len() < PIECE_ROWS {
                match rows.read()? {
                    Some(row) if row.number < watermark => piece.push(row.row),
                    Some(_) | None => return Ok((piece, u64::MAX)),
                }
            }
            Ok::<_, JournalError>((piece, rows.next_number()))
        });
        let (mut piece, at) = read.await.map_err(|_| OwnJournalError::Closed)??;
        self.at = at;
        piece.retain(|row| self.wanted.matches(row));
        Ok(Some(piece))
    }
}

/// The charges of the rows that the log backend must have. The outer map has an entry for each account and day. The inner map
/// contains the charge of each row, by the hash of the request id.
type ExpectedCharges = BTreeMap<(SmolStr, i64), HashMap<u64, NanoUsd>>;

/// The log that the journals' rows are compared with.
#[derive(Clone, Copy)]
pub(crate) struct ComparedLog<'l> {
    /// The log backend, which must have the rows.
    pub(crate) home: &'l OpenLogBackend,
    /// The former log backend, if there is one. It is used only if the store is the log backend. In that case, rows that were
    /// written before the log backend was changed may exist only in the former one.
    pub(crate) former: Option<&'l dyn LogBackend>,
    /// The ledger, which has the watermarks of settlement.
    pub(crate) ledger: &'l dyn LedgerStore,
    /// Whether missing rows are restored. If so, nothing else may restore rows at the same time.
    pub(crate) fills: bool,
}

impl<'l> ComparedLog<'l> {
    /// Returns the watermark of a lane: the log backend has acknowledged all rows of the lane with lower numbers.
    async fn watermark(self, node: &NodeId, lane: &Weak<Journal>) -> Result<u64, OwnJournalError> {
        let closed = || lane.upgrade().ok_or(OwnJournalError::Closed);
        match self.home {
            OpenLogBackend::Fed(fed) => {
                let watermark = fed.home.watermark(node).await?;
                // A log backend that has lost all rows of a lane has lost its watermark too, but the lane's feeder still has it.
                Ok(watermark.max(closed()?.sink_position(fed.name())))
            }
            OpenLogBackend::Store(_) => Ok(closed()?.acknowledged_before()),
        }
    }

    /// Sends the lane's rows with numbers less than `upto` again, if missing rows are to be restored and the log backend has lost
    /// the lane's watermark. Returns the number of sent rows for each account and day.
    async fn resend(self, lane: &Weak<Journal>, upto: u64) -> Result<RowsByDay, OwnJournalError> {
        match self.home {
            OpenLogBackend::Fed(fed) if self.fills => bringing::resend(&*fed.home, lane, upto).await,
            OpenLogBackend::Fed(_) | OpenLogBackend::Store(_) => Ok(RowsByDay::new()),
        }
    }

    /// Returns the target to which missing rows are restored; `None` if they are not to be restored.
    fn fill_target(self) -> Option<FillTarget<'l>> {
        let filled = match self.home {
            OpenLogBackend::Fed(fed) => FillTarget::Home(&*fed.home),
            OpenLogBackend::Store(store) => FillTarget::Store(store.lists(), self.ledger),
        };
        self.fills.then_some(filled)
    }

    /// Calls `visit` with each row of an account and day in the log.
    async fn each_row(self, place: (&str, i64), visit: &mut (impl FnMut(&Row) + Send)) -> Result<(), LogBackendError> {
        match self.home {
            OpenLogBackend::Fed(fed) => for_each_row(&*fed.home, place, visit).await,
            OpenLogBackend::Store(store) => {
                for_each_listed_row(store.lists(), place, 0, &mut *visit).await?;
                match self.former {
                    Some(former) => for_each_row(former, place, visit).await,
                    None => Ok(()),
                }
            }
        }
    }
}

/// Compares rows of one open lane with the log. Compares only the rows that `wanted` selects. Begins at the position `from`, or
/// at the first row of the first lane if `from` is `None`. Stops at the end of this lane, or earlier after about `at_once` rows.
/// Callers usually set `at_once` to [`ROWS_AT_ONCE`].
pub(crate) async fn compare(
    log: ComparedLog<'_>,
    lanes: &OpenLanes,
    wanted: &RowSelection,
    from: Option<&LanePosition>,
    at_once: usize,
) -> Result<JournalPortion, OwnJournalError> {
    let Some((place, lane)) = lanes.first_from(from) else {
        return Ok(JournalPortion::default());
    };
    let watermark = log.watermark(&place.node, &lane).await?;
    let brought = log.resend(&lane, watermark).await?;
    let rows = |at| LaneRowReader {
        lane: Weak::clone(&lane),
        wanted,
        at,
        watermark,
    };
    let hashes = RandomState::new();
    let (mut reading, mut looked_for, mut count) = (rows(place.number), ExpectedCharges::new(), 0);
    let mut ends = true;
    while let Some(piece) = reading.next().await? {
        count += piece.len();
        for row in piece {
            let of_day = looked_for
                .entry((row.account.clone(), daily_sums::day_of(&row)))
                .or_default();
            of_day.insert(hashes.hash_one(&row.request_id), row.cost_nano_usd);
        }
        if count >= at_once {
            ends = false;
            break;
        }
    }
    let mut portion = find_rows(log, &hashes, &mut looked_for).await?;
    portion.next = if ends || reading.at >= watermark {
        lanes.next_after(&place.node)
    } else {
        Some(LanePosition {
            number: reading.at,
            ..place.clone()
        })
    };
    if !looked_for.is_empty() {
        let again = LaneRowReader {
            watermark: watermark.min(reading.at),
            ..rows(place.number)
        };
        name_and_restore(log, again, (&hashes, looked_for), &mut portion).await?;
    }
    for ((account, day), rows) in brought.into_iter().filter(|(place, _)| wanted.contains(place)) {
        let found = portion.days.entry((account, day)).or_default();
        found.missing += rows;
        found.brought += rows;
    }
    Ok(portion)
}

/// Searches the log for the rows in `looked_for`. Removes from `looked_for` each row that the log has. Afterwards, `looked_for`
/// contains only the rows that the log lacks.
async fn find_rows(
    log: ComparedLog<'_>,
    hashes: &RandomState,
    looked_for: &mut ExpectedCharges,
) -> Result<JournalPortion, OwnJournalError> {
    let mut portion = JournalPortion::default();
    for ((account, day), of_day) in looked_for.iter_mut() {
        let (rows, mut differing) = (of_day.len() as u64, 0);
        let mut visit = |row: &Row| {
            let charged = of_day.remove(&hashes.hash_one(&row.request_id));
            differing += u64::from(charged.is_some_and(|charged| charged != row.cost_nano_usd));
        };
        log.each_row((account, *day), &mut visit).await?;
        let missing = of_day.len() as u64;
        let found = JournalDayFindings {
            rows,
            missing,
            differing,
            ..JournalDayFindings::default()
        };
        portion.days.insert((account.clone(), *day), found);
    }
    looked_for.retain(|_, of_day| !of_day.is_empty());
    Ok(portion)
}

/// Reads the missing rows from the lane again, adds their request ids to `portion`, and restores the rows if `log.fills` is set.
async fn name_and_restore(
    log: ComparedLog<'_>,
    mut again: LaneRowReader<'_>,
    (hashes, mut missing): (&RandomState, ExpectedCharges),
    portion: &mut JournalPortion,
) -> Result<(), OwnJournalError> {
    let filled = log.fill_target();
    let mut lacking = Vec::new();
    loop {
        let piece = again.next().await?;
        let ends = piece.is_none();
        for row in piece.into_iter().flatten() {
            let place = (row.account.clone(), daily_sums::day_of(&row));
            let of_day = missing.get_mut(&place);
            let is_missing = of_day.is_some_and(|of_day| of_day.remove(&hashes.hash_one(&row.request_id)).is_some());
            let Some(found) = portion.days.get_mut(&place).filter(|_| is_missing) else {
                continue;
            };
            if found.named.len() < NAMED_MAX {
                found.named.push(row.request_id.to_string());
            }
            if filled.is_some() {
                lacking.push(row);
            }
        }
        if let Some(filled) = filled.filter(|_| !lacking.is_empty() && (ends || lacking.len() >= BATCH_ROWS)) {
            let brought = filled.restore(&again.lane, std::mem::take(&mut lacking)).await?;
            for (place, rows) in brought {
                portion.days.entry(place).or_default().brought += rows;
            }
        }
        if ends {
            return Ok(());
        }
    }
}

/// The reason why rows could not be compared or restored. Rows that were restored before the error remain.
#[derive(Debug, Error)]
pub(crate) enum OwnJournalError {
    #[error(transparent)]
    Home(#[from] LogBackendError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The lane was closed, because a successor process has taken it over.
    #[error("cannot compare all rows: another process has taken over a lane of the journal; try again")]
    Closed,
}
