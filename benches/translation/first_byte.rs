//! Time to the first byte of a translated stream beside a native one, one request at a time, in turn.

use std::sync::Arc;

use crate::{
    driver::Connection,
    fleet::Proxy,
    host::{Host, HostScript},
    roads::{Pattern, Road, ask},
    row::quantile,
    table::{Table, aim, over_rounds},
};

/// The most that translation may add to the native median, in microseconds.
const ADDED_AIM: f64 = 50.0;

/// A road with a connection of its own.
struct Lane {
    road: Road,
    connection: Connection,
    request: Vec<u8>,
    pattern: Arc<Pattern>,
}

/// Asks on all roads in turn, `samples` times a round.
pub(crate) async fn measure(
    (proxy, host): (&Proxy, &Host),
    (rounds, samples): (usize, usize),
    script: HostScript,
) -> Result<(), String> {
    host.perform(script);
    let mut lanes = Vec::new();
    for road in Road::all() {
        lanes.push(Lane {
            road,
            connection: Connection::new(proxy.address),
            request: road.request(&proxy.key),
            pattern: road.learn(proxy, host, script).await?,
        });
    }
    let mut medians = vec![Vec::new(); lanes.len()];
    let mut added = vec![Vec::new(); lanes.len()];
    for _ in 0..rounds {
        let micros = round(&mut lanes, samples).await?;
        for (place, lane) in lanes.iter().enumerate() {
            medians[place].push(quantile(&micros[place], 0.5).expect("samples"));
            // Each is compared with the native one of the same turn.
            let native = &micros[place_of(&lanes, Road::native(lane.road.client))];
            let pairs = micros[place].iter().zip(native).map(|(own, native)| own - native);
            added[place].push(quantile(&pairs.collect::<Vec<_>>(), 0.5).expect("samples"));
        }
    }
    let mut table = Table::new(&["first byte, p50 (us)", "native", "translated", "added", "aim"]);
    for (place, lane) in lanes.iter().enumerate().filter(|(_, lane)| lane.road.is_translated()) {
        let native = place_of(&lanes, Road::native(lane.road.client));
        table.row(&[
            lane.road.name(),
            over_rounds(&medians[native]),
            over_rounds(&medians[place]),
            over_rounds(&added[place]),
            aim(&added[place], ADDED_AIM),
        ]);
    }
    table.print();
    println!("{rounds} rounds of {samples} requests on each road, one at a time.\n");
    Ok(())
}

/// The microseconds of each sample by road. The order of the roads changes with each turn.
async fn round(lanes: &mut [Lane], samples: usize) -> Result<Vec<Vec<f64>>, String> {
    let count = lanes.len();
    let mut micros = vec![Vec::with_capacity(samples); count];
    for turn in 0..=samples {
        for step in 0..count {
            let place = match turn % 2 {
                0 => (step + turn / 2) % count,
                _ => (count - 1 - step + turn / 2) % count,
            };
            let Lane {
                road,
                connection,
                request,
                pattern,
            } = &mut lanes[place];
            let asked = ask(connection, request, pattern).await;
            let answer = asked.map_err(|bad| road.failed(&bad))?;
            // The first turn opens connections.
            if turn > 0 {
                micros[place].push(answer.first_byte.as_secs_f64() * 1e6);
            }
        }
    }
    Ok(micros)
}

fn place_of(lanes: &[Lane], road: Road) -> usize {
    let place = lanes.iter().position(|lane| lane.road == road);
    place.expect("a road that is measured")
}
