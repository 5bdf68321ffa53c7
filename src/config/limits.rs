//! `[connections]`, `[own_usage]`, `[key_cache]`, the limits of request bodies in `[gateway]`, and `[journal]`.

use std::{path::PathBuf, time::Duration};

use crate::{
    config::path,
    domain::{
        faults::{BodyTimeLimit, MinimumSpeed},
        settings::{Section, days, millis, number, seconds, settings, table, within},
    },
};

/// Maximum memory that a head takes per byte of its limit: over HTTP/2, fields are decoded as they arrive.
const HEAD_BYTES_FACTOR: u64 = 4;
const HEAD_BUDGET_MAX: u64 = 1 << 40;
/// The default memory limit for the heads of one address, in bytes.
const HEAD_ADDRESS_BYTES: u64 = 8 << 20;
const MILLION: usize = 1_000_000;

settings! {
    /// `[connections]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ConnectionsConfig {
        /// Maximum number of connections to the gateway; further ones are closed at once. Lower if the process may not open that
        /// many files: some are kept for the store, the providers, and /livez, /metrics and the admin socket, which must always
        /// respond.
        max: usize = number(16_384, 1..=MILLION).restart(),
        /// Maximum number of running requests on all connections, HTTP/2 streams included; further ones get 503. Lower as above.
        running_max: usize = number(16_384, 1..=MILLION),
        /// Maximum number of connections from one IP address (IPv6: one /64), to the gateway and to the public stability service
        /// each; at most half of all. [stability] trusted_proxies are exempt.
        per_address_max: usize = number(1024, 1..=MILLION).restart(),
        /// Timeout for the TLS handshake and the PROXY header of a new connection.
        handshake("handshake_seconds"): Duration = seconds(10, 1..=60),
        /// Timeout for the first byte on a new connection.
        first_byte("first_byte_seconds"): Duration = seconds(10, 1..=600),
        /// Maximum time from the first byte of a request's head to the last.
        head("head_seconds"): Duration = seconds(20, 1..=600),
        /// Memory for incomplete heads of requests, in bytes. Beyond it the largest are dropped, with 503 over HTTP/1.1; heads of
        /// up to 4096 bytes are always read, and do not count. At least four times [gateway] header_bytes_max.
        head_budget_bytes: u64 = number(64 << 20, 1..=HEAD_BUDGET_MAX).restart(),
        /// The same for one IP address (IPv6: one /64). Without it: 8 MiB, or head_budget_bytes if that is less.
        head_address_bytes: Option<u64> = within(1..=HEAD_BUDGET_MAX).optional(8 << 20).restart(),
        /// Maximum number of requests on one connection; the last answer announces the close (HTTP/2: GOAWAY).
        requests_max: u32 = number(10_000, 1..=1_000_000_000),
        /// HTTP/2: maximum number of concurrent streams on a connection.
        h2_streams_max: u32 = number(100, 1..=10_000),
        /// HTTP/2: maximum number of streams that a client may reset before weir has handled them.
        h2_resets_max: usize = number(20, 1..=10_000),
    }
}

settings! {
    /// `[own_usage]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OwnUsageConfig {
        /// Requests per minute from one IP address (IPv6: one /64); beyond it 429. List proxies in front of weir in [stability]
        /// trusted_proxies, or all their clients count as one address.
        per_minute: u32 = number(60, 1..=1_000_000),
        /// Requests at once after a pause.
        burst: u32 = number(20, 1..=1_000_000),
        /// Maximum number of addresses remembered for this; those without a request for longest are forgotten first.
        addresses_max: usize = number(100_000, 1..=10 * MILLION),
    }
}

/// The memory limits for incomplete heads of requests, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadsConfig {
    /// For all heads.
    pub bytes_max: u64,
    /// For the heads of one address; at most `bytes_max`.
    pub address_bytes_max: u64,
    /// For one head: reading stops there.
    pub head_bytes_max: u64,
}

impl HeadsConfig {
    /// The limits by `[connections]`, with the limit of one head from `[gateway]`.
    pub(super) fn from_connections(config: &ConnectionsConfig, header_bytes_max: usize) -> Self {
        let bytes_max = config.head_budget_bytes;
        Self {
            bytes_max,
            address_bytes_max: config
                .head_address_bytes
                .unwrap_or_else(|| bytes_max.min(HEAD_ADDRESS_BYTES)),
            head_bytes_max: HEAD_BYTES_FACTOR * header_bytes_max as u64,
        }
    }
}

