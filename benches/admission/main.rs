//! What admission costs: a round trip to the ledger in Redis, and what money adds to a small request through the whole
//! gateway, on either store.
//!
//! `cargo bench --bench admission [-- --quick]`. There is no weir without money; a count of tokens goes the
//! same way but for the ledger, the journal and the settlement, and the bare proxy shows what both of them cost without weir.
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
#[path = "../passthrough/decoder.rs"]
mod decoder;
#[path = "../passthrough/driver.rs"]
mod driver;
#[path = "../passthrough/fleet.rs"]
mod fleet;
mod gateway;
mod ledger;
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

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

use crate::{bare::BareArgs, row::quantile};

/// The allocator of the weir binary, for the bare proxy to have the same.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How much of everything.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Each measures every subject once.
    pub(crate) rounds: usize,
    /// Requests of one connection, one after the other.
    pub(crate) single: usize,
    /// Requests of each of [`AT_ONCE`] connections.
    pub(crate) many: usize,
}

/// Requests at one time, where there are many.
pub(crate) const AT_ONCE: usize = 32;

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
    let selected = filter.is_none_or(|filter| "admission".contains(&*filter.to_string_lossy()));
    if !(has("--bench") || has("--quick")) || !selected {
        println!("admission: nothing measured without --bench (cargo bench passes it) or --quick");
        return ExitCode::SUCCESS;
    }
    if !fleet::has_redis_server() {
        println!("admission: nothing measured, redis-server is not installed");
        return ExitCode::SUCCESS;
    }
    let scale = if has("--quick") {
        Scale {
            rounds: 1,
            single: 200,
            many: 20,
        }
    } else {
        Scale {
            rounds: 5,
            single: 2_000,
            many: 250,
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!("{}\n", machine::Machine::read().line());
    let measured = runtime.block_on(async {
        ledger::measure(scale).await?;
        gateway::measure(scale).await
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(bad) => {
            eprintln!("admission: {bad}");
            ExitCode::FAILURE
        }
    }
}

/// The median and the 99th percentile, as cells of a table.
pub(crate) fn cells(micros: &[f64]) -> String {
    let at = |share| quantile(micros, share).expect("samples");
    format!("{:.0} | {:.0}", at(0.5), at(0.99))
}
