//! Keys: what a small request costs when its key is one of so many, the first time and later, and what they take to have.

use std::{
    fs,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    Scale,
    chart::Panel,
    driver::Connection,
    fleet::{self, EMBEDDED, Launch, Proxy, Script, redis_server, sample_provider},
    many_keys,
    node::Weir,
    process::Process,
    reference::Reference,
    request::Form,
    row::Subject,
    timed::{self, Asker},
};

/// Connections that ask.
const AT_ONCE: usize = 32;
/// The most keys that are in use, of however many there are.
const IN_USE_MAX: usize = 5_000;
/// What fewer keys cost the first time is too little to be told.
const FIRST_TIMES_MIN: usize = 100;

const SCRIPT: Script = Script {
    deltas: 8,
    delta_bytes: 12,
    gap: Duration::ZERO,
};

/// What is measured with so many keys.
struct Measured {
    restored_per_second: f64,
    start_ms: f64,
    memory_mib: f64,
    first_cpu: Option<f64>,
    per_second: f64,
    cpu: f64,
}

/// Prints a table; answers with its drawing.
pub(crate) async fn measure(scale: &Scale) -> Result<Vec<Panel>, String> {
    println!(
        "| keys | | restored a second | start (ms) | memory after it (MiB) | a key's first request: CPU (us) | later ones: requests a \
         second | CPU per request (us) |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|");
    let mut panels = [
        Panel::new("CPU per request (us)", "keys"),
        Panel::new("memory after the start (MiB)", "keys"),
        Panel::new("start (ms)", "keys"),
    ];
    let template = template();
    let subjects = [
        Some(Subject::Embedded),
        fleet::has_redis_server().then_some(Subject::Redis),
    ];
    for subject in subjects.into_iter().flatten() {
        for keys in &scale.keys {
            let measured = of(scale, *keys, subject, &template).await?;
            let first = measured.first_cpu.map_or_else(String::new, |cpu| format!("{cpu:.1}"));
            println!(
                "| {keys} | {} | {:.0} | {:.0} | {:.1} | {first} | {:.0} | {:.1} |",
                subject.title(),
                measured.restored_per_second,
                measured.start_ms,
                measured.memory_mib,
                measured.per_second,
                measured.cpu,
            );
            let values = [measured.cpu, measured.memory_mib, measured.start_ms];
            for (panel, value) in panels.iter_mut().zip(values) {
                panel.add(subject.title(), *keys as f64, value);
            }
        }
    }
    println!();
    Ok(panels.into())
}

const LAUNCH: Launch = |program, _| Command::new(program);

/// The backup of a store with an account and a key.
fn template() -> String {
    let folder = TempDir::with_prefix("weir-growth-").expect("a temporary folder");
    let nowhere = "127.0.0.1:9".parse().expect("an address");
    let weir = Weir::of(Subject::Embedded, EMBEDDED).start(nowhere, folder.path(), LAUNCH);
    let file = folder.path().join("backup.jsonl");
    weir.back_up(&file);
    fs::read_to_string(file).expect("a backup")
}

async fn of(scale: &Scale, count: usize, subject: Subject, template: &str) -> Result<Measured, String> {
    let folder = TempDir::with_prefix("weir-growth-").expect("a temporary folder");
    let folder = folder.path();
    let mut provider = Process::start("sample-provider", &mut sample_provider(SCRIPT), folder);
    let address = provider.announced_address();
    let (store, _redis) = match subject {
        Subject::Redis => {
            let (redis, redis_address) = redis_server(folder);
            let store = format!("engine = \"redis\"\n[store.redis]\nnodes = [\"{redis_address}\"]");
            (store, Some(redis))
        }
        _ => (EMBEDDED.to_owned(), None),
    };
    let backup = folder.join("backup.jsonl");
    many_keys::write(template, &backup, count).map_err(|error| format!("{}: {error}", backup.display()))?;
    let key = many_keys::text(0);
    let weir = Weir {
        key: Some(&key),
        ..Weir::of(subject, &store)
    };
    let restored = timed(|| weir.restore(address, folder, &backup)).1;
    let (mut weir, start) = timed(|| weir.start(address, folder, LAUNCH));
    let memory = weir.process.memory().resident;
    let reference = Arc::new(Reference::of(address, SCRIPT, Form::Unary).await?);
    let mut askers = askers(&mut weir, count);
    let before = weir.process.cpu();
    let first = timed::once(&mut askers, &reference).await?;
    let first_cpu = weir.process.cpu().since(&before).total / first as f64;
    timed::ask(&mut askers, &reference, scale.warm, None).await?;
    let before = weir.process.cpu();
    let answers = timed::ask(&mut askers, &reference, scale.length, None).await?;
    let cpu = weir.process.cpu().since(&before).total;
    Ok(Measured {
        restored_per_second: count as f64 / restored.as_secs_f64(),
        start_ms: start.as_secs_f64() * 1e3,
        memory_mib: memory / f64::from(1 << 20),
        first_cpu: (count >= FIRST_TIMES_MIN).then_some(first_cpu),
        per_second: answers as f64 / scale.length.as_secs_f64(),
        cpu: cpu / answers as f64,
    })
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

/// Each has its part of the keys that are in use, which are spread over all.
fn askers(weir: &mut Proxy, count: usize) -> Vec<Asker> {
    let in_use = count.min(IN_USE_MAX);
    let mut requests: Vec<Vec<Vec<u8>>> = vec![Vec::new(); AT_ONCE.min(in_use)];
    let places = requests.len();
    for number in 0..in_use {
        weir.key = many_keys::text(number * (count / in_use));
        requests[number % places].push(weir.request(Form::Unary));
    }
    let askers = requests.into_iter().map(|requests| Asker {
        connection: Connection::new(weir.address),
        requests,
    });
    // Few keys are asked for by many connections.
    let mut askers: Vec<Asker> = askers.collect();
    for number in places..AT_ONCE {
        let requests = askers[number % places].requests.clone();
        let connection = Connection::new(weir.address);
        askers.push(Asker { connection, requests });
    }
    askers
}
