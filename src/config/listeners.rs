//! No two listeners have one address.

use std::net::SocketAddr;

use super::console::ConsoleConfig;
use super::stability::StabilityConfig;
use super::values::{KeyPath, Values};
use super::{AdminConfig, GatewayConfig, OpsConfig};

const GATEWAY: KeyPath<'_> = &["gateway", "listen"];
const OPS: KeyPath<'_> = &["ops", "listen"];
const STABILITY: KeyPath<'_> = &["stability", "listen"];
const REDIRECT: KeyPath<'_> = &["gateway", "tls", "redirect_listen"];
const ADMIN: KeyPath<'_> = &["admin", "listen"];
const CONSOLE: KeyPath<'_> = &["console", "listen"];

/// Notes where somebody listens already. Free ports are never the same.
pub(super) fn alone(
    values: &mut Values<'_>,
    (gateway, ops, stability, admin, console): (
        &GatewayConfig,
        &OpsConfig,
        &StabilityConfig,
        &AdminConfig,
        &ConsoleConfig,
    ),
) {
    let redirect = gateway.tls.redirect_listen;
    let admin = admin.tcp.as_ref().map(|tcp| tcp.listen);
    let all: [(&str, KeyPath<'_>, Option<SocketAddr>); 6] = [
        ("the gateway", GATEWAY, Some(gateway.listen)),
        ("[ops]", OPS, Some(ops.listen)),
        ("[stability]", STABILITY, Some(stability.listen)),
        ("the redirect", REDIRECT, redirect),
        ("[admin]", ADMIN, admin),
        ("[console]", CONSOLE, console.listen),
    ];
    for (count, (_, at, address)) in all.iter().enumerate() {
        let fixed = address.filter(|address| address.port() != 0);
        let mut before = all.iter().take(count);
        let there = fixed.and_then(|_| before.find(|(_, _, taken)| taken == address));
        if let Some((who, theirs, _)) = there {
            let message = format_args!("{who} listens there already, give it a port of its own");
            values.wrong_combination(&[theirs], at, message);
        }
    }
}
