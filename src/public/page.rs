//! The status page.

use crate::domain::stability::{ModelWindow, Window};

/// The Content-Security-Policy of the pages.
pub const CSP: &str = "default-src 'none'";

/// The page of all models. `updated_at` in seconds since the epoch.
pub fn index(window: &Window, updated_at: i64) -> String {
    let rows = window.models.len();
    format!("<!doctype html><title>Status</title><p>{rows} models at {updated_at}.</p>")
}

/// The page of one model. `updated_at` in seconds since the epoch.
pub fn model(model: &ModelWindow, updated_at: i64) -> String {
    let hours = model.hours.len();
    format!("<!doctype html><title>Status</title><p>{hours} hours at {updated_at}.</p>")
}
