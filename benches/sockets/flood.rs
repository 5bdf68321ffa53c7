//! Many turns at once, over sockets and by POST: the memory that they take, and the POSTs beside them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    asker::{Asked, Asker, Road},
    body::{create, post, prompt},
    files,
    gateway::{BODY_BUDGET, Gateway, GatewaySettings},
    host::{Host, HostScript},
    probe::Probe,
    table::{Table, aim, number, over_rounds},
    turns::DELTA_BYTES,
};

/// The prompt of a small turn, and of a large one, of which the budget has room for about half, in bytes.
const SMALL_BYTES: usize = 200;
const LARGE_BYTES: usize = 64 * 1024;
/// The deltas of an answer, and the most pieces of it that weir holds for a socket.
const DELTAS: usize = 8;
const PIECES: usize = 8;
/// The most bytes of an event of these answers, which is a piece.
const PIECE_BYTES: usize = 1024;
/// How long turns may take until each has begun or is refused.
const DECIDED_MAX: Duration = Duration::from_secs(60);
/// How often memory is read meanwhile.
const POLL: Duration = Duration::from_millis(20);
/// The pause before a refused turn is sent again, and how often it is.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: usize = 100;
/// The connections that the POSTs beside them may need.
const OTHER_CLIENTS: usize = 64;
const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;

/// How much of everything.
pub(crate) struct FloodScale {
    /// Rounds, each with new processes.
    pub(crate) rounds: usize,
    /// Turns at once.
    pub(crate) turns: usize,
    /// Floods, one after the other, beside which POSTs are asked for.
    pub(crate) bursts: usize,
    /// How long POSTs are asked for without a flood.
    pub(crate) quiet: Duration,
}

/// The requests of a road.
struct Requests {
    small: Arc<[u8]>,
    delta: Arc<[u8]>,
    large: Arc<[u8]>,
}

/// What was measured, by round.
#[derive(Default)]
struct Costs {
    /// The memory of a small turn that runs, in KiB.
    small_kib: Vec<f64>,
    /// The growth of the process by all large turns beyond that by all small ones, in MiB.
    bodies_mib: Vec<f64>,
    /// Large turns that were refused at first.
    refused: Vec<f64>,
    /// The p99 of POSTs without a flood and beside floods, in milliseconds.
    quiet: Vec<f64>,
    beside: Vec<f64>,
}

/// The most memory while turns ran, in bytes, and how many were refused.
struct Held {
    peak: f64,
    refused: usize,
}

/// Clients, all of one road, and what they talk to.
struct Crowd<'a> {
    askers: Vec<Asker>,
    gateway: &'a Gateway,
    host: &'a Host,
}

/// Prints the tables.
pub(crate) async fn measure(host: &Host, scale: &FloodScale) -> Result<(), String> {
    let turns = files::streams_within(scale.turns + OTHER_CLIENTS).saturating_sub(OTHER_CLIENTS);
    let mut costs = [Costs::default(), Costs::default()];
    for round in 0..scale.rounds {
        for road in Road::in_order(round) {
            let looked = look(road, turns, (host, scale), &mut costs[road.place()]).await;
            looked.map_err(|bad| format!("{turns} turns at once by {}: {bad}", road.name()))?;
        }
    }
    let allowed = (BODY_BUDGET + turns * PIECES * PIECE_BYTES) as f64 / MIB;
    let title = format!("{turns} turns at once");
    let mut table = Table::new(&[
        title.as_str(),
        "KiB a small turn",
        "MiB more with 64 KB in each",
        "aim",
        "refused at first",
        "p99 of POSTs without (ms)",
        "beside them (ms)",
        "times",
    ]);
    for road in Road::ALL {
        let costs = &costs[road.place()];
        let times: Vec<f64> = costs
            .beside
            .iter()
            .zip(&costs.quiet)
            .map(|(beside, quiet)| beside / quiet)
            .collect();
        table.row(&[
            road.name().to_owned(),
            over_rounds(&costs.small_kib),
            over_rounds(&costs.bodies_mib),
            aim(&costs.bodies_mib, allowed),
            over_rounds(&costs.refused),
            over_rounds(&costs.quiet),
            over_rounds(&costs.beside),
            over_rounds(&times),
        ]);
    }
    table.print();
    println!(
        "{} rounds with new processes. The memory for bodies is limited to {} MiB; the aim adds 8 pieces a turn. Refused turns \
         were sent again and served. POSTs: 200 a second, beside {} floods of turns of 8 KB, one after the other.\n",
        scale.rounds,
        number(BODY_BUDGET as f64 / MIB),
        scale.bursts
    );
    Ok(())
}

