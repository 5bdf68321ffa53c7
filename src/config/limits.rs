//! The limits for clients: on connections (`[connections]`), on requests for a key's own usage (`[own_usage]`), on lookups of
//! keys (`[key_cache]`) and on request bodies (in `[gateway]`). Also the settings of the journal (`[journal]`).

use std::{path::PathBuf, time::Duration};

use crate::{
    config::path,
    domain::{
        faults::{BodyTimeLimit, MinimumSpeed},
        settings::{Section, days, millis, number, seconds, settings, table, within},
    },
};

/// The maximum memory that a head can occupy, as a multiple of its size limit. Over HTTP/2, weir decodes the fields as they
/// arrive, so a head occupies more memory than its size.
const HEAD_BYTES_FACTOR: u64 = 4;
const HEAD_BUDGET_MAX: u64 = 1 << 40;
/// The default memory limit for the incomplete heads of one IP address, in bytes.
const HEAD_ADDRESS_BYTES: u64 = 8 << 20;
const MILLION: usize = 1_000_000;

settings! {
    /// The section `[connections]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ConnectionsConfig {
        /// Maximum number of connections to the gateway; further ones are closed at once. weir lowers this number if the process
        /// is not allowed to open that many files. It reserves some files for the store, for the providers, and for /livez,
        /// /metrics and the admin socket, which must always respond.
        max: usize = number(16_384, 1..=MILLION).restart(),
        /// Maximum number of running requests on all connections, including HTTP/2 streams; further ones get 503. weir lowers
        /// this number like `max`.
        running_max: usize = number(16_384, 1..=MILLION),
        /// Maximum number of connections from one IP address (IPv6: one /64) to each listener. Connections to the gateway and to
        /// the public stability service are counted separately. If this number is larger than half of the listener's maximum,
        /// weir lowers it to that half. [stability] trusted_proxies are exempt.
        per_address_max: usize = number(1024, 1..=MILLION).restart(),
        /// Timeout for the TLS handshake and the PROXY protocol header of a new connection.
        handshake("handshake_seconds"): Duration = seconds(10, 1..=60),
        /// Timeout for the first byte on a new connection.
        first_byte("first_byte_seconds"): Duration = seconds(10, 1..=600),
        /// Maximum time between the first and the last byte of a request's head.
        head("head_seconds"): Duration = seconds(20, 1..=600),
        /// Maximum memory for incomplete request heads, in bytes. Beyond it, weir drops the largest heads; over HTTP/1.1, their
        /// requests get 503. Heads of up to 4096 bytes are always read, and do not count. This limit must be at least four times
        /// [gateway] header_bytes_max.
        head_budget_bytes: u64 = number(64 << 20, 1..=HEAD_BUDGET_MAX).restart(),
        /// Maximum memory for incomplete request heads from one IP address (IPv6: one /64), in bytes. If not set: 8 MiB, or
        /// head_budget_bytes if that is less.
        head_address_bytes: Option<u64> = within(1..=HEAD_BUDGET_MAX).optional(8 << 20).restart(),
        /// Maximum number of requests on one connection. The last answer announces that the connection closes (HTTP/2: GOAWAY).
        requests_max: u32 = number(10_000, 1..=1_000_000_000),
        /// HTTP/2: maximum number of concurrent streams on a connection.
        h2_streams_max: u32 = number(100, 1..=10_000),
        /// HTTP/2: maximum number of streams that a client may reset before weir has begun to serve them.
        h2_resets_max: usize = number(20, 1..=10_000),
    }
}

settings! {
    /// The section `[own_usage]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OwnUsageConfig {
        /// Maximum number of requests per minute from one IP address (IPv6: one /64); further ones get 429. If proxies are in
        /// front of weir, list them in [stability] trusted_proxies; otherwise all their clients count as one address.
        per_minute: u32 = number(60, 1..=1_000_000),
        /// Maximum number of requests that one address can send at once after a pause.
        burst: u32 = number(20, 1..=1_000_000),
        /// Maximum number of IP addresses whose requests are counted. Beyond it, weir drops the count of the address that has
        /// sent no request for the longest time.
        addresses_max: usize = number(100_000, 1..=10 * MILLION),
    }
}

/// The memory limits for incomplete heads of requests, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadsConfig {
    /// The memory limit for all incomplete heads together, in bytes.
    pub bytes_max: u64,
    /// The memory limit for the incomplete heads from one IP address, in bytes; at most `bytes_max`.
    pub address_bytes_max: u64,
    /// The memory limit for one incomplete head, in bytes. weir stops reading a head that reaches this limit.
    pub head_bytes_max: u64,
}

