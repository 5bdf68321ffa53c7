//! Streams that are open at the same time, each read to its end and compared.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{
    driver::{Connection, Progress},
    process::{CpuReading, Process},
    reference::Reference,
};

/// Streams that are opened at the same time, so that their number does not overflow a listener's backlog.
const OPENING_MAX: usize = 64;

/// How often it is looked whether the streams are open.
const POLL: Duration = Duration::from_millis(1);

/// Streams of one proxy.
pub(crate) struct Held {
    address: SocketAddr,
    request: Arc<[u8]>,
    reference: Arc<Reference>,
    heard: Arc<Heard>,
    running: JoinSet<Result<Vec<Arrival>, String>>,
}

/// What all streams of one proxy have said so far.
#[derive(Default)]
struct Heard {
    open: AtomicUsize,
    ended: AtomicUsize,
    chunks: AtomicU64,
}

/// What was seen of streams for some time.
pub(crate) struct Seen {
    /// The CPU time of their proxy, before and after.
    pub(crate) cpu: Option<(CpuReading, CpuReading)>,
    /// Chunks that came.
    pub(crate) chunks: u64,
    /// How late each delta was, in milliseconds.
    pub(crate) late: Vec<f64>,
}

/// When a delta of a stream had come: its number, and the moment.
type Arrival = (usize, Instant);

impl Held {
    /// None yet.
    pub(crate) fn new(address: SocketAddr, request: Vec<u8>, reference: &Arc<Reference>) -> Self {
        Self {
            address,
            request: request.into(),
            reference: Arc::clone(reference),
            heard: Arc::default(),
            running: JoinSet::new(),
        }
    }

    /// Opens more streams; returns when each of them has said something.
    pub(crate) async fn open(&mut self, more: usize) -> Result<(), String> {
        let wanted = self.running.len() + more;
        while self.running.len() < wanted {
            for _ in 0..OPENING_MAX.min(wanted - self.running.len()) {
                let (request, reference) = (Arc::clone(&self.request), Arc::clone(&self.reference));
                let (address, heard) = (self.address, Arc::clone(&self.heard));
                self.running
                    .spawn(async move { follow(address, &request, &reference, &heard).await });
            }
            while self.heard.open.load(Ordering::Relaxed) < self.running.len() {
                if self.has_ended() {
                    return Err(self.early().await);
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// Looks at them for some time, from when each has said something since the last was opened; then reads all to their end.
    pub(crate) async fn run(
        mut self,
        process: Option<&Process>,
        gap: Duration,
        length: Duration,
    ) -> Result<Seen, String> {
        tokio::time::sleep(gap).await;
        let (began, before, chunks) = (Instant::now(), process.map(Process::cpu), self.chunks());
        tokio::time::sleep(length).await;
        let (after, ended, chunks) = (process.map(Process::cpu), Instant::now(), self.chunks() - chunks);
        if self.has_ended() {
            return Err(self.early().await);
        }
        Ok(Seen {
            cpu: before.zip(after),
            chunks,
            late: self.end(gap, began, ended).await?,
        })
    }

    /// Chunks that have come.
    fn chunks(&self) -> u64 {
        self.heard.chunks.load(Ordering::Relaxed)
    }

    /// Whether one of the streams is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.heard.ended.load(Ordering::Relaxed) > 0
    }

    /// Why a stream is over that should not be.
    pub(crate) async fn early(&mut self) -> String {
        match self.running.join_next().await {
            Some(Ok(Err(bad))) => bad,
            _ => "a stream is at its end before all were measured: this machine is too slow for so many".to_owned(),
        }
    }

    /// Reads all to their end. How late each delta between two moments was, in milliseconds: by the provider's pace, which each
    /// stream shows by the delta that comes earliest.
    pub(crate) async fn end(self, gap: Duration, from: Instant, until: Instant) -> Result<Vec<f64>, String> {
        let mut late = Vec::new();
        for arrivals in self.running.join_all().await {
            let arrivals = arrivals?;
            let Some((_, first)) = arrivals.first().copied() else {
                return Err("a stream without a delta".to_owned());
            };
            let ahead = |(number, at): &Arrival| {
                at.duration_since(first).as_secs_f64() * 1e3 - gap.as_secs_f64() * 1e3 * *number as f64
            };
            let earliest = arrivals.iter().map(ahead).fold(0.0, f64::min);
            let measured = arrivals.iter().filter(|(_, at)| (from..=until).contains(at));
            late.extend(measured.map(|arrival| ahead(arrival) - earliest));
        }
        Ok(late)
    }
}

async fn follow(
    address: SocketAddr,
    request: &[u8],
    reference: &Reference,
    heard: &Heard,
) -> Result<Vec<Arrival>, String> {
    let (mut arrivals, mut chunks) = (Vec::with_capacity(reference.delta_ends.len()), 0);
    let mut seen = |progress: Progress| {
        if arrivals.is_empty() && reference.delta_ends.first().is_some_and(|end| *end <= progress.bytes) {
            heard.open.fetch_add(1, Ordering::Relaxed);
        }
        while reference
            .delta_ends
            .get(arrivals.len())
            .is_some_and(|end| *end <= progress.bytes)
        {
            arrivals.push((arrivals.len(), progress.at));
        }
        heard.chunks.fetch_add(progress.chunks - chunks, Ordering::Relaxed);
        chunks = progress.chunks;
    };
    let answered = Connection::new(address)
        .watch(request, reference.expected(), &mut seen)
        .await;
    heard.ended.fetch_add(1, Ordering::Relaxed);
    answered.map(|_| arrivals)
}
