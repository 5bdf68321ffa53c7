//! Exports rows of the log in one answer of any length. Rows are read, formatted and sent concurrently.

use std::{
    borrow::Cow,
    io::{self, Write},
    time::Duration,
};

use CsvCell::{Empty, Number, Text, Time};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::mpsc::{self, error::SendError};

use crate::{
    admin::{Admin, audit::Author, log},
    api::{
        AdminError, AdminQuestion,
        log::{ExportLog, LogForm, LogRow},
    },
    domain::ledger::consumption::Row,
    edges::{
        clock,
        low_priority::{LowPriorityThreads, NotDone},
    },
    sinks::{
        PAGE_ROWS_MAX,
        files::ParquetExport,
        reading::{LogReadError, LogRows},
    },
};

/// The number of rows in a batch, which is read and formatted together. A row takes about 1 KB, and up to six batches are in
/// memory. Smaller batches would be slower without saving memory.
const ROWS_AT_ONCE: usize = PAGE_ROWS_MAX;
/// The maximum number of batches that wait to be formatted, and the maximum number of pieces that wait to be sent.
const WAITING: usize = 2;
/// The maximum time for exporting rows as one file. Rows that are not read in this time are left to the next file.
const FILE_WITHIN: Duration = Duration::from_secs(30);

/// Formats rows in the requested format.
enum ExportWriter {
    JsonLines,
    Csv,
    Parquet(Box<ParquetExport>),
}

impl ExportWriter {
    fn new(form: LogForm) -> Result<Self, AdminError> {
        Ok(match form {
            LogForm::JsonLines => Self::JsonLines,
            LogForm::Csv => Self::Csv,
            LogForm::Parquet => {
                let export = ParquetExport::begin().map_err(|error| AdminError::failed(error.to_string()))?;
                Self::Parquet(Box::new(export))
            }
        })
    }

    fn begin(&self) -> Vec<u8> {
        match self {
            Self::Csv => header_line(),
            Self::JsonLines | Self::Parquet(_) => Vec::new(),
        }
    }

    fn rows(&mut self, rows: Vec<Row>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Self::JsonLines => {
                for row in rows {
                    serde_json::to_writer(&mut out, &LogRow::new(row, None))?;
                    out.push(b'\n');
                }
            }
            Self::Csv => {
                for row in &rows {
                    write_row(row, &mut out)?;
                }
            }
            Self::Parquet(export) => {
                for row in rows {
                    out.extend(export.add_row(row)?);
                }
            }
        }
        Ok(out)
    }

    fn end(self) -> io::Result<Vec<u8>> {
        match self {
            Self::JsonLines | Self::Csv => Ok(Vec::new()),
            Self::Parquet(export) => export.finish(),
        }
    }
}

/// The reason why an export ended before all rows were sent.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Read(#[from] LogReadError),
    #[error("cannot format rows: {0}")]
    Write(#[from] io::Error),
    #[error("the client closed the connection")]
    ReaderGone,
}

impl<T> From<SendError<T>> for ExportError {
    fn from(_: SendError<T>) -> Self {
        Self::ReaderGone
    }
}

impl Admin {
    /// Begins an export and returns the receiver of its pieces. If the export cannot be completed, the last item is an error.
    ///
    /// # Errors
    /// The export cannot begin.
    pub(crate) async fn export_log(
        &self,
        author: &Author,
        export: ExportLog,
    ) -> Result<mpsc::Receiver<io::Result<Bytes>>, AdminError> {
        author.peer.check_role(ExportLog::ROLE)?;
        let (form, asked) = export.parts();
        let form = ExportWriter::new(form)?;
        let mut rows = asked.rows(self).await?;
        // An error before the first row determines the status of the answer.
        let mut first = Vec::new();
        while first.is_empty() && rows.cursor().is_some() {
            first = rows.next(ROWS_AT_ONCE).await?;
        }
        if let Some(why) = asked.unknown_model(self).filter(|_| first.is_empty()) {
            return Err(AdminError::invalid(why));
        }
        let (to, pieces) = mpsc::channel(WAITING);
        let writing = self.exporting.clone();
        tokio::spawn(async move {
            let broken = match stream_rows(&writing, form, first, rows, &to).await {
                Ok(()) | Err(ExportError::ReaderGone) => return,
                Err(error) => error,
            };
            tracing::error!(error = %broken, "an export of the log failed; the client received only a part of the rows");
            // The error makes the answer end improperly, so the client notices that rows are missing.
            let _ = to.send(Err(io::Error::other(broken.to_string()))).await;
        });
        Ok(pieces)
    }

