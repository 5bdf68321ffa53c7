//! Idle sockets: their memory by the growth of the process over several numbers of them, and the CPU time of their pings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use crate::{
    files,
    gateway::{Certificate, Gateway, GatewaySettings, TlsClient},
    host::{Host, HostScript},
    probe::Probe,
    socket::Socket,
    table::{Table, aim, over_rounds},
};

/// The most memory of an idle socket, in KiB: without TLS and with it.
const PLAIN_AIM: f64 = 8.0;
const TLS_AIM: f64 = 26.0;
/// The most CPU time of 10,000 idle sockets, in percent of a core.
const CPU_AIM: f64 = 1.0;
const CPU_SOCKETS: f64 = 10_000.0;
/// After the last socket is open, before memory is read.
const SETTLE: Duration = Duration::from_millis(500);
const KIB: f64 = 1024.0;

/// How much of everything.
pub(crate) struct IdleScale {
    /// Rounds, each with new processes.
    pub(crate) rounds: usize,
    /// Numbers of open sockets, the least first.
    pub(crate) levels: Vec<usize>,
    pub(crate) ping_seconds: u64,
    /// How long POSTs are asked for without and beside the sockets.
    pub(crate) probe: Duration,
}

/// What was measured of one process.
struct Costs {
    /// Open sockets, and the resident memory with them in bytes.
    memory: Vec<(f64, f64)>,
    /// The CPU time of the process in percent of a core: with one socket, and with the most.
    cpu: [f64; 2],
    /// The p99 of POSTs in milliseconds: with one socket, and with the most. `None` with TLS.
    late: Option<[f64; 2]>,
}

/// Sockets that are read in tasks of their own.
struct Crowd<'a> {
    gateway: &'a Gateway,
    tls: Option<&'a TlsClient>,
    reading: JoinSet<Result<(), String>>,
    pings: Arc<AtomicU64>,
}

/// Prints the tables.
pub(crate) async fn measure(host: &Host, scale: &IdleScale) -> Result<(), String> {
    host.perform(HostScript::of(8));
    let mut levels: Vec<usize> = scale
        .levels
        .iter()
        .map(|level| files::streams_within(*level).max(1))
        .collect();
    levels.dedup();
    let most = levels.last().copied().unwrap_or(1) as f64;
    let certificate = Certificate::new();
    let mut table = Table::new(&[
        "idle sockets",
        "KiB a socket",
        "aim",
        "CPU with one (% of a core)",
        "CPU with the most",
        "CPU of 10,000, by the slope",
        "aim of that",
    ]);
    let mut late = [Vec::new(), Vec::new()];
    for (name, certificate, memory_aim) in [("plain", None, PLAIN_AIM), ("TLS", Some(&certificate), TLS_AIM)] {
        let (mut slopes, mut cpu, mut of_many) = (Vec::new(), [Vec::new(), Vec::new()], Vec::new());
        for round in 0..scale.rounds {
            let costs = look(host, &levels, certificate, scale).await;
            let costs = costs.map_err(|bad| format!("idle sockets, {name}: {bad}"))?;
            slopes.push(slope(&costs.memory) / KIB);
            let [one, all] = costs.cpu;
            of_many.push((all - one) / (most - 1.0) * CPU_SOCKETS);
            for (cpu, share) in cpu.iter_mut().zip(costs.cpu) {
                cpu.push(share);
            }
            for (late, millis) in late.iter_mut().zip(costs.late.into_iter().flatten()) {
                late.push(millis);
            }
            let resident = costs.memory.iter();
            let resident: Vec<String> = resident
                .map(|(sockets, bytes)| format!("{sockets:.0}: {:.1} MiB", bytes / KIB / KIB))
                .collect();
            println!("{name}, round {}: resident with {}.", round + 1, resident.join(", "));
        }
        table.row(&[
            name.to_owned(),
            over_rounds(&slopes),
            aim(&slopes, memory_aim),
            over_rounds(&cpu[0]),
            over_rounds(&cpu[1]),
            over_rounds(&of_many),
            aim(&of_many, CPU_AIM),
        ]);
    }
    println!();
    table.print();
    let ratios: Vec<f64> = late[1].iter().zip(&late[0]).map(|(many, one)| many / one).collect();
    println!(
        "{} rounds with new processes, sockets without a conversation, at most {most:.0}. A ping each {} s. p99 of 200 POSTs a \
         second with one socket: {} ms, with the most: {} ms, times {}.\n",
        scale.rounds,
        scale.ping_seconds,
        over_rounds(&late[0]),
        over_rounds(&late[1]),
        over_rounds(&ratios)
    );
    Ok(())
}

