//! What a chunk of a translated stream costs beside one of a native stream: CPU time of weir's process under the same load.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::{
    driver::Connection,
    fleet::Proxy,
    host::{Host, HostScript},
    roads::{Pattern, Road, ask},
    table::{Table, aim, over_rounds},
};

/// The most that translation may add to a chunk, in microseconds.
const ADDED_AIM: f64 = 3.0;

/// After the last answer, before the CPU time is read: weir may still have something to write down.
const SETTLE: Duration = Duration::from_millis(100);

/// A load of streams.
#[derive(Clone, Copy)]
pub(crate) struct ChunkLoad {
    /// What the table calls it.
    pub(crate) name: &'static str,
    /// How the host answers.
    pub(crate) script: HostScript,
    /// Streams at a time.
    pub(crate) at_once: usize,
    /// Streams on each connection, one after the other.
    pub(crate) repeats: usize,
}

/// A road with its connections, which are kept over all rounds.
struct Lane {
    road: Road,
    connections: Vec<Connection>,
    request: Arc<[u8]>,
    pattern: Arc<Pattern>,
    /// CPU microseconds per delta of the host, by round.
    micros: Vec<f64>,
}

/// Runs the load on all roads, in another order each round.
pub(crate) async fn measure((proxy, host): (&Proxy, &Host), rounds: usize, load: ChunkLoad) -> Result<(), String> {
    host.perform(load.script);
    let mut lanes = Vec::new();
    for road in Road::all() {
        let mut lane = Lane {
            road,
            connections: (0..load.at_once).map(|_| Connection::new(proxy.address)).collect(),
            request: road.request(&proxy.key).into(),
            pattern: road.learn(proxy, host, load.script).await?,
            micros: Vec::new(),
        };
        // Opens the connections on both sides.
        lane.stream(1, load.script.gap).await?;
        lanes.push(lane);
    }
    for round in 0..rounds {
        let count = lanes.len();
        for step in 0..count {
            let place = match round % 2 {
                0 => (step + round / 2) % count,
                _ => (count - 1 - step + round / 2) % count,
            };
            let lane = &mut lanes[place];
            let before = proxy.process.cpu();
            lane.stream(load.repeats, load.script.gap).await?;
            tokio::time::sleep(SETTLE).await;
            let spent = proxy.process.cpu().since(&before).total;
            let deltas = load.at_once * load.repeats * load.script.deltas;
            lane.micros.push(spent / deltas as f64);
        }
    }
    let title = format!("CPU per chunk (us), {}", load.name);
    let mut table = Table::new(&[title.as_str(), "native", "translated", "added", "aim"]);
    for lane in lanes.iter().filter(|lane| lane.road.is_translated()) {
        let native = Road::native(lane.road.client);
        let native = lanes.iter().find(|other| other.road == native);
        let native = &native.expect("a native road of each client").micros;
        let added: Vec<f64> = lane
            .micros
            .iter()
            .zip(native)
            .map(|(own, native)| own - native)
            .collect();
        table.row(&[
            lane.road.name(),
            over_rounds(native),
            over_rounds(&lane.micros),
            over_rounds(&added),
            aim(&added, ADDED_AIM),
        ]);
    }
    table.print();
    println!(
        "{rounds} rounds of {} streams at once, {} on each connection, {} deltas of {} bytes, {} ms apart. A chunk's cost includes \
         its share of the request's.\n",
        load.at_once,
        load.repeats,
        load.script.deltas,
        load.script.delta_bytes,
        load.script.gap.as_millis()
    );
    Ok(())
}

impl Lane {
    /// Reads `repeats` streams on every connection. They begin spread over one gap, so that they do not beat in time.
    async fn stream(&mut self, repeats: usize, gap: Duration) -> Result<(), String> {
        let mut running = JoinSet::new();
        let step = gap / u32::try_from(self.connections.len()).expect("a modest number");
        for (number, mut connection) in (0_u32..).zip(self.connections.drain(..)) {
            let (request, pattern) = (Arc::clone(&self.request), Arc::clone(&self.pattern));
            running.spawn(async move {
                tokio::time::sleep(step * number).await;
                for _ in 0..repeats {
                    ask(&mut connection, &request, &pattern).await?;
                }
                Ok::<_, String>(connection)
            });
        }
        for ended in running.join_all().await {
            self.connections.push(ended.map_err(|bad| self.road.failed(&bad))?);
        }
        Ok(())
    }
}
