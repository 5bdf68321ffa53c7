//! Many open streams that talk slowly: what a chunk costs among them, and how late the latest is.

use std::time::Duration;

use crate::{
    billed::Billed,
    files,
    held::Held,
    options::Scale,
    phases::{DELTA_BYTES, Report, order},
    request::{Form, direct_request},
    row::{Aim, Compared, Row, Subject, WEIRS, quantile},
};

/// In milliseconds.
const LATEST_AIM: Aim = Aim::Most(50.0);

pub(crate) async fn measure(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    let (fleet, load) = (&billed.fleet, scale.open);
    let streams = files::streams_within(load.streams);
    let (gap, length) = (
        Duration::from_millis(load.gap_ms),
        Duration::from_millis(load.length_ms),
    );
    let row = |measure: &str, compared| Row::new(&format!("{streams} open streams: {measure}"), compared);
    let mut cpu = row("CPU per chunk forwarded (us)", Compared::AsRatio);
    let mut kernel = row("of it in the kernel (us)", Compared::AsRatio);
    let mut tail = row("chunks late, p99 (ms)", Compared::Not);
    let mut latest = row("latest chunk (ms)", Compared::Not).aiming(WEIRS, LATEST_AIM);
    let direct = (Subject::Direct, fleet.provider, direct_request(Form::Stream), None);
    let proxies = fleet.proxies.iter().map(|proxy| {
        let request = proxy.request(Form::Stream);
        (proxy.subject, proxy.address, request, Some(&proxy.process))
    });
    let references = billed.references(Form::Stream).await?;
    let mut subjects = Vec::new();
    for (subject, address, request, process) in std::iter::once(direct).chain(proxies) {
        subjects.push((subject, address, request, process, references.of(subject)));
    }
    for round in 0..load.rounds {
        for place in order(subjects.len(), round) {
            let (subject, address, request, process, reference) = &subjects[place];
            let failed = |bad: String| format!("{streams} open streams, {}: {bad}", subject.name());
            let mut held = Held::new(*address, request.clone(), reference);
            held.open(streams).await.map_err(failed)?;
            let seen = held.run(*process, gap, length).await.map_err(failed)?;
            if let Some((before, after)) = seen.cpu {
                let spent = after.since(&before);
                cpu.add(*subject, spent.total / seen.chunks as f64);
                kernel.add(*subject, spent.system / seen.chunks as f64);
            }
            tail.add(*subject, quantile(&seen.late, 0.99).expect("chunks"));
            latest.add(*subject, quantile(&seen.late, 1.0).expect("chunks"));
        }
    }
    report.rows.extend([cpu, kernel, tail, latest]);
    report.notes.push(format!(
        "Open streams: {streams} at once, {} deltas of {DELTA_BYTES} bytes, {} ms apart, measured for {} ms, {} rounds. A chunk is \
         late by its stream's own pace.",
        load.deltas, load.gap_ms, load.length_ms, load.rounds
    ));
    Ok(())
}
