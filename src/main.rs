//! The binary: parses the arguments, makes one call, decides the exit code.

use std::process::ExitCode;

use weir::StartError;

// The cheapest per request of glibc's allocator, jemalloc and this one; the memory of open streams hardly differs
// (docs/benchmarks.md, "Memory of an open stream").
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bad usage, `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;
/// Bad configuration, `EX_CONFIG` of sysexits.h.
const CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    // Reads FAILPOINTS; only in builds for tests.
    #[cfg(feature = "failpoints")]
    let _scenario = fail::FailScenario::setup();
    let command = match weir::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(error) => {
            // Help and version go to standard output and are not errors.
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
