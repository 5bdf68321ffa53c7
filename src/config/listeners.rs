//! Checks that no two listeners have the same address.

use std::net::SocketAddr;

use crate::domain::settings::Section;

/// Reports each listener with the address of an earlier one. A listener is given by its name, its key and its address; port 0
/// never conflicts.
pub(super) fn check_distinct<const N: usize>(all: [(&str, &str, Option<SocketAddr>); N], from: &Section<'_>) {
    for (count, (_, key, address)) in all.iter().enumerate() {
        let fixed = address.filter(|address| address.port() != 0);
        let mut before = all.iter().take(count);
        let there = fixed.and_then(|_| before.find(|(_, _, taken)| taken == address));
        if let Some((who, theirs, _)) = there {
            let message = format_args!("{who} already listens there: give this one another port");
            from.report_fault(key, &[theirs], message);
        }
    }
}
