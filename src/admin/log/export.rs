//! Exports rows of the log in one answer of any length. Rows are read, formatted and sent concurrently.

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

/// The number of rows that are read and formatted together. A row takes about 1 KB of memory, and up to six batches of rows are
/// in memory. Smaller batches would be slower without using less memory.
const ROWS_AT_ONCE: usize = PAGE_ROWS_MAX;
/// The maximum number of batches that wait to be formatted, and of pieces that wait to be sent.
const WAITING: usize = 2;
/// The maximum time for exporting rows as one file. Rows that are not read by then are left to the next file.
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

/// Why an export ended before all rows were sent.
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
    /// Begins an export and returns the receiver of its pieces. An export that does not become complete ends with an error.
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
        // Errors that occur before the first row become the answer's status.
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
            tracing::error!(error = %broken, "cannot complete an export of the log: the client has got only a part");
            // The error makes the answer end improperly, so that the client notices that it has not got all rows.
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

/// Sends the pieces of an export. Reads further rows while the previous ones are formatted.
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

/// Rows of the log, exported as one file.
#[derive(Debug)]
pub(crate) struct LogExportFile {
    /// The content of the file.
    pub(crate) bytes: Vec<u8>,
    /// The cursor of the rows that are not in the file. `None` if the file has all rows.
    pub(crate) next: Option<String>,
}
