//! A sink that takes in rows beside the traffic: what it costs to read them as the journal has them and to write them into the
//! log's files. It runs in the bench's process: it takes of the same two cores what it would take in weir.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use tempfile::TempDir;
use weir::parts::log::{Batch, LogFiles, NumberedRow, Row, Sink};

use crate::generator::{self, Generator};

/// How many rows it takes in per second.
const PER_SECOND: u64 = 50_000;
/// How often some are read. A file is written once a second, which is oftener than weir writes one.
const SLICES: usize = 100;
/// How nice the thread is that reads, as weir's is (`src/edges/low_priority.rs`). The one that writes is weir's own.
const NICE: i32 = 10;

/// The rows' JSON, made once.
pub(crate) struct Rows(Vec<Vec<u8>>);

impl Rows {
    /// As many as come in a second.
    pub(crate) fn make() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_ms = now.expect("a clock behind 1970").as_millis() as i64;
        let mut generator = Generator::new(PER_SECOND, 1, now_ms);
        let hours = std::iter::from_fn(|| generator.hour());
        let rows = hours.flatten();
        Self(
            rows.map(|row| serde_json::to_vec(&row.row).expect("JSON of a row"))
                .collect(),
        )
    }
}

/// Runs until it is ended.
pub(crate) struct Intake {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Intake {
    /// Begins with empty files.
    pub(crate) fn start(rows: &Arc<Rows>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, rows) = (Arc::clone(&stop), Arc::clone(rows));
        let thread = thread::spawn(move || take_in(&rows, &flag));
        Self { stop, thread }
    }

    /// Stops, and tells how many rows were taken in.
    pub(crate) async fn end(self) -> Result<u64, String> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = tokio::task::spawn_blocking(|| self.thread.join()).await;
        joined
            .map_err(|error| error.to_string())?
            .map_err(|_| "the sink panicked".to_owned())?
    }
}

fn take_in(rows: &Rows, stop: &AtomicBool) -> Result<u64, String> {
    rustix::process::nice(NICE).map_err(|error| error.to_string())?;
    let folder = TempDir::new().map_err(|error| error.to_string())?;
    let files =
        LogFiles::open(folder.path(), Duration::from_secs(3600), usize::MAX).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let (mut taken, mut due) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let mut read = Vec::with_capacity(rows.0.len());
        for slice in rows.0.chunks(rows.0.len().div_ceil(SLICES)) {
            for json in slice {
                let row: Row = serde_json::from_slice(json).map_err(|error| error.to_string())?;
                let number = taken + read.len() as u64;
                read.push(NumberedRow { number, row });
            }
            due += Duration::from_secs(1) / SLICES as u32;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let upto = taken + read.len() as u64;
        let batch = Batch {
            node: generator::node(),
            after: taken,
            upto,
            rows: read.into_iter().map(Arc::new).collect(),
        };
        runtime
            .block_on(files.append(&batch))
            .map_err(|error| error.to_string())?;
        taken = upto;
    }
    Ok(taken)
}
