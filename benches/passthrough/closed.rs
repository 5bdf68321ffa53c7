//! Loads of connections that each ask again as soon as they have their answer: what a request, a stream and a chunk cost.

use crate::{
    billed::Billed,
    load::{Load, Spent},
    options::{Scale, Streams},
    phases::{DELTA_BYTES, Report, order},
    request::Form,
    row::{Aim, Compared, Row, Subject, WEIRS},
};

/// CPU time of a small request, as a multiple of the bare proxy's.
const SMALL_AIMS: [(&[Subject], Aim); 2] = [
    (&[Subject::Embedded], Aim::MostTimes(1.25, Subject::Bare)),
    (&[Subject::Redis], Aim::MostTimes(1.35, Subject::Bare)),
];

/// Requests per second, as a multiple of the bare proxy's.
const RATE_AIM: Aim = Aim::LeastTimes(0.75, Subject::Bare);

const TEN_CHUNKS_AIM: Aim = Aim::MostTimes(1.25, Subject::Bare);
const LARGE_AIM: Aim = Aim::MostTimes(1.15, Subject::Bare);

/// CPU time of a chunk, as a multiple of another one's.
const PACED_AIMS: [Aim; 2] = [
    Aim::MostTimes(1.05, Subject::Bare),
    Aim::MostTimes(1.15, Subject::Nginx),
];
const UNPACED_AIMS: [Aim; 1] = [Aim::MostTimes(1.25, Subject::Bare)];

/// Runs the rounds of the same load on every proxy and hands what each cost to `spent`.
async fn rounds(
    billed: &Billed,
    form: Form,
    (at_once, repeats): (usize, usize),
    scale: &Scale,
    notes: &mut Vec<String>,
    mut spent: impl FnMut(Subject, &Spent),
) -> Result<(), String> {
    let fleet = &billed.fleet;
    let references = billed.references(form).await?;
    let mut loads = Vec::new();
    for proxy in &fleet.proxies {
        let reference = references.of(proxy.subject);
        let mut load = Load::warm(proxy, form, &reference, at_once, fleet.script.gap).await?;
        if scale.is_warmed_up {
            load.run(proxy, repeats).await?;
        }
        loads.push(load);
    }
    for round in 0..scale.rounds {
        for place in order(loads.len(), round) {
            let proxy = &fleet.proxies[place];
            spent(proxy.subject, &loads[place].run(proxy, repeats).await?);
        }
    }
    for (load, proxy) in loads.iter().zip(&fleet.proxies) {
        if load.reopened() > 0 {
            notes.push(format!(
                "{} closed {} kept connections.",
                proxy.subject.title(),
                load.reopened()
            ));
        }
    }
    Ok(())
}

/// Small answers in one piece, one at a time and many at a time.
pub(crate) async fn unary(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    for load in [(1, scale.unary_single), scale.unary_many] {
        let [mut cpu, kernel, mut rate] = request_rows(&format!("unary, {} at a time", load.0));
        if load.0 > 1 {
            rate = rate.aiming(WEIRS, RATE_AIM);
            for (subjects, aim) in SMALL_AIMS {
                cpu = cpu.aiming(subjects, aim);
            }
        }
        requests(billed, Form::Unary, load, scale, [cpu, kernel, rate], report).await?;
    }
    Ok(())
}

/// Bodies of a megabyte, and small answers.
pub(crate) async fn large(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    let [cpu, kernel, rate] = request_rows(&format!("requests of 1 MB, {} at a time", scale.large.0));
    let rows = [cpu.aiming(WEIRS, LARGE_AIM), kernel, rate];
    let form = Form::Long(scale.large_bytes);
    requests(billed, form, scale.large, scale, rows, report).await
}

fn request_rows(load: &str) -> [Row; 3] {
    let measures = [
        "CPU per request (us)",
        "of it in the kernel (us)",
        "requests per second",
    ];
    measures.map(|measure| Row::new(&format!("{load}: {measure}"), Compared::AsRatio))
}

