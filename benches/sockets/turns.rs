//! A turn over a socket beside a POST of the same body: the time to its first event, its CPU time, and that of its events.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    asker::{Asked, Asker, Road},
    body::{Continued, create, history, post, prompt},
    gateway::{Gateway, GatewaySettings},
    host::{Host, HostScript},
    row::quantile,
    socket::Socket,
    table::{Table, aim, over_rounds},
};

/// The most that a socket may add, in microseconds: to the first event of a turn, with a conversation that weir stores, and to an
/// event.
const FIRST_EVENT_AIM: f64 = 30.0;
const CONTINUED_AIM: f64 = 0.0;
const EVENT_AIM: f64 = 1.0;

/// The new text of a turn, in bytes.
pub(crate) const DELTA_BYTES: usize = 8_000;
/// The conversation before it, in bytes.
const KEPT_BYTES: usize = 392_000;
/// The most that the bodies which the host gets by both roads may differ, in bytes: in the ids of items, and in what weir writes.
const DIFFERENCE_MAX: usize = 2_000;
/// The response that is continued, in a lane of its own: so it stays the latest of its lane, and no turn is longer than another.
const ROOT: &str = "resp_root";
const LANE: &str = "work";
/// After the last answer, before the CPU time is read: weir may still have something to write down.
const SETTLE: Duration = Duration::from_millis(100);

/// How much of everything.
pub(crate) struct TurnScale {
    pub(crate) rounds: usize,
    /// Turns of each road in a round, for the first event.
    pub(crate) samples: usize,
    /// Turns of each road in a round, for the CPU time.
    pub(crate) block: usize,
    /// Loads for the CPU time of an event.
    pub(crate) events: [EventLoad; 2],
}

/// A load of turns with many events.
#[derive(Clone, Copy)]
pub(crate) struct EventLoad {
    name: &'static str,
    deltas: usize,
    gap: Duration,
    /// Clients at a time.
    at_once: usize,
    /// Turns of each client, one after the other.
    repeats: usize,
}

/// The loads for the CPU time of an event.
pub(crate) fn loads(quick: bool) -> [EventLoad; 2] {
    let pick = |little: usize, full: usize| if quick { little } else { full };
    let paced = EventLoad {
        name: "paced",
        deltas: pick(20, 200),
        gap: Duration::from_millis(10),
        at_once: pick(4, 64),
        repeats: 1,
    };
    let unpaced = EventLoad {
        name: "without pauses",
        deltas: pick(50, 500),
        gap: Duration::ZERO,
        at_once: pick(4, 32),
        repeats: pick(1, 5),
    };
    [paced, unpaced]
}

/// The clients of a road, which keep their connections over all rounds.
struct Side {
    road: Road,
    askers: Vec<Asker>,
    request: Arc<[u8]>,
}

/// Prints the tables.
pub(crate) async fn measure(host: &Host, scale: &TurnScale) -> Result<(), String> {
    let gateway = Gateway::start(host.address, &GatewaySettings::default());
    host.perform(HostScript::of(8));
    let mut table = Table::new(&["one turn at a time", "POST", "socket", "added", "aim"]);
    let delta = [
        Side::new(Road::Post, 1, DELTA_BYTES, (&gateway, host)).await?,
        Side::new(Road::Socket, 1, DELTA_BYTES, (&gateway, host)).await?,
    ];
    turn(&mut table, "8 KB", delta, FIRST_EVENT_AIM, (&gateway, scale)).await?;
    let kept = continued(&gateway, host).await?;
    turn(&mut table, "8 KB behind 392 KB", kept, CONTINUED_AIM, (&gateway, scale)).await?;
    table.print();
    println!(
        "{} rounds of {} turns on each road in turn for the first event, {} for the CPU time, answers of 8 deltas. The POST \
         carries all of 400 KB, the socket 8 KB that continue a stored conversation.\n",
        scale.rounds, scale.samples, scale.block
    );
    let mut table = Table::new(&["CPU per event (us)", "POST", "socket", "added", "aim"]);
    for load in scale.events {
        let spent = events((&gateway, host), load, scale.rounds).await?;
        let added = added(&spent);
        table.row(&[
            load.name.to_owned(),
            over_rounds(&spent[0]),
            over_rounds(&spent[1]),
            over_rounds(&added),
            aim(&added, EVENT_AIM),
        ]);
    }
    table.print();
    for load in scale.events {
        println!(
            "- {}: {} turns at once, {} of each client, {} deltas of 12 bytes, {} ms apart.",
            load.name,
            load.at_once,
            load.repeats,
            load.deltas,
            load.gap.as_millis()
        );
    }
    println!("\nAn event's cost includes its share of the turn's.\n");
    Ok(())
}

impl Side {
    /// So many clients whose requests have a prompt of this length.
    async fn new(road: Road, clients: usize, bytes: usize, (gateway, host): (&Gateway, &Host)) -> Result<Self, String> {
        let input = [prompt(bytes)];
        let request = match road {
            Road::Post => post(&gateway.proxy.key, &input),
            Road::Socket => create(&input, None),
        };
        let mut askers = Vec::with_capacity(clients);
        for _ in 0..clients {
            let mut asker = Asker::open(road, gateway).await?;
            let learned = asker.learn(&request, host).await;
            learned.map_err(|bad| format!("{}: {bad}", road.name()))?;
            askers.push(asker);
        }
        Ok(Self {
            road,
            askers,
            request: request.into(),
        })
    }

