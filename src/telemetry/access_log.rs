//! The access log, with one JSON line per request. A separate thread writes the lines ([`LineQueue`]). No field can contain a
//! key, a prompt or an answer.
//!
//! Log rotation may rename the file at any time. The writer checks at intervals whether the file was renamed, and then opens or
//! creates a file at the configured path. On SIGHUP, it checks at once.

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
    domain::{
        ledger::consumption::RequestTransport,
        wire::{JsonWriter, usage::Usage},
    },
    telemetry::line_queue::{LineQueue, LineQueueSettings, LineSink, LogLine, ReopenableFile},
};

/// The time for which a line waits for further lines, so that not every request wakes the writer.
const GATHER: Duration = Duration::from_millis(5);

/// The target of the access log: `[log] access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// A file to which lines are appended. If the file is missing, it is created with mode 0640.
    File(PathBuf),
    /// No access log.
    Off,
}

/// The reason why the access log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error("cannot open {path}: {source}; check that the folder exists and that weir may write there")]
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

/// The access log, which is shared in an `Arc`. Call [`AccessLog::close`] before the process ends.
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
    /// Opens the target and starts the writer. `queue_lines` is `[log] access_queue_lines`, at least 1.
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

    /// Passes the content of `record` to the writer. Never waits: if the queue is full, the record is dropped and counted.
    pub(crate) fn write(&self, record: &mut RequestRecord) {
        if let Some(lines) = &self.lines {
            lines.write(Box::new(std::mem::take(record)));
        }
    }

    /// Returns the number of lines that were lost so far. A line is lost if the queue is full, or if writing to the target fails.
    pub(crate) fn dropped(&self) -> u64 {
        self.lines.as_ref().map_or(0, LineQueue::dropped)
    }

    /// Makes the writer open its file again after a log rotation. Lines that are already queued may still go to the old file.
    pub(crate) fn reopen(&self) {
        if let Some(lines) = &self.lines {
            lines.reopen();
        }
    }

    /// Writes the queued lines and ends the writer. Waits at most `wait`; returns `false` if the target did not accept all lines
    /// in that time. Later records are dropped and counted.
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

/// Prints times with three decimal places for the seconds, even if these are zero.
static TIME: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// The access-log entry of one finished request. It deliberately has no field for a key, a prompt, an answer or a client's
/// address.
///
/// A field of type `&'static str` has one of a fixed set of values (`as_str` of an enum), so it can be a metric label. Of the
/// other fields, only [`RequestRecord::model`] and [`RequestRecord::provider`] can be labels, and only if their values are in the
/// catalogue.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestRecord {
    /// The time at which the request arrived, in milliseconds since the Unix epoch. The log line contains it as `time`, in the
    /// form of RFC 3339, in UTC.
    pub time_unix_ms: i64,
    /// weir's identifier of the request, which is also sent to the client.
    pub request_id: SmolStr,
    /// The identifier (never the secret) of the key; `None` if no key was found.
    pub key_id: Option<SmolStr>,
    /// The account to which the key belongs; `None` if no key was found.
    pub account: Option<SmolStr>,
    /// The client's protocol (`Protocol::as_str`); `None` if the path does not belong to a protocol.
    pub protocol: Option<&'static str>,
    /// The name of the operation in snake case; `None` if the path does not name an operation.
    pub operation: Option<&'static str>,
    /// The model's name as the client sent it. `None` if the text does not have the form of a model's name, because such a text
    /// could be a prompt.
    pub model_asked: Option<SmolStr>,
    /// The catalogue's name of the model that served the request; `None` if the request was not admitted.
    pub model: Option<SmolStr>,
    /// The provider to which the request was sent; `None` if it was not sent to a provider.
    pub provider: Option<SmolStr>,
    /// The HTTP status that the client got; 0 if the client disconnected before it got a status.
    pub status: u16,
    /// The end of the request, as `End::label`.
    pub outcome: &'static str,
    /// The reason why weir refused the request (`Refusal::reason`); `None` if weir did not refuse it.
    pub refusal: Option<&'static str>,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// The time from the request's arrival to the first generated content, in milliseconds; `None` without such content.
    pub ttft_ms: Option<u64>,
    /// The time from the request's arrival to the end of the answer, in milliseconds.
    pub latency_ms: u64,
    /// The number of attempts at providers: for example 0 if weir refused the request, and 2 after one retry.
    pub attempts: u32,
    /// The number of bytes of the request's body, after decoding.
    pub request_bytes: u64,
    /// The number of bytes of the body that the provider sent, before any translation. For an answer of weir itself, the number
    /// of bytes of weir's body.
    pub response_bytes: u64,
    /// The token counts that the provider reported; `None` if it did not report usage.
    pub usage: Option<Usage>,
    /// The reason why the model stopped, as a code of the provider's protocol; `other` if weir does not know the code
    /// (`protocol::known_or_other`). `None` if the provider reported no reason.
    pub finish_reason: Option<&'static str>,
    /// The protocols of the client and the provider, for example `responses->chat`; `None` if the request was not translated.
    pub translated: Option<SmolStr>,
    /// The members of a translated request that were adapted or dropped, such as `adapted reasoning`. The values of members are
    /// never included.
    pub losses: Vec<String>,
    /// The HTTP version that the client used: 1 or 2; 0 if unknown. The log line contains it as `http`.
    pub client_version: u8,
    /// The WebSocket that carried the request or that the request opened; `None` for a request without a WebSocket.
    pub socket: Option<SocketMark>,
}

/// The WebSocket of a request, in the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketMark {
    /// The socket's random identifier, which is the same for all of the socket's requests. The log line contains it as
    /// `socket_id`.
    pub id: SmolStr,
    /// The number of the request's lane on the socket: 0 for the default lane; `None` for the handshake. The name that the client
    /// gave the lane is not logged, because it can be any text.
    pub lane: Option<u8>,
}

impl RequestRecord {
    /// Returns the transport with which the request reached weir.
    pub(crate) fn transport(&self) -> RequestTransport {
        match &self.socket {
            Some(_) => RequestTransport::WebSocket,
            None => RequestTransport::Http,
        }
    }

    /// Appends the line as a JSON object without a line break. Unknown values are left out.
    ///
    /// # Errors
    /// The time is out of range for RFC 3339.
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
            translated,
            losses,
            client_version,
            socket,
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
        if let Some(translated) = translated {
            json.text(r#","translated":"#, translated)?;
        }
        json.list(r#","losses":"#, losses)?;
        json.value(r#","http":"#, client_version)?;
        write_socket(socket.as_ref(), &mut json)?;
        json.put("}");
        Ok(())
    }
}

/// Writes the WebSocket of a request. Writes nothing for a request without a WebSocket.
fn write_socket(socket: Option<&SocketMark>, json: &mut JsonWriter<'_>) -> serde_json::Result<()> {
    let Some(SocketMark { id, lane }) = socket else {
        return Ok(());
    };
    json.text(r#","transport":"websocket","socket_id":"#, id)?;
    json.optional(r#","lane":"#, lane.as_ref())
}

/// Writes the token counts that are not zero. Most requests have three such counts.
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

/// Converts milliseconds since the Unix epoch to RFC 3339 in UTC; returns `None` if the time is out of range.
fn rfc3339(unix_ms: i64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(unix_ms).ok()?;
    Some(TIME.timestamp_to_string(&time))
}
