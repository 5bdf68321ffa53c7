//! A panic in a hook costs one request, never the process.

use std::{any::Any, future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use pingora::{Error, ErrorType, Result};

use crate::{gateway::complaint, metrics::Metrics};

/// The error type by which a caught panic is known.
pub const PANICKED: ErrorType = ErrorType::Custom(complaint::PANICKED);

/// Runs a hook that waits.
pub async fn waiting<T>(metrics: &Metrics, hook: impl Future<Output = Result<T>>) -> Result<T> {
    // The request's state may be half changed afterwards; all that is done with it then is to answer and to settle.
    match AssertUnwindSafe(hook).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(caught(metrics, &panic)),
    }
}

/// Runs a hook that does not wait.
pub fn immediate<T>(metrics: &Metrics, hook: impl FnOnce() -> Result<T>) -> Result<T> {
    match std::panic::catch_unwind(AssertUnwindSafe(hook)) {
        Ok(result) => result,
        Err(panic) => Err(caught(metrics, &panic)),
    }
}

/// The panic's own text stays out of the log: it may quote what it choked on. The place is printed by the panic hook.
fn caught(metrics: &Metrics, _panic: &Box<dyn Any + Send>) -> Box<Error> {
    metrics.panicked();
    Error::new_in(PANICKED)
}
