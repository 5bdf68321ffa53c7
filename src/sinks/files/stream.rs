//! The rows of several files in one order: by account, time, number and file.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use parquet::errors::{ParquetError, Result};

use super::table::{Group, Table, sort_key};
use crate::journal::NumberedRow;

/// Rows of each file in memory.
const READ_ROWS: usize = 512;

/// Which rows are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) account: String,
    /// The first moment.
    pub(super) since_ms: i64,
    /// The first moment that is too late.
    pub(super) until_ms: i64,
}

impl Wanted {
    fn takes(&self, row: &NumberedRow) -> bool {
        row.row.account == self.account && (self.since_ms..self.until_ms).contains(&row.row.time_ms)
    }
}

/// A place in the rows of several files. It holds them open: they may be removed meanwhile.
pub(super) struct Stream {
    sources: Vec<Source>,
    heads: BinaryHeap<Reverse<Head>>,
}

impl Stream {
    /// All rows, or those that are wanted.
    pub(super) fn open(tables: Vec<Table>, wanted: Option<&Wanted>) -> Result<Self> {
        let sources = tables.into_iter().map(|table| Source {
            table,
            wanted: wanted.cloned(),
            next_group: 0,
            group: None,
            rows: Vec::new().into_iter(),
        });
        let mut stream = Self {
            sources: sources.collect(),
            heads: BinaryHeap::new(),
        };
        for index in 0..stream.sources.len() {
            stream.refill(index)?;
        }
        Ok(stream)
    }

    /// The next row; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<NumberedRow>> {
        let Some(Reverse(Head { row, index })) = self.heads.pop() else {
            return Ok(None);
        };
        self.refill(index)?;
        Ok(Some(row))
    }

    fn refill(&mut self, index: usize) -> Result<()> {
        let source = self.sources.get_mut(index);
        let source = source.ok_or_else(|| ParquetError::General("no such file".to_owned()))?;
        let next = source.next()?;
        self.heads.extend(next.map(|row| Reverse(Head { row, index })));
        Ok(())
    }
}

/// The next row of a file.
struct Head {
    row: NumberedRow,
    index: usize,
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
        (sort_key(&self.row), self.index).cmp(&(sort_key(&other.row), other.index))
    }
}

/// The rows of a file, a few at a time.
struct Source {
    table: Table,
    wanted: Option<Wanted>,
    next_group: usize,
    group: Option<Group>,
    rows: std::vec::IntoIter<NumberedRow>,
}

impl Source {
    fn next(&mut self) -> Result<Option<NumberedRow>> {
        loop {
            for row in self.rows.by_ref() {
                if self.wanted.as_ref().is_none_or(|wanted| wanted.takes(&row)) {
                    return Ok(Some(row));
                }
            }
            if let Some(group) = &mut self.group {
                self.rows = group.read(READ_ROWS)?.into_iter();
                if self.rows.len() > 0 {
                    continue;
                }
            }
            if self.next_group == self.table.groups() {
                self.group = None;
                return Ok(None);
            }
            let group = self.next_group;
            self.next_group += 1;
            let may_have = self.wanted.as_ref().is_none_or(|wanted| {
                self.table
                    .may_have(group, &wanted.account, wanted.since_ms, wanted.until_ms)
            });
            self.group = if may_have { Some(self.table.group(group)?) } else { None };
        }
    }
}
