//! Writing to standard output.

use std::io::ErrorKind;

use crate::wiring::start_error::StartError;

/// The result of writing to standard output. A reader may close it early (`| head`), which is not a failure.
pub(super) fn print_result(written: std::io::Result<()>) -> Result<(), StartError> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| StartError::failed("standard output", error)),
    }
}
