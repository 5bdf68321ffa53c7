//! Reads the rows of one row group of a Parquet file, some at a time. Rows that a filter excludes cost little: only the columns
//! that the filter needs are read for them.

use std::ops::Range;

use parquet::{
    column::reader::ColumnReader,
    errors::{ParquetError, Result},
};
use smol_str::SmolStr;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            consumption::{PriceModifiers, RequestTransport, Row, UsageSource},
            log_query::{LogFilter, LogPosition},
        },
        money::NanoUsd,
        wire::usage::Usage,
    },
    journal::NumberedRow,
    sinks::files::schema::{self, COLUMNS, ColumnForm, ParquetColumn},
};

/// Reads the rows of one row group of a Parquet file.
pub(super) struct RowGroup {
    columns: Vec<ColumnCells>,
    left: usize,
}

/// The cells of one column of a row group.
struct ColumnCells {
    reader: ColumnReader,
    /// The number of cells that the caller has skipped but that `reader` has not skipped yet. `reader` skips them all together,
    /// so that pages without wanted cells are not decoded.
    skipped: usize,
}

impl ColumnCells {
    fn read(&mut self, column: &ParquetColumn, rows: &mut [NumberedRow]) -> Result<()> {
        let behind = std::mem::take(&mut self.skipped);
        if behind > 0 {
            let skipped = match &mut self.reader {
                ColumnReader::BoolColumnReader(reader) => reader.skip_records(behind),
                ColumnReader::Int64ColumnReader(reader) => reader.skip_records(behind),
                ColumnReader::ByteArrayColumnReader(reader) => reader.skip_records(behind),
                _ => return Err(damaged(column.name)),
            };
            if skipped? != behind {
                return Err(damaged(column.name));
            }
        }
        read_column(&mut self.reader, column, rows)
    }
}

impl RowGroup {
    /// Creates the reader of `rows` rows. `readers` read the first columns of [`COLUMNS`], in that order. The file has no further
    /// columns.
    pub(super) fn new(readers: Vec<ColumnReader>, rows: usize) -> Self {
        let columns = readers.into_iter().map(|reader| ColumnCells { reader, skipped: 0 });
        Self {
            columns: columns.collect(),
            left: rows,
        }
    }

    /// Returns the number of unread rows.
    pub(super) fn remaining(&self) -> usize {
        self.left
    }

    /// Reads the next rows, at most `max`. Returns no rows at the end of the group.
    pub(super) fn read(&mut self, max: usize) -> Result<Vec<NumberedRow>> {
        let mut rows = self.blank(max)?;
        for (cells, column) in std::iter::zip(&mut self.columns, &COLUMNS) {
            cells.read(column, &mut rows)?;
        }
        Ok(rows)
    }

    /// Reads the next `max` rows and returns those that match a filter. For the other rows, only the columns that the filter
    /// needs are read.
    pub(super) fn read_matching(&mut self, max: usize, wanted: &RowFilter) -> Result<Vec<NumberedRow>> {
        let mut rows = self.blank(max)?;
        let decides = |column: &ParquetColumn| wanted.is_decided_by(column.name);
        let (mut deciding, mut others) = (Vec::new(), Vec::new());
        for (cells, column) in std::iter::zip(&mut self.columns, &COLUMNS) {
            let group = if decides(column) { &mut deciding } else { &mut others };
            group.push((cells, column));
        }
        for (cells, column) in deciding {
            cells.read(column, &mut rows)?;
        }
        let runs = runs(&rows, wanted);
        for (cells, column) in others {
            for (range, is_wanted) in &runs {
                match rows.get_mut(range.clone()) {
                    Some(run) if *is_wanted => cells.read(column, run)?,
                    _ => cells.skipped += range.len(),
                }
            }
        }
        rows.retain(|row| wanted.matches(row));
        Ok(rows)
    }

    /// Creates as many blank rows as will be read next, at most `max`.
    fn blank(&mut self, max: usize) -> Result<Vec<NumberedRow>> {
        let count = self.left.min(max);
        self.left -= count;
        let blank = blank().ok_or_else(|| damaged("key_id"))?;
        Ok(vec![blank; count])
    }
}

/// Creates a row without values, to be filled from the columns. `None` if that fails, which is a bug.
fn blank() -> Option<NumberedRow> {
    let row = Row {
        time_ms: 0,
        admitted_ms: 0,
        request_id: SmolStr::default(),
        account: SmolStr::default(),
        key_id: KeyId::parse("key_0000000000000000").ok()?,
        protocol: SmolStr::default(),
        model_asked: SmolStr::default(),
        model: SmolStr::default(),
        provider: SmolStr::default(),
        status: 0,
        outcome: SmolStr::default(),
        stream: false,
        tags: Vec::new(),
        usage: Usage::default(),
        usage_source: UsageSource::Reported,
        parts: Vec::new(),
        modifiers: PriceModifiers::default(),
        price_version: SmolStr::default(),
        cost_nano_usd: NanoUsd::ZERO,
        latency_ms: 0,
        ttft_ms: None,
        hold_nano_usd: None,
        attempts: None,
        transport: RequestTransport::Http,
        translated: None,
        losses: Vec::new(),
    };
    Some(NumberedRow { number: 0, row })
}

