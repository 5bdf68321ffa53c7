//! One worker on a core of its own, the provider and the client on the others: what a chunk costs, by thread, in the steady state
//! of a few streams and among many. Chunks come at the same rate in both, so that what goes by time counts alike.

use std::{collections::BTreeMap, fs, process::Command, time::Duration};

use crate::{
    billed::Billed,
    fleet::{RedisRow, Script},
    held::Held,
    options::{Open, Phase, Scale},
    phases::{DELTA_BYTES, Report, order},
    process::Process,
    request::Form,
    row::{Aim, Compared, Row, Subject, WEIRS},
};

/// CPU time of a chunk, as a multiple of the bare proxy's.
const CHUNK_AIM: Aim = Aim::MostTimes(1.10, Subject::Bare);

/// The thread of weir's worker. Of others it is the one that spends most.
const SERVING: &str = "gateway";

/// A thread that no round has seen spend this much of a chunk has no row, in microseconds: it would read 0.00.
const SHOWN_MIN: f64 = 0.005;

/// How often it is tried to find all threads of a process where they belong.
const PINNING_MAX: usize = 10;

/// The cores that this process may use, in two parts.
struct Cores {
    /// The proxy's.
    proxy: String,
    /// Of all others.
    rest: String,
    all: String,
}

/// This process and those that it starts are on some of the cores; dropping it lets them use all again.
struct Moved<'a>(&'a Cores);

/// What one round has cost.
struct Round {
    subject: Subject,
    chunks: f64,
    /// On all threads.
    total: f64,
    serving: f64,
    /// By the name of each other thread.
    beside: BTreeMap<String, f64>,
}

pub(crate) async fn measure(scale: &Scale, redis: RedisRow, report: &mut Report) -> Result<(), String> {
    let Some(cores) = Cores::read() else {
        let left_out = "The pinned phase is left out: it needs two cores and `taskset` (util-linux).";
        report.notes.push(left_out.to_owned());
        return Ok(());
    };
    // Of the provider, who is asked for a pace by each request.
    let script = Script {
        deltas: 1,
        delta_bytes: DELTA_BYTES,
        gap: Duration::ZERO,
    };
    let moved = cores.leave_to_proxy()?;
    let billed = Billed::start(script, redis, None);
    for proxy in &billed.fleet.proxies {
        pin(&proxy.process, &cores.proxy)?;
    }
    for load in scale.pinned {
        streams(&billed, load, report).await?;
    }
    report.billed.extend(billed.close(Phase::Pinned.name()).await?);
    drop(moved);
    report.notes.push(format!(
        "Pinned: each proxy has one worker and is on core {} with all its threads, all else on {}. The thread that serves is weir's \
         `{SERVING}`, of others the one that spends most.",
        cores.proxy, cores.rest
    ));
    Ok(())
}

async fn streams(billed: &Billed, load: Open, report: &mut Report) -> Result<(), String> {
    let name = format!("pinned, {} streams", load.streams);
    let (gap, length) = (
        Duration::from_millis(load.gap_ms),
        Duration::from_millis(load.length_ms),
    );
    let form = Form::Paced {
        deltas: load.deltas,
        gap_ms: load.gap_ms,
    };
    let references = billed.references(form).await?;
    let proxies = &billed.fleet.proxies;
    let mut rounds = Vec::new();
    for round in 0..load.rounds {
        for place in order(proxies.len(), round) {
            let proxy = &proxies[place];
            let failed = |bad: String| format!("{name}, {}: {bad}", proxy.subject.name());
            let mut held = Held::new(proxy.address, proxy.request(form), &references.of(proxy.subject));
            held.open(load.streams).await.map_err(failed)?;
            let seen = held.run(Some(&proxy.process), gap, length).await.map_err(failed)?;
            let (before, after) = seen.cpu.expect("of a process");
            let mut beside = after.by_thread(&before);
            let serving = if proxy.subject.is_weir() {
                beside.remove(SERVING)
            } else {
                let busiest = beside.iter().max_by(|one, other| one.1.total_cmp(other.1));
                let name = busiest.map(|(name, _)| name.clone());
                name.and_then(|name| beside.remove(&name))
            };
            let serving = serving.unwrap_or_default();
            rounds.push(Round {
                subject: proxy.subject,
                chunks: seen.chunks as f64,
                total: after.since(&before).total,
                serving,
                beside,
            });
        }
    }
    report.rows.extend(rows(&name, &rounds));
    report.notes.push(format!(
        "{name}: {} deltas of {DELTA_BYTES} bytes in each, {} ms apart, measured for {} ms, {} rounds.",
        load.deltas, load.gap_ms, load.length_ms, load.rounds
    ));
    Ok(())
}

