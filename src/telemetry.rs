//! weir's own telemetry: metrics, the access log, and diagnostic messages on standard error.

pub(crate) mod access_log;
pub(crate) mod attention;
mod line_queue;
pub(crate) mod metrics;

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::telemetry::{
    line_queue::{LineQueue, LineQueueSettings, LineSink, LogLine},
    metrics::Metrics,
};

/// The maximum number of messages that wait to be written. Further messages are dropped and counted.
const QUEUE_LINES: usize = 1024;
/// The timeout for writing the remaining messages at the end of the process.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// Libraries whose log level is stricter than that of the other libraries. Pingora's proxy logs an error for each client that
/// disconnects, and quotes heads from providers. Pingora's connection code repeats facts that weir logs about the request.
/// `rustls` quotes the certificates and alerts of a TLS peer.
const QUIET: [(&str, LevelFilter); 6] = [
    ("pingora_proxy", LevelFilter::OFF),
    ("pingora_load_balancing", LevelFilter::OFF),
    ("pingora_core", LevelFilter::ERROR),
    ("pingora_core::apps", LevelFilter::OFF),
    // This library warns of a provider that sends more bytes than its answer has. weir itself logs such an answer.
    ("pingora_pool", LevelFilter::ERROR),
    ("rustls", LevelFilter::OFF),
];

/// The reason why diagnostic messages cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiagnosticsError {
    /// The configured level is unknown.
    #[error("log level `{0}` is unknown: use off, error, warn, info, debug or trace")]
    Level(String),
    /// Diagnostic messages have already been set up in this process.
    #[error("cannot set up the diagnostic messages a second time: {0}")]
    AlreadySet(String),
    /// The thread that writes the messages cannot be started.
    #[error("cannot start the thread that writes messages to standard error: {0}")]
    Thread(io::Error),
}

/// Writes weir's diagnostic messages to standard error.
///
/// At debug level, Pingora and other libraries print complete requests with their credentials; at other levels, they print bytes
/// from providers and clients. Therefore the configured level applies only to weir's own messages. Of other crates, only warnings
/// and errors are printed, and only if weir does not report the event itself.
///
/// A separate thread writes the messages ([`LineQueue`]), so no other thread ever waits for standard error. Drop this value at
/// the end of the process to write the remaining messages.
#[derive(Debug)]
#[must_use = "messages after this is dropped are lost"]
pub(crate) struct Diagnostics {
    lines: Arc<LineQueue<Message>>,
}

/// A formatted message.
#[derive(Debug)]
struct Message(Box<[u8]>);

impl LogLine for Message {
    fn append_to(&self, line: &mut Vec<u8>) -> io::Result<()> {
        line.extend_from_slice(self.0.strip_suffix(b"\n").unwrap_or(&self.0));
        Ok(())
    }
}

impl Diagnostics {
    /// Sends the events of `tracing` and the records of `log` (which Pingora uses) to standard error, one plain line each.
    /// Succeeds only once per process.
    pub(crate) fn start(level: &str) -> Result<Self, DiagnosticsError> {
        let filter = filter(level)?;
        let diagnostics = Self::to(standard_error(), QUEUE_LINES).map_err(DiagnosticsError::Thread)?;
        tracing_subscriber::fmt()
            .compact()
            .with_ansi(false)
            // If internal errors were logged, the thread that logs would write them to standard error itself.
            .log_internal_errors(false)
            .with_writer(diagnostics.writer())
            .with_env_filter(filter)
            .try_init()
            .map_err(|error| DiagnosticsError::AlreadySet(error.to_string()))?;
        Ok(diagnostics)
    }

    fn to(sink: LineSink, lines_max: usize) -> io::Result<Self> {
        let settings = LineQueueSettings {
            name: "standard error",
            thread: "diagnostics",
            lines_max,
            gather: Duration::ZERO,
        };
        let lines = Arc::new(LineQueue::start(sink, settings)?);
        Ok(Self { lines })
    }

    fn writer(&self) -> impl Fn() -> MessageWriter + use<> {
        let lines = Arc::clone(&self.lines);
        move || MessageWriter(Arc::clone(&lines))
    }

    /// Adds a sampler to `metrics` that reports the number of lost messages.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        let lines = Arc::clone(&self.lines);
        metrics.add_sampler(move |metrics| metrics.log.diagnostics_dropped.raise_to(lines.dropped()));
    }
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        // Messages that are not written in time are lost.
        let _written = self.lines.close(FLUSH_WAIT);
    }
}

/// Writes a message to standard error that says why the process ends. Waits up to [`FLUSH_WAIT`] until the message is written.
pub(crate) fn print_last(text: &str) {
    let text = format!("{text}\n");
    match Diagnostics::to(standard_error(), 1) {
        // The queue is dropped at once; dropping it writes the message.
        Ok(last) => last.lines.write(Message(text.as_bytes().into())),
        Err(_) => {
            let _written = io::stderr().write_all(text.as_bytes());
        }
    }
}

fn standard_error() -> LineSink {
    LineSink::Stream(Box::new(io::stderr()))
}

/// The writer that `tracing` uses. It receives each message in one call.
struct MessageWriter(Arc<LineQueue<Message>>);

