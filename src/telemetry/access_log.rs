//! The access log: one JSON line per request, written by its own thread ([`LineQueue`]). No field can hold a key, a prompt
//! or an answer.
//!
//! Log rotation may rename the file at any time. The writer notices and opens or creates the file at its path; SIGHUP makes it
//! check at once.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::line_queue::{LineQueue, LineQueueSettings, LineSink, LogLine, ReopenableFile};

mod record;

pub(crate) use record::RequestRecord;

/// How long a line waits for others, so that not each request wakes the writer.
const GATHER: Duration = Duration::from_millis(5);

/// The target of the access log: `[log] access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// A file, to which lines are appended; created 0640 if it is missing.
    File(PathBuf),
    /// No access log.
    Off,
}

/// Why the access log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error("access log {path}: {source}; check that the folder exists and that weir may write there")]
    Open {
        /// The configured path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The writer thread cannot be started.
    #[error("access log: the writer thread cannot be started: {0}")]
    Thread(io::Error),
}

/// The access log. Shared in an `Arc`; call [`AccessLog::close`] at the end of the process.
#[derive(Debug)]
pub(crate) struct AccessLog {
    lines: Option<LineQueue<Box<RequestRecord>>>,
}

impl LogLine for Box<RequestRecord> {
    fn append_to(&self, line: &mut Vec<u8>) -> io::Result<()> {
        self.write_json(line).map_err(io::Error::from)
    }
}

impl AccessLog {
    /// Opens the target and starts the writer; `queue_lines` (at least 1) is `[log] access_queue_lines`.
    pub(crate) fn open(target: &AccessLogTarget, queue_lines: usize) -> Result<Self, AccessLogError> {
        let sink = match target {
            AccessLogTarget::Off => return Ok(Self { lines: None }),
            AccessLogTarget::Stdout => LineSink::Stream(Box::new(io::stdout())),
            AccessLogTarget::File(path) => LineSink::File(open_file(path)?),
        };
        let settings = LineQueueSettings {
            name: "access log",
            thread: "access-log",
            lines_max: queue_lines,
            gather: GATHER,
        };
        let lines = LineQueue::start(sink, settings).map_err(AccessLogError::Thread)?;
        Ok(Self { lines: Some(lines) })
    }

    /// Takes the record out and hands it to the writer. Never waits: if the queue is full, the record is dropped and counted.
    pub(crate) fn write(&self, record: &mut RequestRecord) {
        if let Some(lines) = &self.lines {
            lines.write(Box::new(std::mem::take(record)));
        }
    }

    /// The number of lines lost so far: the queue was full, or the target could not be written.
    pub(crate) fn dropped(&self) -> u64 {
        self.lines.as_ref().map_or(0, LineQueue::dropped)
    }

    /// Has the writer open its file again, for log rotation. Lines that are already queued may still go to the old file.
    pub(crate) fn reopen(&self) {
        if let Some(lines) = &self.lines {
            lines.reopen();
        }
    }

    /// Writes the queued lines and ends the writer, waiting at most `wait`. Returns `false` if the target hung before all were
    /// written. Later records are dropped and counted.
    pub(crate) fn close(&self, wait: Duration) -> bool {
        self.lines.as_ref().is_none_or(|lines| lines.close(wait))
    }
}

fn open_file(path: &Path) -> Result<ReopenableFile, AccessLogError> {
    ReopenableFile::open(path).map_err(|source| AccessLogError::Open {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
