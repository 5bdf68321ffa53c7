//! The columns of the log files. Their names and meanings never change (`docs/log.md`), and new columns are added at the end.

use std::sync::Arc;

use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    errors::ParquetError,
    file::{
        metadata::SortingColumn,
        properties::{EnabledStatistics, WriterProperties},
    },
    schema::{
        parser::parse_message_type,
        types::{ColumnPath, TypePtr},
    },
};
use serde::Serialize;
use smol_str::SmolStr;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            consumption::{RequestTransport, UsageSource},
            ids::Tag,
        },
        money::NanoUsd,
    },
    journal::NumberedRow,
};

/// The number of rows in a row group. A reader reads or skips a complete row group.
pub(super) const GROUP_ROWS: usize = 16_384;
/// The number of rows in a page of a column. A reader has one page of each column in memory.
const PAGE_ROWS: usize = 4_096;
/// The name of the column that contains the lane's name.
const NODE: &str = "node";
/// The names of the columns by which rows are sorted, in this order.
const SORTED_BY: [&str; 3] = ["account", "time", "number"];

/// Two functions that read and set a string in a row.
pub(super) type TextForm = (fn(&NumberedRow) -> &str, fn(&mut NumberedRow, &str) -> Option<()>);
/// Two functions that read and set a string that a row may lack.
pub(super) type OptionalTextForm = (
    fn(&NumberedRow) -> Option<SmolStr>,
    fn(&mut NumberedRow, &str) -> Option<()>,
);
/// Two functions that read and set an integer in a row.
pub(super) type IntegerForm = (fn(&NumberedRow) -> i64, fn(&mut NumberedRow, i64) -> Option<()>);
/// Two functions that read and set an integer that a row may lack.
pub(super) type OptionalIntegerForm = (fn(&NumberedRow) -> Option<i64>, fn(&mut NumberedRow, i64) -> Option<()>);

/// The encoding of a column, with the functions that read its value from a row and set it in a row. A value that cannot be
/// set means that the file is damaged.
pub(super) enum ColumnForm {
    /// A string that is the same in all rows of a file: the lane's name.
    Node,
    /// A string with few distinct values.
    Word(TextForm),
    /// A string that differs in each row.
    Text(TextForm),
    OptionalText(OptionalTextForm),
    Integer(IntegerForm),
    /// An integer with few distinct values.
    Code(IntegerForm),
    OptionalInteger(OptionalIntegerForm),
    /// A time in milliseconds since the Unix epoch (UTC).
    Time(IntegerForm),
    Flag(fn(&NumberedRow) -> bool, fn(&mut NumberedRow, bool)),
    /// A list of strings: the row's tags.
    Tags,
}

/// A column of a log file.
pub(super) struct ParquetColumn {
    pub(super) name: &'static str,
    pub(super) form: ColumnForm,
}

impl ParquetColumn {
    /// Returns whether a file may lack this column because the file was written before the column existed. The rows of such a
    /// file have no value for the column.
    pub(super) fn can_be_missing(&self) -> bool {
        matches!(self.form, ColumnForm::OptionalText(_) | ColumnForm::OptionalInteger(_))
    }
}

const fn column(name: &'static str, form: ColumnForm) -> ParquetColumn {
    ParquetColumn { name, form }
}

/// Declares a column that contains one count of a row's usage.
macro_rules! count {
    ($name:ident) => {
        column(
            stringify!($name),
            ColumnForm::Integer((
                |row| signed(row.row.usage.$name),
                |row, value| {
                    row.row.usage.$name = u64::try_from(value).ok()?;
                    Some(())
                },
            )),
        )
    };
}

/// Declares a column as [`count!`] does, for a count that was added in a later version. Earlier files lack the column.
macro_rules! later_count {
    ($name:ident) => {
        column(
            stringify!($name),
            ColumnForm::OptionalInteger((
                |row| Some(signed(row.row.usage.$name)),
                |row, value| {
                    row.row.usage.$name = u64::try_from(value).ok()?;
                    Some(())
                },
            )),
        )
    };
}

/// Declares a column that contains a string of a row.
macro_rules! word {
    ($name:ident) => {
        column(
            stringify!($name),
            ColumnForm::Word((
                |row| &row.row.$name,
                |row, text| {
                    row.row.$name = text.into();
                    Some(())
                },
            )),
        )
    };
}

