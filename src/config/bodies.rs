//! The limits of request bodies, in `[gateway]`: their size, their time, and what all of them, those of one key and those
//! of one address may take.

use super::raw::RawGateway;
use super::values::{KeyPath, Values};
use crate::domain::faults::pace::{BodyTimeLimit, PaceLimit};

const BYTES_MAX: KeyPath<'_> = &["gateway", "body_bytes_max"];
const BUDGET: KeyPath<'_> = &["gateway", "body_budget_bytes"];
const DAY_SECONDS: u64 = 86_400;

/// What request bodies may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BodiesConfig {
    /// Largest body, in bytes, as sent and decoded.
    pub bytes_max: usize,
    /// All bodies held at one time, in bytes; at least `bytes_max`, as the next two.
    pub budget_bytes: u64,
    /// Those of one key; no more than all.
    pub key_bytes_max: u64,
    /// Those of one address; no more than all.
    pub address_bytes_max: u64,
    /// How long a body may take: its least speed, and the longest time from the request's head to the end of its body.
    pub time: BodyTimeLimit,
    /// How much of the threads' time decoding and scanning large bodies of one key may take, in percent.
    pub work_key_percent: usize,
}

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawGateway, bytes_per_second_min: u64) -> BodiesConfig {
    let bytes_max = values.count(BYTES_MAX, raw.body_bytes_max, 32 << 20, 1..=1 << 30);
    let least = bytes_max as u64;
    let budget_bytes = values.number(BUDGET, raw.body_budget_bytes, 1 << 30, 1..=1 << 40);
    if budget_bytes < least {
        let message = format_args!("less than one body may have, give at least body_bytes_max ({bytes_max})");
        values.wrong_combination(&[BYTES_MAX], BUDGET, message);
    }
    let mut share = |key, given: Option<u64>, default: u64| {
        let at: KeyPath<'_> = &["gateway", key];
        let Some(given) = given else {
            return default.clamp(least, budget_bytes.max(least));
        };
        if given < least {
            let message = format_args!("less than one body may have, give at least body_bytes_max ({bytes_max})");
            values.wrong_combination(&[BYTES_MAX], at, message);
        } else if given > budget_bytes {
            let message =
                format_args!("more than all bodies may have, give at most body_budget_bytes ({budget_bytes})");
            values.wrong_combination(&[BUDGET], at, message);
        }
        given
    };
    let key_bytes_max = share("body_key_bytes", raw.body_key_bytes, budget_bytes / 4);
    let address_bytes_max = share("body_address_bytes", raw.body_address_bytes, budget_bytes / 2);
    let mut seconds = |key, given, default| values.seconds(&["gateway", key], given, default, 1..=DAY_SECONDS);
    let wait_max = seconds("body_read_seconds", raw.body_read_seconds, 60);
    let total = seconds("body_seconds", raw.body_seconds, 600);
    BodiesConfig {
        bytes_max,
        budget_bytes,
        key_bytes_max,
        address_bytes_max,
        time: BodyTimeLimit {
            pace: PaceLimit {
                wait_max,
                bytes_per_second_min,
            },
            total,
        },
        work_key_percent: values.count(
            &["gateway", "body_work_key_percent"],
            raw.body_work_key_percent,
            10,
            1..=100,
        ),
    }
}
