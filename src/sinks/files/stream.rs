//! Merges the rows of several log files in the order of account, time, number and lane. Also exports rows as a Parquet file.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeSet, BinaryHeap, VecDeque},
    io,
};

use parquet::errors::{ParquetError, Result};

use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
    sinks::files::{
        group::{RowFilter, RowGroup},
        schema::GROUP_ROWS,
        table::{TableReader, TableWriter, sort_key},
    },
};

/// The number of rows that are in memory for all files together. The other two constants are the minimum and maximum number of
/// rows that are read from one file at once.
const ROWS_IN_MEMORY: usize = 8192;
const READ_ROWS_MIN: usize = 16;
const READ_ROWS_MAX: usize = 1024;

/// Merges the rows of several log files. The files stay open, because they may be removed meanwhile.
pub(super) struct RowStream {
    sources: Vec<RowSource>,
    lanes: Vec<NodeId>,
    heads: BinaryHeap<Reverse<StreamHead>>,
    /// The index of the only file that still has rows, if there is only one. Its rows need no merging.
    alone: Option<usize>,
    /// The lane's index in `lanes` and the number of the row that was returned most recently.
    last: Option<(usize, u64)>,
}

impl RowStream {
    /// Merges those rows of `tables` that match `wanted`. If `wanted` is `None`, merges all rows. A file is first read when one
    /// of its rows may come next.
    pub(super) fn open(tables: Vec<TableReader>, wanted: Option<&RowFilter>) -> Result<Self> {
        let read_rows = ROWS_IN_MEMORY.checked_div(tables.len()).unwrap_or(READ_ROWS_MAX);
        let read_rows = read_rows.clamp(READ_ROWS_MIN, READ_ROWS_MAX);
        let lanes: BTreeSet<NodeId> = tables.iter().map(|table| table.node().clone()).collect();
        let sources = tables.into_iter().map(|table| {
            let lane = lanes.iter().position(|lane| lane == table.node());
            RowSource::new(table, lane.unwrap_or_default(), wanted, read_rows)
        });
        let sources: Vec<RowSource> = sources.collect();
        let bounds = sources.iter().enumerate();
        let heads = bounds.filter_map(|(index, source)| {
            let (next, lane) = (source.lower_bound()?, source.lane);
            Some(Reverse(StreamHead { next, lane, index }))
        });
        Ok(Self {
            heads: heads.collect(),
            sources,
            lanes: lanes.into_iter().collect(),
            alone: None,
            last: None,
        })
    }

