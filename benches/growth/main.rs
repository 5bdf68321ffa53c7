//! How what weir costs grows: with the nodes at one Redis, with the streams that are open, and with the keys there are.
//!
//! `cargo bench --bench growth [-- --quick] [-- --only nodes,streams,keys]`. Each part prints a table, and
//! with `--svg FOLDER` it is drawn to a file there.
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
              a part of what the other bench has"
)]

#[path = "../passthrough/bare.rs"]
mod bare;
mod chart;
#[path = "../passthrough/decoder.rs"]
mod decoder;
#[path = "../passthrough/driver.rs"]
mod driver;
#[path = "../passthrough/files.rs"]
mod files;
#[path = "../passthrough/fleet.rs"]
mod fleet;
mod keys;
#[path = "../passthrough/machine.rs"]
mod machine;
mod many_keys;
#[path = "../passthrough/node.rs"]
mod node;
mod nodes;
#[path = "../passthrough/process.rs"]
mod process;
mod redis_count;
#[path = "../passthrough/reference.rs"]
mod reference;
#[path = "../passthrough/request.rs"]
mod request;
#[path = "../passthrough/row.rs"]
mod row;
mod streams;
mod timed;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};

use crate::{bare::BareArgs, chart::Panel};

/// The allocator of the weir binary. The bare proxy must use the same one.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures how costs grow with the number of nodes, streams and keys.
#[derive(Parser)]
#[command(name = "growth")]
struct Options {
    /// Measure for a few seconds with little load, to check that the bench works. The numbers have no meaning
    #[arg(long)]
    quick: bool,
    /// Measure only these parts, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    only: Vec<Part>,
    /// The maximum number of keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: usize,
    /// Draw a chart of each part in the file `growth-PART.svg` in this folder
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    /// An option that cargo bench passes. Without it and without --quick, the bench measures nothing
    #[arg(long, hide = true)]
    bench: bool,
    /// A filter that cargo bench passes: run only if the bench's name contains this text
    #[arg(hide = true)]
    filter: Option<String>,
}

/// The quantity that grows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Nodes at one Redis
    Nodes,
    /// Open streams
    Streams,
    /// Keys
    Keys,
}

/// The amount of load in each part.
pub(crate) struct Scale {
    /// How long each load lasts, and how long it runs before that.
    pub(crate) length: Duration,
    pub(crate) warm: Duration,
    /// Open streams.
    pub(crate) streams: Vec<usize>,
    /// The numbers of keys. Each has a store of its own.
    pub(crate) keys: Vec<usize>,
}

impl Scale {
    fn of(options: &Options) -> Self {
        if options.quick {
            return Self {
                length: Duration::from_millis(500),
                warm: Duration::from_millis(500),
                streams: vec![10, 100],
                keys: vec![10, 100],
            };
        }
        let decades = std::iter::successors(Some(10), |keys| Some(keys * 10));
        let fewer = decades.take_while(|keys| *keys < options.keys);
        Self {
            length: Duration::from_secs(5),
            warm: Duration::from_secs(2),
            streams: vec![10, 64, 640, 2_000, 3_500, 10_000],
            keys: fewer.chain([options.keys]).collect(),
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == bare::COMMAND) {
        bare::run(&BareArgs::parse_from(&arguments[1..]));
    }
    let options = Options::parse();
    let selected = options.filter.as_ref().is_none_or(|filter| "growth".contains(filter));
    if !(options.bench || options.quick) || !selected {
        println!("growth: nothing measured without --bench (cargo bench passes it) or --quick");
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
            eprintln!("growth: {bad}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> Result<(), String> {
    let scale = Scale::of(options);
    let wants = |part| options.only.is_empty() || options.only.contains(&part);
    if wants(Part::Nodes) {
        if fleet::has_redis_server() {
            draw(options, "nodes", "Nodes at one Redis", &nodes::measure(&scale).await?)?;
        } else {
            println!("growth: no nodes at one Redis, redis-server is not installed");
        }
    }
    if wants(Part::Streams) {
        draw(options, "streams", "Open streams", &streams::measure(&scale).await?)?;
    }
    if wants(Part::Keys) {
        draw(options, "keys", "Keys", &keys::measure(&scale).await?)?;
    }
    Ok(())
}

/// Writes the chart of a part, if charts are requested.
fn draw(options: &Options, part: &str, title: &str, panels: &[Panel]) -> Result<(), String> {
    let Some(folder) = &options.svg else { return Ok(()) };
    let file = folder.join(format!("growth-{part}.svg"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&file, chart::svg(title, panels)))
        .map_err(|error| format!("--svg: {}: {error}", file.display()))
}