/// Declares a column that contains one modifier of a row's price.
macro_rules! modifier {
    ($name:ident) => {
        column(
            stringify!($name),
            ColumnForm::OptionalText((
                |row| row.row.modifiers.$name.clone(),
                |row, text| {
                    row.row.modifiers.$name = Some(text.into());
                    Some(())
                },
            )),
        )
    };
}

/// All columns in the order of the file.
pub(super) static COLUMNS: [ParquetColumn; 47] = [
    column(NODE, ColumnForm::Node),
    column(
        "number",
        ColumnForm::Integer((
            |row| signed(row.number),
            |row, value| {
                row.number = u64::try_from(value).ok()?;
                Some(())
            },
        )),
    ),
    column(
        "time",
        ColumnForm::Time((
            |row| row.row.time_ms,
            |row, value| {
                row.row.time_ms = value;
                Some(())
            },
        )),
    ),
    column(
        "admitted_at",
        ColumnForm::Time((
            |row| row.row.admitted_ms,
            |row, value| {
                row.row.admitted_ms = value;
                Some(())
            },
        )),
    ),
    column(
        "request_id",
        ColumnForm::Text((
            |row| &row.row.request_id,
            |row, text| {
                row.row.request_id = text.into();
                Some(())
            },
        )),
    ),
    word!(account),
    column(
        "key_id",
        ColumnForm::Word((
            |row| row.row.key_id.as_str(),
            |row, text| {
                row.row.key_id = KeyId::parse(text).ok()?;
                Some(())
            },
        )),
    ),
    word!(protocol),
    word!(model_asked),
    word!(model),
    word!(provider),
    column(
        "status",
        ColumnForm::Code((
            |row| i64::from(row.row.status),
            |row, value| {
                row.row.status = u16::try_from(value).ok()?;
                Some(())
            },
        )),
    ),
    word!(outcome),
    column(
        "stream",
        ColumnForm::Flag(|row| row.row.stream, |row, value| row.row.stream = value),
    ),
    count!(input_uncached),
    count!(cache_read),
    count!(cache_write_short),
    count!(cache_write_long),
    count!(output_text),
    count!(output_reasoning),
    count!(tool_input),
    count!(web_searches),
    count!(web_fetches),
    count!(file_searches),
    count!(code_interpreter_calls),
    count!(image_generations),
    column(
        "usage_source",
        ColumnForm::Word((
            |row| row.row.usage_source.as_str(),
            |row, text| {
                row.row.usage_source = UsageSource::parse(text)?;
                Some(())
            },
        )),
    ),
    modifier!(service_tier),
    modifier!(speed),
    modifier!(geo),
    word!(price_version),
    column(
        "cost_nano_usd",
        ColumnForm::Integer((
            |row| row.row.cost_nano_usd.nanos(),
            |row, value| {
                row.row.cost_nano_usd = NanoUsd::from_nanos(value);
                Some(())
            },
        )),
    ),
    column(
        "latency_ms",
        ColumnForm::Integer((
            |row| signed(row.row.latency_ms),
            |row, value| {
                row.row.latency_ms = u64::try_from(value).ok()?;
                Some(())
            },
        )),
    ),
    column(
        "ttft_ms",
        ColumnForm::OptionalInteger((
            |row| row.row.ttft_ms.map(signed),
            |row, value| {
                row.row.ttft_ms = Some(u64::try_from(value).ok()?);
                Some(())
            },
        )),
    ),
    column(
        "parts",
        ColumnForm::OptionalText((
            |row| json_list(&row.row.parts),
            |row, text| {
                row.row.parts = serde_json::from_str(text).ok()?;
                Some(())
            },
        )),
    ),
    column("tags", ColumnForm::Tags),
    column(
        "hold_nano_usd",
        ColumnForm::OptionalInteger((
            |row| row.row.hold_nano_usd.map(NanoUsd::nanos),
            |row, value| {
                row.row.hold_nano_usd = Some(NanoUsd::from_nanos(value));
                Some(())
            },
        )),
    ),
    column(
        "attempts",
        ColumnForm::OptionalInteger((
            |row| row.row.attempts.map(i64::from),
            |row, value| {
                row.row.attempts = Some(u32::try_from(value).ok()?);
                Some(())
            },
        )),
    ),
    later_count!(input_audio),
    later_count!(input_image),
    later_count!(cache_read_audio),
    later_count!(cache_read_image),
    later_count!(output_audio),
    later_count!(output_image),
    column(
        "transport",
        ColumnForm::OptionalText((
            |row| row.row.transport.named().map(SmolStr::new_static),
            |row, text| {
                row.row.transport = RequestTransport::parse(text)?;
                Some(())
            },
        )),
    ),
    column(
        "translated",
        ColumnForm::OptionalText((
            |row| row.row.translated.clone(),
            |row, text| {
                row.row.translated = Some(text.into());
                Some(())
            },
        )),
    ),
    column(
        "losses",
        ColumnForm::OptionalText((
            |row| json_list(&row.row.losses),
            |row, text| {
                row.row.losses = serde_json::from_str(text).ok()?;
                Some(())
            },
        )),
    ),
];

