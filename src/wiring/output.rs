//! Writing to standard output.

use std::io::ErrorKind;

use crate::wiring::start_error::StartError;

/// What came of writing to standard output. Whoever reads it may have seen enough (`| head`): that is no failure.
pub(super) fn printed(written: std::io::Result<()>) -> Result<(), StartError> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| StartError::failed("standard output", error)),
    }
}
