//! The columns of the log's files. Names and meanings are fixed (`docs/log.md`); new ones come at the end.

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
use smol_str::SmolStr;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{consumption::UsageSource, tag::Tag},
        money::NanoUsd,
    },
    journal::NumberedRow,
};

/// Rows that are sorted and described together: what a reader takes or passes over as a whole.
pub(super) const GROUP_ROWS: usize = 16_384;
/// Rows of a page: what a reader has in memory of each column.
const PAGE_ROWS: usize = 4_096;
/// The column with the name of the lane.
const NODE: &str = "node";
/// The columns that rows are sorted by, in this order.
const SORTED_BY: [&str; 3] = ["account", "time", "number"];

/// How a text stands in a row.
pub(super) type TextForm = (fn(&NumberedRow) -> &str, fn(&mut NumberedRow, &str) -> Option<()>);
/// One that may be absent.
pub(super) type OptionalTextForm = (
    fn(&NumberedRow) -> Option<SmolStr>,
    fn(&mut NumberedRow, &str) -> Option<()>,
);
/// An integer.
pub(super) type IntegerForm = (fn(&NumberedRow) -> i64, fn(&mut NumberedRow, i64) -> Option<()>);
/// One that may be absent.
pub(super) type OptionalIntegerForm = (fn(&NumberedRow) -> Option<i64>, fn(&mut NumberedRow, i64) -> Option<()>);

/// How a column is kept, and how it is got out of a row and put into one. A value that cannot be put is damage.
pub(super) enum Form {
    /// The same for all rows of a lane.
    Node,
    /// A text with few different values.
    Word(TextForm),
    /// A text that is another one in each row.
    Text(TextForm),
    OptionalText(OptionalTextForm),
    Integer(IntegerForm),
    /// One with few different values.
    Code(IntegerForm),
    OptionalInteger(OptionalIntegerForm),
    /// Milliseconds since the Unix epoch, UTC.
    Time(IntegerForm),
    Flag(fn(&NumberedRow) -> bool, fn(&mut NumberedRow, bool)),
    /// A list of texts.
    Tags,
}

/// A column.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) form: Form,
}

impl Column {
    /// Whether a file may lack it: one from before it was added. Its rows have nothing there.
    pub(super) fn may_lack(&self) -> bool {
        matches!(self.form, Form::OptionalText(_) | Form::OptionalInteger(_))
    }
}

const fn column(name: &'static str, form: Form) -> Column {
    Column { name, form }
}

/// A column with one of the counts of a row's usage.
macro_rules! count {
    ($name:ident) => {
        column(
            stringify!($name),
            Form::Integer((
                |row| signed(row.row.usage.$name),
                |row, value| {
                    row.row.usage.$name = u64::try_from(value).ok()?;
                    Some(())
                },
            )),
        )
    };
}

/// As [`count!`], in a column that came later: files from before lack it.
macro_rules! later_count {
    ($name:ident) => {
        column(
            stringify!($name),
            Form::OptionalInteger((
                |row| Some(signed(row.row.usage.$name)),
                |row, value| {
                    row.row.usage.$name = u64::try_from(value).ok()?;
                    Some(())
                },
            )),
        )
    };
}

/// A column with one of a row's texts.
macro_rules! word {
    ($name:ident) => {
        column(
            stringify!($name),
            Form::Word((
                |row| &row.row.$name,
                |row, text| {
                    row.row.$name = text.into();
                    Some(())
                },
            )),
        )
    };
}

/// A column with one of the things that modify a row's price.
macro_rules! modifier {
    ($name:ident) => {
        column(
            stringify!($name),
            Form::OptionalText((
                |row| row.row.modifiers.$name.clone(),
                |row, text| {
                    row.row.modifiers.$name = Some(text.into());
                    Some(())
                },
            )),
        )
    };
}

