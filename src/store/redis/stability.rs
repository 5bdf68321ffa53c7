//! The hourly stability counters in Redis: one hash for each hour. The hashes have the same hash tag as the keys, so all of them
//! are in one hash slot of a cluster. Therefore one script can read several hours, and can detect that Redis was emptied.
//!
//! `<hour>` in a hash's name, `{<namespace>:keys}:stability:<hour>`, is the number of hours since the Unix epoch. For each node,
//! the hash has the fields
//! - `<node>`: the watermark of the node's counters,
//! - `<node>:<model>`: the node's counters of the model, as seven numbers separated by spaces.
//!
//! Numbers are added in Rust, because numbers in Lua are doubles. An hour's hash expires [`RETENTION_DAYS`] after its end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::vec::IntoIter;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

use super::{ADMIN_BUDGET, RedisStore, link::CallPolicy};
use crate::domain::{
    faults::stability::{Hour, ModelCounters, NodeHourCounters, StabilityCounters, WINDOW_HOURS},
    ledger::{NodeId, consumption::RETENTION_DAYS},
};
use crate::store::redis::recovery::set_up_meanwhile;
use crate::store::redis::scripts::{RedisScript, ScriptCall};
use crate::store::{
    StoreError,
    archive::ArchiveItem,
    ledger::{SHARES_MAX, StabilityStore, hours},
};

#[cfg(test)]
mod tests;

/// Maximum number of models in the shares of one script call. It is limited so that the call does not block the server for long.
/// A share is never divided.
const MODELS_MAX: usize = 2_000;
const DAY_SECONDS: i64 = 24 * 3600;
const HOURS_A_DAY: i64 = 24;
/// The last moment at which a hash may expire, in seconds since the Unix epoch: the year 9999.
const LAST_SECOND: i64 = 253_402_300_799;
/// The number of hours in the future for which there can be counters, because a node's clock may have been ahead of the
/// server's.
const AHEAD_HOURS: i64 = 48;

/// The counters of one node, model and hour.
struct NodeShare {
    hour: Hour,
    node: NodeId,
    model: String,
    counters: StabilityCounters,
}

impl RedisStore {
    /// Prepares a call of a script with these shares. There must be at least one share.
    fn shares_call<'a>(&self, script: &'a RedisScript, shares: &[(&NodeId, &NodeHourCounters)]) -> ScriptCall<'a> {
        let mut call = self.prepare(script);
        for (node, share) in shares {
            call.key(self.hour_key(share.hour))
                .arg(node.as_str())
                .arg(share.watermark())
                .arg(expires_at(share.hour))
                .arg(share.bucket.len());
            for (model, counters) in &share.bucket {
                call.arg(model).arg(to_text(counters));
            }
        }
        call
    }

    fn hour_key(&self, hour: Hour) -> String {
        format!("{}:{}", self.stability_key, hour.number())
    }

    /// Reads the counters of all nodes in these hours. Fields that weir did not write are skipped.
    async fn fetch_shares(&self, hours: &[Hour]) -> Result<Vec<NodeShare>, StoreError> {
        if hours.is_empty() {
            return Ok(Vec::new());
        }
        let mut call = self.prepare(&self.scripts.stability_read);
        for hour in hours {
            call.key(self.hour_key(*hour));
        }
        let mut words = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.texts();
        let (mut told, mut junk) = (Vec::new(), 0_usize);
        for hour in hours {
            junk += read_hour(*hour, &mut words, &mut told)?;
        }
        if !self.junk.swap(junk > 0, Ordering::Relaxed) && junk > 0 {
            tracing::warn!(
                fields = junk,
                key = %format!("{}:*", self.stability_key),
                "the stability record in redis has fields that weir did not write: weir skips these fields; remove them"
            );
        }
        Ok(told)
    }

    /// Sends all stored hours to `to`.
    pub(super) async fn dump_hours(&self, to: &mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        let now = Hour::from_unix_ms(self.now_ms().await?);
        let last = now.plus(AHEAD_HOURS);
        let mut first = now.plus(-HOURS_A_DAY * (i64::from(RETENTION_DAYS) + 1));
        while first <= last {
            let page: Vec<Hour> = hours(first, first.plus(WINDOW_HOURS - 1)).collect();
            let mut shares: BTreeMap<(Hour, NodeId), ModelCounters> = BTreeMap::new();
            for told in self.fetch_shares(&page).await? {
                let bucket = shares.entry((told.hour, told.node)).or_default();
                bucket.insert(told.model, told.counters);
            }
            for ((hour, node), bucket) in shares {
                if to.send(ArchiveItem::Stability { node, hour, bucket }).await.is_err() {
                    return Ok(());
                }
            }
            first = first.plus(WINDOW_HOURS);
        }
        Ok(())
    }

    /// Restores the hours among these items into a store that has no generation yet.
    pub(super) async fn load_hours(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        let of = |item: &ArchiveItem| match item {
            ArchiveItem::Stability { node, hour, bucket } => {
                let (hour, bucket) = (*hour, bucket.clone());
                Some((node.clone(), NodeHourCounters { hour, bucket }))
            }
            ArchiveItem::Key { .. }
            | ArchiveItem::KeyGone { .. }
            | ArchiveItem::Account { .. }
            | ArchiveItem::AccountKey { .. }
            | ArchiveItem::DaySums { .. }
            | ArchiveItem::Row { .. } => None,
        };
        let shares: Vec<(NodeId, NodeHourCounters)> = items.iter().filter_map(of).collect();
        let shares: Vec<_> = shares.iter().map(|(node, share)| (node, share)).collect();
        for part in parts(&shares) {
            let call = self.shares_call(&self.scripts.stability_load, part);
            if self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.is_conflict() {
                return Err(set_up_meanwhile());
            }
        }
        Ok(())
    }
}

