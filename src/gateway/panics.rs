//! Catches panics in hooks: a panic costs one request, never the process.

use std::{any::Any, future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use pingora::{Error, ErrorType, Result};

use crate::{gateway::failure_log, telemetry::metrics::Metrics};

/// The error type of a caught panic.
pub(crate) const PANICKED: ErrorType = ErrorType::Custom(failure_log::PANICKED);

/// Runs an async hook and turns a panic into an error.
pub(crate) async fn waiting<T>(metrics: &Metrics, hook: impl Future<Output = Result<T>>) -> Result<T> {
    // The request's state may be inconsistent after a panic. It is only used to answer and to settle.
    match AssertUnwindSafe(hook).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(caught(metrics, &panic)),
    }
}

/// Runs a synchronous hook and turns a panic into an error.
pub(crate) fn immediate<T>(metrics: &Metrics, hook: impl FnOnce() -> Result<T>) -> Result<T> {
    match std::panic::catch_unwind(AssertUnwindSafe(hook)) {
        Ok(result) => result,
        Err(panic) => Err(caught(metrics, &panic)),
    }
}

/// Counts the panic. Its text stays out of the log, because it may quote a request; the panic hook logs the place.
fn caught(metrics: &Metrics, _panic: &Box<dyn Any + Send>) -> Box<Error> {
    metrics.program.panics.inc();
    Error::new_in(PANICKED)
}
