//! Whether the log's home has the rows that this process's journals still have, each with the same charge. And what brings those there
//! that it lacks although it has said that it has them. What is yet to be brought, a feeder or a settlement brings: that is not
//! looked at.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    ops::Range,
    str::FromStr,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use smol_str::SmolStr;

use self::bringing::{Counts, Filled};
pub(crate) use self::error::OwnJournalError;
use crate::{
    domain::{
        ledger::{NodeId, consumption::Row, daily_sums},
        money::NanoUsd,
    },
    journal::{Journal, JournalError},
    sinks::{
        asks::HomeError,
        day_rows::{each_listed, each_row},
        fill::BATCH_ROWS,
        home::LogHome,
        open_home::OpenHome,
    },
    store::ledger::LedgerStore,
};

mod bringing;
mod error;

/// Rows that are compared at once: their hashes are in memory meanwhile, some 40 MB.
pub(crate) const ROWS_AT_ONCE: usize = 1_000_000;
/// Rows that are read from the disk at once.
const PIECE_ROWS: usize = 4096;
/// The most rows of a day that are named.
const NAMED_MAX: usize = 5;

/// The lanes of the journal that this process has, as long as they are open.
#[derive(Debug, Default)]
pub(crate) struct OpenLanes(Mutex<BTreeMap<NodeId, Weak<Journal>>>);

/// A place in the journals: all before it was compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalPlace {
    node: NodeId,
    number: u64,
}

/// Which rows are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The days that they ended on, counted from the Unix epoch.
    pub(crate) days: Range<i64>,
    /// `None`: those of all accounts.
    pub(crate) account: Option<String>,
}

/// What was found of an account and day, in a portion of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalDay {
    /// Rows of the journal that were looked for.
    pub(crate) rows: u64,
    /// How many of them the log lacked.
    pub(crate) missing: u64,
    /// How many have another charge there.
    pub(crate) differing: u64,
    /// How many of the missing ones were brought.
    pub(crate) brought: u64,
    /// The request ids of the first that were missing.
    pub(crate) named: Vec<String>,
}

/// What was found in a portion: by account and day, and where it goes on.
#[derive(Debug, Default)]
pub(crate) struct Portion {
    pub(crate) days: BTreeMap<(SmolStr, i64), JournalDay>,
    pub(crate) next: Option<JournalPlace>,
}

impl OpenLanes {
    /// It has this one too.
    pub(crate) fn add(&self, journal: &Arc<Journal>) {
        let mut lanes = self.0.lock();
        lanes.retain(|_, lane| lane.strong_count() > 0);
        lanes.insert(journal.node().clone(), Arc::downgrade(journal));
    }

    /// Up to which number a sink has the rows of a lane, as far as its feeder knows; 0 of a lane that is not open here.
    pub(crate) fn reached(&self, node: &NodeId, sink: &str) -> u64 {
        let lane = self.0.lock().get(node).and_then(Weak::upgrade);
        lane.map_or(0, |lane| lane.sink_reached(sink))
    }

    /// The first open lane from a place on, and where in it that is.
    fn from(&self, place: Option<&JournalPlace>) -> Option<(JournalPlace, Weak<Journal>)> {
        let lanes = self.0.lock();
        let mut open = lanes.iter().filter(|(_, lane)| lane.strong_count() > 0);
        let (node, lane) = open.find(|(node, _)| place.is_none_or(|place| **node >= place.node))?;
        let here = place.filter(|place| place.node == *node);
        let number = here.map_or(0, |place| place.number);
        let node = node.clone();
        Some((JournalPlace { node, number }, Weak::clone(lane)))
    }

    /// The first place behind a lane.
    fn behind(&self, node: &NodeId) -> Option<JournalPlace> {
        let lanes = self.0.lock();
        let next = lanes.keys().find(|other| *other > node)?.clone();
        Some(JournalPlace { node: next, number: 0 })
    }
}

impl std::fmt::Display for JournalPlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.node.as_str(), self.number)
    }
}

impl FromStr for JournalPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (node, number) = text.split_once('.').ok_or(())?;
        let (node, number) = (NodeId::parse(node).ok_or(())?, number.parse().map_err(|_| ())?);
        Ok(Self { node, number })
    }
}

impl Wanted {
    fn takes(&self, row: &Row) -> bool {
        self.has(&(row.account.clone(), daily_sums::day_of(row)))
    }

    fn has(&self, (account, day): &(SmolStr, i64)) -> bool {
        self.days.contains(day) && self.account.as_ref().is_none_or(|name| name == account)
    }
}

/// Rows of a lane, as they are read.
struct Rows<'w> {
    lane: Weak<Journal>,
    wanted: &'w Wanted,
    at: u64,
    /// The log has been given the rows before it.
    watermark: u64,
}

impl Rows<'_> {
    /// The wanted ones of the next rows; `None` at the end. The lane is held no longer than that takes.
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
            Ok::<_, JournalError>((piece, rows.at()))
        });
        let (mut piece, at) = read.await.map_err(|_| OwnJournalError::Closed)??;
        self.at = at;
        piece.retain(|row| self.wanted.takes(row));
        Ok(Some(piece))
    }
}

/// What is looked for of an account and day: the charge of each row, by the hash of its request.
type LookedFor = BTreeMap<(SmolStr, i64), HashMap<u64, NanoUsd>>;