#[async_trait]
impl StabilityStore for RedisStore {
    async fn put_shares(&self, node: &NodeId, shares: &[NodeHourCounters]) -> Result<(), StoreError> {
        let shares: Vec<_> = shares.iter().take(SHARES_MAX).map(|share| (node, share)).collect();
        for part in parts(&shares) {
            let call = self.shares_call(&self.scripts.stability_tell, part);
            // Shares that are sent twice have only one effect.
            self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        }
        Ok(())
    }

    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, ModelCounters>, StoreError> {
        let hours: Vec<Hour> = hours(first, last).collect();
        let mut buckets: BTreeMap<Hour, ModelCounters> = BTreeMap::new();
        for told in self.fetch_shares(&hours).await? {
            let bucket = buckets.entry(told.hour).or_default();
            bucket.entry(told.model).or_default().add(&told.counters);
        }
        Ok(buckets)
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.link.epochs()
    }
}

/// Divides shares into parts, each for one script call. Usually there is only one part.
fn parts<'a, 'b>(
    mut shares: &'a [(&'b NodeId, &'b NodeHourCounters)],
) -> impl Iterator<Item = &'a [(&'b NodeId, &'b NodeHourCounters)]> {
    std::iter::from_fn(move || {
        let mut models = 0_usize;
        let fits = |(_, share): &&(&NodeId, &NodeHourCounters)| {
            let is_first = models == 0;
            models = models.saturating_add(share.bucket.len().max(1));
            is_first || models <= MODELS_MAX
        };
        let count = shares.iter().take_while(fits).count();
        let (part, rest) = shares.split_at_checked(count)?;
        shares = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// Reads the script's reply for one hour into `told`. Returns the number of fields that weir did not write.
fn read_hour(hour: Hour, words: &mut IntoIter<String>, told: &mut Vec<NodeShare>) -> Result<usize, StoreError> {
    let cut = || StoreError::Corrupt("a script in redis returned a reply that is too short".to_owned());
    let count: usize = words.next().and_then(|count| count.parse().ok()).ok_or_else(cut)?;
    let mut junk = 0;
    for _ in 0..count / 2 {
        let (field, value) = words.next().zip(words.next()).ok_or_else(cut)?;
        let (node, model) = field
            .split_once(':')
            .map_or((field.as_str(), None), |(node, model)| (node, Some(model)));
        match (NodeId::parse(node), model) {
            (Some(node), Some(model)) => match from_text(&value) {
                Some(counters) => told.push(NodeShare {
                    hour,
                    node,
                    model: model.to_owned(),
                    counters,
                }),
                None => junk += 1,
            },
            // Only the script needs the watermark.
            (Some(_), None) => {}
            (None, _) => junk += 1,
        }
    }
    Ok(junk)
}

/// Returns when the hash of an hour expires, in seconds since the Unix epoch.
fn expires_at(hour: Hour) -> i64 {
    let kept = DAY_SECONDS * i64::from(RETENTION_DAYS);
    let ends = hour.plus(1).start_seconds().saturating_add(kept);
    ends.clamp(0, LAST_SECOND)
}

fn to_text(counters: &StabilityCounters) -> String {
    let StabilityCounters {
        requests,
        successes,
        latency_ms,
        ttft_ms,
        ttft_count,
        output_tokens,
        generation_ms,
    } = counters;
    format!("{requests} {successes} {latency_ms} {ttft_ms} {ttft_count} {output_tokens} {generation_ms}")
}

/// Parses the text that [`to_text`] returns. Further numbers, which a later weir may have added, are ignored.
fn from_text(text: &str) -> Option<StabilityCounters> {
    let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(StabilityCounters {
        requests: next()?,
        successes: next()?,
        latency_ms: next()?,
        ttft_ms: next()?,
        ttft_count: next()?,
        output_tokens: next()?,
        generation_ms: next()?,
    })
}
