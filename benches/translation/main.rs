//! What translation costs over weir's native road, in one process of weir with one host behind it: time to the first byte, CPU time
//! of a chunk, a request, and memory of an open stream. Every answer is checked.
//!
//! `cargo bench --bench translation [-- OPTIONS]`; `-- --help` lists the options. The exit code is 1 when an answer was not what it
//! should be; a missed aim is only printed, for a busy machine misses it too.
//!
//! Reading order: `roads` (what is compared), `host` and `events` (what answers), then the parts: `first_byte`, `chunks`, `requests`,
//! `memory`.
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

#[path = "../passthrough/bare.rs"]
mod bare;
mod chunks;
#[path = "../passthrough/decoder.rs"]
mod decoder;
#[path = "../passthrough/driver.rs"]
mod driver;
mod events;
#[path = "../passthrough/files.rs"]
mod files;
mod first_byte;
#[path = "../passthrough/fleet.rs"]
mod fleet;
mod host;
#[path = "../passthrough/machine.rs"]
mod machine;
mod memory;
#[path = "../passthrough/node.rs"]
mod node;
#[path = "../passthrough/process.rs"]
mod process;
#[path = "../passthrough/request.rs"]
mod request;
mod requests;
mod roads;
#[path = "../passthrough/row.rs"]
mod row;
mod table;

use std::{
    process::{Command, ExitCode},
    time::Duration,
};

use clap::{Parser, ValueEnum};
use tempfile::TempDir;

use crate::{
    chunks::ChunkLoad,
    fleet::{EMBEDDED, Launch},
    host::{Host, HostScript},
    memory::MemoryScale,
    node::Weir,
    requests::AloneScale,
    row::Subject,
};

/// The allocator of the weir binary. Translation in this process must use the same one.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The length of the text in a delta, in bytes: about three tokens.
const DELTA_BYTES: usize = 12;

/// Measures translated requests, and compares them with requests that weir passes on untranslated.
#[derive(Parser)]
#[command(name = "translation")]
struct Options {
    /// Measure for a few seconds with little load, to check that the bench works. The numbers have no meaning
    #[arg(long)]
    quick: bool,
    /// The number of rounds. Each round measures every way of a request once, in a different order [default: 5, with --quick 1]
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
    /// Time to the first byte of a stream
    FirstByte,
    /// CPU time of a chunk
    Chunks,
    /// Translation of a request and of an event, without a gateway
    Requests,
    /// Memory of an open stream
    Memory,
}

/// The amount of load in each part.
struct Scale {
    rounds: usize,
    /// The number of requests of each way per round, for the first byte.
    first_bytes: usize,
    loads: [ChunkLoad; 2],
    alone: AloneScale,
    memory: MemoryScale,
}

/// The number of deltas of an answer, and the pause between them.
const fn script(deltas: usize, gap_ms: u64) -> HostScript {
    HostScript {
        deltas,
        delta_bytes: DELTA_BYTES,
        gap: Duration::from_millis(gap_ms),
        is_held: false,
    }
}

impl Scale {
    fn of(options: &Options) -> Self {
        let quick = options.quick;
        let rounds = options.rounds.map_or(if quick { 1 } else { 5 }, usize::from);
        let pick = |little: usize, full: usize| if quick { little } else { full };
        Self {
            rounds,
            first_bytes: pick(20, 1_000),
            loads: [
                ChunkLoad {
                    name: "paced streams",
                    script: script(pick(20, 200), 10),
                    at_once: pick(4, 64),
                    repeats: 1,
                },
                ChunkLoad {
                    name: "unpaced streams",
                    script: script(pick(50, 500), 0),
                    at_once: pick(4, 32),
                    repeats: pick(1, 5),
                },
            ],
            alone: AloneScale {
                requests: pick(3, 200),
                deltas: pick(100, 20_000),
            },
            memory: MemoryScale {
                rounds: rounds.min(3),
                streams: pick(20, 500),
            },
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let selected = options
        .filter
        .as_ref()
        .is_none_or(|filter| "translation".contains(filter.as_str()));
    if !(options.bench || options.quick) || !selected {
        println!("translation: nothing measured without --bench (cargo bench passes it) or --quick");
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
            eprintln!("translation: {bad}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> Result<(), String> {
    let scale = Scale::of(options);
    let wants = |part| options.only.is_empty() || options.only.contains(&part);
    if wants(Part::Requests) {
        requests::measure(scale.alone)?;
    }
    let host = Host::start(script(1, 0));
    if wants(Part::FirstByte) || wants(Part::Chunks) {
        let folder = TempDir::with_prefix("weir-translation-").expect("a temporary folder");
        let launch: Launch = |program, _| Command::new(program);
        let proxy = Weir::of(Subject::Embedded, EMBEDDED).start(host.address, folder.path(), launch);
        let through = (&proxy, &host);
        if wants(Part::FirstByte) {
            first_byte::measure(through, (scale.rounds, scale.first_bytes), script(8, 0)).await?;
        }
        for load in scale.loads.into_iter().filter(|_| wants(Part::Chunks)) {
            chunks::measure(through, scale.rounds, load).await?;
        }
    }
    if wants(Part::Memory) {
        memory::measure(&host, scale.memory).await?;
    }
    if options.quick {
        println!("`--quick`: this shows that everything works; the numbers mean nothing.");
    }
    Ok(())
}
