//! The log in one answer, as long as it may be: rows are read, written in a form and sent at the same time.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc::{self, error::SendError};

use super::{csv, cursor};
use crate::{
    admin::{Admin, author::Author},
    api::{
        Question,
        error::AdminError,
        log::{ExportLog, LogForm, LogRow},
    },
    domain::ledger::consumption::Row,
    edges::{
        clock,
        low_priority::{LowPriority, NotDone},
    },
    sinks::{
        asks::PAGE_ROWS_MAX,
        files::Export,
        reading::{LogReadError, LogRows},
    },
};

/// Rows that are read and written together: some 1 KB each, and up to six times as many are on their way. With fewer an export is slower,
/// and takes no less memory.
const ROWS_AT_ONCE: usize = PAGE_ROWS_MAX;
/// How many of these wait to be written, and pieces of what was written to be sent.
const WAITING: usize = 2;
/// How long a file in one piece may take; it goes no further then.
const FILE_WITHIN: Duration = Duration::from_secs(30);

/// How rows are written.
enum Form {
    JsonLines,
    Csv,
    Parquet(Box<Export>),
}

impl Form {
    fn new(form: LogForm) -> Result<Self, AdminError> {
        Ok(match form {
            LogForm::JsonLines => Self::JsonLines,
            LogForm::Csv => Self::Csv,
            LogForm::Parquet => {
                let export = Export::begin().map_err(|error| AdminError::failed(error.to_string()))?;
                Self::Parquet(Box::new(export))
            }
        })
    }

    fn begin(&self) -> Vec<u8> {
        match self {
            Self::Csv => csv::heading(),
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
                    csv::record(row, &mut out)?;
                }
            }
            Self::Parquet(export) => {
                for row in rows {
                    out.extend(export.row(row)?);
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

/// What breaks an export off.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Read(#[from] LogReadError),
    #[error("rows cannot be written: {0}")]
    Write(#[from] io::Error),
    #[error("nobody reads it any more")]
    Left,
}

impl<T> From<SendError<T>> for ExportError {
    fn from(_: SendError<T>) -> Self {
        Self::Left
    }
}

impl Admin {
    /// The pieces of an export. One that breaks off ends with an error: it is not whole.
    ///
    /// # Errors
    /// It cannot be begun.
    pub(crate) async fn export_log(
        &self,
        author: &Author,
        export: ExportLog,
    ) -> Result<mpsc::Receiver<io::Result<Bytes>>, AdminError> {
        author.peer.check(ExportLog::ROLE)?;
        let (form, asked) = export.parts();
        let form = Form::new(form)?;
        let mut rows = asked.rows(self).await?;
        // What can be said before the first row is said as an error.
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
            let broken = match write(&writing, form, first, rows, &to).await {
                Ok(()) | Err(ExportError::Left) => return,
                Err(error) => error,
            };
            tracing::error!(error = %broken, "an export of the log was broken off");
            // The client gets no end, so that it does not take a part for all.
            let _ = to.send(Err(io::Error::other(broken.to_string()))).await;
        });
        Ok(pieces)
    }

    /// The same in one piece, of up to so many rows.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) async fn log_file(
        &self,
        author: &Author,
        export: ExportLog,
        rows_max: usize,
    ) -> Result<LogFile, AdminError> {
        author.peer.check(ExportLog::ROLE)?;
        let (form, asked) = export.parts();
        let mut form = Form::new(form)?;
        let mut rows = asked.rows(self).await?;
        let failed = |error: io::Error| AdminError::failed(error.to_string());
        let (mut bytes, mut left) = (form.begin(), rows_max);
        let until = clock::instant() + FILE_WITHIN;
        while left > 0 && rows.cursor().is_some() && clock::instant() < until {
            let next = rows.next(ROWS_AT_ONCE.min(left)).await?;
            left = left.saturating_sub(next.len());
            let (same, piece) = written(&self.exporting, form, next).await.map_err(failed)?;
            form = same;
            bytes.extend(piece);
        }
        let next = rows.cursor().map(cursor::text);
        bytes.extend(form.end().map_err(failed)?);
        Ok(LogFile { bytes, next })
    }
}

/// Reads further rows while those before them are written.
async fn write(
    writing: &LowPriority,
    mut form: Form,
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
        let (same, piece) = written(writing, form, rows).await?;
        form = same;
        if !piece.is_empty() {
            to.send(Ok(piece.into())).await?;
        }
    }
    reading.await.map_err(io::Error::other)??;
    to.send(Ok(form.end()?.into())).await?;
    Ok(())
}

/// Writes further rows, on a thread that nobody waits for.
async fn written(writing: &LowPriority, mut form: Form, rows: Vec<Row>) -> io::Result<(Form, Vec<u8>)> {
    let work = writing.run(move || {
        let piece = form.rows(rows)?;
        Ok((form, piece))
    });
    work.await.map_err(|NotDone| io::Error::other("the writer failed"))?
}

/// Rows of the log in one piece.
#[derive(Debug)]
pub(crate) struct LogFile {
    /// The file.
    pub(crate) bytes: Vec<u8>,
    /// A cursor from which further rows come; `None`: it has all.
    pub(crate) next: Option<String>,
}
