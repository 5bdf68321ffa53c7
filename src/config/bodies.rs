//! The limits of request bodies, in `[gateway]`: their size, their time, and what all of them, those of one key and those
//! of one address may take.

use std::time::Duration;

use crate::domain::{
    faults::pace::{BodyTimeLimit, PaceLimit},
    settings::{Section, number, seconds, settings, within},
};

const DAY_SECONDS: u64 = 86_400;
const BUDGET_MAX: u64 = 1 << 40;

settings! {
    /// What request bodies may take.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct BodiesConfig {
        /// Largest request body, in bytes, as sent and (gzip, deflate, br or zstd) decoded; larger is 413.
        bytes_max("body_bytes_max"): usize = number(32 << 20, 1..=1 << 30),
        /// All request bodies held at one time, decoded, in bytes; beyond it 503. At least body_bytes_max. What has arrived counts,
        /// not what is announced.
        budget_bytes("body_budget_bytes"): u64 = number(1 << 30, 1..=BUDGET_MAX).restart(),
        /// The same for one key; beyond it 429. At least body_bytes_max, at most body_budget_bytes. Without it: a quarter of
        /// body_budget_bytes.
        key_bytes("body_key_bytes"): Option<u64> = within(1..=BUDGET_MAX).optional(256 << 20).restart(),
        /// The same for one IP address (IPv6: one /64). Without it: half of body_budget_bytes. Proxies that pass on requests of many
        /// belong into [stability] trusted_proxies, or all that come through them are one address.
        address_bytes("body_address_bytes"): Option<u64> = within(1..=BUDGET_MAX).optional(512 << 20).restart(),
        /// How much of the threads' time the bodies of one key may take to be decoded, scanned and edited, in percent; never more
        /// than half of one processor, whatever stands here. What is above it waits.
        work_key_percent("body_work_key_percent"): usize = number(10, 1..=100).restart(),
        /// Longest wait between two reads of a request body; longer is 408.
        read("body_read_seconds"): Duration = seconds(60, 1..=DAY_SECONDS),
        /// Longest time from the head of a request to the end of its body; longer is 408.
        total("body_seconds"): Duration = seconds(600, 1..=DAY_SECONDS),
        /// The least bytes per second of a body, and of an answer that waits to be taken. Only waiting counts: waits add up to
        /// body_read_seconds and write_seconds, until so much has moved as belongs to that time. 0: any byte will do.
        bytes_per_second_min: u64 = number(240, 0..=1 << 30),
    } checked by shares_fit
}

impl BodiesConfig {
    /// Those of one key, in bytes; no more than all.
    pub(crate) fn key_bytes_max(&self) -> u64 {
        self.key_bytes.unwrap_or_else(|| self.share(4))
    }

    /// Those of one address, in bytes; no more than all.
    pub(crate) fn address_bytes_max(&self) -> u64 {
        self.address_bytes.unwrap_or_else(|| self.share(2))
    }

    /// A part of all of them, with room for one.
    fn share(&self, divisor: u64) -> u64 {
        (self.budget_bytes / divisor).max(self.bytes_max as u64)
    }

    /// How long a body may take: its least speed, and the longest time from the request's head to the end of its body.
    pub(crate) fn time(&self) -> BodyTimeLimit {
        BodyTimeLimit {
            pace: PaceLimit {
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
                let message = format_args!("less than one body may have, give at least body_bytes_max ({one})");
                from.wrong(key, &["body_bytes_max"], message);
            }
            Some(bytes) if bytes > all => {
                let message = format_args!("more than all bodies may have, give at most body_budget_bytes ({all})");
                from.wrong(key, &["body_budget_bytes"], message);
            }
            Some(_) | None => {}
        }
    }
    read
}