/// Reports limits that leave no room for one head.
pub(super) fn heads_fit(config: &ConnectionsConfig, one: &HeadsConfig, from: &Section<'_>) {
    const BUDGET: &str = "connections.head_budget_bytes";
    const ADDRESS: &str = "connections.head_address_bytes";
    let (all, one) = (config.head_budget_bytes, one.head_bytes_max);
    for (key, bytes) in [(BUDGET, Some(all)), (ADDRESS, config.head_address_bytes)] {
        match bytes {
            Some(bytes) if bytes < one => {
                let message =
                    format_args!("less than one head may have: give at least four times header_bytes_max ({one})");
                from.report_fault(key, &["gateway.header_bytes_max"], message);
            }
            Some(bytes) if bytes > all => {
                let message = format_args!("more than all heads may have: give at most head_budget_bytes ({all})");
                from.report_fault(key, &[BUDGET], message);
            }
            Some(_) | None => {}
        }
    }
}

const LOOKUPS_MAX: u32 = 1_000_000;

settings! {
    /// `[key_cache]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct KeyCacheConfig {
        /// How long a key is used without asking the store again. A new key works at once.
        lifetime("lifetime_seconds"): Duration = seconds(60, 1..=3600),
        /// How long an unknown key is remembered as unknown.
        negative("negative_seconds"): Duration = seconds(5, 1..=3600),
        /// How long a valid key is used while the store is unreachable.
        offline("offline_seconds"): Duration = seconds(300, 0..=86_400),
        /// Maximum number of cached keys; the least recently used are dropped first.
        entries_max: usize = number(100_000, 1..=10_000_000),
        /// How often Redis is polled for changes, in addition to its notifications; an embedded store reports each change. Above
        /// 900, a revoked key may work for longer than a second if the connection with the notifications is cut.
        poll("poll_ms"): Duration = millis(500, 10..=10_000),
        /// How often last-used times are written to the store.
        flush_used("flush_used_seconds"): Duration = seconds(5, 1..=3600),
        /// Unknown keys. Anybody can make up a key with a valid checksum, so this node looks up keys that it does not know only
        /// as often as configured here; beyond it 429, with a short retry-after. Keys in use are not affected: they are cached
        /// separately, and looked up again when that is due.
        unknown: UnknownKeysConfig = table(),
    }
}

settings! {
    /// `[key_cache.unknown]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct UnknownKeysConfig {
        /// Maximum number of unknown keys remembered, each for negative_seconds.
        entries_max: usize = number(10_000, 1..=10_000_000),
        /// Lookups per minute that find nothing, by one IP address (IPv6: one /64). List proxies in front of weir in [stability]
        /// trusted_proxies, or all their clients count as one address.
        per_minute: u32 = number(600, 1..=LOOKUPS_MAX),
        /// Such lookups at once after a pause.
        burst: u32 = number(100, 1..=LOOKUPS_MAX),
        /// Maximum number of addresses remembered for this; those without a request for longest are forgotten first.
        addresses_max: usize = number(100_000, 1..=10_000_000),
        /// Lookups per minute that find nothing, by all addresses together, on each node.
        total_per_minute: u32 = number(60_000, 1..=10 * LOOKUPS_MAX),
        /// Such lookups at once after a pause.
        total_burst: u32 = number(1000, 1..=LOOKUPS_MAX),
    }
}

const DAY_SECONDS: u64 = 86_400;
const BUDGET_MAX: u64 = 1 << 40;

settings! {
    /// Limits of request bodies.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct BodiesConfig {
        /// Maximum size of a request body, in bytes, both as sent and decoded (gzip, deflate, br or zstd); larger is 413.
        bytes_max("body_bytes_max"): usize = number(32 << 20, 1..=1 << 30),
        /// Memory for all request bodies at one time, decoded, in bytes; beyond it 503. At least body_bytes_max. Only bytes that
        /// have arrived count, not the announced length.
        budget_bytes("body_budget_bytes"): u64 = number(1 << 30, 1..=BUDGET_MAX).restart(),
        /// The same for one key; beyond it 429. At least body_bytes_max, at most body_budget_bytes. Without it: a quarter of
        /// body_budget_bytes.
        key_bytes("body_key_bytes"): Option<u64> = within(1..=BUDGET_MAX).optional(256 << 20).restart(),
        /// The same for one IP address (IPv6: one /64). Without it: half of body_budget_bytes. List proxies in front of weir in
        /// [stability] trusted_proxies, or all their clients count as one address.
        address_bytes("body_address_bytes"): Option<u64> = within(1..=BUDGET_MAX).optional(512 << 20).restart(),
        /// Share of the threads' time for decoding, scanning and editing the bodies of one key, in percent; never more than half
        /// of one processor. Work beyond it waits.
        work_key_percent("body_work_key_percent"): usize = number(10, 1..=100).restart(),
        /// Maximum time between two reads of a request body; longer is 408.
        read("body_read_seconds"): Duration = seconds(60, 1..=DAY_SECONDS),
        /// Maximum time from the head of a request to the end of its body; longer is 408.
        total("body_seconds"): Duration = seconds(600, 1..=DAY_SECONDS),
        /// Minimum speed of a body, and of an answer that waits to be read, in bytes per second. Only waiting counts: waits add
        /// up to body_read_seconds and write_seconds, until the bytes for that time have moved. 0: any byte is enough.
        bytes_per_second_min: u64 = number(240, 0..=1 << 30),
    } checked by shares_fit
}

