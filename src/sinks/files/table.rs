//! Rows as Parquet: written by groups, and read again.

use std::{fs::File, io::Write, path::Path, sync::Arc};

use parquet::{
    column::reader::ColumnReader,
    data_type::{BoolType, ByteArray, ByteArrayType, Int64Type},
    errors::{ParquetError, Result},
    file::{
        metadata::{KeyValue, RowGroupMetaData},
        reader::{FileReader, SerializedFileReader},
        statistics::Statistics,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
};

use super::{
    place::Place,
    schema::{self, COLUMNS, Column, Form},
};
use crate::{domain::ledger::NodeId, journal::NumberedRow};

/// Writes one file.
pub(super) struct TableWriter<W: Write + Send> {
    out: SerializedFileWriter<W>,
    node: ByteArray,
}

impl<W: Write + Send> TableWriter<W> {
    /// A file for sorted rows of a lane.
    pub(super) fn new(out: W, place: &Place) -> Result<Self> {
        let mut out = SerializedFileWriter::new(out, schema::schema()?, Arc::new(schema::properties(true)?))?;
        for (name, value) in [
            ("weir.node", place.node.to_string()),
            ("weir.after", place.after.to_string()),
            ("weir.upto", place.upto.to_string()),
        ] {
            out.append_key_value_metadata(KeyValue::new(name.to_owned(), value));
        }
        Ok(Self {
            out,
            node: text(place.node.as_str()),
        })
    }

    /// A file for rows in any order.
    pub(super) fn unsorted(out: W, node: &NodeId) -> Result<Self> {
        let out = SerializedFileWriter::new(out, schema::schema()?, Arc::new(schema::properties(false)?))?;
        Ok(Self {
            out,
            node: text(node.as_str()),
        })
    }

    /// Adds the next rows, at most [`schema::GROUP_ROWS`]; if the file is sorted, those of all calls together by [`sort_key`].
    pub(super) fn group(&mut self, rows: &[NumberedRow]) -> Result<()> {
        let mut group = self.out.next_row_group()?;
        for column in &COLUMNS {
            let mut out = group
                .next_column()?
                .ok_or_else(|| ParquetError::General(format!("the schema has no column {}", column.name)))?;
            put(&mut out, column, rows, &self.node)?;
            out.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Where it is written to, with all groups that were added.
    pub(super) fn written(&mut self) -> Result<&mut W> {
        self.out.flush()?;
        Ok(self.out.inner_mut())
    }

    /// Completes the file.
    pub(super) fn finish(self) -> Result<W> {
        self.out.into_inner()
    }
}

/// What rows of a file are sorted by.
pub(super) fn sort_key(row: &NumberedRow) -> (&str, i64, u64) {
    (&row.row.account, row.row.time_ms, row.number)
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

fn put(out: &mut SerializedColumnWriter<'_>, column: &Column, rows: &[NumberedRow], node: &ByteArray) -> Result<()> {
    match &column.form {
        Form::Node => {
            let values = vec![node.clone(); rows.len()];
            out.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        Form::Word((get, _)) | Form::Text((get, _)) => {
            let values: Vec<ByteArray> = rows.iter().map(|row| text(get(row))).collect();
            out.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        Form::OptionalText((get, _)) => {
            let cells: Vec<Option<String>> = rows.iter().map(get).collect();
            let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
            let values: Vec<ByteArray> = cells.iter().flatten().map(|cell| text(cell)).collect();
            out.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
        }
        Form::Integer((get, _)) | Form::Code((get, _)) | Form::Time((get, _)) => {
            let values: Vec<i64> = rows.iter().map(get).collect();
            out.typed::<Int64Type>().write_batch(&values, None, None)?;
        }
        Form::OptionalInteger((get, _)) => {
            let cells: Vec<Option<i64>> = rows.iter().map(get).collect();
            let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
            let values: Vec<i64> = cells.into_iter().flatten().collect();
            out.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
        }
        Form::Flag(get, _) => {
            let values: Vec<bool> = rows.iter().map(get).collect();
            out.typed::<BoolType>().write_batch(&values, None, None)?;
        }
        Form::Tags => {
            let (mut values, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
            for row in rows {
                let tags = &row.row.tags;
                values.extend(tags.iter().map(|tag| text(tag.as_str())));
                // A row without tags has one place, with nothing in it.
                definition.extend(std::iter::repeat_n(i16::from(!tags.is_empty()), tags.len().max(1)));
                repetition.extend((0..tags.len().max(1)).map(|place| i16::from(place > 0)));
            }
            let out = out.typed::<ByteArrayType>();
            out.write_batch(&values, Some(&definition), Some(&repetition))?;
        }
    }
    Ok(())
}

/// A file that is read.
pub(super) struct Table {
    file: SerializedFileReader<File>,
}

impl Table {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = SerializedFileReader::new(File::open(path)?)?;
        Ok(Self { file })
    }

    pub(super) fn groups(&self) -> usize {
        self.file.num_row_groups()
    }

    /// How many rows a group has.
    pub(super) fn rows_in(&self, group: usize) -> usize {
        usize::try_from(self.file.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    /// Whether a group may have rows of an account that ended from `since_ms` to before `until_ms`, by what is said of it.
    pub(super) fn may_have(&self, group: usize, account: &str, since_ms: i64, until_ms: i64) -> bool {
        let group = self.file.metadata().row_group(group);
        let account_fits = match statistics(group, "account") {
            Some(Statistics::ByteArray(all)) => {
                let (min, max) = (all.min_opt(), all.max_opt());
                min.is_none_or(|min| min.data() <= account.as_bytes())
                    && max.is_none_or(|max| max.data() >= account.as_bytes())
            }
            _ => true,
        };
        account_fits
            && match statistics(group, "time") {
                Some(Statistics::Int64(all)) => {
                    all.min_opt().is_none_or(|min| *min < until_ms) && all.max_opt().is_none_or(|max| *max >= since_ms)
                }
                _ => true,
            }
    }

    /// The rows of a group, in their order.
    pub(super) fn group(&self, group: usize) -> Result<Group> {
        let reader = self.file.get_row_group(group)?;
        let columns = (0..COLUMNS.len()).map(|column| reader.get_column_reader(column));
        Ok(Group {
            columns: columns.collect::<Result<_>>()?,
            left: self.rows_in(group),
        })
    }
}

fn statistics<'a>(group: &'a RowGroupMetaData, column: &str) -> Option<&'a Statistics> {
    // Columns in front of the list stand where they stand in the schema.
    group.columns().get(schema::index_of(column)?)?.statistics()
}

/// The rows of a group that have not been read.
pub(super) struct Group {
    columns: Vec<ColumnReader>,
    left: usize,
}

impl Group {
    /// Up to `max` rows; none at the end.
    pub(super) fn read(&mut self, max: usize) -> Result<Vec<NumberedRow>> {
        let count = self.left.min(max);
        self.left -= count;
        let blank = schema::blank().ok_or_else(|| damaged("key_id"))?;
        let mut rows = vec![blank; count];
        if count > 0 {
            for (reader, column) in std::iter::zip(&mut self.columns, &COLUMNS) {
                take(reader, column, &mut rows)?;
            }
        }
        Ok(rows)
    }
}

fn damaged(column: &str) -> ParquetError {
    ParquetError::General(format!("column {column} does not have what weir writes"))
}

/// Values of a column with their levels.
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

fn take(reader: &mut ColumnReader, column: &Column, rows: &mut [NumberedRow]) -> Result<()> {
    let wrong = || damaged(column.name);
    let count = rows.len();
    match &column.form {
        Form::Node => {
            cells!(reader, ColumnReader::ByteArrayColumnReader, column, count);
        }
        Form::Word((_, set)) | Form::Text((_, set)) => {
            let cells = cells!(reader, ColumnReader::ByteArrayColumnReader, column, count);
            for (row, value) in std::iter::zip(rows, &cells.values) {
                set(row, value.as_utf8()?).ok_or_else(wrong)?;
            }
        }
        Form::OptionalText((_, set)) => {
            let cells = cells!(reader, ColumnReader::ByteArrayColumnReader, column, count);
            let there = std::iter::zip(rows, &cells.definition).filter(|(_, level)| **level > 0);
            for ((row, _), value) in std::iter::zip(there, &cells.values) {
                set(row, value.as_utf8()?).ok_or_else(wrong)?;
            }
        }
        Form::Integer((_, set)) | Form::Code((_, set)) | Form::Time((_, set)) => {
            let cells = cells!(reader, ColumnReader::Int64ColumnReader, column, count);
            for (row, value) in std::iter::zip(rows, &cells.values) {
                set(row, *value).ok_or_else(wrong)?;
            }
        }
        Form::OptionalInteger((_, set)) => {
            let cells = cells!(reader, ColumnReader::Int64ColumnReader, column, count);
            let there = std::iter::zip(rows, &cells.definition).filter(|(_, level)| **level > 0);
            for ((row, _), value) in std::iter::zip(there, &cells.values) {
                set(row, *value).ok_or_else(wrong)?;
            }
        }
        Form::Flag(_, set) => {
            let cells = cells!(reader, ColumnReader::BoolColumnReader, column, count);
            std::iter::zip(rows, &cells.values).for_each(|(row, value)| set(row, *value));
        }
        Form::Tags => {
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
