//! weir beside a bare Pingora proxy, nginx and HAProxy, measured in one run: CPU time per request, stream and chunk, delays, memory
//! per open stream. Every answer is compared byte for byte with what the provider sends directly, and what weir has charged with
//! what the provider has billed.
//!
//! `cargo bench --bench passthrough [-- OPTIONS]`; `-- --help` lists the options. The exit code is 1 when
//! an answer was not what the provider sent, or money differs; a missed aim is only printed, for a busy machine misses it too.
//!
//! With `--gateways` it is measured beside LiteLLM and Portkey, and what they do is looked at (`gateways`, `observed`).
//!
//! Reading order: `options`, `phases` (what is measured), `billed` and `fleet` (what is started, and how its money is compared),
//! `driver` (the client), the phases (`closed`, `first_byte`, `delays`, `mixture`, `open`,
//! `pinned`, `memory`), `table`.
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

mod bare;
mod billed;
mod closed;
mod decoder;
mod delays;
mod driver;
mod due;
mod files;
mod first_byte;
mod fleet;
mod gateways;
mod held;
mod load;
mod machine;
mod memory;
mod mixture;
mod node;
mod observed;
mod open;
mod options;
mod phases;
mod pinned;
mod process;
mod reference;
mod request;
mod row;
mod servers;
mod table;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

use crate::{bare::BareArgs, options::Options};

/// The allocator of the weir binary, for the bare proxy to have the same.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
        println!("passthrough: nothing measured without --bench (cargo bench passes it) or --quick");
        return ExitCode::SUCCESS;
    }
    let options = Options::parse_from(arguments);
    if !options.is_selected() {
        return ExitCode::SUCCESS;
    }
    files::raise();
    match phases::run(&options) {
        Ok(report) => {
            let machine = machine::Machine::read();
            println!("{}", table::markdown(&report, &machine));
            if let Some(file) = &options.json {
                let text = serde_json::to_string_pretty(&table::json(&report, &machine)).expect("plain values");
                std::fs::write(file, text + "\n").expect("--json: the file can be written");
            }
            ExitCode::SUCCESS
        }
        Err(bad) => {
            eprintln!("passthrough: {bad}");
            ExitCode::FAILURE
        }
    }
}