async fn look(
    host: &Host,
    levels: &[usize],
    certificate: Option<&Certificate>,
    scale: &IdleScale,
) -> Result<Costs, String> {
    let settings = GatewaySettings {
        certificate,
        ping_seconds: scale.ping_seconds,
        ..GatewaySettings::default()
    };
    let gateway = Gateway::start(host.address, &settings);
    let tls = certificate.map(Certificate::client);
    let mut crowd = Crowd {
        gateway: &gateway,
        tls: tls.as_ref(),
        reading: JoinSet::new(),
        pings: Arc::default(),
    };
    // The first socket sets up what all share.
    crowd.grow(1).await?;
    let is_probed = certificate.is_none();
    let mut late = Vec::new();
    if is_probed {
        late.push(Probe::quiet(&gateway, scale.probe).await?);
    }
    // One ping of each socket.
    let window = Duration::from_secs(scale.ping_seconds);
    let one = crowd.cpu(window).await?;
    let mut memory = Vec::new();
    for level in levels {
        crowd.grow(*level).await?;
        memory.push((crowd.reading.len() as f64, gateway.resident()));
    }
    let before = crowd.pings.load(Ordering::Relaxed);
    let all = crowd.cpu(window).await?;
    let pings = crowd.pings.load(Ordering::Relaxed) - before;
    // Some may be due a little before or after this time.
    let expected = crowd.reading.len() as u64 / 2;
    if pings < expected {
        return Err(format!("only {pings} pings of at least {expected} came"));
    }
    if is_probed {
        late.push(Probe::quiet(&gateway, scale.probe).await?);
    }
    crowd.check()?;
    Ok(Costs {
        memory,
        cpu: [one, all],
        late: late.try_into().ok(),
    })
}

impl Crowd<'_> {
    /// Opens sockets until there are so many.
    async fn grow(&mut self, wanted: usize) -> Result<(), String> {
        let proxy = &self.gateway.proxy;
        while self.reading.len() < wanted {
            let mut socket = Socket::open(proxy.address, &proxy.key, self.tls).await?;
            socket.greet().await?;
            let pings = Arc::clone(&self.pings);
            self.reading.spawn(async move { socket.idle(&pings).await });
        }
        tokio::time::sleep(SETTLE).await;
        self.check()
    }

    /// The CPU time of the process over some time, in percent of a core.
    async fn cpu(&mut self, window: Duration) -> Result<f64, String> {
        let before = self.gateway.proxy.process.cpu();
        tokio::time::sleep(window).await;
        let spent = self.gateway.proxy.process.cpu().since(&before).total;
        self.check()?;
        Ok(spent / 1e6 / window.as_secs_f64() * 100.0)
    }

    /// Checks that all are open.
    fn check(&mut self) -> Result<(), String> {
        match self.reading.try_join_next() {
            None => Ok(()),
            Some(Ok(Err(bad))) => Err(bad),
            Some(ended) => Err(format!("a socket has ended: {ended:?}")),
        }
    }
}

/// The slope of the line through points with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let (above, below) = points.iter().fold((0.0, 0.0), |(above, below), point| {
        (above + (point.0 - x) * (point.1 - y), below + (point.0 - x).powi(2))
    });
    above / below
}
