//! A queue of lines. A separate thread writes the lines to a stream, or to a file that log rotation may rename.
//!
//! A thread that logs puts its line into the queue and never waits for a disk, a pipe or the reader of a pipe. The queue is
//! bounded. If it is full, lines are dropped and counted, because serving requests is more important than logging. The loss is
//! reported once, after writes work again and all queued lines have been written.

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

/// The minimum interval between two checks whether the file was renamed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The number of bytes that are collected before a write, if lines arrive faster than they are written.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// A value that can be written as a line.
pub(super) trait LogLine: Send + 'static {
    /// Appends the line without its line break.
    ///
    /// # Errors
    /// The line cannot be formatted.
    fn append_to(&self, line: &mut Vec<u8>) -> io::Result<()>;
}

/// The names and limits of a queue of lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineQueueSettings {
    /// The queue's name in messages.
    pub name: &'static str,
    /// The name of the writing thread.
    pub thread: &'static str,
    /// The maximum number of lines that wait to be written, at least 1.
    pub lines_max: usize,
    /// The time for which a line waits for further lines, so that the thread writes several lines at once.
    pub gather: Duration,
}

/// A queue of lines with its writing thread. Call [`LineQueue::close`] before the process ends.
#[derive(Debug)]
pub(super) struct LineQueue<L> {
    queue: SyncSender<Job<L>>,
    shared: Arc<WriterSignals>,
    done: Mutex<Receiver<()>>,
}

#[derive(Debug)]
enum Job<L> {
    Line(L),
    /// A flag in [`WriterSignals`] has changed.
    Wake,
}

#[derive(Debug, Default)]
struct WriterSignals {
    dropped: AtomicU64,
    reopen: AtomicBool,
    closing: AtomicBool,
}

impl<L: LogLine> LineQueue<L> {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// The thread cannot be started.
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
            // The send fails if `close` does not wait. This is harmless.
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

    /// Passes a line to the writing thread. Never waits: if the queue is full, the line is dropped and counted.
    pub(super) fn write(&self, line: L) {
        if self.queue.try_send(Job::Line(line)).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of lines that were lost so far. A line is lost if the queue is full, or if the line cannot be written.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Makes the writing thread open its file again after a log rotation. Lines that are already queued may still be written to
    /// the old file.
    pub(super) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Writes the queued lines and ends the writing thread. Waits at most `wait`; returns `false` if the stream or file did not
    /// accept all lines in that time. Later lines are dropped and counted.
    pub(super) fn close(&self, wait: Duration) -> bool {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        let done = self.done.lock();
        // If the channel is disconnected, the queue is already closed.
        !matches!(done.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
    }

    /// Wakes the writing thread, so that it checks the flags `reopen` and `closing`. If the queue is full, the thread need not be
    /// woken, because it checks the flags before it sleeps.
    fn wake(&self) {
        let _full_or_closed = self.queue.try_send(Job::Wake);
    }
}

/// An event of the queue: writes have begun to fail, writes work again, or lines were lost.
#[derive(Debug)]
enum SinkEvent {
    /// Writes have begun to fail.
    Failed(io::Error),
    /// Writes work again.
    Recovered,
    /// This many lines were lost. Reported once writes work again and all queued lines have been written.
    LinesLost(u64),
}

/// Logs an event of the queue with this `name`.
fn log_event(name: &str, event: SinkEvent) {
    match event {
        SinkEvent::Failed(error) => {
            tracing::error!(%error, "cannot write to {name}; lines are lost until writes work again")
        }
        SinkEvent::Recovered => tracing::info!("writes to {name} work again"),
        // The loss is logged as an error, because the lost lines may have been errors.
        SinkEvent::LinesLost(lost) => tracing::error!(
            lost,
            "{name}: lines were lost because they could not be written in time; writes work again"
        ),
    }
}

/// The state of the writing thread.
struct LineWriter<R> {
    sink: BufWriter<LineSink>,
    line: Vec<u8>,
    gather: Duration,
    shared: Arc<WriterSignals>,
    /// Whether the most recent write failed.
    failing: bool,
    /// The number of lost lines that have been reported.
    reported: u64,
    /// The time of the most recent check whether the file was renamed.
    checked_at: Instant,
    report: R,
}

impl<R: FnMut(SinkEvent)> LineWriter<R> {
    fn run<L: LogLine>(mut self, jobs: &Receiver<Job<L>>) {
        loop {
            // The flag is read before the queue, so lines that were queued before the close are written.
            let closing = self.shared.closing.load(Ordering::SeqCst);
            let job = match jobs.try_recv() {
                Ok(job) => job,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.flush();
                    match jobs.try_recv() {
                        // A line was queued during the flush.
                        Ok(job) => job,
                        // The report may itself have been queued as a line.
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

    /// Writes the buffer to the stream or file. Only a flush proves that writes work, because a line that fits into the buffer
    /// has not been written to the stream or file yet.
    fn flush(&mut self) {
        if !self.sink.buffer().is_empty() {
            let flushed = self.sink.flush();
            self.report_change(flushed);
        }
    }

    fn record_lost(&self, lines: u64) {
        self.shared.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Reports the number of lines lost since the last report, unless writes still fail. Returns whether there was a report.
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

    /// Reports when writes begin to fail, and when they work again. There is one report for each change, not for each line.
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

/// The mode of a new file: the owner can write, the group can read.
const FILE_MODE: u32 = 0o640;

/// The stream or file to which lines are written.
pub(in crate::telemetry) enum LineSink {
    Stream(Box<dyn Write + Send>),
    File(ReopenableFile),
}

/// The file at a path. After the file has been renamed, the file that is now at the path is opened, or a new one is created
/// there.
#[derive(Debug)]
pub(in crate::telemetry) struct ReopenableFile {
    file: File,
    path: PathBuf,
    /// Whether the file was renamed and no new file could be opened at the path.
    misplaced: bool,
}

impl ReopenableFile {
    /// Opens the file for appending. If the file is missing, creates it with mode 0640. Never waits, even if the file is a FIFO
    /// without a reader.
    pub(in crate::telemetry) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: open(path)?,
            path: path.to_owned(),
            misplaced: false,
        })
    }

    /// Returns whether the file at the path is still the open file.
    fn is_in_place(&self) -> bool {
        let place = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        match (self.file.metadata(), self.path.metadata()) {
            (Ok(own), Ok(there)) => place(&own) == place(&there),
            // If there is no file at the path, the open file was renamed or removed. After any other error, the open file stays
            // in use.
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
            // The failure is logged only once, although each check tries again.
            Err(_) if self.misplaced => {}
            Err(error) => {
                self.misplaced = true;
                let path = self.path.display();
                tracing::error!(%path, %error, "cannot reopen a log file; lines are still written to the old file");
            }
        }
    }
}

/// Opens the file for appending. A FIFO is also opened for reading, because opening a FIFO only for writing would wait for a
/// reader.
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
    /// Returns whether the path now leads to another file, or does not exist.
    fn was_renamed(&self) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::File(file) => !file.is_in_place(),
        }
    }

    /// Opens the file at the path again. Does nothing for a stream.
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