    /// Exports at most `rows_max` rows as one file.
    ///
    /// # Errors
    /// The rows cannot be read or formatted.
    pub(crate) async fn log_file(
        &self,
        author: &Author,
        export: ExportLog,
        rows_max: usize,
    ) -> Result<LogExportFile, AdminError> {
        author.peer.check_role(ExportLog::ROLE)?;
        let (form, asked) = export.parts();
        let mut form = ExportWriter::new(form)?;
        let mut rows = asked.rows(self).await?;
        let failed = |error: io::Error| AdminError::failed(error.to_string());
        let (mut bytes, mut left) = (form.begin(), rows_max);
        let until = clock::instant() + FILE_WITHIN;
        while left > 0 && rows.cursor().is_some() && clock::instant() < until {
            let next = rows.next(ROWS_AT_ONCE.min(left)).await?;
            left = left.saturating_sub(next.len());
            let (same, piece) = write_rows(&self.exporting, form, next).await.map_err(failed)?;
            form = same;
            bytes.extend(piece);
        }
        let next = rows.cursor().map(log::write_cursor);
        bytes.extend(form.end().map_err(failed)?);
        Ok(LogExportFile { bytes, next })
    }
}

/// Sends the pieces of an export. Reads the next batch of rows while the previous batch is formatted.
async fn stream_rows(
    writing: &LowPriorityThreads,
    mut form: ExportWriter,
    first: Vec<Row>,
    mut rows: LogRows,
    to: &mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), ExportError> {
    to.send(Ok(form.begin().into())).await?;
    let (read, mut unwritten) = mpsc::channel(WAITING);
    read.send(first).await?;
    let reading = tokio::spawn(async move {
        while rows.cursor().is_some() {
            let next = rows.next(ROWS_AT_ONCE).await?;
            if !next.is_empty() {
                read.send(next).await?;
            }
        }
        Ok::<_, ExportError>(())
    });
    while let Some(rows) = unwritten.recv().await {
        let (same, piece) = write_rows(writing, form, rows).await?;
        form = same;
        if !piece.is_empty() {
            to.send(Ok(piece.into())).await?;
        }
    }
    reading.await.map_err(io::Error::other)??;
    to.send(Ok(form.end()?.into())).await?;
    Ok(())
}

/// Formats rows on a low-priority thread.
async fn write_rows(
    writing: &LowPriorityThreads,
    mut form: ExportWriter,
    rows: Vec<Row>,
) -> io::Result<(ExportWriter, Vec<u8>)> {
    let work = writing.run(move || {
        let piece = form.rows(rows)?;
        Ok((form, piece))
    });
    work.await
        .map_err(|NotDone| io::Error::other("the thread that formats rows panicked or could not be started"))?
}

/// A file with exported rows of the log.
#[derive(Debug)]
pub(crate) struct LogExportFile {
    /// The content of the file.
    pub(crate) bytes: Vec<u8>,
    /// The cursor of the first row that is not in the file. `None` if the file has all rows.
    pub(crate) next: Option<String>,
}

/// The value of a cell.
enum CsvCell<'a> {
    Text(Cow<'a, str>),
    Number(i128),
    /// A time in milliseconds since the Unix epoch.
    Time(i64),
    Empty,
}

/// The name of a column, and the function that returns the column's value in a row.
type CsvColumn = (&'static str, fn(&Row) -> CsvCell<'_>);

