//! `[connections]`: what clients' connections may take, at the gateway and at the public stability service.

use std::time::Duration;

use serde::Deserialize;

use super::values::{KeyPath, Values};

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConnections {
    max: Option<u64>,
    running_max: Option<u64>,
    per_address_max: Option<u64>,
    handshake_seconds: Option<u64>,
    first_byte_seconds: Option<u64>,
    head_seconds: Option<u64>,
    requests_max: Option<u64>,
    h2_streams_max: Option<u64>,
    h2_resets_max: Option<u64>,
    head_budget_bytes: Option<u64>,
    head_address_bytes: Option<u64>,
}

const HEAD_BUDGET: KeyPath<'_> = &["connections", "head_budget_bytes"];
const HEAD_ADDRESS: KeyPath<'_> = &["connections", "head_address_bytes"];
const HEADER_BYTES: KeyPath<'_> = &["gateway", "header_bytes_max"];

/// How much memory a head takes for each byte that it may have, at most: over HTTP/2 its fields are decoded as they come.
const HEAD_BYTES_FACTOR: u64 = 4;

/// The section, checked and with defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionsConfig {
    /// The most connections of clients to the gateway; fewer if the process may not open so many files.
    pub max: usize,
    /// The most requests that run at a time, over all connections; fewer if the process may not open so many files.
    pub running_max: usize,
    /// The most connections of one address (IPv6: one /64) to each of the two listeners.
    pub per_address_max: usize,
    /// Longest time from the accepted connection to one that HTTP can be spoken over.
    pub handshake: Duration,
    /// Longest silence of a new connection.
    pub first_byte: Duration,
    /// Longest time from the first byte of a request's head to its last.
    pub head: Duration,
    /// The most requests over one connection.
    pub requests_max: u32,
    /// The most concurrent streams of an HTTP/2 connection.
    pub h2_streams_max: u32,
    /// The most streams that an HTTP/2 client may reset before they have been looked at.
    pub h2_resets_max: usize,
    /// What heads may hold that have not come to their end.
    pub heads: HeadsConfig,
}

/// What heads of requests may hold that have not come to their end, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadsConfig {
    /// All of them.
    pub bytes_max: u64,
    /// Those of one address; no more than all.
    pub address_bytes_max: u64,
    /// One of them: no more of it is read.
    pub head_bytes_max: u64,
}

fn heads(values: &mut Values<'_>, raw: &RawConnections, header_bytes_max: usize) -> HeadsConfig {
    let head_bytes_max = HEAD_BYTES_FACTOR * header_bytes_max as u64;
    let bytes_max = values.number(HEAD_BUDGET, raw.head_budget_bytes, 64 << 20, 1..=1 << 40);
    let default = bytes_max.min(8 << 20);
    let address_bytes_max = values.number(HEAD_ADDRESS, raw.head_address_bytes, default, 1..=1 << 40);
    let given = [
        (HEAD_BUDGET, raw.head_budget_bytes),
        (HEAD_ADDRESS, raw.head_address_bytes),
    ];
    for (at, _) in given
        .into_iter()
        .filter(|(_, given)| given.is_some_and(|given| given < head_bytes_max))
    {
        let message =
            format_args!("less than one head may have, give at least four times header_bytes_max ({head_bytes_max})");
        values.wrong_combination(&[HEADER_BYTES], at, message);
    }
    if address_bytes_max > bytes_max {
        let message = format_args!("more than all heads may have, give at most head_budget_bytes ({bytes_max})");
        values.wrong_combination(&[HEAD_BUDGET], HEAD_ADDRESS, message);
    }
    HeadsConfig {
        bytes_max,
        address_bytes_max,
        head_bytes_max,
    }
}

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawConnections, header_bytes_max: usize) -> ConnectionsConfig {
    let heads = heads(values, raw, header_bytes_max);
    let mut number = |key: &str, given, default, limits| values.number(&["connections", key], given, default, limits);
    let seconds = |number: u64| Duration::from_secs(number);
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    ConnectionsConfig {
        max: size(number("max", raw.max, 16_384, 1..=1_000_000)),
        running_max: size(number("running_max", raw.running_max, 16_384, 1..=1_000_000)),
        per_address_max: size(number("per_address_max", raw.per_address_max, 1024, 1..=1_000_000)),
        handshake: seconds(number("handshake_seconds", raw.handshake_seconds, 10, 1..=60)),
        first_byte: seconds(number("first_byte_seconds", raw.first_byte_seconds, 10, 1..=600)),
        head: seconds(number("head_seconds", raw.head_seconds, 20, 1..=600)),
        requests_max: small(number("requests_max", raw.requests_max, 10_000, 1..=1_000_000_000)),
        h2_streams_max: small(number("h2_streams_max", raw.h2_streams_max, 100, 1..=10_000)),
        h2_resets_max: size(number("h2_resets_max", raw.h2_resets_max, 20, 1..=10_000)),
        heads,
    }
}
