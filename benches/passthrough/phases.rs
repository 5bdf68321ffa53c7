//! What is measured, phase by phase, each with a fleet of its own. Every round measures every proxy, in alternating order, so that
//! the drift of a shared machine meets all of them alike. When a phase is over, weir's books are compared with the provider's.

use std::time::Duration;

use clap::ValueEnum;

use crate::{
    billed::{Billed, Sums},
    closed, delays, first_byte,
    fleet::{RedisRow, Script, has_redis_server},
    gateways::{self, Installed},
    memory, mixture, observed, open,
    options::{Options, Phase, Scale},
    pinned,
    row::{Row, Subject},
    servers,
};

/// Bytes of text in a delta: about three tokens.
pub(crate) const DELTA_BYTES: usize = 12;

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
    /// What was seen of each, by what was looked for.
    pub(crate) observed: Vec<(&'static str, Vec<(Subject, String)>)>,
    /// What was charged in each phase, and billed as well.
    pub(crate) billed: Vec<Sums>,
}

/// Runs the phases that the options want. The error says which answer was bad, or whose books differ from the provider's.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let scale = options.scale();
    let mut report = Report::default();
    let redis = redis_row(options, &mut report)?;
    let gateways = options.gateways.then(gateways::install).transpose()?;
    let missing = servers::missing();
    if gateways.is_none() && !missing.is_empty() {
        let names = missing.join(" and ");
        report.notes.push(format!("Not installed, so left out: {names}."));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    if let Some(installed) = &gateways {
        report.judged = Judged::No;
        observed::observe(installed, &mut report)?;
    }
    if options.quick {
        report.judged = Judged::No;
        report
            .notes
            .push("`--quick`: this shows that everything works; the numbers mean nothing.".to_owned());
    }
    runtime.block_on(async {
        for phase in Phase::value_variants() {
            if options.wants(*phase) {
                measure(*phase, &scale, redis, gateways.as_ref(), &mut report).await?;
            }
        }
        report
            .notes
            .push("Chunks that come in one read are forwarded as one.".to_owned());
        report.notes.push(format!(
            "{} rounds; every answer was byte for byte the provider's.",
            scale.rounds
        ));
        let rows: u64 = report.billed.iter().map(|sums| sums.rows).sum();
        report.notes.push(format!(
            "After each phase the rows of each weir's log were as many as the provider had billed answers, with the same tokens, and \
             added up to what the account had spent: {rows} rows in all."
        ));
        Ok(report)
    })
}

async fn measure(
    phase: Phase,
    scale: &Scale,
    redis: RedisRow,
    gateways: Option<&Installed>,
    report: &mut Report,
) -> Result<(), String> {
    // Those start what they measure themselves.
    match phase {
        Phase::Memory => return memory::measure(scale, redis, gateways, report).await,
        Phase::Pinned => return pinned::measure(scale, redis, report).await,
        _ => {}
    }
    let (deltas, gap_ms) = match phase {
        Phase::Unary | Phase::FirstByte | Phase::Large => (scale.small_deltas, 0),
        Phase::TenChunks => (scale.ten_chunks.deltas, scale.ten_chunks.gap_ms),
        Phase::Delays => (scale.delayed.deltas, scale.delayed.gap_ms),
        Phase::Mixture => (scale.mixture.short.deltas, scale.mixture.short.gap_ms),
        Phase::Paced => (scale.paced.deltas, scale.paced.gap_ms),
        Phase::Unpaced => (scale.unpaced.deltas, scale.unpaced.gap_ms),
        Phase::Open => (scale.open.deltas, scale.open.gap_ms),
        Phase::Pinned | Phase::Memory => return Ok(()),
    };
    let script = Script {
        deltas,
        delta_bytes: DELTA_BYTES,
        gap: Duration::from_millis(gap_ms),
    };
    let billed = Billed::start(script, redis, gateways);
    match phase {
        Phase::Unary => closed::unary(&billed, scale, report).await?,
        Phase::TenChunks => closed::ten_chunks(&billed, scale, report).await?,
        Phase::Large => closed::large(&billed, scale, report).await?,
        Phase::Paced => closed::paced(&billed, scale, report).await?,
        Phase::Unpaced => closed::unpaced(&billed, scale, report).await?,
        Phase::FirstByte => first_byte::measure(&billed, scale, report).await?,
        Phase::Delays => delays::measure(&billed, scale, report).await?,
        Phase::Mixture => mixture::measure(&billed, scale, report).await?,
        Phase::Open => open::measure(&billed, scale, report).await?,
        Phase::Pinned | Phase::Memory => {}
    }
    report.billed.extend(billed.close(phase.name()).await?);
    Ok(())
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

/// The proxies' places in `0..count`, in an order that changes with the round.
pub(crate) fn order(count: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order.rotate_left((round / 2) % count.max(1));
    order
}
