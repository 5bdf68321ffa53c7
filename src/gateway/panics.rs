//! Catches panics in hooks, so that a panic ends one request and not the process.

use std::{any::Any, future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use pingora::{Error, ErrorType, Result};

use crate::{gateway::failure_log, telemetry::metrics::Metrics};

/// The error type of a caught panic.
pub(crate) const PANICKED: ErrorType = ErrorType::Custom(failure_log::PANICKED);

/// Runs an async hook and turns a panic into an error: it ends one request, not the process.
pub(crate) async fn catch_async_panic<T>(metrics: &Metrics, hook: impl Future<Output = Result<T>>) -> Result<T> {
    // The request's state may be inconsistent after a panic, so it is only used to answer and to settle.
    match AssertUnwindSafe(hook).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(record_panic(metrics, &panic)),
    }
}

/// Runs a synchronous hook and turns a panic into an error.
pub(crate) fn catch_panic<T>(metrics: &Metrics, hook: impl FnOnce() -> Result<T>) -> Result<T> {
    match std::panic::catch_unwind(AssertUnwindSafe(hook)) {
        Ok(result) => result,
        Err(panic) => Err(record_panic(metrics, &panic)),
    }
}

/// Counts the panic. Its text is not logged, because it may quote a request; the panic hook logs its location.
fn record_panic(metrics: &Metrics, _panic: &Box<dyn Any + Send>) -> Box<Error> {
    metrics.program.panics.inc();
    Error::new_in(PANICKED)
}