/// Returns a list as JSON; `None` if it is empty.
fn json_list<T: Serialize>(list: &[T]) -> Option<SmolStr> {
    let json = || serde_json::to_string(list).ok().map(SmolStr::from);
    (!list.is_empty()).then(json)?
}

/// Converts a count to a signed number. It always fits, because counts are at most 2^53.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Parses a tag and adds it to a row. Returns `None` if it is not a valid tag.
pub(super) fn put_tag(row: &mut NumberedRow, text: &str) -> Option<()> {
    row.row.tags.push(Tag::parse(text)?);
    Some(())
}

/// Returns the index of the column with this name in [`COLUMNS`].
pub(super) fn index_of(name: &str) -> Option<usize> {
    COLUMNS.iter().position(|column| column.name == name)
}

/// Returns the Parquet schema of a file with these columns.
pub(super) fn schema(columns: &[ParquetColumn]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|ParquetColumn { name, form }| match form {
        ColumnForm::Node | ColumnForm::Word(_) | ColumnForm::Text(_) => format!("required binary {name} (STRING);"),
        ColumnForm::OptionalText(_) => format!("optional binary {name} (STRING);"),
        ColumnForm::Integer(_) | ColumnForm::Code(_) => format!("required int64 {name};"),
        ColumnForm::OptionalInteger(_) => format!("optional int64 {name};"),
        ColumnForm::Time(_) => format!("required int64 {name} (TIMESTAMP(MILLIS,true));"),
        ColumnForm::Flag(..) => format!("required boolean {name};"),
        ColumnForm::Tags => {
            format!("required group {name} (LIST) {{ repeated group list {{ required binary element (STRING); }} }}")
        }
    });
    let text = format!("message weir_log {{ {} }}", fields.collect::<Vec<_>>().join(" "));
    parse_message_type(&text).map(Arc::new)
}

/// Returns the settings of the Parquet writer. With them, the same rows always produce the same bytes. `sorted` says whether the
/// file's rows are sorted by [`SORTED_BY`].
pub(super) fn properties(sorted: bool) -> Result<WriterProperties, ParquetError> {
    // Log files (sorted) are stored for months, so they are compressed more. A user waits for an export (not sorted).
    let level = ZstdLevel::try_new(if sorted { 3 } else { 1 })?;
    let mut properties = WriterProperties::builder()
        .set_created_by("weir".to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for ParquetColumn { name, form } in &COLUMNS {
        let path = ColumnPath::from(*name);
        let encoding = match form {
            ColumnForm::Integer(_) | ColumnForm::OptionalInteger(_) | ColumnForm::Time(_) => {
                Encoding::DELTA_BINARY_PACKED
            }
            ColumnForm::Text(_) => Encoding::PLAIN,
            ColumnForm::Node
            | ColumnForm::Word(_)
            | ColumnForm::OptionalText(_)
            | ColumnForm::Code(_)
            | ColumnForm::Flag(..)
            | ColumnForm::Tags => {
                continue;
            }
        };
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, encoding);
    }
    let by = SORTED_BY.iter().filter_map(|name| i32::try_from(index_of(name)?).ok());
    let by = by.map(|column_idx| SortingColumn {
        column_idx,
        descending: false,
        nulls_first: false,
    });
    Ok(properties.set_sorting_columns(sorted.then(|| by.collect())).build())
}