/// One for all, one for the thread that serves, one for each other thread that spends anything.
fn rows(name: &str, rounds: &[Round]) -> Vec<Row> {
    let row = |measure: &str, compared| Row::new(&format!("{name}: {measure}"), compared);
    let mut total = row("CPU per chunk forwarded (us)", Compared::AsRatio).aiming(WEIRS, CHUNK_AIM);
    let mut serving = row("of it on the thread that serves (us)", Compared::AsRatio);
    let mut beside: BTreeMap<&str, Row> = BTreeMap::new();
    for round in rounds {
        total.add(round.subject, round.total / round.chunks);
        serving.add(round.subject, round.serving / round.chunks);
        // In each round of this proxy, so that a row has as many values as there were.
        let same = rounds.iter().filter(|other| other.subject == round.subject);
        for thread in same.flat_map(|other| other.beside.keys()) {
            let spent = round.beside.get(thread).copied().unwrap_or_default();
            let row = beside
                .entry(thread)
                .or_insert_with(|| row(&format!("of it on `{thread}` (us)"), Compared::Not));
            row.add(round.subject, spent / round.chunks);
        }
    }
    let spends = |row: &Row| row.values.values().flatten().any(|spent| *spent >= SHOWN_MIN);
    let beside = beside.into_values().filter(spends);
    [total, serving].into_iter().chain(beside).collect()
}

impl Cores {
    /// `None` where there are not two, or nothing that could tell a process which it may use.
    fn read() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let all = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let all = all.trim();
        let (first, rest) = split(all)?;
        let has_taskset = Command::new("taskset").arg("--version").output().is_ok();
        has_taskset.then(|| Self {
            proxy: first,
            rest,
            all: all.to_owned(),
        })
    }

    /// Moves this process, and what it will start, to the cores that are not the proxy's.
    fn leave_to_proxy(&self) -> Result<Moved<'_>, String> {
        move_to(std::process::id(), &self.rest)?;
        Ok(Moved(self))
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        // Later phases are slower if this fails, and say so by their figures.
        let _ = move_to(std::process::id(), &self.0.all);
    }
}

/// The first core of a list such as `0-3,8`, and the list of the others.
fn split(list: &str) -> Option<(String, String)> {
    let (first, others) = list
        .split_once(',')
        .map_or((list, None), |(first, others)| (first, Some(others)));
    let (core, last) = first.split_once('-').unwrap_or((first, first));
    let (core, last): (usize, usize) = (core.parse().ok()?, last.parse().ok()?);
    let next = match core + 1 {
        next if next < last => Some(format!("{next}-{last}")),
        next => (next == last).then(|| last.to_string()),
    };
    let rest: Vec<String> = next.into_iter().chain(others.map(str::to_owned)).collect();
    (!rest.is_empty()).then(|| (core.to_string(), rest.join(",")))
}

/// Moves all threads of a process.
fn move_to(process: u32, cores: &str) -> Result<(), String> {
    let moved = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", cores])
        .arg(process.to_string())
        .output()
        .map_err(|error| format!("taskset: {error}"))?;
    if moved.status.success() {
        Ok(())
    } else {
        Err(format!("taskset: {}", String::from_utf8_lossy(&moved.stderr)))
    }
}

/// The same, and looks: a thread that has started another one meanwhile may have done so on the wrong core.
fn pin(process: &Process, core: &str) -> Result<(), String> {
    for _ in 0..PINNING_MAX {
        // It fails when a thread ends just then.
        let moved = move_to(process.id(), core);
        if moved.is_ok() && process.cores().iter().all(|cores| cores == core) {
            return Ok(());
        }
    }
    Err(format!("process {} cannot be kept on core {core}", process.id()))
}