/// All columns in the order of the file. New columns are added at the end.
const COLUMNS: [CsvColumn; 45] = [
    ("time", |row| Time(row.time_ms)),
    ("request_id", |row| text(&row.request_id)),
    ("account", |row| text(&row.account)),
    ("key_id", |row| text(row.key_id.as_str())),
    ("protocol", |row| text(&row.protocol)),
    ("model_asked", |row| text(&row.model_asked)),
    ("model", |row| text(&row.model)),
    ("provider", |row| text(&row.provider)),
    ("status", |row| number(row.status)),
    ("outcome", |row| text(&row.outcome)),
    ("stream", |row| text(if row.stream { "true" } else { "false" })),
    ("input_uncached", |row| number(row.usage.input_uncached)),
    ("cache_read", |row| number(row.usage.cache_read)),
    ("cache_write_short", |row| number(row.usage.cache_write_short)),
    ("cache_write_long", |row| number(row.usage.cache_write_long)),
    ("output_text", |row| number(row.usage.output_text)),
    ("output_reasoning", |row| number(row.usage.output_reasoning)),
    ("tool_input", |row| number(row.usage.tool_input)),
    ("web_searches", |row| number(row.usage.web_searches)),
    ("web_fetches", |row| number(row.usage.web_fetches)),
    ("usage_source", |row| text(row.usage_source.as_str())),
    ("service_tier", |row| {
        optional_text(row.modifiers.service_tier.as_deref())
    }),
    ("speed", |row| optional_text(row.modifiers.speed.as_deref())),
    ("geo", |row| optional_text(row.modifiers.geo.as_deref())),
    ("price_version", |row| text(&row.price_version)),
    ("cost_nano_usd", |row| number(row.cost_nano_usd.nanos())),
    ("latency_ms", |row| number(row.latency_ms)),
    ("ttft_ms", |row| row.ttft_ms.map_or(Empty, number)),
    ("admitted_at", |row| Time(row.admitted_ms)),
    ("file_searches", |row| number(row.usage.file_searches)),
    ("code_interpreter_calls", |row| number(row.usage.code_interpreter_calls)),
    ("image_generations", |row| number(row.usage.image_generations)),
    ("parts", |row| json_list(&row.parts)),
    ("tags", tags),
    ("hold_nano_usd", |row| {
        row.hold_nano_usd.map_or(Empty, |hold| number(hold.nanos()))
    }),
    ("attempts", |row| row.attempts.map_or(Empty, number)),
    ("input_audio", |row| number(row.usage.input_audio)),
    ("input_image", |row| number(row.usage.input_image)),
    ("cache_read_audio", |row| number(row.usage.cache_read_audio)),
    ("cache_read_image", |row| number(row.usage.cache_read_image)),
    ("output_audio", |row| number(row.usage.output_audio)),
    ("output_image", |row| number(row.usage.output_image)),
    ("transport", |row| optional_text(row.transport.named())),
    ("translated", |row| optional_text(row.translated.as_deref())),
    ("losses", |row| json_list(&row.losses)),
];

fn text(text: &str) -> CsvCell<'_> {
    Text(Cow::Borrowed(text))
}

fn optional_text(text: Option<&str>) -> CsvCell<'_> {
    Text(Cow::Borrowed(text.unwrap_or_default()))
}

fn number<'a>(number: impl Into<i128>) -> CsvCell<'a> {
    Number(number.into())
}

/// Returns a list as JSON, in the same form as in JSON lines. An empty list becomes an empty cell.
fn json_list<T: Serialize>(list: &[T]) -> CsvCell<'_> {
    if list.is_empty() {
        return Empty;
    }
    // Encoding a list of the log as JSON cannot fail.
    Text(Cow::Owned(serde_json::to_string(list).unwrap_or_default()))
}

fn tags(row: &Row) -> CsvCell<'_> {
    let tags: Vec<&str> = row.tags.iter().map(|tag| tag.as_str()).collect();
    Text(Cow::Owned(tags.join(" ")))
}

/// Returns the header line, with the names of the columns.
pub(super) fn header_line() -> Vec<u8> {
    format!("{}\r\n", COLUMNS.map(|(name, _)| name).join(",")).into_bytes()
}

