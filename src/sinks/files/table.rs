//! Writes rows to Parquet files and reads them back, one row group at a time.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Write},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::{
    data_type::{BoolType, ByteArray, ByteArrayType, Int64Type},
    errors::{ParquetError, Result},
    file::{
        metadata::{KeyValue, RowGroupMetaData},
        reader::{ChunkReader, FileReader, Length, SerializedFileReader},
        statistics::Statistics,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
};
use smol_str::SmolStr;

use crate::{
    domain::ledger::{
        NodeId,
        ids::Tag,
        log_query::{LogFilter, LogPosition},
    },
    journal::NumberedRow,
    sinks::files::{
        FileName,
        group::{RowFilter, RowGroup},
        s3::{BucketObject, ObjectReader},
        schema::{self, COLUMNS, ColumnForm, ParquetColumn},
    },
};

/// Writes a Parquet file of rows.
pub(super) struct TableWriter<W: Write + Send> {
    out: SerializedFileWriter<W>,
    columns: &'static [ParquetColumn],
    node: ByteArray,
}

impl<W: Write + Send> TableWriter<W> {
    /// Begins a log file. All its rows belong to one lane, and they are sorted.
    pub(super) fn new(out: W, place: &FileName) -> Result<Self> {
        Self::with_columns(out, place, &COLUMNS)
    }

    /// Begins a log file that has only the first columns of [`COLUMNS`], like a file of an earlier version of weir.
    pub(super) fn with_columns(out: W, place: &FileName, columns: &'static [ParquetColumn]) -> Result<Self> {
        let schema = schema::schema(columns)?;
        let mut out = SerializedFileWriter::new(out, schema, Arc::new(schema::properties(true)?))?;
        for (name, value) in [
            ("weir.node", place.node.to_string()),
            ("weir.after", place.after.to_string()),
            ("weir.upto", place.upto.to_string()),
        ] {
            out.append_key_value_metadata(KeyValue::new(name.to_owned(), value));
        }
        Ok(Self {
            out,
            columns,
            node: text(place.node.as_str()),
        })
    }

    /// Begins a file whose rows are in any order.
    pub(super) fn unsorted(out: W, node: &NodeId) -> Result<Self> {
        let out = SerializedFileWriter::new(out, schema::schema(&COLUMNS)?, Arc::new(schema::properties(false)?))?;
        Ok(Self {
            out,
            columns: &COLUMNS,
            node: text(node.as_str()),
        })
    }