async fn requests(
    billed: &Billed,
    form: Form,
    load: (usize, usize),
    scale: &Scale,
    [mut cpu, mut kernel, mut rate]: [Row; 3],
    report: &mut Report,
) -> Result<(), String> {
    rounds(billed, form, load, scale, &mut report.notes, |subject, spent| {
        cpu.add(subject, spent.cpu.total / spent.answers);
        kernel.add(subject, spent.cpu.system / spent.answers);
        rate.add(subject, spent.answers / spent.elapsed.as_secs_f64());
    })
    .await?;
    report.rows.extend([cpu, kernel, rate]);
    Ok(())
}

/// Short streams, each chunk by itself.
pub(crate) async fn ten_chunks(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    let load = scale.ten_chunks;
    let name = format!("streams of {} chunks, {} at a time", load.deltas, load.at_once);
    let row = |measure: &str, compared| Row::new(&format!("{name}: {measure}"), compared);
    let mut cpu = row("CPU per stream (us)", Compared::AsRatio).aiming(WEIRS, TEN_CHUNKS_AIM);
    let mut kernel = row("of it in the kernel (us)", Compared::AsRatio);
    let mut passed = row("chunks forwarded per chunk sent by the provider", Compared::Not);
    let size = (load.at_once, load.repeats);
    rounds(
        billed,
        Form::Stream,
        size,
        scale,
        &mut report.notes,
        |subject, spent| {
            cpu.add(subject, spent.cpu.total / spent.answers);
            kernel.add(subject, spent.cpu.system / spent.answers);
            passed.add(subject, spent.chunks_received / spent.chunks_sent);
        },
    )
    .await?;
    report.rows.extend([cpu, kernel, passed]);
    report
        .notes
        .push(format!("Streams of {} chunks: {}.", load.deltas, described(load)));
    Ok(())
}

/// Many streams at the pace of a model.
pub(crate) async fn paced(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    streams("paced", scale.paced, &PACED_AIMS, billed, scale, report).await?;
    report.notes.push(format!("Paced: {}.", described(scale.paced)));
    Ok(())
}

/// Streams as fast as they go.
pub(crate) async fn unpaced(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    streams("unpaced", scale.unpaced, &UNPACED_AIMS, billed, scale, report).await?;
    report.notes.push(format!("Unpaced: {}.", described(scale.unpaced)));
    Ok(())
}

async fn streams(
    pace: &str,
    load: Streams,
    aims: &[Aim],
    billed: &Billed,
    scale: &Scale,
    report: &mut Report,
) -> Result<(), String> {
    let row = |measure: &str, compared| Row::new(&format!("{pace} streams: {measure}"), compared);
    let mut cpu = row("CPU per chunk forwarded (us)", Compared::AsRatio);
    let mut kernel = row("of it in the kernel (us)", Compared::AsRatio);
    let mut passed = row("chunks forwarded per chunk sent by the provider", Compared::Not);
    let mut sent = row("CPU per chunk sent by the provider (us)", Compared::AsRatio);
    for aim in aims {
        cpu = cpu.aiming(WEIRS, *aim);
        sent = sent.aiming(WEIRS, *aim);
    }
    let size = (load.at_once, load.repeats);
    rounds(
        billed,
        Form::Stream,
        size,
        scale,
        &mut report.notes,
        |subject, spent| {
            cpu.add(subject, spent.cpu.total / spent.chunks_received);
            kernel.add(subject, spent.cpu.system / spent.chunks_received);
            sent.add(subject, spent.cpu.total / spent.chunks_sent);
            passed.add(subject, spent.chunks_received / spent.chunks_sent);
        },
    )
    .await?;
    report.rows.extend([cpu, kernel, passed, sent]);
    Ok(())
}

fn described(streams: Streams) -> String {
    let Streams {
        at_once,
        repeats,
        deltas,
        gap_ms,
    } = streams;
    format!(
        "{at_once} streams at once, {repeats} in a row on each connection, {deltas} deltas of {DELTA_BYTES} bytes, {gap_ms} ms apart"
    )
}
