//! What a request costs in instructions and allocations, counted by callgrind: weir with each store beside a bare Pingora
//! proxy. A count hardly depends on the load of the machine, so it can be compared with one of another day.
//!
//! `cargo bench --bench instructions [-- OPTIONS]`; `-- --help` lists the options. With `--check` the exit
//! code is 1 when something costs 3 % more than `counted.json` says, or 15 % where time has a part in it.
//!
//! Reading order: `loads` (what is asked), `counted` (a process under callgrind), `profile` (what callgrind writes),
//! `stages` (where it goes), `saved` (what it cost before).
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
    reason = "a bench reports on stdout, reads the clock, stops at once when its surroundings are not as expected, and shares \
              modules with the other benches"
)]

#[path = "../passthrough/bare.rs"]
mod bare;
mod counted;
#[path = "../passthrough/decoder.rs"]
mod decoder;
#[path = "../passthrough/driver.rs"]
mod driver;
#[path = "../passthrough/fleet.rs"]
mod fleet;
mod loads;
#[path = "../passthrough/machine.rs"]
mod machine;
#[path = "../passthrough/node.rs"]
mod node;
#[path = "../passthrough/process.rs"]
mod process;
mod profile;
#[path = "../passthrough/request.rs"]
mod request;
#[path = "../passthrough/row.rs"]
mod row;
mod saved;
mod stages;
mod table;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

use crate::{bare::BareArgs, machine::Machine};

/// The allocator of the weir binary. The bare proxy must use the same one.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Counts instructions and allocations per request.
#[derive(Parser)]
#[command(name = "instructions")]
struct Options {
    /// Send few requests of each kind, to check that the bench works. The numbers are not meaningful
    #[arg(long)]
    quick: bool,
    /// Exit with 1 if a load needs at least 3 % more instructions than saved by --save (a stream: 15 % more)
    #[arg(long, conflicts_with_all = ["save", "quick"])]
    check: bool,
    /// Save the numbers for later runs with --check
    #[arg(long, conflicts_with = "quick")]
    save: bool,
    /// Measure only loads whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Keep callgrind's files in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<std::path::PathBuf>,
    /// An option that cargo bench passes. Without it and without --quick, the bench measures nothing
    #[arg(long, hide = true)]
    bench: bool,
    /// A filter that cargo bench passes: run only if the bench's name contains this text
    #[arg(hide = true)]
    filter: Option<String>,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == bare::COMMAND) {
        bare::run(&BareArgs::parse_from(&arguments[1..]));
    }
    let wanted = ["--bench", "--quick", "--help", "-h"];
    if !arguments
        .iter()
        .any(|argument| wanted.iter().any(|name| argument == name))
    {
        // `cargo test --benches` passes whatever arguments its tests get, and wants to know only whether this starts.
        println!("instructions: nothing counted without --bench (cargo bench passes it) or --quick");
        return ExitCode::SUCCESS;
    }
    let options = Options::parse_from(arguments);
    if options
        .filter
        .as_deref()
        .is_some_and(|filter| !"instructions".contains(filter))
    {
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(bad) => {
            eprintln!("instructions: {bad}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    if !counted::has_callgrind() {
        return Err("valgrind is not installed (Debian: apt-get install valgrind)".to_owned());
    }
    let machine = Machine::read();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let measured = runtime.expect("a runtime").block_on(loads::measure(options))?;
    println!("{}", table::markdown(&measured, &machine));
    if options.check {
        saved::check(&measured, &machine)?;
    }
    if options.save {
        saved::save(&measured, &machine)?;
    }
    Ok(())
}
