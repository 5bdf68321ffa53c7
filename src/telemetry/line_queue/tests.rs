//! Queues in front of sinks that do not move, fail, and work again.

use std::sync::mpsc::channel;

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(10);

impl LogLine for String {
    fn append_to(&self, line: &mut Vec<u8>) -> io::Result<()> {
        line.extend_from_slice(self.as_bytes());
        Ok(())
    }
}

fn queue(sink: impl Write + Send + 'static, lines_max: usize) -> LineQueue<String> {
    let settings = LineQueueSettings {
        name: "test log",
        thread: "test-log",
        lines_max,
        gather: Duration::ZERO,
    };
    LineQueue::start(LineSink::Stream(Box::new(sink)), settings).expect("starts")
}

/// Reports its first write, then blocks until it is released; counts the lines that it takes.
struct Stuck(SyncSender<()>, Receiver<()>, Arc<AtomicU64>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _first = self.0.try_send(());
        let _released = self.1.recv();
        self.2
            .fetch_add(memchr::memchr_iter(b'\n', bytes).count() as u64, Ordering::SeqCst);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_sink_costs_lines_but_never_makes_anybody_wait() {
    let (entered, stuck) = sync_channel(1);
    let (release, released) = sync_channel(0);
    let taken = Arc::<AtomicU64>::default();
    let lines = queue(Stuck(entered, released, Arc::clone(&taken)), 4);
    lines.write("held by the writer".to_owned());
    stuck.recv_timeout(WAIT_MAX).expect("the writer writes");
    for _ in 0..10 {
        lines.write("queued or dropped".to_owned());
    }
    assert_eq!(lines.dropped(), 6);
    assert!(!lines.close(Duration::ZERO), "what hangs is not waited for");
    drop(release);
    assert!(lines.close(WAIT_MAX));
    assert_eq!((taken.load(Ordering::SeqCst), lines.dropped()), (5, 6));
}

#[test]
fn a_line_handed_over_before_the_end_is_written_although_the_writer_was_busy() {
    let (entered, stuck) = sync_channel(1);
    let (release, released) = sync_channel(0);
    let taken = Arc::<AtomicU64>::default();
    let lines = queue(Stuck(entered, released, Arc::clone(&taken)), 4);
    lines.write("held by the writer".to_owned());
    stuck.recv_timeout(WAIT_MAX).expect("the writer writes");
    lines.write("handed over meanwhile".to_owned());
    assert!(!lines.close(Duration::ZERO), "what hangs is not waited for");
    drop(release);
    assert!(lines.close(WAIT_MAX));
    assert_eq!((taken.load(Ordering::SeqCst), lines.dropped()), (2, 0));
}

/// Fails until it is mended; tells what it has taken after that, and how often it has failed.
struct Full(Arc<AtomicBool>, std::sync::mpsc::Sender<Option<Vec<u8>>>);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mended = self.0.load(Ordering::SeqCst);
        let _told = self.1.send(mended.then(|| bytes.to_vec()));
        match mended {
            true => Ok(bytes.len()),
            false => Err(ErrorKind::StorageFull.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_does_not_end_the_writer() {
    let (told, _taken) = channel();
    let lines = queue(Full(Arc::default(), told), 4);
    lines.write("lost".to_owned());
    lines.write("lost".to_owned());
    assert!(lines.close(WAIT_MAX));
    assert_eq!(lines.dropped(), 2);
}

#[test]
fn what_the_buffer_holds_is_written_when_there_is_room_again() {
    let (mended, (told, taken)) = (Arc::<AtomicBool>::default(), channel());
    let lines = queue(Full(Arc::clone(&mended), told), 4);
    for line in ["first", "second"] {
        lines.write(line.to_owned());
        assert_eq!(taken.recv_timeout(WAIT_MAX), Ok(None), "it was tried");
    }
    mended.store(true, Ordering::SeqCst);
    lines.write("third".to_owned());
    assert!(lines.close(WAIT_MAX));
    let written: Vec<u8> = taken.try_iter().flatten().flatten().collect();
    assert_eq!((written, lines.dropped()), (b"first\nsecond\nthird\n".to_vec(), 0));
}

/// A writer that has written nothing yet.
fn writer<R>(sink: impl Write + Send + 'static, shared: Arc<WriterSignals>, report: R) -> LineWriter<R> {
    LineWriter {
        sink: BufWriter::new(LineSink::Stream(Box::new(sink))),
        line: Vec::new(),
        gather: Duration::ZERO,
        shared,
        failing: false,
        reported: 0,
        checked_at: clock::instant(),
        report,
    }
}

/// Runs a writer in this thread over `jobs`, to its end: the events that it reports.
fn events_of(sink: impl Write + Send + 'static, dropped: u64, jobs: &[&str]) -> Vec<SinkEvent> {
    let shared = Arc::<WriterSignals>::default();
    shared.dropped.store(dropped, Ordering::SeqCst);
    shared.closing.store(true, Ordering::SeqCst);
    let mut events = Vec::new();
    let writer = writer(sink, shared, |event| events.push(event));
    let (queue, waiting) = sync_channel(jobs.len());
    for line in jobs {
        queue.send(Job::Line((*line).to_owned())).expect("room");
    }
    writer.run(&waiting);
    events
}

#[test]
fn lost_lines_are_reported_once_when_the_queue_is_written_again() {
    let events = events_of(io::sink(), 316, &["a", "b"]);
    assert!(matches!(events[..], [SinkEvent::LinesLost(316)]), "{events:?}");
    assert!(events_of(io::sink(), 0, &["a", "b"]).is_empty());
}

#[test]
fn a_sink_that_fails_is_reported_once_and_the_loss_not_before_it_works_again() {
    let (told, _taken) = channel();
    let events = events_of(Full(Arc::default(), told), 5, &["a", "b", "c"]);
    assert!(matches!(events[..], [SinkEvent::Failed(_)]), "{events:?}");
}

/// Takes its first write slowly: meanwhile a line comes, and others are lost.
struct Slow {
    queue: SyncSender<Job<String>>,
    shared: Arc<WriterSignals>,
    written: std::sync::mpsc::Sender<String>,
    has_filled: bool,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !std::mem::replace(&mut self.has_filled, true) {
            self.queue.try_send(Job::Line("late".to_owned())).expect("room");
            self.shared.dropped.store(3, Ordering::SeqCst);
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.written.send(text).expect("the test listens");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_loss_is_reported_at_the_end_of_the_queue_and_not_while_it_is_full_behind_a_slow_write() {
    let (queue, waiting) = sync_channel(1);
    let shared = Arc::<WriterSignals>::default();
    let (written, order) = channel();
    let sink = Slow {
        queue: queue.clone(),
        shared: Arc::clone(&shared),
        written: written.clone(),
        has_filled: false,
    };
    shared.closing.store(true, Ordering::SeqCst);
    queue.send(Job::Line("first".to_owned())).expect("room");
    let writer = writer(sink, shared, |event| {
        written.send(format!("{event:?}")).expect("the test listens")
    });
    writer.run(&waiting);
    let order: Vec<String> = order.try_iter().collect();
    assert_eq!(order, ["first\n", "late\n", "LinesLost(3)"]);
}