/// What the rows are compared with.
#[derive(Clone, Copy)]
pub(crate) struct Log<'l> {
    /// Where rows go.
    pub(crate) home: &'l OpenHome,
    /// The home before. Where the store is the home, rows may be there that have not come with a settlement.
    pub(crate) former: Option<&'l dyn LogHome>,
    /// How far settlements are.
    pub(crate) ledger: &'l dyn LedgerStore,
    /// What the home lacks is brought there. Nobody else may fill it meanwhile.
    pub(crate) fills: bool,
}

impl<'l> Log<'l> {
    /// Up to which number it has been given the rows of a lane.
    async fn watermark(self, node: &NodeId, lane: &Weak<Journal>) -> Result<u64, OwnJournalError> {
        let closed = || lane.upgrade().ok_or(OwnJournalError::Closed);
        match self.home {
            OpenHome::Fed(fed) => {
                let watermark = fed.home.watermark(node).await?;
                // A home that has lost all of a lane has lost its own word, too.
                Ok(watermark.max(closed()?.sink_reached(fed.name())))
            }
            OpenHome::Store(_) => Ok(closed()?.acknowledged_before()),
        }
    }

    /// Hands the rows up to a number to a home that has lost them behind its last one of the lane, if it is to be filled.
    async fn hand_over_again(self, lane: &Weak<Journal>, upto: u64) -> Result<Counts, OwnJournalError> {
        match self.home {
            OpenHome::Fed(fed) if self.fills => bringing::hand_over_again(&*fed.home, lane, upto).await,
            OpenHome::Fed(_) | OpenHome::Store(_) => Ok(Counts::new()),
        }
    }

    /// Where what is missing is brought, if it is.
    fn filled(self) -> Option<Filled<'l>> {
        let filled = match self.home {
            OpenHome::Fed(fed) => Filled::Home(&*fed.home),
            OpenHome::Store(store) => Filled::Store(store.lists(), self.ledger),
        };
        self.fills.then_some(filled)
    }

    /// Shows each row of a day.
    async fn each_row(self, place: (&str, i64), visit: &mut (impl FnMut(&Row) + Send)) -> Result<(), HomeError> {
        match self.home {
            OpenHome::Fed(fed) => each_row(&*fed.home, place, visit).await,
            OpenHome::Store(store) => {
                each_listed(store.lists(), place, 0, &mut *visit).await?;
                match self.former {
                    Some(former) => each_row(former, place, visit).await,
                    None => Ok(()),
                }
            }
        }
    }
}

/// Compares the wanted ones of the next rows with the log, at most `at_once` ([`ROWS_AT_ONCE`]).
pub(crate) async fn compare(
    log: Log<'_>,
    lanes: &OpenLanes,
    wanted: &Wanted,
    from: Option<&JournalPlace>,
    at_once: usize,
) -> Result<Portion, OwnJournalError> {
    let Some((place, lane)) = lanes.from(from) else {
        return Ok(Portion::default());
    };
    let watermark = log.watermark(&place.node, &lane).await?;
    let brought = log.hand_over_again(&lane, watermark).await?;
    let rows = |at| Rows {
        lane: Weak::clone(&lane),
        wanted,
        at,
        watermark,
    };
    let hashes = RandomState::new();
    let (mut reading, mut looked_for, mut count) = (rows(place.number), LookedFor::new(), 0);
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
    let mut portion = found(log, &hashes, &mut looked_for).await?;
    portion.next = if ends || reading.at >= watermark {
        lanes.behind(&place.node)
    } else {
        Some(JournalPlace {
            number: reading.at,
            ..place.clone()
        })
    };
    if !looked_for.is_empty() {
        let again = Rows {
            watermark: watermark.min(reading.at),
            ..rows(place.number)
        };
        name_and_bring(log, again, (&hashes, looked_for), &mut portion).await?;
    }
    for ((account, day), rows) in brought.into_iter().filter(|(place, _)| wanted.has(place)) {
        let found = portion.days.entry((account, day)).or_default();
        found.missing += rows;
        found.brought += rows;
    }
    Ok(portion)
}

/// What the log has of what is looked for. What it lacks is left.
async fn found(log: Log<'_>, hashes: &RandomState, looked_for: &mut LookedFor) -> Result<Portion, OwnJournalError> {
    let mut portion = Portion::default();
    for ((account, day), of_day) in looked_for.iter_mut() {
        let (rows, mut differing) = (of_day.len() as u64, 0);
        let mut visit = |row: &Row| {
            let charged = of_day.remove(&hashes.hash_one(&row.request_id));
            differing += u64::from(charged.is_some_and(|charged| charged != row.cost_nano_usd));
        };
        log.each_row((account, *day), &mut visit).await?;
        let missing = of_day.len() as u64;
        let found = JournalDay {
            rows,
            missing,
            differing,
            ..JournalDay::default()
        };
        portion.days.insert((account.clone(), *day), found);
    }
    looked_for.retain(|_, of_day| !of_day.is_empty());
    Ok(portion)
}

/// Reads the rows again of which some are missing: names these, and brings them.
async fn name_and_bring(
    log: Log<'_>,
    mut again: Rows<'_>,
    (hashes, mut missing): (&RandomState, LookedFor),
    portion: &mut Portion,
) -> Result<(), OwnJournalError> {
    let filled = log.filled();
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
            let brought = filled.bring(&again.lane, std::mem::take(&mut lacking)).await?;
            for (place, rows) in brought {
                portion.days.entry(place).or_default().brought += rows;
            }
        }
        if ends {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
