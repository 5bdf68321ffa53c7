//! The runtimes of commands.

use tokio::runtime::Runtime;

use crate::wiring::start_error::StartError;

/// A runtime with one thread, for a command.
pub(super) fn client_runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("the client's runtime", error))
}
