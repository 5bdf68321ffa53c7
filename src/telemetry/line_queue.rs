//! A queue of lines that a thread of its own writes to a file or a stream, which log rotation may rename.
//!
//! A thread that logs hands its line over and never waits for a disk, a pipe or its reader. The queue is bounded: if it is
//! full, lines are dropped and counted, because serving matters more than logging. Once all queued lines are written again,
//! the loss is reported once.

#[cfg(test)]
mod tests;

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, BufWriter, ErrorKind, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::edges::clock;

/// The minimum interval between two checks whether the file is still the one at its path.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes collected before a write when lines come faster than they are written.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// A value that can be written as a line.
pub(super) trait LogLine: Send + 'static {
    /// Appends the line without its line break.
    ///
    /// # Errors
    /// A value cannot be written.
    fn append_to(&self, line: &mut Vec<u8>) -> io::Result<()>;
}

/// The names and sizes of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineQueueSettings {
    /// The queue's name in messages.
    pub name: &'static str,
    /// The name of its thread.
    pub thread: &'static str,
    /// Maximum number of waiting lines, at least 1.
    pub lines_max: usize,
    /// How long a line waits for others, so that the writer writes several at once.
    pub gather: Duration,
}

/// The queue. Call [`LineQueue::close`] at the end of the process.
#[derive(Debug)]
pub(super) struct LineQueue<L> {
    queue: SyncSender<Job<L>>,
    shared: Arc<WriterSignals>,
    done: Mutex<Receiver<()>>,
}

#[derive(Debug)]
enum Job<L> {
    Line(L),
    /// Something in [`WriterSignals`] has changed.
    Wake,
}

#[derive(Debug, Default)]
struct WriterSignals {
    dropped: AtomicU64,
    reopen: AtomicBool,
    closing: AtomicBool,
}

impl<L: LogLine> LineQueue<L> {
    /// Starts the writer.
    ///
    /// # Errors
    /// Its thread cannot be started.
    pub(super) fn start(sink: LineSink, settings: LineQueueSettings) -> io::Result<Self> {
        let (queue, jobs) = sync_channel(settings.lines_max.max(1));
        let (ended, done) = sync_channel(1);
        let shared = Arc::<WriterSignals>::default();
        let writer = LineWriter {
            sink: BufWriter::with_capacity(WRITE_BUFFER_BYTES, sink),
            line: Vec::new(),
            gather: settings.gather,
            shared: Arc::clone(&shared),
            failing: false,
            reported: 0,
            checked_at: clock::instant(),
            report: move |event| log_event(settings.name, event),
        };
        let body = move || {
            writer.run(&jobs);
            // Maybe `close` does not wait.
            let _sent = ended.try_send(());
        };
        std::thread::Builder::new()
            .name(settings.thread.to_owned())
            .spawn(body)?;
        Ok(Self {
            queue,
            shared,
            done: Mutex::new(done),
        })
    }