impl HeadsConfig {
    /// Returns the limits of `[connections]`; the limit of one head follows from `header_bytes_max` of `[gateway]`.
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

/// Reports memory limits of `[connections]` that are smaller than one head, or larger than the limit for all heads.
pub(super) fn heads_fit(config: &ConnectionsConfig, one: &HeadsConfig, from: &Section<'_>) {
    const BUDGET: &str = "connections.head_budget_bytes";
    const ADDRESS: &str = "connections.head_address_bytes";
    let (all, one) = (config.head_budget_bytes, one.head_bytes_max);
    for (key, bytes) in [(BUDGET, Some(all)), (ADDRESS, config.head_address_bytes)] {
        match bytes {
            Some(bytes) if bytes < one => {
                let message = format_args!("too small for one head: give at least four times header_bytes_max ({one})");
                from.report_fault(key, &["gateway.header_bytes_max"], message);
            }
            Some(bytes) if bytes > all => {
                let message =
                    format_args!("larger than the limit for all heads: give at most head_budget_bytes ({all})");
                from.report_fault(key, &[BUDGET], message);
            }
            Some(_) | None => {}
        }
    }
}

const LOOKUPS_MAX: u32 = 1_000_000;

settings! {
    /// The section `[key_cache]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct KeyCacheConfig {
        /// How long this node uses a cached key before it reads the key from the store again. A new key works at once.
        lifetime("lifetime_seconds"): Duration = seconds(60, 1..=3600),
        /// How long this node remembers that a key does not exist.
        negative("negative_seconds"): Duration = seconds(5, 1..=3600),
        /// How long a valid key is used while the store is unreachable.
        offline("offline_seconds"): Duration = seconds(300, 0..=86_400),
        /// Maximum number of cached keys. Beyond it, the least recently used ones are dropped.
        entries_max: usize = number(100_000, 1..=10_000_000),
        /// How often weir polls Redis for changes of keys. Redis also sends notifications of them; an embedded store reports each
        /// change itself. With a value of more than 900, a revoked key may work for longer than a second while the connection for
        /// the notifications is broken.
        poll("poll_ms"): Duration = millis(500, 10..=10_000),
        /// How often weir writes the keys' last-used times to the store.
        flush_used("flush_used_seconds"): Duration = seconds(5, 1..=3600),
        /// Limits on lookups of unknown keys. Anybody can make up a key with a valid checksum, so this node limits how often it
        /// looks up keys that are not in its cache. Beyond the limit, requests with such keys get 429, with a short retry-after.
        /// Keys in use are not affected, because weir caches them separately and does not limit how often it looks them up again.
        unknown: UnknownKeysConfig = table(),
    }
}

settings! {
    /// The section `[key_cache.unknown]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct UnknownKeysConfig {
        /// Maximum number of nonexistent keys that this node remembers, each for negative_seconds.
        entries_max: usize = number(10_000, 1..=10_000_000),
        /// Maximum number of lookups that find no key, per minute and IP address (IPv6: one /64). If proxies are in front of
        /// weir, list them in [stability] trusted_proxies; otherwise all their clients count as one address.
        per_minute: u32 = number(600, 1..=LOOKUPS_MAX),
        /// Maximum number of lookups that find no key and that one IP address can cause at once after a pause.
        burst: u32 = number(100, 1..=LOOKUPS_MAX),
        /// Maximum number of IP addresses whose lookups are counted. Beyond it, weir drops the count of the address that has
        /// caused no lookup for the longest time.
        addresses_max: usize = number(100_000, 1..=10_000_000),
        /// Maximum number of lookups that find no key, per minute and node, for all addresses together.
        total_per_minute: u32 = number(60_000, 1..=10 * LOOKUPS_MAX),
        /// Maximum number of lookups that find no key and that all addresses together can cause at once after a pause.
        total_burst: u32 = number(1000, 1..=LOOKUPS_MAX),
    }
}

const DAY_SECONDS: u64 = 86_400;
const BUDGET_MAX: u64 = 1 << 40;

