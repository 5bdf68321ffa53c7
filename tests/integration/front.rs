//! The front before the parsers: how long it waits, how many it lets in, and how much one connection carries.

mod heads;
mod limits;
mod slow;
mod targets;

use crate::harness::{Weir, wait_until};

/// How many connections of a listener have been closed for this reason.
pub(crate) fn closed(weir: &Weir, listener: &str, reason: &str) -> u64 {
    let start = format!("weir_connections_closed_total{{listener=\"{listener}\",reason=\"{reason}\"}} ");
    let text = weir.metrics();
    let value = text.lines().find_map(|line| line.strip_prefix(&start));
    value.unwrap_or_else(|| panic!("no {start}")).parse().unwrap()
}

/// Waits until so many have been, at least.
#[track_caller]
fn wait_closed(weir: &Weir, listener: &str, reason: &str, count: u64) {
    wait_until(&format!("{count} connections closed as {reason}"), || {
        closed(weir, listener, reason) >= count
    });
}
