//! `weir sample-provider`.

use tokio::runtime::Runtime;

use crate::{
    sample_provider::{self, SampleProviderArgs},
    wiring::start_error::StartError,
};

/// Runs `weir sample-provider` until a signal ends it.
pub(super) fn run_sample_provider(args: &SampleProviderArgs) -> Result<(), StartError> {
    let running = runtime(args.threads)?.block_on(sample_provider::run(args));
    running.map_err(|error| StartError::failed("the sample provider", error))
}

/// A runtime with `threads` workers; 0 means one per core.
fn runtime(threads: usize) -> Result<Runtime, StartError> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("the sample provider's threads", error))
}