    /// Returns the next row; `None` at the end. A row that is in several files is returned once.
    pub(super) fn next(&mut self) -> Result<Option<NumberedRow>> {
        while let Some(Reverse(head)) = self.heads.pop() {
            let (lane, index) = (head.lane, head.index);
            if self.heads.is_empty() {
                self.alone = Some(index);
            } else {
                let next = self.source(index)?.next()?.map(|row| NextRow::Row(Box::new(row)));
                self.heads
                    .extend(next.map(|next| Reverse(StreamHead { next, lane, index })));
            }
            if let NextRow::Row(row) = head.next
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

    /// Returns the next row with the name of its lane; `None` at the end.
    pub(super) fn next_with_lane(&mut self) -> Result<Option<(NodeId, NumberedRow)>> {
        let Some(row) = self.next()? else { return Ok(None) };
        let lane = self.last.and_then(|(lane, _)| self.lanes.get(lane));
        Ok(lane.map(|lane| (lane.clone(), row)))
    }

    fn source(&mut self, index: usize) -> Result<&mut RowSource> {
        let source = self.sources.get_mut(index);
        source.ok_or_else(|| {
            ParquetError::General("cannot merge log files: a file's index is out of range, which is a bug".to_owned())
        })
    }

    /// Returns whether a row differs from the row of the previous call, and records the row for the next call. Duplicates are
    /// adjacent in the order of the merge.
    fn is_new(&mut self, lane: usize, number: u64) -> bool {
        self.last.replace((lane, number)) != Some((lane, number))
    }
}

/// The next row of one file, for ordering the files.
struct StreamHead {
    next: NextRow,
    lane: usize,
    index: usize,
}

enum NextRow {
    Row(Box<NumberedRow>),
    /// The file has not been read yet. The account and time of its first row are not less than these.
    NotBefore(Vec<u8>, i64),
}

impl StreamHead {
    fn order(&self) -> (&[u8], i64, u64, usize, usize) {
        match &self.next {
            NextRow::Row(row) => {
                let (account, time_ms, number) = sort_key(row);
                (account.as_bytes(), time_ms, number, self.lane, self.index)
            }
            NextRow::NotBefore(account, time_ms) => (account, *time_ms, 0, self.lane, self.index),
        }
    }
}

impl PartialEq for StreamHead {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for StreamHead {}

impl PartialOrd for StreamHead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StreamHead {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Reads the rows of one file, a few at a time.
struct RowSource {
    table: TableReader,
    /// The index of the file's lane in the list of the lanes of all files. The list is ordered by name.
    lane: usize,
    wanted: Option<RowFilter>,
    read_rows: usize,
    /// The indexes of the row groups that may have wanted rows and that have not been read yet.
    groups: VecDeque<usize>,
    group: Option<RowGroup>,
    rows: std::vec::IntoIter<NumberedRow>,
}

impl RowSource {
    fn new(table: TableReader, lane: usize, wanted: Option<&RowFilter>, read_rows: usize) -> Self {
        let groups =
            (0..table.group_count()).filter(|group| wanted.is_none_or(|wanted| table.can_match(*group, wanted)));
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

    /// Returns a lower bound of the first row, from the statistics of its row group. `None` if the file has no wanted rows.
    fn lower_bound(&self) -> Option<NextRow> {
        let (account, time_ms) = self.table.lower_bound(*self.groups.front()?);
        Some(NextRow::NotBefore(account, time_ms))
    }

    fn next(&mut self) -> Result<Option<NumberedRow>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Ok(Some(row));
            }
            match &mut self.group {
                Some(group) if group.remaining() > 0 => {
                    let rows = match &self.wanted {
                        Some(wanted) => group.read_matching(self.read_rows, wanted)?,
                        None => group.read(self.read_rows)?,
                    };
                    self.rows = rows.into_iter();
                }
                Some(_) | None => {
                    let Some(next) = self.groups.pop_front() else {
                        self.group = None;
                        return Ok(None);
                    };
                    self.group = Some(self.table.read_group(next)?);
                }
            }
        }
    }
}

/// Writes rows to a Parquet file with the columns of the log files. Rows can be added in any order. The bytes of the file are
/// returned piece by piece. Rows are numbered from 1. At most one row group is in memory.
pub(crate) struct ParquetExport {
    out: TableWriter<Vec<u8>>,
    rows: Vec<NumberedRow>,
    last: u64,
}

impl ParquetExport {
    /// Begins an export.
    ///
    /// # Errors
    /// The schema is invalid, which is a bug.
    pub(crate) fn begin() -> io::Result<Self> {
        Ok(Self {
            out: TableWriter::unsorted(Vec::new(), &NodeId::none())?,
            rows: Vec::new(),
            last: 0,
        })
    }

    /// Adds a row. Returns the next bytes of the file, which are often none.
    ///
    /// # Errors
    /// A value does not fit into its column.
    pub(crate) fn add_row(&mut self, row: Row) -> io::Result<Vec<u8>> {
        self.last += 1;
        let number = self.last;
        self.rows.push(NumberedRow { number, row });
        if self.rows.len() < GROUP_ROWS {
            return Ok(Vec::new());
        }
        self.out.write_group(&self.rows)?;
        self.rows.clear();
        Ok(std::mem::take(self.out.output()?))
    }

    /// Completes the file. Returns its last bytes.
    ///
    /// # Errors
    /// As for [`ParquetExport::add_row`].
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        if !self.rows.is_empty() {
            self.out.write_group(&self.rows)?;
        }
        Ok(self.out.finish()?)
    }
}