/// Appends the line of a row to `out`.
pub(super) fn write_row(row: &Row, out: &mut Vec<u8>) -> io::Result<()> {
    for (place, (_, cell)) in COLUMNS.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        match cell(row) {
            Text(text) => write_text(&text, out),
            Number(number) => write!(out, "{number}")?,
            // The time is written as RFC 3339 with milliseconds, or as the number of milliseconds if it is outside the calendar's
            // range.
            Time(unix_ms) => match Timestamp::from_millisecond(unix_ms) {
                Ok(time) => write!(out, "{time:.3}")?,
                Err(_) => write!(out, "{unix_ms}")?,
            },
            Empty => {}
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends a string as a cell. Clients and providers may have chosen the string. Therefore a leading `'` is added to a string
/// that a spreadsheet would evaluate as a formula.
fn write_text(text: &str, out: &mut Vec<u8>) {
    let is_quoted = text.contains(['"', ',', '\r', '\n']);
    if is_quoted {
        out.push(b'"');
    }
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        out.push(b'\'');
    }
    if is_quoted {
        out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{ledger::consumption::RequestTransport, money::NanoUsd, wire::usage::Usage},
        store::ledger::contract::row,
    };

    #[test]
    fn cells_are_quoted_where_they_must_be_and_are_never_formulas() {
        for (text, written) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"a\"", "\"say \"\"a\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("-x,y", "\"'-x,y\""),
            ("@cf/model", "'@cf/model"),
            ("", ""),
        ] {
            let mut out = Vec::new();
            write_text(text, &mut out);
            assert_eq!(out, written.as_bytes());
        }
    }

    #[test]
    fn a_line_has_a_cell_for_each_column() {
        let mut out = header_line();
        let row = Row {
            parts: Vec::new(),
            losses: Vec::new(),
            model_asked: "m".into(),
            usage: Usage {
                output_image: 1290,
                ..Usage::default()
            },
            ..row("a", 1, "req_1", 1_793_491_200_000, NanoUsd::from_nanos(7))
        };
        write_row(&row, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((lines[0].len(), lines[1].len()), (COLUMNS.len(), COLUMNS.len()));
        let of = |column: &str| {
            let at = lines[0].iter().position(|name| *name == column).unwrap();
            lines[1][at]
        };
        assert_eq!(
            (
                of("time"),
                of("request_id"),
                of("cost_nano_usd"),
                of("admitted_at"),
                of("tags")
            ),
            ("2026-11-01T00:00:00.000Z", "req_1", "7", "2026-10-31T23:59:59.995Z", "")
        );
        assert_eq!(
            (of("usage_source"), of("price_version"), of("ttft_ms")),
            ("reported", "1", "")
        );
        // Columns that were added later are at the end.
        assert_eq!(lines[0][33..36], ["tags", "hold_nano_usd", "attempts"]);
        assert_eq!(lines[0][36..42], Usage::NAMES[12..]);
        assert_eq!(lines[1][36..42], ["0", "0", "0", "0", "0", "1290"]);
        assert_eq!(lines[0][42..], ["transport", "translated", "losses"]);
        assert_eq!(lines[1][42..], ["websocket", "responses->chat", ""]);
        assert_eq!((of("hold_nano_usd"), of("attempts")), ("9007199254740993", "3"));
        let mut of_earlier = Vec::new();
        let row = Row {
            hold_nano_usd: None,
            attempts: None,
            transport: RequestTransport::Http,
            translated: None,
            ..row
        };
        write_row(&row, &mut of_earlier).unwrap();
        assert!(of_earlier.ends_with(b",,,0,0,0,0,0,1290,,,\r\n"));
        let lossy = Row {
            losses: vec!["adapted reasoning".into(), "dropped tools[9]".into()],
            ..row
        };
        let mut out = Vec::new();
        write_row(&lossy, &mut out).unwrap();
        assert!(out.ends_with(b",\"[\"\"adapted reasoning\"\",\"\"dropped tools[9]\"\"]\"\r\n"));
    }
}
