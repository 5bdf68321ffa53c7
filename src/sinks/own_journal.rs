//! Compares the log backend with the rows that this process's journals still have: it must have each, with the same charge.
//! Restores those that the log backend lacks although it had acknowledged them. Rows that a feeder or a settlement has yet to
//! bring are not compared.

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
        LogBackend, OpenLogBackend, SinkError,
        asks::LogBackendError,
        backfill::{BATCH_ROWS, for_each_listed_row, for_each_row},
        own_journal::bringing::{FillTarget, RowsByDay},
    },
    store::{StoreError, ledger::LedgerStore},
};

/// The rows compared at once: their hashes take some 40 MB of memory.
pub(crate) const ROWS_AT_ONCE: usize = 1_000_000;
/// The rows read from the disk at once.
const PIECE_ROWS: usize = 4096;
/// The maximum number of missing rows of a day that are named.
const NAMED_MAX: usize = 5;

/// The journal's lanes that are open in this process.
#[derive(Debug, Default)]
pub(crate) struct OpenLanes(Mutex<BTreeMap<NodeId, Weak<Journal>>>);

/// A position in the journals, by lane and number: all rows before it were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanePosition {
    node: NodeId,
    number: u64,
}

/// The rows to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowSelection {
    /// The days on which they ended, since the Unix epoch.
    pub(crate) days: Range<i64>,
    /// Their account; `None` for all accounts.
    pub(crate) account: Option<String>,
}

/// The result of comparing a portion of a journal, for an account and day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalDayFindings {
    /// The rows of the journal that were compared.
    pub(crate) rows: u64,
    /// The rows that the log backend lacked.
    pub(crate) missing: u64,
    /// The rows with another charge there.
    pub(crate) differing: u64,
    /// The missing rows that were restored.
    pub(crate) brought: u64,
    /// The request ids of the first missing rows.
    pub(crate) named: Vec<String>,
}

/// The result of comparing a portion: by account and day, with the position of the next one.
#[derive(Debug, Default)]
pub(crate) struct JournalPortion {
    pub(crate) days: BTreeMap<(SmolStr, i64), JournalDayFindings>,
    pub(crate) next: Option<LanePosition>,
}

impl OpenLanes {
    /// Adds a lane.
    pub(crate) fn add(&self, journal: &Arc<Journal>) {
        let mut lanes = self.0.lock();
        lanes.retain(|_, lane| lane.strong_count() > 0);
        lanes.insert(journal.node().clone(), Arc::downgrade(journal));
    }

    /// A sink's watermark of a lane, as far as its feeder knows; 0 if the lane is not open here.
    pub(crate) fn sink_position(&self, node: &NodeId, sink: &str) -> u64 {
        let lane = self.0.lock().get(node).and_then(Weak::upgrade);
        lane.map_or(0, |lane| lane.sink_position(sink))
    }

    /// The first open lane at or after a position, with the position in it.
    fn first_from(&self, place: Option<&LanePosition>) -> Option<(LanePosition, Weak<Journal>)> {
        let lanes = self.0.lock();
        let mut open = lanes.iter().filter(|(_, lane)| lane.strong_count() > 0);
        let (node, lane) = open.find(|(node, _)| place.is_none_or(|place| **node >= place.node))?;
        let here = place.filter(|place| place.node == *node);
        let number = here.map_or(0, |place| place.number);
        let node = node.clone();
        Some((LanePosition { node, number }, Weak::clone(lane)))
    }

    /// The first position after a lane.
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

/// Reads rows of a lane.
struct LaneRowReader<'w> {
    lane: Weak<Journal>,
    wanted: &'w RowSelection,
    at: u64,
    /// The log backend has had the rows before this number.
    watermark: u64,
}

impl LaneRowReader<'_> {
    /// The wanted ones of the next rows; `None` at the end. Keeps the lane open only while it reads.
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

/// The rows to find, by account and day: the charge of each, by the hash of its request.
type ExpectedCharges = BTreeMap<(SmolStr, i64), HashMap<u64, NanoUsd>>;

/// The log that the rows are compared with.
#[derive(Clone, Copy)]
pub(crate) struct ComparedLog<'l> {
    /// The log backend.
    pub(crate) home: &'l OpenLogBackend,
    /// The former log backend. If the store is the log backend, rows from before may be there only.
    pub(crate) former: Option<&'l dyn LogBackend>,
    /// The ledger that knows the settlements.
    pub(crate) ledger: &'l dyn LedgerStore,
    /// Whether missing rows are restored. Nothing else may restore rows meanwhile.
    pub(crate) fills: bool,
}

impl<'l> ComparedLog<'l> {
    /// The number before which the log backend has had all rows of a lane.
    async fn watermark(self, node: &NodeId, lane: &Weak<Journal>) -> Result<u64, OwnJournalError> {
        let closed = || lane.upgrade().ok_or(OwnJournalError::Closed);
        match self.home {
            OpenLogBackend::Fed(fed) => {
                let watermark = fed.home.watermark(node).await?;
                // A log backend that has lost all of a lane has lost its watermark, too.
                Ok(watermark.max(closed()?.sink_position(fed.name())))
            }
            OpenLogBackend::Store(_) => Ok(closed()?.acknowledged_before()),
        }
    }

    /// Resends the lane's rows up to a number that the log backend has lost at its end, if missing rows are restored.
    async fn resend(self, lane: &Weak<Journal>, upto: u64) -> Result<RowsByDay, OwnJournalError> {
        match self.home {
            OpenLogBackend::Fed(fed) if self.fills => bringing::resend(&*fed.home, lane, upto).await,
            OpenLogBackend::Fed(_) | OpenLogBackend::Store(_) => Ok(RowsByDay::new()),
        }
    }

    /// The target of missing rows; `None` if they are not restored.
    fn fill_target(self) -> Option<FillTarget<'l>> {
        let filled = match self.home {
            OpenLogBackend::Fed(fed) => FillTarget::Home(&*fed.home),
            OpenLogBackend::Store(store) => FillTarget::Store(store.lists(), self.ledger),
        };
        self.fills.then_some(filled)
    }

    /// Visits each row of a day.
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

/// Compares the wanted ones of the next rows with the log; stops after about `at_once` rows ([`ROWS_AT_ONCE`]).
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

/// Looks for the rows in the log. Rows that it lacks remain in `looked_for`.
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

/// Reads the rows again: names the missing ones and restores them.
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

/// Why a portion could not be compared, or its missing rows not restored. Restored rows stay.
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
    /// The lane was closed: the process that succeeds this one has it.
    #[error("a lane of the journal was closed meanwhile: try again")]
    Closed,
}
