//! What Responses over WebSocket cost beside POST, in one process of weir with one host behind it: a turn and its events, memory
//! and CPU time of idle sockets, and many turns at once. Every answer is checked.
//!
//! `cargo bench --bench sockets [-- OPTIONS]`; `-- --help` lists the options. The exit code is 1 if an answer is not what it
//! should be. A missed aim is only printed, because a busy machine misses it too.
//!
//! Reading order: `socket` (the client's side of the protocol), `asker` (a turn over a socket or by POST), `host` and `gateway`
//! (the other end), then the parts: `turns`, `idle`, `flood`.
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
    reason = "a bench reports on stdout, reads the clock, stops at once when its surroundings are not as expected, and uses a \
              part of what the other benches have"
)]

mod asker;
#[path = "../passthrough/bare.rs"]
mod bare;
mod body;
#[path = "../passthrough/decoder.rs"]
mod decoder;
#[path = "../passthrough/driver.rs"]
mod driver;
#[path = "../passthrough/files.rs"]
mod files;
#[path = "../passthrough/fleet.rs"]
mod fleet;
mod flood;
mod gateway;
mod host;
mod idle;
#[path = "../passthrough/machine.rs"]
mod machine;
#[path = "../passthrough/node.rs"]
mod node;
mod probe;
#[path = "../passthrough/process.rs"]
mod process;
#[path = "../passthrough/request.rs"]
mod request;
#[path = "../passthrough/row.rs"]
mod row;
mod socket;
#[path = "../translation/table.rs"]
mod table;
mod turns;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};

use crate::{flood::FloodScale, host::Host, idle::IdleScale, turns::TurnScale};

/// The allocator of the weir binary. The client uses the same one, so that its costs are comparable.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Responses over WebSocket, and compares them with POST.
#[derive(Parser)]
#[command(name = "sockets")]
struct Options {
    /// Measure for a few seconds with little load, to check that the bench works. The numbers have no meaning
    #[arg(long)]
    quick: bool,
    /// The number of rounds. The parts idle and flood have at most 3, each with new processes [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
    /// Measure only these parts, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    only: Vec<Part>,
    /// An option that cargo bench passes. Without it and without --quick, the bench measures nothing
    #[arg(long, hide = true)]
    bench: bool,
    /// A filter that cargo bench passes: run only if the bench's name contains this text
    #[arg(hide = true)]
    filter: Option<String>,
}

/// The parts of the bench.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A turn and its events
    Turn,
    /// Idle sockets
    Idle,
    /// Many turns at once
    Flood,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let selected = options
        .filter
        .as_ref()
        .is_none_or(|filter| "sockets".contains(filter.as_str()));
    if !(options.bench || options.quick) || !selected {
        println!("sockets: nothing measured without --bench (cargo bench passes it) or --quick");
        return ExitCode::SUCCESS;
    }
    files::raise();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!("{}\n", machine::Machine::read().line());
    match runtime.block_on(measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(bad) => {
            eprintln!("sockets: {bad}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> Result<(), String> {
    let quick = options.quick;
    let rounds = options.rounds.map_or(if quick { 1 } else { 5 }, usize::from);
    let pick = |little: usize, full: usize| if quick { little } else { full };
    let wants = |part| options.only.is_empty() || options.only.contains(&part);
    let host = Host::start();
    if wants(Part::Turn) {
        let scale = TurnScale {
            rounds,
            samples: pick(10, 1_000),
            block: pick(10, 300),
            events: turns::loads(quick),
        };
        turns::measure(&host, &scale).await?;
    }
    if wants(Part::Idle) {
        let scale = IdleScale {
            rounds: rounds.min(3),
            levels: if quick {
                vec![0, 20, 40]
            } else {
                vec![0, 1_000, 2_000, 4_000]
            },
            ping_seconds: if quick { 1 } else { 30 },
            probe: Duration::from_millis(if quick { 300 } else { 5_000 }),
        };
        idle::measure(&host, &scale).await?;
    }
    if wants(Part::Flood) {
        let scale = FloodScale {
            rounds: rounds.min(3),
            turns: pick(50, 2_000),
            bursts: pick(2, 10),
            quiet: Duration::from_millis(if quick { 300 } else { 5_000 }),
        };
        flood::measure(&host, &scale).await?;
    }
    if quick {
        println!("`--quick`: this shows that everything works; the numbers mean nothing.");
    }
    Ok(())
}