    /// Hands a line to the writer. Never waits: if the queue is full, the line is dropped and counted.
    pub(super) fn write(&self, line: L) {
        if self.queue.try_send(Job::Line(line)).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of lines lost so far: the queue was full, or they could not be written.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Has the writer open its file again, for log rotation. Lines that are already queued may still go to the old file.
    pub(super) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Writes the queued lines and ends the writer, waiting at most `wait`. Returns `false` if the sink hung before all were
    /// written. Later lines are dropped and counted.
    pub(super) fn close(&self, wait: Duration) -> bool {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        let done = self.done.lock();
        // Disconnected: already closed.
        !matches!(done.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
    }

    /// Wakes the writer. A full queue needs no waking: the writer checks the flags before it sleeps.
    fn wake(&self) {
        let _full_or_closed = self.queue.try_send(Job::Wake);
    }
}

/// A change in the state of the sink.
#[derive(Debug)]
enum SinkEvent {
    /// Writing has begun to fail.
    Failed(io::Error),
    /// Writing works again.
    Recovered,
    /// All queued lines are written, after this many were lost.
    LinesLost(u64),
}

/// Logs an event of the sink of queue `name`.
fn log_event(name: &str, event: SinkEvent) {
    match event {
        SinkEvent::Failed(error) => tracing::error!(%error, "{name} cannot be written; lines are lost"),
        SinkEvent::Recovered => tracing::info!("{name} is written again"),
        // An error, because the lost lines may have been errors.
        SinkEvent::LinesLost(lost) => tracing::error!(
            lost,
            "{name}: lines were lost because they could not be written in time; it is written again"
        ),
    }
}

/// The writing thread's state.
struct LineWriter<R> {
    sink: BufWriter<LineSink>,
    line: Vec<u8>,
    gather: Duration,
    shared: Arc<WriterSignals>,
    /// Whether the last write failed.
    failing: bool,
    /// The number of lost lines that were reported.
    reported: u64,
    /// When the path was last checked.
    checked_at: Instant,
    report: R,
}

impl<R: FnMut(SinkEvent)> LineWriter<R> {
    fn run<L: LogLine>(mut self, jobs: &Receiver<Job<L>>) {
        loop {
            // Read before the queue: lines handed over before the end are written.
            let closing = self.shared.closing.load(Ordering::SeqCst);
            let job = match jobs.try_recv() {
                Ok(job) => job,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.flush();
                    match jobs.try_recv() {
                        // It came during the flush: the queue is not at its end.
                        Ok(job) => job,
                        // The report may be a line of this very queue.
                        Err(_) if self.report_loss() => continue,
                        Err(_) if closing => break,
                        Err(_) => {
                            let Ok(job) = jobs.recv() else { break };
                            if !self.gather.is_zero() && !self.shared.closing.load(Ordering::SeqCst) {
                                std::thread::sleep(self.gather);
                            }
                            job
                        }
                    }
                }
            };
            let asked = self.shared.reopen.swap(false, Ordering::SeqCst);
            if asked || self.was_renamed() {
                self.flush();
                self.sink.get_mut().reopen();
            }
            if let Job::Line(line) = job {
                self.write(&line);
            }
        }
        self.flush();
        // Lines that could not be flushed are lost with the process.
        let lost = memchr::memchr_iter(b'\n', self.sink.buffer()).count();
        self.record_lost(u64::try_from(lost).unwrap_or(u64::MAX));
    }

    fn write(&mut self, line: &impl LogLine) {
        self.line.clear();
        let appended = line.append_to(&mut self.line);
        self.line.push(b'\n');
        if let Err(error) = appended.and_then(|()| self.sink.write_all(&self.line)) {
            self.record_lost(1);
            self.report_change(Err(error));
        }
    }

    /// Writes the buffer out. Only this shows that the sink works: a line that fits into the buffer has not reached it.
    fn flush(&mut self) {
        if !self.sink.buffer().is_empty() {
            let flushed = self.sink.flush();
            self.report_change(flushed);
        }
    }

    fn record_lost(&self, lines: u64) {
        self.shared.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Reports how many lines were lost since the last report, unless writing still fails. Returns whether it reported.
    fn report_loss(&mut self) -> bool {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if self.failing || dropped == self.reported {
            return false;
        }
        let lost = dropped - self.reported;
        self.reported = dropped;
        (self.report)(SinkEvent::LinesLost(lost));
        true
    }

    fn was_renamed(&mut self) -> bool {
        let now = clock::instant();
        if now.saturating_duration_since(self.checked_at) < LOOK_EVERY {
            return false;
        }
        self.checked_at = now;
        self.sink.get_ref().was_renamed()
    }

    /// Reports once that writing fails and once that it works again, rather than per line.
    fn report_change(&mut self, written: io::Result<()>) {
        let event = match written {
            Ok(()) if self.failing => SinkEvent::Recovered,
            Err(error) if !self.failing => SinkEvent::Failed(error),
            Ok(()) | Err(_) => return,
        };
        (self.report)(event);
        self.failing = !self.failing;
    }
}

/// The owner writes, the group reads.
const FILE_MODE: u32 = 0o640;

/// The stream or file that lines are written to.
pub(in crate::telemetry) enum LineSink {
    Stream(Box<dyn Write + Send>),
    File(ReopenableFile),
}

/// The file at a path; opened again after the file was renamed.
#[derive(Debug)]
pub(in crate::telemetry) struct ReopenableFile {
    file: File,
    path: PathBuf,
    /// Whether the file was renamed and no new one can be opened at the path.
    misplaced: bool,
}

impl ReopenableFile {
    /// Opens the file for appending, and creates it 0640 if it is missing. Never waits: a FIFO may have no reader yet.
    pub(in crate::telemetry) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: open(path)?,
            path: path.to_owned(),
            misplaced: false,
        })
    }

    /// Whether `file` is still the file at the path.
    fn is_in_place(&self) -> bool {
        let place = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        match (self.file.metadata(), self.path.metadata()) {
            (Ok(own), Ok(there)) => place(&own) == place(&there),
            // Without an answer the file is kept, unless nothing is at the path.
            (_, Err(error)) => error.kind() != ErrorKind::NotFound,
            (Err(_), Ok(_)) => true,
        }
    }

    fn reopen(&mut self) {
        match open(&self.path) {
            Ok(fresh) => {
                self.file = fresh;
                self.misplaced = false;
            }
            // Logged once; each check tries again.
            Err(_) if self.misplaced => {}
            Err(error) => {
                self.misplaced = true;
                let path = self.path.display();
                tracing::error!(%path, %error, "a log file cannot be opened again; lines still go to the old file");
            }
        }
    }
}

/// Opens the file for appending. A FIFO is opened for reading as well, since opening it only for writing would wait for a reader.
fn open(path: &Path) -> io::Result<File> {
    let is_fifo = path.metadata().is_ok_and(|there| there.file_type().is_fifo());
    OpenOptions::new()
        .create(true)
        .append(true)
        .read(is_fifo)
        .mode(FILE_MODE)
        .open(path)
}

impl LineSink {
    /// Whether the path now leads to another file, or to none.
    fn was_renamed(&self) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::File(file) => !file.is_in_place(),
        }
    }

    /// Opens the file at the path again.
    fn reopen(&mut self) {
        if let Self::File(file) = self {
            file.reopen();
        }
    }
}

impl Write for LineSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.write(bytes),
            Self::File(file) => file.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::File(file) => file.file.flush(),
        }
    }
}