settings! {
    /// The limits of request bodies, a part of `[gateway]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct BodiesConfig {
        /// Maximum size of a request body, in bytes, both as sent and decoded (gzip, deflate, br or zstd). A request with a
        /// larger body gets 413.
        bytes_max("body_bytes_max"): usize = number(32 << 20, 1..=1 << 30),
        /// Maximum memory for all request bodies together, decoded, in bytes; beyond it, requests get 503. This limit must be at
        /// least body_bytes_max. Only bytes that have arrived count, not the announced length.
        budget_bytes("body_budget_bytes"): u64 = number(1 << 30, 1..=BUDGET_MAX).restart(),
        /// Maximum memory for the request bodies of one key, in bytes; beyond it, the key's requests get 429. This limit must be
        /// at least body_bytes_max and at most body_budget_bytes. If not set: a quarter of body_budget_bytes.
        key_bytes("body_key_bytes"): Option<u64> = within(1..=BUDGET_MAX).optional(256 << 20).restart(),
        /// Maximum memory for the request bodies from one IP address (IPv6: one /64), in bytes; beyond it, requests from the
        /// address get 429. If not set: half of body_budget_bytes. If proxies are in front of weir, list them in [stability]
        /// trusted_proxies; otherwise all their clients count as one address.
        address_bytes("body_address_bytes"): Option<u64> = within(1..=BUDGET_MAX).optional(512 << 20).restart(),
        /// Maximum share of the threads' time for decoding, scanning and editing the bodies of one key, in percent; never more
        /// than half of one processor. Work beyond this share is delayed.
        work_key_percent("body_work_key_percent"): usize = number(10, 1..=100).restart(),
        /// Maximum time that weir waits for the next bytes of a request body. A request that takes longer gets 408.
        read("body_read_seconds"): Duration = seconds(60, 1..=DAY_SECONDS),
        /// Maximum time from the head of a request to the end of its body. A request that takes longer gets 408.
        total("body_seconds"): Duration = seconds(600, 1..=DAY_SECONDS),
        /// Minimum speed at which a client must send a request body and read an answer, in bytes per second. weir adds up only
        /// the time in which it waits for the client. Before this sum exceeds body_read_seconds (for an answer: write_seconds),
        /// the client must have sent or read at least the number of bytes that this speed requires for that time. After that, the
        /// sum starts again at 0. 0: a single byte is enough.
        bytes_per_second_min: u64 = number(240, 0..=1 << 30),
    } checked by shares_fit
}

impl BodiesConfig {
    /// Returns the memory limit for the bodies of one key, in bytes; at most the limit for all bodies.
    pub(crate) fn key_bytes_max(&self) -> u64 {
        self.key_bytes.unwrap_or_else(|| self.share(4))
    }

    /// Returns the memory limit for the bodies of one IP address, in bytes; at most the limit for all bodies.
    pub(crate) fn address_bytes_max(&self) -> u64 {
        self.address_bytes.unwrap_or_else(|| self.share(2))
    }

    /// Returns the memory for all bodies divided by `divisor`, in bytes, but at least `bytes_max`, the maximum size of one body.
    fn share(&self, divisor: u64) -> u64 {
        (self.budget_bytes / divisor).max(self.bytes_max as u64)
    }

    /// Returns the time limits of a request body: its minimum speed, and the maximum time from the request's head to the body's
    /// end.
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
                let message = format_args!("too small for one body: give at least body_bytes_max ({one})");
                from.report_fault(key, &["body_bytes_max"], message);
            }
            Some(bytes) if bytes > all => {
                let message =
                    format_args!("larger than the limit for all bodies: give at most body_budget_bytes ({all})");
                from.report_fault(key, &["body_budget_bytes"], message);
            }
            Some(_) | None => {}
        }
    }
    read
}

settings! {
    /// The section `[journal]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct JournalConfig {
        /// The folder of the journal, where this node records requests and charges before the store has them. Each node has its
        /// own folder; never share or copy it.
        path: PathBuf = path().or("/var/lib/weir/journal").trying_out("./weir-data/journal"),
        /// The size of one journal file, in bytes. Each file is allocated with this size.
        segment_bytes: u64 = number(64 << 20, 1 << 20..=1 << 30),
        /// How long weir keeps a journal file after the store has applied all records in it. With the embedded store, this time
        /// begins when the store has also written the records to its own file. If the store returns to an earlier state, for
        /// example because a backup is restored, weir applies the records in these files to the store again. So the time between
        /// two backups must be shorter than this time. If the clock jumps ahead, weir removes only the files of one day at a
        /// time. A lower number takes effect at once.
        keep("keep_days"): Duration = days(7, 1..=3650),
        /// Maximum time until a record is on disk. A power cut can lose the records of this time. If only the process ends,
        /// nothing is lost.
        sync("sync_ms"): Duration = millis(10, 1..=1000),
    } beside {
        /// The sinks that read the journal. The journal keeps each file until all sinks have received its rows.
        sinks: Vec<JournalSink>,
    }
}

/// A reader for which the journal keeps its files longer than settlement needs them: a sink of the consumption log, or the
/// embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalSink {
    /// The sink's name in metrics, messages and settings.
    pub name: &'static str,
    /// Whether the journal keeps files with rows that the sink has not received yet, even if the disk is nearly full. For an
    /// optional sink (`false`), these files are removed when the disk is nearly full, and their rows are counted as dropped.
    pub required: bool,
}

impl JournalSink {
    /// The embedded store, which acknowledges changes before it has written them to its own file.
    pub(crate) const EMBEDDED_STORE: Self = Self {
        name: "store",
        required: true,
    };
}
