//! What is measured, phase by phase. Every round measures every proxy, in alternating order, so that the drift of a
//! shared machine meets all of them alike.

use std::{sync::Arc, time::Duration};

use crate::{
    driver::{Connection, Expect},
    fleet::{Fleet, Form, RedisRow, Script, direct_request, has_redis_server},
    load::{Load, Spent},
    memory,
    options::{Options, Phase, Scale, Streams},
    reference::Reference,
    row::{Aim, Compared, Row, Subject, quantile},
    servers,
};

/// Bytes of text in a delta: about three tokens.
const DELTA_BYTES: usize = 12;

/// Deltas of a small answer.
const SMALL_DELTAS: usize = 8;

/// CPU time of a chunk, as a multiple of the bare proxy's.
const CHUNK_AIM: Aim = Aim::Ratio(1.25);

/// Added time to the first byte, in microseconds.
const FIRST_BYTE_AIM: Aim = Aim::Value(1000.0);

/// Whether the numbers are good for a judgement.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Judged {
    /// They are.
    #[default]
    Yes,
    /// They only show that everything works.
    No,
}

/// Everything that was measured.
#[derive(Default)]
pub(crate) struct Report {
    /// The rows in the order of the table.
    pub(crate) rows: Vec<Row>,
    /// Whether the aims are judged.
    pub(crate) judged: Judged,
    /// What a reader must know about them.
    pub(crate) notes: Vec<String>,
}

/// Runs the phases that the options want. The error says which answer was bad.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let scale = options.scale();
    let mut report = Report::default();
    let redis = redis_row(options, &mut report)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    if options.quick {
        report.judged = Judged::No;
        report
            .notes
            .push("`--quick`: this shows that everything works; the numbers mean nothing.".to_owned());
    }
    runtime.block_on(async {
        if options.wants(Phase::Unary) || options.wants(Phase::FirstByte) {
            let gap = Duration::ZERO;
            let mut fleet = Fleet::start(
                Script {
                    deltas: SMALL_DELTAS,
                    delta_bytes: DELTA_BYTES,
                    gap,
                },
                redis,
            );
            let missing = servers::join(&mut fleet);
            if !missing.is_empty() {
                let names = missing.join(" and ");
                report.notes.push(format!("Not installed, so left out: {names}."));
            }
            if options.wants(Phase::Unary) {
                unary(&fleet, &scale, &mut report).await?;
            }
            if options.wants(Phase::FirstByte) {
                first_byte(&fleet, &scale, &mut report).await?;
            }
        }
        if options.wants(Phase::Paced) {
            streams("paced", scale.paced, &scale, redis, &mut report).await?;
            report.notes.push(format!("Paced: {}.", described(scale.paced)));
        }
        if options.wants(Phase::Unpaced) {
            streams("unpaced", scale.unpaced, &scale, redis, &mut report).await?;
            report.notes.push(format!("Unpaced: {}.", described(scale.unpaced)));
        }
        if options.wants(Phase::Memory) {
            memory::measure(&scale, redis, &mut report).await?;
        }
        report
            .notes
            .push("Chunks that come in one read are forwarded as one.".to_owned());
        report.notes.push(format!(
            "{} rounds; every answer was byte for byte the provider's.",
            scale.rounds
        ));
        Ok(report)
    })
}