impl BodiesConfig {
    /// Memory for the bodies of one key, in bytes; at most that for all.
    pub(crate) fn key_bytes_max(&self) -> u64 {
        self.key_bytes.unwrap_or_else(|| self.share(4))
    }

    /// Memory for the bodies of one address, in bytes; at most that for all.
    pub(crate) fn address_bytes_max(&self) -> u64 {
        self.address_bytes.unwrap_or_else(|| self.share(2))
    }

    /// A part of the memory for all bodies, with room for at least one.
    fn share(&self, divisor: u64) -> u64 {
        (self.budget_bytes / divisor).max(self.bytes_max as u64)
    }

    /// The time limits of a body: its minimum speed, and the maximum time from the request's head to the end of its body.
    pub(crate) fn time(&self) -> BodyTimeLimit {
        BodyTimeLimit {
            pace: MinimumSpeed {
                wait_max: self.read,
                bytes_per_second_min: self.bytes_per_second_min,
            },
            total: self.total,
        }
    }
}

fn shares_fit(read: BodiesConfig, from: &Section<'_>) -> BodiesConfig {
    let (one, all) = (read.bytes_max as u64, read.budget_bytes);
    for (key, bytes) in [
        ("body_budget_bytes", Some(all)),
        ("body_key_bytes", read.key_bytes),
        ("body_address_bytes", read.address_bytes),
    ] {
        match bytes {
            Some(bytes) if bytes < one => {
                let message = format_args!("less than one body may have: give at least body_bytes_max ({one})");
                from.report_fault(key, &["body_bytes_max"], message);
            }
            Some(bytes) if bytes > all => {
                let message = format_args!("more than all bodies may have: give at most body_budget_bytes ({all})");
                from.report_fault(key, &["body_budget_bytes"], message);
            }
            Some(_) | None => {}
        }
    }
    read
}

settings! {
    /// `[journal]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct JournalConfig {
        /// The folder where this node records requests and charges before the store has them. Each node has its own; never
        /// share or copy it.
        path: PathBuf = path().or("/var/lib/weir/journal").trying_out("./weir-data/journal"),
        /// The size of one file, in bytes, which is allocated as a whole.
        segment_bytes: u64 = number(64 << 20, 1 << 20..=1 << 30),
        /// How long a file is kept after the store has applied everything in it (the embedded store: written it to its own
        /// file), so that a store that was set back, for example by restoring a backup, gets it again. Make backups more often
        /// than that. A clock that jumps ahead ages the files of only one day at a time; a smaller number takes effect at once.
        keep("keep_days"): Duration = days(7, 1..=3650),
        /// Maximum time until a record is on disk, and so the maximum loss in a power cut. The end of the process loses nothing.
        sync("sync_ms"): Duration = millis(10, 1..=1000),
    } beside {
        /// The sinks that read the journal, for which files are kept longer.
        sinks: Vec<JournalSink>,
    }
}

/// A reader for which the journal keeps its files longer than settlement needs them: a sink of the consumption log, or the
/// embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalSink {
    /// Its name in metrics, messages and settings.
    pub name: &'static str,
    /// Whether files with rows that it lacks are kept however full the disk is. For an optional sink they are removed when the
    /// disk is nearly full, and their rows are counted as dropped.
    pub required: bool,
}

impl JournalSink {
    /// The embedded store, which acknowledges steps before they are in its file.
    pub(crate) const EMBEDDED_STORE: Self = Self {
        name: "store",
        required: true,
    };
}
