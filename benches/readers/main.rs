//! What a flood of readers of the public record, people at the console, and a sink of the log cost those who generate: nothing may
//! be felt, and of the readers Redis must not notice anything.
//!
//! `cargo bench --bench readers [-- --quick]`. Paced small requests go through weir with the Redis store while
//! the public listener is quiet, and while it is asked as often as given; both in turn, several times. Every reader comes
//! from an address of its own, so that the rate limit spares none, and then all from one, so that it refuses most.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    dead_code,
    reason = "a bench reports on stdout, reads the clock, stops at once when its surroundings are not as expected, and uses \
              a part of what the other benches have"
)]

#[path = "../passthrough/bare.rs"]
mod bare;
mod console;
#[path = "../passthrough/decoder.rs"]
mod decoder;
#[path = "../passthrough/driver.rs"]
mod driver;
#[path = "../passthrough/fleet.rs"]
mod fleet;
mod flood;
#[path = "../log/generator.rs"]
mod generator;
mod intake;
#[path = "../passthrough/machine.rs"]
mod machine;
#[path = "../passthrough/node.rs"]
mod node;
#[path = "../passthrough/process.rs"]
mod process;
#[path = "../passthrough/reference.rs"]
mod reference;
#[path = "../passthrough/request.rs"]
mod request;
#[path = "../passthrough/row.rs"]
mod row;

use std::{
    ffi::OsString,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Parser;
use tokio::task::JoinSet;

use crate::{
    bare::BareArgs,
    driver::{Connection, Expect},
    fleet::{Fleet, Proxy, RedisRow, Script},
    flood::{Flood, From, Heard},
    intake::{Intake, Rows},
    reference::Reference,
    request::Form,
    row::{Subject, quantile},
};

/// The allocator of the weir binary, for the bare proxy to have the same.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Connections that generate, and how often each asks.
const GENERATING: usize = 4;
const GENERATE_EVERY: Duration = Duration::from_millis(20);

/// How much of everything.
#[derive(Clone, Copy)]
struct Scale {
    /// Each has every state once.
    rounds: usize,
    /// How long a state lasts.
    length: Duration,
}

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// What goes on beside the traffic.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    /// So many requests per second.
    Readers(u32, From),
    /// Rows that are taken in.
    Sink,
}

/// What is measured side by side.
const STATES: [(&str, Beside); 6] = [
    ("nobody reads", Beside::Nothing),
    (
        "200 readers per second, each its own address",
        Beside::Readers(200, From::Everywhere),
    ),
    (
        "1000 readers per second, each its own address",
        Beside::Readers(1000, From::Everywhere),
    ),
    (
        "1000 requests per second from one address",
        Beside::Readers(1000, From::OneAddress),
    ),
    (
        "100 people at the console, a page every 2 seconds each",
        Beside::Readers(50, From::Console),
    ),
    ("a sink takes in rows", Beside::Sink),
];

