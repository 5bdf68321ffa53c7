//! The access log: one JSON line per request, written by its own thread ([`LineQueue`]). No field can hold a key, a prompt
//! or an answer.
//!
//! Log rotation may rename the file at any time. The writer notices and opens or creates the file at its path; SIGHUP makes it
//! check at once.

#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::fmt::temporal::DateTimePrinter;
use serde::ser::Error;
use smol_str::SmolStr;

use crate::{
    domain::{quick_json::JsonWriter, wire::usage::Usage},
    telemetry::line_queue::{LineQueue, LineQueueSettings, LineSink, LogLine, ReopenableFile},
};

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
    #[error("{path}: {source}; check that the folder exists and that weir may write there")]
    Open {
        /// The configured path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The writer thread cannot be started.
    #[error("the writer thread cannot be started: {0}")]
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

/// Prints times with milliseconds, even if they are zero.
static TIME: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// One finished request. It deliberately has no field for a key, a prompt, an answer or a client's address.
///
/// The fields of type `&'static str` come from closed sets (`as_str` of an enum), so they are safe as metric labels; of the
/// others, only [`RequestRecord::model`] and [`RequestRecord::provider`] are, and only if the catalogue has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestRecord {
    /// When the request arrived, in milliseconds since the Unix epoch; `time` in the line, as RFC 3339 in UTC.
    pub time_unix_ms: i64,
    /// weir's own identifier of the request, also sent to the client.
    pub request_id: SmolStr,
    /// The identifier (never the text) of the key, if it was found.
    pub key_id: Option<SmolStr>,
    /// The account that the key belongs to.
    pub account: Option<SmolStr>,
    /// `Protocol::as_str`, if the path belongs to one.
    pub protocol: Option<&'static str>,
    /// `Operation` in snake case, if the path names one.
    pub operation: Option<&'static str>,
    /// The model name that the client sent; only if it has the form of one, so that no prompt slips in.
    pub model_asked: Option<SmolStr>,
    /// The catalogue model that served the request.
    pub model: Option<SmolStr>,
    /// The provider that the request was sent to.
    pub provider: Option<SmolStr>,
    /// The HTTP status sent to the client; 0 if it left before one was sent.
    pub status: u16,
    /// `End::label`: how the request ended.
    pub outcome: &'static str,
    /// `Refusal::reason`, if weir itself refused it.
    pub refusal: Option<&'static str>,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// From arrival to the first generated content, in milliseconds.
    pub ttft_ms: Option<u64>,
    /// From arrival to the end of the answer, in milliseconds.
    pub latency_ms: u64,
    /// The number of attempts at providers: 0 for weir's own refusals, 2 after one retry.
    pub attempts: u32,
    /// Bytes of the request body as received.
    pub request_bytes: u64,
    /// Bytes of the response body as sent.
    pub response_bytes: u64,
    /// The tokens that the provider reported.
    pub usage: Option<Usage>,
    /// Why the model stopped, in the protocol's own word (`finish_reason::word`).
    pub finish_reason: Option<&'static str>,
    /// The HTTP version that the client spoke: 1 or 2; 0 if unknown. `http` in the line.
    pub client_version: u8,
}

impl RequestRecord {
    /// Appends the line, a JSON object without its line break. Unknown values are left out.
    ///
    /// # Errors
    /// The time cannot be written.
    pub(crate) fn write_json(&self, line: &mut Vec<u8>) -> serde_json::Result<()> {
        let Self {
            time_unix_ms,
            request_id,
            key_id,
            account,
            protocol,
            operation,
            model_asked,
            model,
            provider,
            status,
            outcome,
            refusal,
            stream,
            ttft_ms,
            latency_ms,
            attempts,
            request_bytes,
            response_bytes,
            usage,
            finish_reason,
            client_version,
        } = self;
        let time = rfc3339(*time_unix_ms).ok_or_else(|| serde_json::Error::custom("the time is out of range"))?;
        let mut json = JsonWriter(line);
        json.text(r#"{"time":"#, &time)?;
        json.text(r#","request_id":"#, request_id)?;
        for (before, text) in [
            (r#","key_id":"#, key_id.as_deref()),
            (r#","account":"#, account.as_deref()),
            (r#","protocol":"#, *protocol),
            (r#","operation":"#, *operation),
            (r#","model_asked":"#, model_asked.as_deref()),
            (r#","model":"#, model.as_deref()),
            (r#","provider":"#, provider.as_deref()),
        ] {
            if let Some(text) = text {
                json.text(before, text)?;
            }
        }
        json.value(r#","status":"#, status)?;
        json.text(r#","outcome":"#, outcome)?;
        if let Some(refusal) = refusal {
            json.text(r#","refusal":"#, refusal)?;
        }
        json.value(r#","stream":"#, stream)?;
        json.optional(r#","ttft_ms":"#, ttft_ms.as_ref())?;
        json.value(r#","latency_ms":"#, latency_ms)?;
        json.value(r#","attempts":"#, attempts)?;
        json.value(r#","request_bytes":"#, request_bytes)?;
        json.value(r#","response_bytes":"#, response_bytes)?;
        if let Some(usage) = usage {
            write_usage(usage, &mut json)?;
        }
        if let Some(reason) = finish_reason {
            json.text(r#","finish_reason":"#, reason)?;
        }
        json.value(r#","http":"#, client_version)?;
        json.put("}");
        Ok(())
    }
}

/// Writes the counts that are not zero: most requests have three.
fn write_usage(usage: &Usage, json: &mut JsonWriter<'_>) -> serde_json::Result<()> {
    json.put(r#","usage":{"#);
    let mut before = "\"";
    for (name, count) in usage.named_parts().filter(|(_, count)| *count > 0) {
        json.put(before);
        json.put(name);
        json.value("\":", &count)?;
        before = ",\"";
    }
    json.put("}");
    Ok(())
}

/// Milliseconds since the Unix epoch as RFC 3339 in UTC; `None` if the time is out of range.
fn rfc3339(unix_ms: i64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(unix_ms).ok()?;
    Some(TIME.timestamp_to_string(&time))
}
