//! Lines on their way to a file or a stream, written by a thread of their own.
//!
//! A thread that has a line hands it over and never waits for a disk, a pipe or its reader. The queue is bounded: if it is
//! full, lines are dropped and counted, because serving matters more than logging. Once the queue is written to its end
//! again, the loss is told once.

use std::{
    io::{self, BufWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::edges::clock;

mod sink;

pub(super) use sink::{LogFile, Sink};

/// How often the writer looks whether its file is still the one at its path, at most.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes gathered before a write when lines come faster than they are written.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// What can be written as a line.
pub(super) trait Line: Send + 'static {
    /// Appends it without its line break.
    ///
    /// # Errors
    /// It has a value that no line can have.
    fn append_to(&self, line: &mut Vec<u8>) -> io::Result<()>;
}

/// What a queue is for, and how large it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineQueueSettings {
    /// What its lines are, in messages.
    pub name: &'static str,
    /// The name of its thread.
    pub thread: &'static str,
    /// The most lines that wait, at least 1.
    pub lines_max: usize,
    /// How long a line waits for others, so that the writer need not write each by itself.
    pub gather: Duration,
}

/// The queue. [`LineQueue::close`] at the end of the process.
#[derive(Debug)]
pub(super) struct LineQueue<L> {
    queue: SyncSender<Job<L>>,
    shared: Arc<WriterSignals>,
    done: Mutex<Receiver<()>>,
}

#[derive(Debug)]
enum Job<L> {
    Line(L),
    /// Something in [`WriterSignals`] changed; look there.
    Wake,
}

#[derive(Debug, Default)]
struct WriterSignals {
    dropped: AtomicU64,
    reopen: AtomicBool,
    closing: AtomicBool,
}

impl<L: Line> LineQueue<L> {
    /// Starts the writer.
    ///
    /// # Errors
    /// Its thread cannot be started.
    pub(super) fn start(sink: Sink, settings: LineQueueSettings) -> io::Result<Self> {
        let (queue, jobs) = sync_channel(settings.lines_max.max(1));
        let (ended, done) = sync_channel(1);
        let shared = Arc::<WriterSignals>::default();
        let writer = Writer {
            sink: BufWriter::with_capacity(WRITE_BUFFER_BYTES, sink),
            line: Vec::new(),
            gather: settings.gather,
            shared: Arc::clone(&shared),
            failing: false,
            told: 0,
            looked: clock::instant(),
            report: move |event| log_event(settings.name, event),
        };
        let body = move || {
            writer.run(&jobs);
            // Nobody may be waiting.
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

    /// Hands a line to the writer. Never waits: a full queue drops it and counts it.
    pub(super) fn write(&self, line: L) {
        if self.queue.try_send(Job::Line(line)).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines lost so far: the queue was full, or they could not be written.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Has the writer open its file again, for log rotation. What was queued before may still go to the old file.
    pub(super) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Writes what is queued and ends the writer, waiting at most `wait`. True when everything was written; false when
    /// the sink hung. Lines that come later are dropped and counted.
    pub(super) fn close(&self, wait: Duration) -> bool {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        let done = self.done.lock();
        // Disconnected: closed before.
        !matches!(done.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
    }

    /// A full queue needs no waking: the writer looks at the flags before it sleeps.
    fn wake(&self) {
        let _full_or_closed = self.queue.try_send(Job::Wake);
    }
}

/// A change in how the sink takes lines.
#[derive(Debug)]
enum SinkEvent {
    /// It has begun to fail.
    Failed(io::Error),
    /// It takes lines again.
    Recovered,
    /// The queue was written to its end after this many lines were lost.
    LinesLost(u64),
}

/// Writes an event of the sink of `name` to the diagnostic log.
fn log_event(name: &str, event: SinkEvent) {
    match event {
        SinkEvent::Failed(error) => tracing::error!(%error, "{name} cannot be written, lines are lost"),
        SinkEvent::Recovered => tracing::info!("{name} is written again"),
        // As important as the most important of those that may be missing.
        SinkEvent::LinesLost(lost) => tracing::error!(
            lost,
            "{name}: lines were lost because they were not taken in time; it is written again"
        ),
    }
}

/// The thread's side.
struct Writer<R> {
    sink: BufWriter<Sink>,
    line: Vec<u8>,
    gather: Duration,
    shared: Arc<WriterSignals>,
    /// The last write has failed.
    failing: bool,
    /// How many lost lines were told.
    told: u64,
    /// When the path was last looked at.
    looked: Instant,
    report: R,
}

impl<R: FnMut(SinkEvent)> Writer<R> {
    fn run<L: Line>(mut self, jobs: &Receiver<Job<L>>) {
        loop {
            // Asked before the queue is looked at: what was handed over before the end is written.
            let closing = self.shared.closing.load(Ordering::SeqCst);
            let job = match jobs.try_recv() {
                Ok(job) => job,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.flush();
                    match jobs.try_recv() {
                        // It came while the sink was not taken: the queue is not at its end.
                        Ok(job) => job,
                        // What tells it may be a line of this very queue.
                        Err(_) if self.tell_loss() => continue,
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
        // What could not be flushed goes down with the process.
        let lost = memchr::memchr_iter(b'\n', self.sink.buffer()).count();
        self.lose(u64::try_from(lost).unwrap_or(u64::MAX));
    }

    fn write(&mut self, line: &impl Line) {
        self.line.clear();
        let appended = line.append_to(&mut self.line);
        self.line.push(b'\n');
        if let Err(error) = appended.and_then(|()| self.sink.write_all(&self.line)) {
            self.lose(1);
            self.note(Err(error));
        }
    }

    /// Only what has reached the sink says that it works: a line that fits into the buffer has not.
    fn flush(&mut self) {
        if !self.sink.buffer().is_empty() {
            let flushed = self.sink.flush();
            self.note(flushed);
        }
    }

    fn lose(&self, lines: u64) {
        self.shared.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Tells how many lines were lost since it was told last, when there is room for that again. True if it was told.
    fn tell_loss(&mut self) -> bool {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if self.failing || dropped == self.told {
            return false;
        }
        let lost = dropped - self.told;
        self.told = dropped;
        (self.report)(SinkEvent::LinesLost(lost));
        true
    }

    fn was_renamed(&mut self) -> bool {
        let now = clock::instant();
        if now.saturating_duration_since(self.looked) < LOOK_EVERY {
            return false;
        }
        self.looked = now;
        self.sink.get_ref().was_renamed()
    }

    /// Reports once that writing fails and once that it works again, not per line.
    fn note(&mut self, written: io::Result<()>) {
        let event = match written {
            Ok(()) if self.failing => SinkEvent::Recovered,
            Err(error) if !self.failing => SinkEvent::Failed(error),
            Ok(()) | Err(_) => return,
        };
        (self.report)(event);
        self.failing = !self.failing;
    }
}

#[cfg(test)]
mod tests;