    /// Writes the next row group, of at most [`schema::GROUP_ROWS`] rows. In a log file, the rows of all calls must be ordered by
    /// [`sort_key`].
    pub(super) fn write_group<R: Borrow<NumberedRow>>(&mut self, rows: &[R]) -> Result<()> {
        let rows: Vec<&NumberedRow> = rows.iter().map(Borrow::borrow).collect();
        let mut group = self.out.next_row_group()?;
        for column in self.columns {
            let mut out = group.next_column()?.ok_or_else(|| {
                ParquetError::General(format!(
                    "cannot write a log file: the schema has no column {}",
                    column.name
                ))
            })?;
            write_column(&mut out, column, &rows, &self.node)?;
            out.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Returns the output, after writing all added row groups to it.
    pub(super) fn output(&mut self) -> Result<&mut W> {
        self.out.flush()?;
        Ok(self.out.inner_mut())
    }

    /// Completes the file and returns the output.
    pub(super) fn finish(self) -> Result<W> {
        self.out.into_inner()
    }
}

/// Returns the key by which the rows of a log file are sorted: account, time and number.
pub(super) fn sort_key(row: &NumberedRow) -> (&str, i64, u64) {
    (&row.row.account, row.row.time_ms, row.number)
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

/// Converts strings to cells that share one allocation.
fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<ByteArray> {
    let (mut all, mut ranges) = (Vec::new(), Vec::new());
    for text in texts {
        let begin = all.len();
        all.extend_from_slice(text.as_bytes());
        ranges.push(begin..all.len());
    }
    let all = Bytes::from(all);
    ranges
        .into_iter()
        .map(|range| ByteArray::from(all.slice(range)))
        .collect()
}

fn write_column(
    out: &mut SerializedColumnWriter<'_>,
    column: &ParquetColumn,
    rows: &[&NumberedRow],
    node: &ByteArray,
) -> Result<()> {
    match &column.form {
        ColumnForm::Node => {
            let values = vec![node.clone(); rows.len()];
            out.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        ColumnForm::Word((get, _)) | ColumnForm::Text((get, _)) => {
            let values = texts(rows.iter().copied().map(get));
            out.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        ColumnForm::OptionalText((get, _)) => {
            let cells: Vec<Option<SmolStr>> = rows.iter().copied().map(get).collect();
            let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
            let values = texts(cells.iter().flatten().map(SmolStr::as_str));
            out.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
        }
        ColumnForm::Integer((get, _)) | ColumnForm::Code((get, _)) | ColumnForm::Time((get, _)) => {
            let values: Vec<i64> = rows.iter().copied().map(get).collect();
            out.typed::<Int64Type>().write_batch(&values, None, None)?;
        }
        ColumnForm::OptionalInteger((get, _)) => {
            let cells: Vec<Option<i64>> = rows.iter().copied().map(get).collect();
            let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
            let values: Vec<i64> = cells.into_iter().flatten().collect();
            out.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
        }
        ColumnForm::Flag(get, _) => {
            let values: Vec<bool> = rows.iter().copied().map(get).collect();
            out.typed::<BoolType>().write_batch(&values, None, None)?;
        }
        ColumnForm::Tags => {
            let values = texts(rows.iter().copied().flat_map(|row| &row.row.tags).map(Tag::as_str));
            let (mut definition, mut repetition) = (Vec::new(), Vec::new());
            for row in rows {
                let tags = &row.row.tags;
                // For Parquet, a row without tags has one undefined element.
                definition.extend(std::iter::repeat_n(i16::from(!tags.is_empty()), tags.len().max(1)));
                repetition.extend((0..tags.len().max(1)).map(|place| i16::from(place > 0)));
            }
            let out = out.typed::<ByteArrayType>();
            out.write_batch(&values, Some(&definition), Some(&repetition))?;
        }
    }
    Ok(())
}

/// Reads a Parquet file of rows.
pub(super) struct TableReader {
    file: SerializedFileReader<FileSource>,
    near: PartFetcher,
    node: NodeId,
}

impl TableReader {
    /// Opens a file whose rows are of the lane `node`.
    pub(super) fn open(source: FileSource, node: &NodeId) -> Result<Self> {
        let near = PartFetcher::for_source(&source);
        let file = SerializedFileReader::new(source)?;
        let node = node.clone();
        Ok(Self { file, near, node })
    }

    /// Returns the lane of all rows in this file.
    pub(super) fn node(&self) -> &NodeId {
        &self.node
    }

    pub(super) fn group_count(&self) -> usize {
        self.file.num_row_groups()
    }

    /// Returns the number of rows in a row group.
    pub(super) fn rows_in(&self, group: usize) -> usize {
        usize::try_from(self.file.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    /// Returns whether a row group may have rows that match a filter, according to the group's statistics.
    pub(super) fn can_match(&self, group: usize, wanted: &RowFilter) -> bool {
        let group = self.file.metadata().row_group(group);
        let LogFilter {
            account,
            key,
            model,
            status,
            tag,
            since_ms,
            until_ms,
        } = &wanted.filter;
        let text_fits =
            |column: &str, text: &Option<String>| text.as_ref().is_none_or(|text| has_text(group, column, text));
        let key_fits = key.as_ref().is_none_or(|key| has_text(group, "key_id", key.as_str()));
        let status_fits = status
            .as_ref()
            .is_none_or(|status| has_integer(group, "status", i64::from(*status.start()), i64::from(*status.end())));
        text_fits("account", account)
            && key_fits
            && (text_fits("model", model) || text_fits("model_asked", model))
            && status_fits
            && tag.as_ref().is_none_or(|tag| has_tag(group, tag))
            && has_integer(group, "time", *since_ms, until_ms.saturating_sub(1))
            && !ends_before(group, &wanted.from)
    }

    /// Returns an account and a time that are not greater than those of any row in a row group.
    pub(super) fn lower_bound(&self, group: usize) -> (Vec<u8>, i64) {
        let group = self.file.metadata().row_group(group);
        let account = match statistics(group, "account") {
            Some(Statistics::ByteArray(all)) => all.min_bytes_opt().unwrap_or_default().to_vec(),
            _ => Vec::new(),
        };
        let time_ms = match statistics(group, "time") {
            Some(Statistics::Int64(all)) => all.min_opt().copied().unwrap_or(i64::MIN),
            _ => i64::MIN,
        };
        (account, time_ms)
    }

    /// Returns the range of a row group's bytes in the file.
    fn byte_range(&self, group: usize) -> Range<u64> {
        let columns = self.file.metadata().row_group(group).columns().iter();
        let ranges = columns.map(|column| {
            let (begin, length) = column.byte_range();
            begin..begin.saturating_add(length)
        });
        ranges
            .reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))
            .unwrap_or_default()
    }

    /// Reads the rows of a row group, in order. If the file was written before a column existed, its rows have no value for
    /// that column.
    pub(super) fn read_group(&self, group: usize) -> Result<RowGroup> {
        self.near.fetch(self.byte_range(group))?;
        let reader = self.file.get_row_group(group)?;
        let there = reader.num_columns();
        if let Some(lacking) = COLUMNS.iter().skip(there).find(|column| !column.can_be_missing()) {
            return Err(ParquetError::General(format!(
                "the file is damaged: column {} is missing",
                lacking.name
            )));
        }
        let columns = (0..COLUMNS.len().min(there)).map(|column| reader.get_column_reader(column));
        Ok(RowGroup::new(columns.collect::<Result<Vec<_>>>()?, self.rows_in(group)))
    }
}

fn statistics<'a>(group: &'a RowGroupMetaData, column: &str) -> Option<&'a Statistics> {
    // All columns have one leaf in the schema, even the list of tags, so indexes of columns and leaves are equal.
    group.columns().get(schema::index_of(column)?)?.statistics()
}

/// Returns whether a column of a row group may contain `text`. Bounds in the statistics may be shortened, but no value is outside
/// of them.
fn has_text(group: &RowGroupMetaData, column: &str, text: &str) -> bool {
    let Some(Statistics::ByteArray(all)) = statistics(group, column) else {
        return true;
    };
    let text = text.as_bytes();
    all.min_bytes_opt().is_none_or(|min| min <= text) && all.max_bytes_opt().is_none_or(|max| max >= text)
}

/// Returns whether a row of a group may have a tag. This is possible only if the tag is between the smallest and the greatest tag
/// of the group. A group without tags has no such bounds.
fn has_tag(group: &RowGroupMetaData, tag: &Tag) -> bool {
    let Some(Statistics::ByteArray(all)) = statistics(group, "tags") else {
        return true;
    };
    let places = schema::index_of("tags").and_then(|index| group.columns().get(index));
    let places = places.and_then(|column| u64::try_from(column.num_values()).ok());
    let is_empty = places.is_some() && all.null_count_opt() == places;
    !is_empty && has_text(group, "tags", tag.as_str())
}

/// Returns whether a column of a row group may contain a number from `first` to `last`.
fn has_integer(group: &RowGroupMetaData, column: &str, first: i64, last: i64) -> bool {
    let Some(Statistics::Int64(all)) = statistics(group, column) else {
        return true;
    };
    all.min_opt().is_none_or(|min| *min <= last) && all.max_opt().is_none_or(|max| *max >= first)
}

/// Returns whether all rows of a row group are before a position.
fn ends_before(group: &RowGroupMetaData, place: &LogPosition) -> bool {
    let Some(Statistics::ByteArray(accounts)) = statistics(group, "account") else {
        return false;
    };
    let account = place.account.as_bytes();
    match (accounts.min_bytes_opt(), accounts.max_bytes_opt()) {
        (_, Some(max)) if max < account => true,
        (Some(min), Some(max)) if min == account && max == account => {
            !has_integer(group, "time", place.time_ms, i64::MAX)
        }
        _ => false,
    }
}

/// The source of a log file's bytes: a local file or an object in a bucket.
pub(super) enum FileSource {
    File(File),
    Object(BucketObject),
}

/// Reads a log file sequentially from an offset on.
pub(super) enum SourceReader {
    File(BufReader<File>),
    Object(ObjectReader),
}

impl From<File> for FileSource {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl From<BucketObject> for FileSource {
    fn from(object: BucketObject) -> Self {
        Self::Object(object)
    }
}

/// Fetches parts of an object in a bucket shortly before the parts are read. Does nothing for a local file.
pub(super) struct PartFetcher(Option<BucketObject>);

impl PartFetcher {
    /// Creates a fetcher of parts of `source`.
    pub(super) fn for_source(source: &FileSource) -> Self {
        match source {
            FileSource::File(_) => Self(None),
            FileSource::Object(object) => Self(Some(object.clone())),
        }
    }

    /// Fetches a part. It replaces the previously fetched part.
    pub(super) fn fetch(&self, range: Range<u64>) -> Result<()> {
        let brought = self.0.as_ref().map_or(Ok(()), |object| object.prefetch(range));
        Ok(brought?)
    }
}

impl Length for FileSource {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Object(object) => object.length(),
        }
    }
}

impl ChunkReader for FileSource {
    type T = SourceReader;

    fn get_read(&self, start: u64) -> Result<SourceReader> {
        match self {
            Self::File(file) => file.get_read(start).map(SourceReader::File),
            Self::Object(object) => Ok(SourceReader::Object(object.reader(start))),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        match self {
            Self::File(file) => file.get_bytes(start, length),
            Self::Object(object) => Ok(object.bytes(start, length)?),
        }
    }
}

impl Read for SourceReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(into),
            Self::Object(object) => object.read(into),
        }
    }
}