/// Divides rows into ranges to be read (`true`) and skipped (`false`). If at least half of the rows are wanted, all are read,
/// because that costs less than many short ranges.
fn runs(rows: &[NumberedRow], wanted: &RowFilter) -> Vec<(Range<usize>, bool)> {
    let takes: Vec<bool> = rows.iter().map(|row| wanted.matches(row)).collect();
    let count = takes.iter().filter(|takes| **takes).count();
    if count * 2 >= takes.len() {
        return vec![(0..takes.len(), true)];
    }
    let mut begin = 0;
    let runs = takes.chunk_by(|one, next| one == next).map(|run| {
        let range = begin..begin + run.len();
        begin = range.end;
        (range, run.contains(&true))
    });
    runs.collect()
}

fn damaged(column: &str) -> ParquetError {
    ParquetError::General(format!(
        "the file is damaged: column {column} contains values that weir never writes"
    ))
}

/// Values of a column with their Parquet definition and repetition levels.
struct Cells<T> {
    values: Vec<T>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

macro_rules! cells {
    ($reader:expr, $kind:path, $column:expr, $count:expr) => {{
        let $kind(reader) = $reader else {
            return Err(damaged($column.name));
        };
        let (mut values, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
        let read = reader.read_records($count, Some(&mut definition), Some(&mut repetition), &mut values)?;
        if read.0 != $count {
            return Err(damaged($column.name));
        }
        Cells {
            values,
            definition,
            repetition,
        }
    }};
}

fn read_column(reader: &mut ColumnReader, column: &ParquetColumn, rows: &mut [NumberedRow]) -> Result<()> {
    let wrong = || damaged(column.name);
    let count = rows.len();
    match &column.form {
        // Not read: the caller takes the lane from the file's name.
        ColumnForm::Node => {}
        ColumnForm::Word((_, set)) | ColumnForm::Text((_, set)) => {
            let cells = cells!(reader, ColumnReader::ByteArrayColumnReader, column, count);
            for (row, value) in std::iter::zip(rows, &cells.values) {
                set(row, value.as_utf8()?).ok_or_else(wrong)?;
            }
        }
        ColumnForm::OptionalText((_, set)) => {
            let cells = cells!(reader, ColumnReader::ByteArrayColumnReader, column, count);
            let there = std::iter::zip(rows, &cells.definition).filter(|(_, level)| **level > 0);
            for ((row, _), value) in std::iter::zip(there, &cells.values) {
                set(row, value.as_utf8()?).ok_or_else(wrong)?;
            }
        }
        ColumnForm::Integer((_, set)) | ColumnForm::Code((_, set)) | ColumnForm::Time((_, set)) => {
            let cells = cells!(reader, ColumnReader::Int64ColumnReader, column, count);
            for (row, value) in std::iter::zip(rows, &cells.values) {
                set(row, *value).ok_or_else(wrong)?;
            }
        }
        ColumnForm::OptionalInteger((_, set)) => {
            let cells = cells!(reader, ColumnReader::Int64ColumnReader, column, count);
            let there = std::iter::zip(rows, &cells.definition).filter(|(_, level)| **level > 0);
            for ((row, _), value) in std::iter::zip(there, &cells.values) {
                set(row, *value).ok_or_else(wrong)?;
            }
        }
        ColumnForm::Flag(_, set) => {
            let cells = cells!(reader, ColumnReader::BoolColumnReader, column, count);
            std::iter::zip(rows, &cells.values).for_each(|(row, value)| set(row, *value));
        }
        ColumnForm::Tags => {
            let cells = cells!(reader, ColumnReader::ByteArrayColumnReader, column, count);
            let mut values = cells.values.iter();
            let mut rows = rows.iter_mut();
            let mut row = None;
            for (definition, repetition) in std::iter::zip(&cells.definition, &cells.repetition) {
                if *repetition == 0 {
                    row = rows.next();
                }
                if *definition > 0 {
                    let value = values.next().ok_or_else(wrong)?.as_utf8()?;
                    schema::put_tag(row.as_deref_mut().ok_or_else(wrong)?, value).ok_or_else(wrong)?;
                }
            }
        }
    }
    Ok(())
}

/// Selects the rows that match a filter and whose account and time are not less than those of a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowFilter {
    pub(super) filter: LogFilter,
    /// The smallest account and time that a selected row can have. The request id of this position is ignored.
    pub(super) from: LogPosition,
}

impl RowFilter {
    /// Selects all rows that match a filter.
    pub(super) fn for_filter(filter: LogFilter) -> Self {
        Self {
            filter,
            from: LogPosition::default(),
        }
    }

    pub(super) fn matches(&self, row: &NumberedRow) -> bool {
        let row = &row.row;
        self.filter.matches(row)
            && (row.account.as_str(), row.time_ms) >= (self.from.account.as_str(), self.from.time_ms)
    }

    /// Returns whether [`RowFilter::matches`] needs the values of a column.
    pub(super) fn is_decided_by(&self, column: &str) -> bool {
        let filter = &self.filter;
        match column {
            "account" | "time" => true,
            "key_id" => filter.key.is_some(),
            "model" | "model_asked" => filter.model.is_some(),
            "status" => filter.status.is_some(),
            "tags" => filter.tag.is_some(),
            _ => false,
        }
    }
}