/// What one state showed, over all rounds.
#[derive(Default)]
struct Seen {
    micros: Vec<f64>,
    p99: Vec<f64>,
    commands: Vec<f64>,
    heard: Heard,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == bare::COMMAND) {
        bare::run(&BareArgs::parse_from(&arguments[1..]));
    }
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let filter = arguments
        .iter()
        .skip(1)
        .find(|argument| !argument.to_string_lossy().starts_with('-'));
    let selected = filter.is_none_or(|filter| "readers".contains(&*filter.to_string_lossy()));
    if !(has("--bench") || has("--quick")) || !selected {
        println!("readers: nothing measured without --bench (cargo bench passes it) or --quick");
        return ExitCode::SUCCESS;
    }
    if !fleet::has_redis_server() {
        println!("readers: nothing measured, redis-server is not installed");
        return ExitCode::SUCCESS;
    }
    let scale = if has("--quick") {
        Scale {
            rounds: 1,
            length: Duration::from_secs(1),
        }
    } else {
        Scale {
            rounds: 5,
            length: Duration::from_secs(10),
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!("{}\n", machine::Machine::read().line());
    match runtime.block_on(measure(scale)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(bad) => {
            eprintln!("readers: {bad}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(scale: Scale) -> Result<(), String> {
    let script = Script {
        deltas: 8,
        delta_bytes: 12,
        gap: Duration::ZERO,
    };
    let fleet = Fleet::start(script, RedisRow::In);
    let reference = Reference::read(&fleet, Form::Unary).await?;
    let proxy = fleet.proxies.iter().find(|proxy| proxy.subject == Subject::Redis);
    let proxy = proxy.ok_or("no weir with the Redis store")?;
    let redis = fleet.redis.ok_or("no Redis")?;
    let people = console::sessions(proxy, flood::PEOPLE)?;
    let rows = Arc::new(Rows::make());
    let mut seen: Vec<Seen> = STATES.iter().map(|_| Seen::default()).collect();
    // The first round warms everything up.
    for round in 0..=scale.rounds {
        for ((_, beside), seen) in STATES.iter().zip(&mut seen) {
            let flood = match beside {
                Beside::Readers(per_second, from) => Some(Flood::start(proxy, *per_second, *from, &people)),
                Beside::Nothing | Beside::Sink => None,
            };
            let sink = matches!(beside, Beside::Sink).then(|| Intake::start(&rows));
            let (before, began) = (commands(redis).await?, Instant::now());
            let micros = generate(proxy, &reference, scale.length).await?;
            let elapsed = began.elapsed().as_secs_f64();
            let commands = (commands(redis).await? - before) as f64 / elapsed;
            let mut heard = match flood {
                Some(flood) => flood.end().await?,
                None => Heard::default(),
            };
            if let Some(sink) = sink {
                heard.answered += sink.end().await?;
            }
            if round > 0 {
                seen.p99.push(quantile(&micros, 0.99).ok_or("no request")?);
                seen.micros.extend(micros);
                seen.commands.push(commands);
                seen.heard.add(&heard);
            }
        }
    }
    print(&seen, scale);
    Ok(())
}

fn print(seen: &[Seen], scale: Scale) {
    println!(
        "| {} paced requests per second while | p50 (us) | p99 (us) | p99 to quiet, median of the rounds | Redis commands per second | answered, or rows taken in | 429 |\n\
         |---|---:|---:|---:|---:|---:|---:|",
        GENERATING * 1000 / GENERATE_EVERY.as_millis() as usize
    );
    let seconds = scale.length.as_secs_f64() * scale.rounds as f64;
    for ((name, _), state) in STATES.iter().zip(seen) {
        let at = |share| quantile(&state.micros, share).expect("samples");
        let ratios: Vec<f64> = state
            .p99
            .iter()
            .zip(&seen[0].p99)
            .map(|(with, quiet)| with / quiet)
            .collect();
        println!(
            "| {name} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0}/s | {:.0}/s |",
            at(0.5),
            at(0.99),
            quantile(&ratios, 0.5).expect("rounds"),
            quantile(&state.commands, 0.5).expect("rounds"),
            state.heard.answered as f64 / seconds,
            state.heard.refused as f64 / seconds,
        );
    }
}

/// Asks at the given pace, whatever the answers take; the time of a request is counted from its sending.
async fn generate(proxy: &Proxy, reference: &Reference, length: Duration) -> Result<Vec<f64>, String> {
    let mut tasks = JoinSet::new();
    for number in 0..GENERATING {
        let (mut connection, request) = (Connection::new(proxy.address), proxy.request(Form::Unary));
        let body = reference.body.clone();
        tasks.spawn(async move {
            // The first one connects.
            connection.ask(&request, Expect::Whole(&body)).await?;
            let mut micros = Vec::new();
            let began = Instant::now();
            let mut due = began + GENERATE_EVERY * number as u32 / GENERATING as u32;
            while due < began + length {
                tokio::time::sleep_until(due.into()).await;
                // The timer of the runtime is coarse: what it adds is no time of weir's.
                let started = Instant::now();
                connection.ask(&request, Expect::Whole(&body)).await?;
                micros.push(started.elapsed().as_secs_f64() * 1e6);
                due += GENERATE_EVERY;
            }
            Ok::<_, String>(micros)
        });
    }
    let mut all = Vec::new();
    for one in tasks.join_all().await {
        all.extend(one?);
    }
    Ok(all)
}

/// How many commands Redis has processed since it started.
async fn commands(address: std::net::SocketAddr) -> Result<u64, String> {
    let failed = |error: redis::RedisError| format!("redis: {error}");
    let client = redis::Client::open(format!("redis://{address}")).map_err(failed)?;
    let mut connection = client.get_multiplexed_async_connection().await.map_err(failed)?;
    let told: String = redis::cmd("INFO")
        .arg("stats")
        .query_async(&mut connection)
        .await
        .map_err(failed)?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| "redis tells no count of commands".to_owned())
}
