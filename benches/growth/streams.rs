//! Open streams: what a chunk costs and how late the latest is, at the same rate of chunks, however many streams they are of.

use std::{
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    Scale,
    chart::Panel,
    decoder::Decoder,
    files,
    fleet::{EMBEDDED, Launch, Proxy, Script, bare_proxy, has_redis_server, redis_server, sample_provider},
    node::Weir,
    process::Process,
    request::{Form, direct_request},
    row::{Subject, quantile},
};

/// Of all streams together.
const CHUNKS_PER_SECOND: u32 = 2_000;
/// For the streams to open, and to be read before they are measured.
const OPENING_MAX: Duration = Duration::from_secs(60);
/// Streams that are opened at the same time, so that their number does not overflow a listener's backlog.
const AT_ONCE: usize = 64;
/// All come from one address.
const MANY: &str = "[connections]\nmax = 30000\nrunning_max = 30000\nper_address_max = 15000";
const KIB: f64 = 1024.0;
/// What a chunk costs among more streams is compared with what it costs among so many.
const FEW: usize = 64;

/// What the streams of one proxy have said.
#[derive(Default)]
struct Heard {
    open: AtomicUsize,
    chunks: AtomicU64,
    is_measured: AtomicBool,
    /// By how much longer than the provider's gap the time between two chunks was, in milliseconds.
    late: Mutex<Vec<f64>>,
}

/// Prints a table; answers with its drawing.
pub(crate) async fn measure(scale: &Scale) -> Result<Vec<Panel>, String> {
    println!(
        "| open streams | | CPU per chunk (us) | beside bare Pingora | chunks late by: p99 (ms) | latest (ms) | memory per \
         stream (KiB) |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|");
    let mut panels = [
        Panel::new("CPU per chunk (us)", "open streams"),
        Panel::new("latest chunk (ms)", "open streams"),
        Panel::new("memory per stream (KiB)", "open streams"),
    ];
    let mut cpu: Vec<(&str, usize, f64)> = Vec::new();
    for streams in &scale.streams {
        let (needed, limit) = (files::needed(*streams), files::limit());
        if limit < needed {
            println!(
                "| {streams} | left out: weir needs {needed} open files for so many, this process may have {limit} (`ulimit -n`) \
                 | | | | | |"
            );
            continue;
        }
        for (name, costs) in measure_so_many(scale, *streams).await? {
            let across = *streams as f64;
            panels[1].add(name, across, quantile(&costs.late, 1.0).expect("chunks"));
            if costs.cpu_micros > 0.0 {
                cpu.push((name, *streams, costs.cpu_micros));
                panels[0].add(name, across, costs.cpu_micros);
                panels[2].add(name, across, costs.bytes_per_stream / KIB);
            }
        }
    }
    println!();
    for (name, streams, cost) in cpu.iter().filter(|(_, streams, _)| *streams > FEW) {
        if let Some((_, _, of_few)) = cpu.iter().find(|(other, few, _)| (other, *few) == (name, FEW)) {
            let ratio = cost / of_few;
            println!(
                "- {name}: a chunk among {streams} open streams costs {ratio:.2} times what it costs among {FEW}."
            );
        }
    }
    println!();
    Ok(panels.into())
}

/// What each of them costs, by its name.
async fn measure_so_many(scale: &Scale, streams: usize) -> Result<Vec<(&'static str, Costs)>, String> {
    let launch: Launch = |program, _| Command::new(program);
    let folder = TempDir::with_prefix("weir-growth-").expect("a temporary folder");
    let folder = folder.path();
    let gap = Duration::from_secs(streams as u64) / CHUNKS_PER_SECOND;
    let deltas = (OPENING_MAX + scale.warm + scale.length * 2).div_duration_f64(gap) as usize + 2;
    let script = Script {
        deltas,
        delta_bytes: 12,
        gap,
    };
    let mut provider = Process::start("sample-provider", &mut sample_provider(script), folder);
    let address = provider.announced_address();
    let measured = Measured { scale, streams, gap };
    let direct = measured.look(address, &direct_request(Form::Stream), None).await?;
    measured.print(Subject::Direct, &direct, None);
    let bare = bare_proxy(address, &folder.join("bare"), launch);
    let of_bare = measured.proxy(&bare).await?;
    measured.print(Subject::Bare, &of_bare, None);
    drop(bare);
    let mut all = vec![(Subject::Direct.title(), direct)];
    let redis = has_redis_server().then(|| redis_server(folder));
    let mut stores = vec![(Subject::Embedded, EMBEDDED.to_owned())];
    if let Some((_, redis_address)) = &redis {
        let store = format!("engine = \"redis\"\n[store.redis]\nnodes = [\"{redis_address}\"]");
        stores.push((Subject::Redis, store));
    }
    for (subject, store) in &stores {
        let weir = Weir {
            more: MANY,
            ..Weir::of(*subject, store)
        };
        let costs = measured.proxy(&weir.start(address, folder, launch)).await?;
        measured.print(*subject, &costs, Some(&of_bare));
        all.push((subject.title(), costs));
    }
    all.insert(1, (Subject::Bare.title(), of_bare));
    Ok(all)
}

