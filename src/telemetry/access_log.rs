//! The access log: one JSON line per request, written by its own thread.
//!
//! A request hands over its record and never waits for a disk or pipe. The queue is bounded: if it is full, lines are
//! dropped and counted, because answering matters more than logging. No field can hold a key, a prompt or an answer.
//!
//! The file may be renamed at any time, as log rotation does. The writer notices and opens or creates the file under
//! its path; SIGHUP makes it check at once.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::edges::clock;

mod diagnostics;
mod record;

pub(crate) use diagnostics::init_tracing;
pub(crate) use record::RequestRecord;

/// How long a line waits for others, so that a request need not wake the writer and the writer need not write each by itself.
const GATHER: Duration = Duration::from_millis(5);
/// How often the writer looks whether its file is still the one at its path, at most.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes gathered before a write when lines come faster than they are written.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// Where the lines go: `[log] access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessLogTarget {
    /// To standard output.
    Stdout,
    /// Appended to a file, which is created 0640 if it is missing.
    File(PathBuf),
    /// Nowhere.
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

/// The log. Shared in an `Arc`; [`AccessLog::close`] at the end of the process.
#[derive(Debug)]
pub(crate) struct AccessLog {
    queue: Option<SyncSender<Job>>,
    shared: Arc<WriterSignals>,
    done: Mutex<Receiver<()>>,
}

#[derive(Debug)]
enum Job {
    Line(Box<RequestRecord>),
    /// Something in [`WriterSignals`] changed; look there.
    Wake,
}

#[derive(Debug, Default)]
struct WriterSignals {
    dropped: AtomicU64,
    reopen: AtomicBool,
    closing: AtomicBool,
}

impl AccessLog {
    /// Opens the target and starts the writer; `queue_lines` (at least 1) is `[log] access_queue_lines`.
    pub(crate) fn open(target: &AccessLogTarget, queue_lines: usize) -> Result<Self, AccessLogError> {
        match target {
            AccessLogTarget::Off => Ok(Self {
                queue: None,
                shared: Arc::default(),
                done: Mutex::new(sync_channel(0).1),
            }),
            AccessLogTarget::Stdout => Self::start(Sink::Stream(Box::new(io::stdout())), queue_lines),
            AccessLogTarget::File(path) => {
                let file = open_file(path).map_err(|source| AccessLogError::Open {
                    path: path.clone(),
                    source,
                })?;
                Self::start(Sink::File(file, path.clone()), queue_lines)
            }
        }
    }

    fn start(sink: Sink, queue_lines: usize) -> Result<Self, AccessLogError> {
        let (queue, jobs) = sync_channel(queue_lines.max(1));
        let (ended, done) = sync_channel(1);
        let shared = Arc::<WriterSignals>::default();
        let writer = Writer {
            sink: BufWriter::with_capacity(WRITE_BUFFER_BYTES, sink),
            line: Vec::new(),
            shared: Arc::clone(&shared),
            broken: false,
            looked: clock::instant(),
            misplaced: false,
        };
        let body = move || {
            writer.run(&jobs);
            // Nobody may be waiting.
            let _sent = ended.try_send(());
        };
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(body)
            .map_err(AccessLogError::Thread)?;
        Ok(Self {
            queue: Some(queue),
            shared,
            done: Mutex::new(done),
        })
    }

    /// Hands a record to the writer. Never waits: a full queue drops it and counts it.
    pub(crate) fn write(&self, record: RequestRecord) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(Job::Line(Box::new(record))).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines lost so far: the queue was full, or the target could not be written.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Has the writer open its file again, for log rotation. What was queued before may still go to the old file.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Writes what is queued and ends the writer, waiting at most `wait`. True when everything was written; false when
    /// the target hung. Records that come later are dropped and counted.
    pub(crate) fn close(&self, wait: Duration) -> bool {
        if self.queue.is_none() {
            return true;
        }
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        let done = self.done.lock();
        // Disconnected: closed before.
        !matches!(done.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
    }

    /// A full queue needs no waking: the writer looks at the flags before it sleeps.
    fn wake(&self) {
        if let Some(queue) = &self.queue {
            let _full_or_closed = queue.try_send(Job::Wake);
        }
    }
}

/// What lines are written to.
enum Sink {
    Stream(Box<dyn Write + Send>),
    File(File, PathBuf),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.write(bytes),
            Self::File(file, _) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::File(file, _) => file.flush(),
        }
    }
}

/// The thread's side.
struct Writer {
    sink: BufWriter<Sink>,
    line: Vec<u8>,
    shared: Arc<WriterSignals>,
    broken: bool,
    /// When the path was last looked at.
    looked: Instant,
    /// The file was renamed, and no other can be opened in its place.
    misplaced: bool,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let job = match jobs.try_recv() {
                Ok(job) => job,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    let flushed = self.sink.flush();
                    self.note(flushed);
                    if self.shared.closing.load(Ordering::SeqCst) {
                        break;
                    }
                    let Ok(job) = jobs.recv() else { break };
                    if !self.shared.closing.load(Ordering::SeqCst) {
                        std::thread::sleep(GATHER);
                    }
                    job
                }
            };
            let asked = self.shared.reopen.swap(false, Ordering::SeqCst);
            if asked || self.was_renamed() {
                self.reopen();
            }
            if let Job::Line(record) = job {
                self.write(&record);
            }
        }
        let flushed = self.sink.flush();
        self.note(flushed);
        // What could not be flushed goes down with the process.
        let lost = memchr::memchr_iter(b'\n', self.sink.buffer()).count();
        self.shared
            .dropped
            .fetch_add(u64::try_from(lost).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn write(&mut self, record: &RequestRecord) {
        self.line.clear();
        let written = match record.write_json(&mut self.line) {
            Ok(()) => {
                self.line.push(b'\n');
                self.sink.write_all(&self.line)
            }
            Err(error) => Err(error.into()),
        };
        if written.is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.note(written);
    }

    /// Whether the path leads to another file now, or to none.
    fn was_renamed(&mut self) -> bool {
        let now = clock::instant();
        if now.saturating_duration_since(self.looked) < LOOK_EVERY {
            return false;
        }
        self.looked = now;
        match self.sink.get_ref() {
            Sink::File(file, path) => !is_at(file, path),
            Sink::Stream(_) => false,
        }
    }

    fn reopen(&mut self) {
        let flushed = self.sink.flush();
        self.note(flushed);
        if let Sink::File(file, path) = self.sink.get_mut() {
            match open_file(path) {
                Ok(fresh) => {
                    *file = fresh;
                    self.misplaced = false;
                }
                // Said once; it is tried again with each look.
                Err(_) if self.misplaced => {}
                Err(error) => {
                    self.misplaced = true;
                    tracing::error!(path = %path.display(), %error, "access log not reopened, writing on to the old file");
                }
            }
        }
    }

    /// Says it once when writing breaks and once when it works again, not per line.
    fn note(&mut self, written: io::Result<()>) {
        match written {
            Ok(()) if self.broken => tracing::info!("access log is written again"),
            Err(error) if !self.broken => tracing::error!(%error, "access log cannot be written, lines are lost"),
            Ok(()) | Err(_) => return,
        }
        self.broken = !self.broken;
    }
}

/// Whether `file` is what lies at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), path.metadata()) {
        (Ok(own), Ok(there)) => place(&own) == place(&there),
        // Whoever cannot be asked is left alone, but a path that leads nowhere.
        (_, Err(error)) => error.kind() != ErrorKind::NotFound,
        (Err(_), Ok(_)) => true,
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests;