/// All columns, in their order.
pub(super) static COLUMNS: [Column; 44] = [
    column(NODE, Form::Node),
    column(
        "number",
        Form::Integer((
            |row| signed(row.number),
            |row, value| {
                row.number = u64::try_from(value).ok()?;
                Some(())
            },
        )),
    ),
    column(
        "time",
        Form::Time((
            |row| row.row.time_ms,
            |row, value| {
                row.row.time_ms = value;
                Some(())
            },
        )),
    ),
    column(
        "admitted_at",
        Form::Time((
            |row| row.row.admitted_ms,
            |row, value| {
                row.row.admitted_ms = value;
                Some(())
            },
        )),
    ),
    column(
        "request_id",
        Form::Text((
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
        Form::Word((
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
        Form::Code((
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
        Form::Flag(|row| row.row.stream, |row, value| row.row.stream = value),
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
        Form::Word((
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
        Form::Integer((
            |row| row.row.cost_nano_usd.nanos(),
            |row, value| {
                row.row.cost_nano_usd = NanoUsd::from_nanos(value);
                Some(())
            },
        )),
    ),
    column(
        "latency_ms",
        Form::Integer((
            |row| signed(row.row.latency_ms),
            |row, value| {
                row.row.latency_ms = u64::try_from(value).ok()?;
                Some(())
            },
        )),
    ),
    column(
        "ttft_ms",
        Form::OptionalInteger((
            |row| row.row.ttft_ms.map(signed),
            |row, value| {
                row.row.ttft_ms = Some(u64::try_from(value).ok()?);
                Some(())
            },
        )),
    ),
    column(
        "parts",
        Form::OptionalText((
            |row| (!row.row.parts.is_empty()).then(|| serde_json::to_string(&row.row.parts).ok().map(SmolStr::from))?,
            |row, text| {
                row.row.parts = serde_json::from_str(text).ok()?;
                Some(())
            },
        )),
    ),
    column("tags", Form::Tags),
    column(
        "hold_nano_usd",
        Form::OptionalInteger((
            |row| row.row.hold_nano_usd.map(NanoUsd::nanos),
            |row, value| {
                row.row.hold_nano_usd = Some(NanoUsd::from_nanos(value));
                Some(())
            },
        )),
    ),
    column(
        "attempts",
        Form::OptionalInteger((
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
];

/// Counts are believed up to 2^53 only.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Adds a tag to a row.
pub(super) fn put_tag(row: &mut NumberedRow, text: &str) -> Option<()> {
    row.row.tags.push(Tag::parse(text)?);
    Some(())
}

/// Where a column stands among all.
pub(super) fn index_of(name: &str) -> Option<usize> {
    COLUMNS.iter().position(|column| column.name == name)
}

/// The schema of files with these columns, as Parquet has it.
pub(super) fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|Column { name, form }| match form {
        Form::Node | Form::Word(_) | Form::Text(_) => format!("required binary {name} (STRING);"),
        Form::OptionalText(_) => format!("optional binary {name} (STRING);"),
        Form::Integer(_) | Form::Code(_) => format!("required int64 {name};"),
        Form::OptionalInteger(_) => format!("optional int64 {name};"),
        Form::Time(_) => format!("required int64 {name} (TIMESTAMP(MILLIS,true));"),
        Form::Flag(..) => format!("required boolean {name};"),
        Form::Tags => {
            format!("required group {name} (LIST) {{ repeated group list {{ required binary element (STRING); }} }}")
        }
    });
    let text = format!("message weir_log {{ {} }}", fields.collect::<Vec<_>>().join(" "));
    parse_message_type(&text).map(Arc::new)
}

/// How the columns are written: the same bytes for the same rows, whoever writes them. `sorted`: by [`SORTED_BY`].
pub(super) fn properties(sorted: bool) -> Result<WriterProperties, ParquetError> {
    // The log is kept for months; somebody waits for an export.
    let level = ZstdLevel::try_new(if sorted { 3 } else { 1 })?;
    let mut properties = WriterProperties::builder()
        .set_created_by("weir".to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for Column { name, form } in &COLUMNS {
        let path = ColumnPath::from(*name);
        let encoding = match form {
            Form::Integer(_) | Form::OptionalInteger(_) | Form::Time(_) => Encoding::DELTA_BINARY_PACKED,
            Form::Text(_) => Encoding::PLAIN,
            Form::Node | Form::Word(_) | Form::OptionalText(_) | Form::Code(_) | Form::Flag(..) | Form::Tags => {
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