/// What is measured of each.
struct Measured<'a> {
    scale: &'a Scale,
    streams: usize,
    gap: Duration,
}

/// What was measured of one.
struct Costs {
    /// Nothing for the provider itself.
    cpu_micros: f64,
    bytes_per_stream: f64,
    late: Vec<f64>,
}

impl Measured<'_> {
    async fn proxy(&self, proxy: &Proxy) -> Result<Costs, String> {
        let request = proxy.request(Form::Stream);
        let costs = self.look(proxy.address, &request, Some(&proxy.process)).await;
        costs.map_err(|bad| format!("{}, {} streams: {bad}", proxy.subject.name(), self.streams))
    }

    async fn look(&self, address: SocketAddr, request: &[u8], process: Option<&Process>) -> Result<Costs, String> {
        let heard = Arc::new(Heard::default());
        let request: Arc<[u8]> = request.into();
        let resident = || process.map_or(0.0, |process| process.memory().resident);
        let mut following = JoinSet::new();
        let mut before = 0.0;
        let began = Instant::now();
        let mut open = 0;
        while open < self.streams {
            // The first stream sets up what all share.
            let more = if open == 0 { 1 } else { AT_ONCE.min(self.streams - open) };
            for _ in 0..more {
                following.spawn(follow(address, Arc::clone(&request), Arc::clone(&heard), self.gap));
            }
            open += more;
            while heard.open.load(Ordering::Relaxed) < open {
                if let Some(ended) = following.try_join_next() {
                    return Err(format!(
                        "a stream ended with {open} open: {:?}",
                        ended.map_err(|bad| bad.to_string())
                    ));
                }
                if began.elapsed() > OPENING_MAX {
                    return Err(format!("only {open} streams opened within {OPENING_MAX:?}"));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if open == 1 {
                before = resident();
            }
        }
        // Each has said something since it opened.
        tokio::time::sleep(self.scale.warm.max(self.gap)).await;
        let bytes_per_stream = (resident() - before) / (self.streams as f64 - 1.0);
        let length = self.scale.length.max(self.gap * 2);
        heard.is_measured.store(true, Ordering::Relaxed);
        let (cpu, chunks) = (process.map(Process::cpu), heard.chunks.load(Ordering::Relaxed));
        tokio::time::sleep(length).await;
        let spent = process
            .zip(cpu)
            .map_or(0.0, |(process, cpu)| process.cpu().since(&cpu).total);
        let chunks = heard.chunks.load(Ordering::Relaxed) - chunks;
        heard.is_measured.store(false, Ordering::Relaxed);
        if let Some(ended) = following.try_join_next() {
            return Err(format!("a stream ended: {:?}", ended.map_err(|bad| bad.to_string())));
        }
        let expected = length.div_duration_f64(self.gap) * self.streams as f64;
        if (chunks as f64) < expected * 0.5 {
            return Err(format!("{chunks} chunks of {expected:.0}"));
        }
        let late = std::mem::take(&mut *heard.late.lock());
        Ok(Costs {
            cpu_micros: spent / chunks as f64,
            bytes_per_stream,
            late,
        })
    }

    fn print(&self, subject: Subject, costs: &Costs, bare: Option<&Costs>) {
        let at = |share| quantile(&costs.late, share).expect("chunks");
        let cpu = (costs.cpu_micros > 0.0).then(|| format!("{:.1}", costs.cpu_micros));
        let ratio = bare.map(|bare| format!("{:.2}", costs.cpu_micros / bare.cpu_micros));
        let memory = (costs.bytes_per_stream > 0.0).then(|| format!("{:.1}", costs.bytes_per_stream / KIB));
        println!(
            "| {} | {} | {} | {} | {:.1} | {:.1} | {} |",
            self.streams,
            subject.title(),
            cpu.unwrap_or_default(),
            ratio.unwrap_or_default(),
            at(0.99),
            at(1.0),
            memory.unwrap_or_default()
        );
    }
}

/// Reads a stream until it is dropped.
async fn follow(address: SocketAddr, request: Arc<[u8]>, heard: Arc<Heard>, gap: Duration) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.write_all(&request).await.map_err(failed)?;
    let (mut decoder, mut buffer) = (Decoder::new(), vec![0; 4096]);
    let (mut chunks, mut last) = (0, None);
    loop {
        let read = stream.read(&mut buffer).await.map_err(failed)?;
        if read == 0 {
            return Err("closed".to_owned());
        }
        decoder.push(&buffer[..read], &mut |_| Ok(()))?;
        if decoder.status != 200 {
            return Err(format!("status {}", decoder.status));
        }
        if decoder.is_done() {
            return Err("at its end".to_owned());
        }
        let now = Instant::now();
        let new = decoder.chunks - chunks;
        if new > 0 {
            match last {
                None => drop(heard.open.fetch_add(1, Ordering::Relaxed)),
                Some(last) if heard.is_measured.load(Ordering::Relaxed) => {
                    let late = now.duration_since(last).saturating_sub(gap);
                    heard.late.lock().push(late.as_secs_f64() * 1_000.0);
                }
                Some(_) => {}
            }
            heard.chunks.fetch_add(new, Ordering::Relaxed);
            (chunks, last) = (decoder.chunks, Some(now));
        }
    }
}