impl Write for MessageWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(Message(bytes.into()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn filter(level: &str) -> Result<EnvFilter, DiagnosticsError> {
    // The levels are listed, because `tracing` would also accept numbers and other spellings.
    let own = match level {
        "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return Err(DiagnosticsError::Level(level.to_owned())),
    };
    let others = own.min(LevelFilter::WARN);
    let mut filter = format!("{others},weir={own}");
    for (library, level) in QUIET {
        let level = level.min(others);
        filter.push_str(&format!(",{library}={level}"));
    }
    Ok(EnvFilter::new(filter))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use parking_lot::Mutex;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn subscriber(
        level: &str,
        writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    ) -> impl tracing::Subscriber + Send + Sync {
        tracing_subscriber::fmt()
            .compact()
            .with_ansi(false)
            .with_writer(writer)
            .with_env_filter(filter(level).expect("a level"))
            .finish()
    }

    fn said_at(level: &str) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing::subscriber::with_default(subscriber(level, move || writer.clone()), || {
            tracing::trace!(target: "weir::gateway", "own-trace");
            tracing::info!(target: "weir::gateway", "own-info");
            tracing::error!(target: "weir::gateway", "own-error");
            tracing::debug!(target: "pingora_proxy", "theirs-debug");
            tracing::trace!(target: "pingora_core::protocols::http", "theirs-trace");
            tracing::debug!(target: "hyper::proto", "theirs-debug");
            tracing::info!(target: "pingora_core::server", "theirs-info");
            tracing::warn!(target: "pingora_core::protocols::http::v1::common", "quoting-warn");
            tracing::warn!(target: "pingora_pool::connection", "quoting-warn");
            tracing::error!(target: "pingora_core::services::listening", "theirs-error");
            tracing::error!(target: "pingora_core::apps", "quoting-error");
            tracing::error!(target: "pingora_proxy", "quoting-error");
            tracing::warn!(target: "pingora_load_balancing::health_check", "quoting-warn");
            tracing::error!(target: "rustls::common_state", "quoting-error");
            tracing::warn!(target: "redb", "theirs-warn");
        });
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn libraries_are_never_heard_below_warnings() {
        let said = said_at("trace");
        assert!(said.contains("own-trace") && said.contains("theirs-warn") && said.contains("theirs-error"));
        assert!(
            !said.contains("theirs-debug") && !said.contains("theirs-trace") && !said.contains("theirs-info"),
            "{said}"
        );
    }

    #[test]
    fn what_weir_says_itself_and_what_quotes_a_peer_is_not_heard_from_libraries() {
        for level in ["info", "trace"] {
            let said = said_at(level);
            assert!(!said.contains("quoting"), "{said}");
        }
    }

    #[test]
    fn a_quieter_level_quietens_the_libraries_too() {
        let said = said_at("error");
        assert!(said.contains("own-error") && said.contains("theirs-error"));
        assert!(!said.contains("info") && !said.contains("warn"), "{said}");
        assert_eq!(said_at("off"), "");
    }

    #[test]
    fn what_was_said_last_is_written_before_the_end() {
        let lines = Lines::default();
        let diagnostics = Diagnostics::to(LineSink::Stream(Box::new(lines.clone())), QUEUE_LINES).expect("starts");
        tracing::subscriber::with_default(subscriber("info", diagnostics.writer()), || {
            for count in 0..500 {
                tracing::info!(target: "weir::wiring", count, "said");
            }
        });
        drop(diagnostics);
        let said = String::from_utf8(lines.0.lock().clone()).expect("text");
        assert_eq!(said.lines().count(), 500, "{said}");
        let last = said.lines().last().expect("a line");
        assert!(last.contains("weir::wiring: said count=499"), "{last}");
    }

    /// Tells that it was reached, and takes nothing until it is released.
    struct Unread(SyncSender<()>, Receiver<()>, Lines);

    impl Write for Unread {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _first = self.0.try_send(());
            let _released = self.1.recv();
            self.2.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_standard_error_that_nobody_reads_and_what_was_lost_is_told_once() {
        const LONG: Duration = Duration::from_secs(10);
        let (reached, stuck) = sync_channel(1);
        let (release, released) = sync_channel(0);
        let lines = Lines::default();
        let sink = LineSink::Stream(Box::new(Unread(reached, released, lines.clone())));
        let diagnostics = Diagnostics::to(sink, 4).expect("starts");
        let metrics = Metrics::new(&[], &[]).expect("the definitions are right");
        diagnostics.observe(&metrics);
        let queue = Arc::clone(&diagnostics.lines);
        let subscriber = subscriber("info", diagnostics.writer());
        let say = |count: usize| tracing::info!(target: "weir::wiring", count, "said");
        tracing::subscriber::with_default(subscriber, || {
            say(0);
            stuck.recv_timeout(LONG).expect("the writer writes");
            (1..=10).for_each(say);
        });
        assert_eq!(queue.dropped(), 6, "one is being written and four wait");
        assert!(metrics.render().contains("\nweir_diagnostics_dropped_total 6\n"));
        drop(release);
        drop(diagnostics);
        let said = String::from_utf8(lines.0.lock().clone()).expect("text");
        let counts: Vec<&str> = said
            .lines()
            .filter_map(|line| Some(line.split_once("count=")?.1))
            .collect();
        assert_eq!(counts, ["0", "1", "2", "3", "4"], "{said}");
    }

    #[test]
    fn an_unknown_level_is_an_error() {
        for level in ["loud", "3", "", "weir=debug"] {
            assert!(filter(level).is_err(), "{level}");
        }
    }
}
