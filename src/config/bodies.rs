//! The limits of request bodies, in `[gateway]`: their size, their time, and the memory for all of them, those of one key and
//! those of one address.

use std::time::Duration;

use crate::domain::{
    faults::pace::{BodyTimeLimit, MinimumSpeed},
    settings::{Section, number, seconds, settings, within},
};

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
