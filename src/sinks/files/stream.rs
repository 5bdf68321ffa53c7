//! The rows of several files in one order: by account, time, number and lane.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeSet, BinaryHeap, VecDeque},
};

use parquet::errors::{ParquetError, Result};

use super::{
    group::Group,
    table::{Table, sort_key},
    wanted::Wanted,
};
use crate::{domain::ledger::NodeId, journal::NumberedRow};

/// Rows of all files in memory, and the least and the most of one.
const ROWS_IN_MEMORY: usize = 8192;
const READ_ROWS_MIN: usize = 16;
const READ_ROWS_MAX: usize = 1024;

/// A place in the rows of several files. It holds them open: they may be removed meanwhile.
pub(super) struct Stream {
    sources: Vec<Source>,
    lanes: Vec<NodeId>,
    heads: BinaryHeap<Reverse<Head>>,
    /// The last one that has rows: those need no order.
    alone: Option<usize>,
    /// The lane and number of the row before.
    last: Option<(usize, u64)>,
}

impl Stream {
    /// All rows, or those that are wanted. A file is not read before it is its turn.
    pub(super) fn open(tables: Vec<Table>, wanted: Option<&Wanted>) -> Result<Self> {
        let read_rows = ROWS_IN_MEMORY.checked_div(tables.len()).unwrap_or(READ_ROWS_MAX);
        let read_rows = read_rows.clamp(READ_ROWS_MIN, READ_ROWS_MAX);
        let lanes: BTreeSet<NodeId> = tables.iter().map(|table| table.node().clone()).collect();
        let sources = tables.into_iter().map(|table| {
            let lane = lanes.iter().position(|lane| lane == table.node());
            Source::new(table, lane.unwrap_or_default(), wanted, read_rows)
        });
        let sources: Vec<Source> = sources.collect();
        let bounds = sources.iter().enumerate();
        let heads = bounds.filter_map(|(index, source)| {
            let (next, lane) = (source.bound()?, source.lane);
            Some(Reverse(Head { next, lane, index }))
        });
        Ok(Self {
            heads: heads.collect(),
            sources,
            lanes: lanes.into_iter().collect(),
            alone: None,
            last: None,
        })
    }

    /// The next row; `None` at the end. One that several files have comes once.
    pub(super) fn next(&mut self) -> Result<Option<NumberedRow>> {
        while let Some(Reverse(head)) = self.heads.pop() {
            let (lane, index) = (head.lane, head.index);
            if self.heads.is_empty() {
                self.alone = Some(index);
            } else {
                let next = self.source(index)?.next()?.map(|row| Next::Row(Box::new(row)));
                self.heads.extend(next.map(|next| Reverse(Head { next, lane, index })));
            }
            if let Next::Row(row) = head.next
                && self.is_new(lane, row.number)
            {
                return Ok(Some(*row));
            }
        }
        let Some(index) = self.alone else { return Ok(None) };
        loop {
            let source = self.source(index)?;
            let lane = source.lane;
            let Some(row) = source.next()? else { return Ok(None) };
            if self.is_new(lane, row.number) {
                return Ok(Some(row));
            }
        }
    }

    /// The same with its lane.
    pub(super) fn next_of_lane(&mut self) -> Result<Option<(NodeId, NumberedRow)>> {
        let Some(row) = self.next()? else { return Ok(None) };
        let lane = self.last.and_then(|(lane, _)| self.lanes.get(lane));
        Ok(lane.map(|lane| (lane.clone(), row)))
    }

    fn source(&mut self, index: usize) -> Result<&mut Source> {
        let source = self.sources.get_mut(index);
        source.ok_or_else(|| ParquetError::General("no such file".to_owned()))
    }

    /// Whether it is not the row before. What is the same has the same place in the order, so it comes together.
    fn is_new(&mut self, lane: usize, number: u64) -> bool {
        self.last.replace((lane, number)) != Some((lane, number))
    }
}

/// What comes next of a file.
struct Head {
    next: Next,
    lane: usize,
    index: usize,
}

enum Next {
    Row(Box<NumberedRow>),
    /// Nothing has been read of it: what comes is not before this account and time.
    NotBefore(Vec<u8>, i64),
}

impl Head {
    fn order(&self) -> (&[u8], i64, u64, usize, usize) {
        match &self.next {
            Next::Row(row) => {
                let (account, time_ms, number) = sort_key(row);
                (account.as_bytes(), time_ms, number, self.lane, self.index)
            }
            Next::NotBefore(account, time_ms) => (account, *time_ms, 0, self.lane, self.index),
        }
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// The rows of a file, a few at a time.
struct Source {
    table: Table,
    /// The place of its lane among those of all files, by name.
    lane: usize,
    wanted: Option<Wanted>,
    read_rows: usize,
    /// Those that may have what is wanted, and that have not been begun.
    groups: VecDeque<usize>,
    group: Option<Group>,
    rows: std::vec::IntoIter<NumberedRow>,
}

impl Source {
    fn new(table: Table, lane: usize, wanted: Option<&Wanted>, read_rows: usize) -> Self {
        let groups = (0..table.groups()).filter(|group| wanted.is_none_or(|wanted| table.may_have(*group, wanted)));
        Self {
            groups: groups.collect(),
            table,
            lane,
            wanted: wanted.cloned(),
            read_rows,
            group: None,
            rows: Vec::new().into_iter(),
        }
    }

    /// A bound of what comes, by what the file says of its first group. `None`: nothing comes.
    fn bound(&self) -> Option<Next> {
        let (account, time_ms) = self.table.least(*self.groups.front()?);
        Some(Next::NotBefore(account, time_ms))
    }

    fn next(&mut self) -> Result<Option<NumberedRow>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Ok(Some(row));
            }
            match &mut self.group {
                Some(group) if group.left() > 0 => {
                    let rows = match &self.wanted {
                        Some(wanted) => group.read_wanted(self.read_rows, wanted)?,
                        None => group.read(self.read_rows)?,
                    };
                    self.rows = rows.into_iter();
                }
                Some(_) | None => {
                    let Some(next) = self.groups.pop_front() else {
                        self.group = None;
                        return Ok(None);
                    };
                    self.group = Some(self.table.group(next)?);
                }
            }
        }
    }
}
