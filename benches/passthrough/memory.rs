//! Memory of an open stream: many streams that have begun and then are silent for a while.

use std::time::{Duration, Instant};

use crate::{
    billed::Billed,
    files,
    fleet::{RedisRow, Script},
    gateways::Installed,
    held::Held,
    load::Load,
    options::{Phase, Scale},
    phases::{DELTA_BYTES, Report, order},
    request::Form,
    row::{Aim, Compared, Row, WEIRS},
};

/// After the last stream is open, before memory is read.
const SETTLE: Duration = Duration::from_millis(200);

const KIB: f64 = 1024.0;

/// In KiB.
const IDLE_AIM: Aim = Aim::Most(25.0 * 1024.0);
const STREAM_AIM: Aim = Aim::Most(40.0);

/// Opens the streams at each proxy, with fresh processes each round: what an allocator has once taken it seldom returns.
pub(crate) async fn measure(
    scale: &Scale,
    redis: RedisRow,
    gateways: Option<&Installed>,
    report: &mut Report,
) -> Result<(), String> {
    let streams = files::streams_within(scale.open_streams);
    let mut idle = Row::new("memory: resident, idle (KiB)", Compared::AsRatio).aiming(WEIRS, IDLE_AIM);
    let mut resident = Row::new("memory: resident per open stream (KiB)", Compared::AsRatio).aiming(WEIRS, STREAM_AIM);
    let mut proportional = Row::new("memory: proportional (PSS) per open stream (KiB)", Compared::AsRatio);
    for round in 0..scale.memory_rounds {
        let script = Script {
            deltas: 2,
            delta_bytes: DELTA_BYTES,
            gap: Duration::from_millis(scale.silence_ms),
        };
        let billed = Billed::start(script, redis, gateways);
        let proxies = &billed.fleet.proxies;
        let references = billed.references(Form::Stream).await?;
        let small = billed.references(Form::Unary).await?;
        let mut open = Vec::new();
        for place in order(proxies.len(), round) {
            let proxy = &proxies[place];
            let failed = |bad: String| format!("memory, {}: {bad}", proxy.subject.name());
            let reference = references.of(proxy.subject);
            let mut held = Held::new(proxy.address, proxy.request(Form::Stream), &reference);
            if scale.is_warmed_up {
                let (at_once, repeats) = scale.unary_many;
                let small = small.of(proxy.subject);
                let mut load = Load::warm(proxy, Form::Unary, &small, at_once, Duration::ZERO).await?;
                load.run(proxy, repeats).await?;
            }
            // The first stream sets up what all share.
            held.open(1).await.map_err(failed)?;
            tokio::time::sleep(SETTLE).await;
            let before = proxy.process.memory();
            held.open(streams).await.map_err(failed)?;
            tokio::time::sleep(SETTLE).await;
            let after = proxy.process.memory();
            if held.has_ended() {
                return Err(failed(held.early().await));
            }
            let each = |after: f64, before: f64| (after - before) / KIB / streams as f64;
            idle.add(proxy.subject, before.resident / KIB);
            resident.add(proxy.subject, each(after.resident, before.resident));
            proportional.add(proxy.subject, each(after.proportional, before.proportional));
            open.push((proxy.subject, held));
        }
        // All end, so that all are billed.
        for (subject, held) in open {
            let now = Instant::now();
            let ended = held.end(script.gap, now, now).await;
            ended.map_err(|bad| format!("memory, {}: {bad}", subject.name()))?;
        }
        report.billed.extend(billed.close(Phase::Memory.name()).await?);
    }
    report.rows.extend([idle, resident, proportional]);
    report.notes.push(format!(
        "Memory: {streams} streams open at once, {} times afresh.",
        scale.memory_rounds
    ));
    Ok(())
}