fn redis_row(options: &Options, report: &mut Report) -> Result<RedisRow, String> {
    if options.no_redis {
        return Ok(RedisRow::Out);
    }
    if has_redis_server() {
        return Ok(RedisRow::In);
    }
    if options.need_redis {
        return Err("redis-server is not installed (--need-redis)".to_owned());
    }
    report
        .notes
        .push("redis-server is not installed, so weir with the Redis store is left out.".to_owned());
    Ok(RedisRow::Out)
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

/// The proxies' places in `0..count`, in an order that changes with the round.
pub(crate) fn order(count: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order.rotate_left((round / 2) % count.max(1));
    order
}

/// Runs `rounds` rounds of the same load on every proxy and hands what each cost to `spent`.
async fn rounds(
    fleet: &Fleet,
    form: Form,
    (at_once, repeats): (usize, usize),
    rounds: usize,
    notes: &mut Vec<String>,
    mut spent: impl FnMut(Subject, &Spent),
) -> Result<(), String> {
    let reference = Arc::new(Reference::read(fleet, form).await?);
    let mut loads = Vec::new();
    for proxy in &fleet.proxies {
        loads.push(Load::warm(proxy, form, &reference, at_once, fleet.script.gap).await?);
    }
    for round in 0..rounds {
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

async fn unary(fleet: &Fleet, scale: &Scale, report: &mut Report) -> Result<(), String> {
    for load in [(1, scale.unary_single), scale.unary_many] {
        let row = |measure: &str| Row::new(&format!("unary, {} at a time: {measure}", load.0), Compared::AsRatio);
        let mut cpu = row("CPU per request (us)");
        let mut kernel = row("of it in the kernel (us)");
        let mut rate = row("requests per second");
        rounds(
            fleet,
            Form::Unary,
            load,
            scale.rounds,
            &mut report.notes,
            |subject, spent| {
                cpu.add(subject, spent.cpu.total / spent.answers);
                kernel.add(subject, spent.cpu.system / spent.answers);
                rate.add(subject, spent.answers / spent.elapsed.as_secs_f64());
            },
        )
        .await?;
        report.rows.extend([cpu, kernel, rate]);
    }
    Ok(())
}

async fn streams(pace: &str, load: Streams, scale: &Scale, redis: RedisRow, report: &mut Report) -> Result<(), String> {
    let gap = Duration::from_millis(load.gap_ms);
    let mut fleet = Fleet::start(
        Script {
            deltas: load.deltas,
            delta_bytes: DELTA_BYTES,
            gap,
        },
        redis,
    );
    servers::join(&mut fleet);
    let row = |measure: &str, compared| Row::new(&format!("{pace} streams: {measure}"), compared);
    let mut cpu = row("CPU per chunk forwarded (us)", Compared::AsRatio).aiming(CHUNK_AIM);
    let mut kernel = row("of it in the kernel (us)", Compared::AsRatio);
    let mut passed = row("chunks forwarded per chunk sent by the provider", Compared::Not);
    let mut sent = row("CPU per chunk sent by the provider (us)", Compared::AsRatio).aiming(CHUNK_AIM);
    let size = (load.at_once, load.repeats);
    rounds(
        &fleet,
        Form::Stream,
        size,
        scale.rounds,
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

/// One request at a time, direct and through each proxy in turn.
async fn first_byte(fleet: &Fleet, scale: &Scale, report: &mut Report) -> Result<(), String> {
    let reference = Reference::read(fleet, Form::Stream).await?;
    let mut subjects = vec![(
        Subject::Direct,
        Connection::new(fleet.provider),
        direct_request(Form::Stream),
    )];
    for proxy in &fleet.proxies {
        subjects.push((
            proxy.subject,
            Connection::new(proxy.address),
            proxy.request(Form::Stream),
        ));
    }
    let mut median = Row::new("first byte: p50 (us)", Compared::AsRatio);
    let mut tail = Row::new("first byte: p99 (us)", Compared::AsRatio);
    let mut added_median = Row::new("first byte: added to the direct p50 (us)", Compared::Not);
    let mut added_tail = Row::new("first byte: added to the direct p99 (us)", Compared::Not).aiming(FIRST_BYTE_AIM);
    let mut paired = Row::new(
        "first byte: p99 of what is added to the direct request beside it (us)",
        Compared::Not,
    )
    .aiming(FIRST_BYTE_AIM);
    for _ in 0..scale.rounds {
        let mut samples = vec![Vec::with_capacity(scale.first_bytes); subjects.len()];
        for turn in 0..=scale.first_bytes {
            for place in order(subjects.len(), turn) {
                let (subject, connection, request) = &mut subjects[place];
                let asked = connection.ask(request, Expect::Whole(&reference.body)).await;
                let answer = asked.map_err(|bad| format!("{}: {bad}", subject.name()))?;
                // The first turn opens connections.
                if turn > 0 {
                    samples[place].push(answer.first_byte.as_secs_f64() * 1e6);
                }
            }
        }
        let of = |place: usize, share: f64| quantile(&samples[place], share).expect("samples");
        for (place, (subject, _, _)) in subjects.iter().enumerate() {
            median.add(*subject, of(place, 0.5));
            tail.add(*subject, of(place, 0.99));
            if place > 0 {
                added_median.add(*subject, of(place, 0.5) - of(0, 0.5));
                added_tail.add(*subject, of(place, 0.99) - of(0, 0.99));
                let pairs = samples[place].iter().zip(&samples[0]).map(|(own, direct)| own - direct);
                paired.add(*subject, quantile(&pairs.collect::<Vec<_>>(), 0.99).expect("samples"));
            }
        }
    }
    report.rows.extend([median, tail, added_median, added_tail, paired]);
    Ok(())
}