    /// Runs so many turns of each client at the same time. They begin spread over `gap`, so that they do not beat in time.
    async fn run(&mut self, repeats: usize, gap: Duration) -> Result<(), String> {
        let mut running = JoinSet::new();
        let step = gap / u32::try_from(self.askers.len()).expect("a modest number");
        for (number, mut asker) in (0_u32..).zip(self.askers.drain(..)) {
            let request = Arc::clone(&self.request);
            running.spawn(async move {
                tokio::time::sleep(step * number).await;
                for _ in 0..repeats {
                    served(asker.ask(&request, &mut || {}).await)?;
                }
                Ok::<_, String>(asker)
            });
        }
        for ended in running.join_all().await {
            let asker = ended.map_err(|bad| self.failed(&bad))?;
            self.askers.push(asker);
        }
        Ok(())
    }

    fn failed(&self, bad: &str) -> String {
        format!("a turn by {}: {bad}", self.road.name())
    }
}

/// The time to the first event of a turn that must be served, in microseconds.
fn served(asked: Result<Asked, String>) -> Result<f64, String> {
    match asked? {
        Asked::Served(first_event) => Ok(first_event.as_secs_f64() * 1e6),
        Asked::Refused(status) => Err(format!("refused with {status}")),
    }
}

/// A POST with the whole conversation, and a socket that continues it. The host must get the same of both.
async fn continued(gateway: &Gateway, host: &Host) -> Result<[Side; 2], String> {
    let script = HostScript::of(8);
    host.perform(HostScript { id: ROOT, ..script });
    let before = history(KEPT_BYTES);
    let mut socket = Socket::open(gateway.proxy.address, &gateway.proxy.key, None).await?;
    socket.ask(&create(&before, None), &mut || {}).await?;
    host.perform(script);
    let delta = prompt(DELTA_BYTES);
    let root = Continued {
        response: ROOT,
        lane: LANE,
    };
    let frame = create(std::slice::from_ref(&delta), Some(root));
    let all: Vec<Value> = before.into_iter().chain([delta]).collect();
    let request = post(&gateway.proxy.key, &all);
    let mut by_post = Asker::open(Road::Post, gateway).await?;
    by_post.learn(&request, host).await?;
    let posted = host.body_bytes();
    let mut over_socket = Asker::over(socket);
    over_socket.learn(&frame, host).await?;
    let sent = host.body_bytes();
    if posted.abs_diff(sent) > DIFFERENCE_MAX {
        return Err(format!(
            "the host got {posted} bytes by POST and {sent} over the socket"
        ));
    }
    let side = |road, asker, request: Vec<u8>| Side {
        road,
        askers: vec![asker],
        request: request.into(),
    };
    Ok([
        side(Road::Post, by_post, request),
        side(Road::Socket, over_socket, frame),
    ])
}

/// Measures single turns and adds two rows.
async fn turn(
    table: &mut Table,
    name: &str,
    mut sides: [Side; 2],
    most: f64,
    (gateway, scale): (&Gateway, &TurnScale),
) -> Result<(), String> {
    let (mut medians, mut paired, mut cpu) = ([Vec::new(), Vec::new()], Vec::new(), [Vec::new(), Vec::new()]);
    for round in 0..scale.rounds {
        let mut micros = [Vec::new(), Vec::new()];
        for number in 0..scale.samples {
            for road in Road::in_order(number) {
                let side = &mut sides[road.place()];
                let asked = side.askers[0].ask(&side.request, &mut || {}).await;
                micros[road.place()].push(served(asked).map_err(|bad| side.failed(&bad))?);
            }
        }
        for (medians, micros) in medians.iter_mut().zip(&micros) {
            medians.push(quantile(micros, 0.5).expect("samples"));
        }
        paired.push(quantile(&added(&micros), 0.5).expect("samples"));
        for road in Road::in_order(round) {
            let before = gateway.proxy.process.cpu();
            sides[road.place()].run(scale.block, Duration::ZERO).await?;
            tokio::time::sleep(SETTLE).await;
            let spent = gateway.proxy.process.cpu().since(&before).total;
            cpu[road.place()].push(spent / scale.block as f64);
        }
    }
    table.row(&[
        format!("{name}: first event, p50 (us)"),
        over_rounds(&medians[0]),
        over_rounds(&medians[1]),
        over_rounds(&paired),
        aim(&paired, most),
    ]);
    table.row(&[
        format!("{name}: CPU (us)"),
        over_rounds(&cpu[0]),
        over_rounds(&cpu[1]),
        over_rounds(&added(&cpu)),
        String::new(),
    ]);
    Ok(())
}

/// The CPU microseconds per event of both roads, by round.
async fn events((gateway, host): (&Gateway, &Host), load: EventLoad, rounds: usize) -> Result<[Vec<f64>; 2], String> {
    host.perform(HostScript {
        gap: load.gap,
        ..HostScript::of(load.deltas)
    });
    // A prompt of the usual length would cost more than all events.
    let bytes = 200;
    let mut sides = [
        Side::new(Road::Post, load.at_once, bytes, (gateway, host)).await?,
        Side::new(Road::Socket, load.at_once, bytes, (gateway, host)).await?,
    ];
    let mut spent = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for road in Road::in_order(round) {
            let before = gateway.proxy.process.cpu();
            sides[road.place()].run(load.repeats, load.gap).await?;
            tokio::time::sleep(SETTLE).await;
            let micros = gateway.proxy.process.cpu().since(&before).total;
            let events = load.at_once * load.repeats * host.events();
            spent[road.place()].push(micros / events as f64);
        }
    }
    Ok(spent)
}

/// What the socket adds to the POST beside it.
fn added([post, socket]: &[Vec<f64>; 2]) -> Vec<f64> {
    socket.iter().zip(post).map(|(socket, post)| socket - post).collect()
}
