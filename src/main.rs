//! The `weir` binary: parses the command line, runs the command, and turns its result into the exit code.

use std::process::ExitCode;

use weir::StartError;

// Among glibc's allocator, jemalloc and mimalloc, mimalloc takes the least processor time per request. The memory of an open
// stream is almost the same with all three (docs/benchmarks.md, "Memory of an open stream").
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for a wrong command line: `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;
/// The exit code for an invalid configuration: `EX_CONFIG` of sysexits.h.
const CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    // Reads the environment variable FAILPOINTS. Only builds for tests have this feature.
    #[cfg(feature = "failpoints")]
    let _scenario = fail::FailScenario::setup();
    let command = match weir::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(error) => {
            // The parser also returns the output of `--help` and `--version` as an error. It is printed to standard output and is
            // not a failure.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match weir::run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            weir::print_error(&error);
            match error {
                StartError::Configuration(_) => ExitCode::from(CONFIGURATION),
                StartError::Listen(_) | StartError::Failed { .. } | StartError::Client(_) => ExitCode::FAILURE,
            }
        }
    }
}
