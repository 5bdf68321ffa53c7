//! No two listeners have one address.

use std::net::SocketAddr;

use crate::domain::settings::Section;

/// Notes where another one listens already: for each its name, its key and its address, if it has one. Free ports are never the same.
pub(super) fn alone<const N: usize>(all: [(&str, &str, Option<SocketAddr>); N], from: &Section<'_>) {
    for (count, (_, key, address)) in all.iter().enumerate() {
        let fixed = address.filter(|address| address.port() != 0);
        let mut before = all.iter().take(count);
        let there = fixed.and_then(|_| before.find(|(_, _, taken)| taken == address));
        if let Some((who, theirs, _)) = there {
            let message = format_args!("{who} listens there already, give it a port of its own");
            from.wrong(key, &[theirs], message);
        }
    }
}
