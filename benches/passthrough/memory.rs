//! Memory of an open stream: many streams that have begun and then fall silent.

use std::{fs, time::Duration};

use tokio::task::JoinSet;

use crate::{
    driver::{Connection, Expect},
    fleet::{Fleet, Form, Proxy, RedisRow, Script},
    options::Scale,
    phases::{Report, order},
    reference::Reference,
    row::{Compared, Row},
    servers,
};

/// Longer than the phase: the provider says one delta and is then silent.
const SILENCE: Duration = Duration::from_secs(600);

/// Streams that are opened at the same time, so that their number does not overflow a listener's backlog.
const OPENING_MAX: usize = 64;

/// File descriptors that a process has for other things than streams.
const OTHER_FILES: usize = 100;

/// After the last stream is open, before memory is read.
const SETTLE: Duration = Duration::from_millis(200);

const KIB: f64 = 1024.0;

/// Opens the streams at each proxy, with fresh processes each round: what an allocator has once taken it seldom returns.
pub(crate) async fn measure(scale: &Scale, redis: RedisRow, report: &mut Report) -> Result<(), String> {
    let streams = scale.open_streams.min(streams_possible());
    let mut idle = Row::new("memory: resident, idle (KiB)", Compared::AsRatio);
    let mut resident = Row::new("memory: resident per open stream (KiB)", Compared::AsRatio);
    let mut proportional = Row::new("memory: proportional (PSS) per open stream (KiB)", Compared::AsRatio);
    for round in 0..scale.memory_rounds {
        let mut fleet = Fleet::start(
            Script {
                deltas: 2,
                delta_bytes: 12,
                gap: SILENCE,
            },
            redis,
        );
        servers::join(&mut fleet);
        let prefix = Reference::read_first_delta(fleet.provider).await?;
        for place in order(fleet.proxies.len(), round) {
            let proxy = &fleet.proxies[place];
            // The first stream sets up what all share.
            let mut held = open(proxy, &prefix, 1).await?;
            tokio::time::sleep(SETTLE).await;
            let before = proxy.process.memory();
            held.extend(open(proxy, &prefix, streams).await?);
            tokio::time::sleep(SETTLE).await;
            let after = proxy.process.memory();
            let each = |after: f64, before: f64| (after - before) / KIB / streams as f64;
            idle.add(proxy.subject, before.resident / KIB);
            resident.add(proxy.subject, each(after.resident, before.resident));
            proportional.add(proxy.subject, each(after.proportional, before.proportional));
        }
    }
    report.rows.extend([idle, resident, proportional]);
    report.notes.push(format!(
        "Memory: {streams} streams open at once, {} times afresh.",
        scale.memory_rounds
    ));
    Ok(())
}

async fn open(proxy: &Proxy, prefix: &[u8], streams: usize) -> Result<Vec<Connection>, String> {
    let mut held = Vec::with_capacity(streams);
    while held.len() < streams {
        let mut opening = JoinSet::new();
        for _ in 0..OPENING_MAX.min(streams - held.len()) {
            let (mut connection, request) = (Connection::new(proxy.address), proxy.request(Form::Stream));
            let prefix = prefix.to_vec();
            opening.spawn(async move {
                connection
                    .ask(&request, Expect::Prefix(&prefix))
                    .await
                    .map(|_| connection)
            });
        }
        for opened in opening.join_all().await {
            held.push(opened.map_err(|bad| format!("{}: {bad}", proxy.subject.name()))?);
        }
    }
    Ok(held)
}

/// A proxy needs two files per stream, and inherits this process's limit.
fn streams_possible() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = files.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    soft.map_or(usize::MAX, |soft| soft.saturating_sub(OTHER_FILES) / 2)
}