/// The maximum number of files whose ends are in memory. Each end has at most 64 KiB.
const FOOTERS_MAX: usize = 128;

/// A cache in memory for the ends of log files in a bucket. A file's end describes where the rows are in the file. If there are
/// too many ends, those of the oldest days are removed. An end never becomes invalid, because a file's name determines its bytes.
#[derive(Debug, Default)]
pub(super) struct FooterCache(Mutex<BTreeMap<FileName, BucketObject>>);

impl FooterCache {
    /// Returns the object of a log file. If the object's end is not in memory, calls `open`, which fetches the end.
    pub(super) fn object(
        &self,
        place: &FileName,
        open: impl FnOnce() -> io::Result<BucketObject>,
    ) -> io::Result<BucketObject> {
        let known = self.0.lock().get(place).and_then(BucketObject::with_end_only);
        if let Some(known) = known {
            return Ok(known);
        }
        let object = open()?;
        if let Some(end) = object.with_end_only() {
            let mut known = self.0.lock();
            if known.len() >= FOOTERS_MAX {
                // Removes the end of the oldest day's file, because the files of today are read most. This also works for
                // repeated reading of more files than fit: most of them are still found.
                known.pop_first();
            }
            known.insert(place.clone(), end);
        }
        Ok(object)
    }

    /// Removes the ends of all files for which `is_kept` returns `false`.
    pub(super) fn retain(&self, is_kept: impl Fn(&FileName) -> bool) {
        self.0.lock().retain(|place, _| is_kept(place));
    }
}