/// Measures one process.
async fn look(road: Road, turns: usize, (host, scale): (&Host, &FloodScale), costs: &mut Costs) -> Result<(), String> {
    // Conversations that outlive their turns would be measured, too.
    let settings = GatewaySettings {
        state_bytes: 0,
        ..GatewaySettings::default()
    };
    let gateway = Gateway::start(host.address, &settings);
    let requests = Requests::new(road, &gateway.proxy.key);
    host.perform(HostScript::of(DELTAS));
    let mut crowd = Crowd {
        askers: Vec::with_capacity(turns),
        gateway: &gateway,
        host,
    };
    for _ in 0..turns {
        let mut asker = Asker::open(road, &gateway).await?;
        asker.learn(&requests.small, host).await?;
        crowd.askers.push(asker);
    }
    costs.quiet.push(Probe::quiet(&gateway, scale.quiet).await?);
    let before = gateway.resident();
    let small = crowd.hold(&requests.small).await?;
    if small.refused > 0 {
        return Err(format!("{} small turns were refused", small.refused));
    }
    let large = crowd.hold(&requests.large).await?;
    costs.small_kib.push((small.peak - before) / KIB / turns as f64);
    costs.bodies_mib.push((large.peak - small.peak) / MIB);
    costs.refused.push(large.refused as f64);
    let probe = Probe::start(&gateway);
    for _ in 0..scale.bursts {
        crowd.burst(&requests.delta).await?;
    }
    costs.beside.push(probe.stop().await?);
    Ok(())
}

impl Requests {
    fn new(road: Road, key: &str) -> Self {
        let request = |bytes: usize| -> Arc<[u8]> {
            let input: [Value; 1] = [prompt(bytes)];
            match road {
                Road::Post => post(key, &input).into(),
                Road::Socket => create(&input, None).into(),
            }
        };
        Self {
            small: request(SMALL_BYTES),
            delta: request(DELTA_BYTES),
            large: request(LARGE_BYTES),
        }
    }
}

impl Crowd<'_> {
    /// Sends the request on all connections at once. The host holds all answers until each turn has begun or was refused.
    async fn hold(&mut self, request: &Arc<[u8]>) -> Result<Held, String> {
        self.host.perform(HostScript {
            is_held: true,
            ..HostScript::of(DELTAS)
        });
        let (decided, total) = (Arc::new(AtomicUsize::new(0)), self.askers.len());
        let mut running = self.ask_all(request, &decided);
        let began = Instant::now();
        let mut peak: f64 = 0.0;
        while decided.load(Ordering::Relaxed) < total && began.elapsed() < DECIDED_MAX {
            tokio::time::sleep(POLL).await;
            peak = peak.max(self.gateway.resident());
        }
        peak = peak.max(self.gateway.resident());
        let now = decided.load(Ordering::Relaxed);
        self.host.release();
        let refused = self.gather(&mut running).await?;
        if now < total {
            return Err(format!(
                "only {now} of {total} turns had begun or were refused within {DECIDED_MAX:?}"
            ));
        }
        let count = refused.len();
        self.host.perform(HostScript::of(DELTAS));
        for asker in refused {
            let asker = self.insist(asker, request).await?;
            self.askers.push(asker);
        }
        Ok(Held { peak, refused: count })
    }

    /// Sends the request on all connections at once, and reads all answers.
    async fn burst(&mut self, request: &Arc<[u8]>) -> Result<(), String> {
        let mut running = self.ask_all(request, &Arc::default());
        for asker in self.gather(&mut running).await? {
            let asker = self.insist(asker, request).await?;
            self.askers.push(asker);
        }
        Ok(())
    }

    /// Begins a turn on each connection. Each adds 1 to `decided` when it has begun or failed.
    fn ask_all(&mut self, request: &Arc<[u8]>, decided: &Arc<AtomicUsize>) -> JoinSet<Result<(Asker, Asked), String>> {
        let mut running = JoinSet::new();
        for mut asker in self.askers.drain(..) {
            let (request, decided) = (Arc::clone(request), Arc::clone(decided));
            running.spawn(async move {
                let mut is_counted = false;
                let mut count = || {
                    if !std::mem::replace(&mut is_counted, true) {
                        decided.fetch_add(1, Ordering::Relaxed);
                    }
                };
                let asked = asker.ask(&request, &mut count).await;
                count();
                Ok::<_, String>((asker, asked?))
            });
        }
        running
    }

    /// Waits for the ends of turns. Returns the clients that were refused.
    async fn gather(&mut self, running: &mut JoinSet<Result<(Asker, Asked), String>>) -> Result<Vec<Asker>, String> {
        let mut refused = Vec::new();
        while let Some(ended) = running.join_next().await {
            match ended.map_err(|bad| bad.to_string())?? {
                (asker, Asked::Served(_)) => self.askers.push(asker),
                (asker, Asked::Refused(429 | 503)) => refused.push(asker),
                (_, Asked::Refused(status)) => return Err(format!("a turn was refused with {status}")),
            }
        }
        Ok(refused)
    }

    /// Sends a refused turn again until it is served.
    async fn insist(&self, mut asker: Asker, request: &[u8]) -> Result<Asker, String> {
        for _ in 0..AGAIN_MAX {
            match asker.ask(request, &mut || {}).await? {
                Asked::Served(_) => return Ok(asker),
                Asked::Refused(_) => tokio::time::sleep(AGAIN).await,
            }
        }
        Err("a turn was refused again and again, after the others had ended".to_owned())
    }
}
