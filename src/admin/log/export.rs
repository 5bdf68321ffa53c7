//! Exports of the log in one answer of any length: rows are read, written and sent concurrently.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc::{self, error::SendError};

use super::csv;
use crate::admin::log;
use crate::{
    admin::{Admin, peer::Author},
    api::{
        AdminQuestion,
        error::AdminError,
        log::{ExportLog, LogForm, LogRow},
    },
    domain::ledger::consumption::Row,
    edges::{
        clock,
        low_priority::{LowPriorityThreads, NotDone},
    },
    sinks::{
        asks::PAGE_ROWS_MAX,
        files::ParquetExport,
        reading::{LogReadError, LogRows},
    },
};

/// Rows that are read and written together: about 1 KB each, and up to six batches are in memory. Smaller batches would be slower
/// without using less memory.
const ROWS_AT_ONCE: usize = PAGE_ROWS_MAX;
/// How many batches wait to be written, and how many pieces wait to be sent.
const WAITING: usize = 2;
/// The maximum time for a file in one piece, which ends there.
const FILE_WITHIN: Duration = Duration::from_secs(30);

/// Writes rows in one of the formats.
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
            Self::Csv => csv::header_line(),
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
                    csv::write_row(row, &mut out)?;
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

/// Why an export was broken off.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Read(#[from] LogReadError),
    #[error("rows cannot be written: {0}")]
    Write(#[from] io::Error),
    #[error("the reader closed the connection")]
    ReaderGone,
}

impl<T> From<SendError<T>> for ExportError {
    fn from(_: SendError<T>) -> Self {
        Self::ReaderGone
    }
}

impl Admin {
    /// The pieces of an export. An incomplete export ends with an error.
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
        // Errors before the first row are returned as the answer.
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
            tracing::error!(error = %broken, "an export of the log failed");
            // The answer has no proper end, so that the client does not take a part for all rows.
            let _ = to.send(Err(io::Error::other(broken.to_string()))).await;
        });
        Ok(pieces)
    }

    /// An export in one piece, of at most `rows_max` rows.
    ///
    /// # Errors
    /// The rows cannot be read or written.
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

/// Reads further rows while the previous ones are written.
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

/// Writes rows on a low-priority thread.
async fn write_rows(
    writing: &LowPriorityThreads,
    mut form: ExportWriter,
    rows: Vec<Row>,
) -> io::Result<(ExportWriter, Vec<u8>)> {
    let work = writing.run(move || {
        let piece = form.rows(rows)?;
        Ok((form, piece))
    });
    work.await.map_err(|NotDone| io::Error::other("the writer failed"))?
}

/// Rows of the log in one piece.
#[derive(Debug)]
pub(crate) struct LogExportFile {
    /// The file.
    pub(crate) bytes: Vec<u8>,
    /// The cursor of further rows; `None` if the file is complete.
    pub(crate) next: Option<String>,
}
