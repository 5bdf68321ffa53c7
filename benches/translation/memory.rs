//! Memory of an open translated stream beside a native one, after a little text and after much: only what a protocol repeats at its
//! end may grow with the text.

use std::{
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::task::JoinSet;
use weir::parts::{Protocol, translation::UpstreamProtocol};

use crate::{
    driver::{Connection, Expect, Progress},
    files,
    fleet::{EMBEDDED, Launch},
    host::{Host, HostScript},
    node::Weir,
    roads::{Pattern, Road},
    row::Subject,
    table::{Table, aim, over_rounds},
};

/// Bytes of text in a delta.
const DELTA_BYTES: usize = 256;
/// Deltas of a stream with a little text, and of one with much.
const DELTAS: [usize; 2] = [1, 256];
/// Streams that are opened at the same time, so that their number does not overflow a listener's backlog.
const OPENING_MAX: usize = 64;
/// How long the streams may take to open.
const OPENING_WAIT: Duration = Duration::from_secs(60);
/// How long nothing may come before memory is read.
const SETTLE: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(2);
const KIB: f64 = 1024.0;
/// The maximum by which much text may make a translated stream grow more than a native one, in KiB: a quarter of the text.
const FLAT_AIM: f64 = 16.0;
/// The same maximum if the protocol repeats the text at its end: three times the text.
const REPEATED_AIM: f64 = 192.0;

/// How much of everything.
#[derive(Clone, Copy)]
pub(crate) struct MemoryScale {
    /// Rounds, each with new processes.
    pub(crate) rounds: usize,
    /// Streams that are open at the same time.
    pub(crate) streams: usize,
}

/// Streams through one weir that wait behind their last delta.
struct Waiting {
    running: JoinSet<Result<Vec<u8>, String>>,
    bytes: Arc<AtomicU64>,
}

/// Opens the streams of each client, natively and from a host of `chat/completions`, in new processes each time: what an allocator
/// has once taken it seldom returns.
pub(crate) async fn measure(host: &Host, scale: MemoryScale) -> Result<(), String> {
    let streams = files::streams_within(scale.streams);
    let text = (DELTA_BYTES * (DELTAS[1] - DELTAS[0])) as f64 / KIB;
    let mut table = Table::new(&[
        "memory per open stream (KiB)",
        "native",
        "native, much text",
        "translated from chat",
        "translated, much text",
        "growth by the text beyond native",
        "aim",
    ]);
    for client in [Protocol::Messages, Protocol::Gemini, Protocol::Responses] {
        let provider = UpstreamProtocol::Chat;
        let roads = [Road::native(client), Road { client, provider }];
        // By road and text.
        let mut kib = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
        for _ in 0..scale.rounds {
            for (road, by_text) in roads.into_iter().zip(&mut kib) {
                for (deltas, values) in DELTAS.into_iter().zip(by_text) {
                    let measured = per_stream(host, road, deltas, streams).await;
                    values.push(measured.map_err(|bad| road.failed(&bad))? / KIB);
                }
            }
        }
        // A native stream grows, too: its text passes through the buffers of both connections.
        let [native, [little, much]] = &kib;
        let growths = |texts: &[Vec<f64>; 2]| -> Vec<f64> {
            texts[1]
                .iter()
                .zip(&texts[0])
                .map(|(much, little)| much - little)
                .collect()
        };
        let translated = growths(&kib[1]);
        let growth: Vec<f64> = translated
            .iter()
            .zip(growths(native))
            .map(|(one, native)| one - native)
            .collect();
        let most = match client {
            Protocol::Messages | Protocol::Gemini => FLAT_AIM,
            Protocol::Responses => REPEATED_AIM,
        };
        table.row(&[
            crate::roads::name(client.into()).to_owned(),
            over_rounds(&native[0]),
            over_rounds(&native[1]),
            over_rounds(little),
            over_rounds(much),
            over_rounds(&growth),
            aim(&growth, most),
        ]);
    }
    table.print();
    println!(
        "{} rounds with new processes, {streams} streams open at once; much text is {text:.0} KiB more.\n",
        scale.rounds
    );
    Ok(())
}

/// The bytes that a stream takes which waits behind so many deltas.
async fn per_stream(host: &Host, road: Road, deltas: usize, streams: usize) -> Result<f64, String> {
    let script = HostScript {
        deltas,
        delta_bytes: DELTA_BYTES,
        gap: Duration::ZERO,
        is_held: false,
    };
    host.perform(script);
    let folder = TempDir::with_prefix("weir-translation-").expect("a temporary folder");
    let launch: Launch = |program, _| Command::new(program);
    let proxy = Weir::of(Subject::Embedded, EMBEDDED).start(host.address, folder.path(), launch);
    let pattern = road.learn(&proxy, host, script).await?;
    host.perform(HostScript {
        is_held: true,
        ..script
    });
    let request: Arc<[u8]> = road.request(&proxy.key).into();
    let mut waiting = Waiting {
        running: JoinSet::new(),
        bytes: Arc::default(),
    };
    // The first stream sets up what all share.
    waiting.grow(1, (proxy.address, &request), host).await?;
    let before = proxy.process.memory().resident;
    waiting.grow(streams, (proxy.address, &request), host).await?;
    let after = proxy.process.memory().resident;
    host.release();
    waiting.end(&pattern).await?;
    Ok((after - before) / streams as f64)
}

impl Waiting {
    /// Opens so many more streams at this address; returns when nothing more comes of any.
    async fn grow(
        &mut self,
        more: usize,
        (address, request): (SocketAddr, &Arc<[u8]>),
        host: &Host,
    ) -> Result<(), String> {
        let wanted = self.running.len() + more;
        while self.running.len() < wanted {
            for _ in 0..OPENING_MAX.min(wanted - self.running.len()) {
                self.open(address, request);
            }
            self.until_waiting(host).await?;
        }
        self.until_silent().await;
        Ok(())
    }

    /// Begins one more stream.
    fn open(&mut self, address: SocketAddr, request: &Arc<[u8]>) {
        let (request, bytes) = (Arc::clone(request), Arc::clone(&self.bytes));
        self.running.spawn(async move {
            let mut before = 0;
            let mut seen = |progress: Progress| {
                bytes.fetch_add((progress.bytes - before) as u64, Ordering::Relaxed);
                before = progress.bytes;
            };
            let mut connection = Connection::new(address);
            let answer = connection.watch(&request, Expect::Anything, &mut seen).await?;
            Ok(answer.body)
        });
    }

    /// Waits until the host has sent the last delta of all of them.
    async fn until_waiting(&mut self, host: &Host) -> Result<(), String> {
        let began = Instant::now();
        while host.waiting() < self.running.len() {
            if let Some(ended) = self.running.try_join_next() {
                let ended = ended.map_err(|bad| bad.to_string())?;
                return Err(format!("a stream has ended: {:?}", ended.map(|body| body.len())));
            }
            if began.elapsed() > OPENING_WAIT {
                return Err(format!(
                    "only {} streams opened within {OPENING_WAIT:?}",
                    host.waiting()
                ));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Waits until nothing more comes.
    async fn until_silent(&self) {
        let mut before = None;
        loop {
            let bytes = self.bytes.load(Ordering::Relaxed);
            if before == Some(bytes) {
                return;
            }
            before = Some(bytes);
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Reads all to their end.
    async fn end(self, pattern: &Pattern) -> Result<(), String> {
        for body in self.running.join_all().await {
            pattern.check(&body?)?;
        }
        Ok(())
    }
}
