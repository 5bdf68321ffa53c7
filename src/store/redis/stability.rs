//! The hourly buckets in Redis: one hash per hour, under the hash tag of the keys, so that several hours are one script in a
//! cluster too, and one that knows an emptied Redis.
//!
//! `{<namespace>:keys}:stability:<hour>`, the hour counted from the Unix epoch, has for each node
//! - `<node>`: its watermark,
//! - `<node>:<model>`: what it has counted of the model, as seven numbers with spaces between them.
//!
//! Numbers are added up here: in Lua they are doubles. An hour's hash expires [`RETENTION_DAYS`] after its end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::vec::IntoIter;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

use super::{
    ADMIN_BUDGET, RedisStore,
    archive::set_up_meanwhile,
    link::Effort,
    script::{Script, ScriptCall},
};
use crate::domain::{
    faults::stability::{Bucket, Counters, Hour, Share, WINDOW_HOURS},
    ledger::{NodeId, consumption::RETENTION_DAYS},
};
use crate::store::{
    StoreError,
    archive::Item,
    stability::{SHARES_MAX, StabilityStore, hours},
};

#[cfg(test)]
mod tests;

/// How many models of shares one script takes, so that it does not hold up the server. A share is never parted.
const MODELS_MAX: usize = 2_000;
const DAY_SECONDS: i64 = 24 * 3600;
const HOURS_A_DAY: i64 = 24;
/// The last moment that a hash may expire at, in seconds since the Unix epoch: the year 9999.
const LAST_SECOND: i64 = 253_402_300_799;
/// By how much a node that has since been set right may have been ahead of the server.
const AHEAD_HOURS: i64 = 48;

/// What one node has counted of one model in one hour.
struct NodeShare {
    hour: Hour,
    node: NodeId,
    model: String,
    counters: Counters,
}

impl RedisStore {
    /// A call of a script that takes these shares; at least one.
    fn telling<'a>(&self, script: &'a Script, shares: &[(&NodeId, &Share)]) -> ScriptCall<'a> {
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

    /// What all nodes have told of these hours. What weir has not written is passed over.
    async fn told(&self, hours: &[Hour]) -> Result<Vec<NodeShare>, StoreError> {
        if hours.is_empty() {
            return Ok(Vec::new());
        }
        let mut call = self.prepare(&self.scripts.stability_read);
        for hour in hours {
            call.key(self.hour_key(*hour));
        }
        let mut words = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?.texts();
        let (mut told, mut junk) = (Vec::new(), 0_usize);
        for hour in hours {
            junk += read_hour(*hour, &mut words, &mut told)?;
        }
        if !self.junk.swap(junk > 0, Ordering::Relaxed) && junk > 0 {
            tracing::warn!(
                fields = junk,
                key = %format!("{}:*", self.stability_key),
                "the hours of the stability record have fields that are not weir's, they are passed over; remove them"
            );
        }
        Ok(told)
    }

    /// Sends all hours that are kept.
    pub(super) async fn dump_hours(&self, to: &mpsc::Sender<Item>) -> Result<(), StoreError> {
        let now = Hour::of_ms(self.now_ms().await?);
        let last = now.plus(AHEAD_HOURS);
        let mut first = now.plus(-HOURS_A_DAY * (i64::from(RETENTION_DAYS) + 1));
        while first <= last {
            let page: Vec<Hour> = hours(first, first.plus(WINDOW_HOURS - 1)).collect();
            let mut shares: BTreeMap<(Hour, NodeId), Bucket> = BTreeMap::new();
            for told in self.told(&page).await? {
                let bucket = shares.entry((told.hour, told.node)).or_default();
                bucket.insert(told.model, told.counters);
            }
            for ((hour, node), bucket) in shares {
                if to.send(Item::Stability { node, hour, bucket }).await.is_err() {
                    return Ok(());
                }
            }
            first = first.plus(WINDOW_HOURS);
        }
        Ok(())
    }

    /// Puts the hours among these items back, into a store that has no generation yet.
    pub(super) async fn load_hours(&self, items: &[Item]) -> Result<(), StoreError> {
        let of = |item: &Item| match item {
            Item::Stability { node, hour, bucket } => {
                let (hour, bucket) = (*hour, bucket.clone());
                Some((node.clone(), Share { hour, bucket }))
            }
            Item::Key { .. }
            | Item::KeyGone { .. }
            | Item::Account { .. }
            | Item::AccountKey { .. }
            | Item::DaySums { .. }
            | Item::Row { .. } => None,
        };
        let shares: Vec<(NodeId, Share)> = items.iter().filter_map(of).collect();
        let shares: Vec<_> = shares.iter().map(|(node, share)| (node, share)).collect();
        for part in parts(&shares) {
            let call = self.telling(&self.scripts.stability_load, part);
            if self.call(&call, Effort::Read(ADMIN_BUDGET)).await?.is_conflict() {
                return Err(set_up_meanwhile());
            }
        }
        Ok(())
    }
}

#[async_trait]
impl StabilityStore for RedisStore {
    async fn tell(&self, node: &NodeId, shares: &[Share]) -> Result<(), StoreError> {
        let shares: Vec<_> = shares.iter().take(SHARES_MAX).map(|share| (node, share)).collect();
        for part in parts(&shares) {
            let call = self.telling(&self.scripts.stability_tell, part);
            // Shares that are sent twice have one effect.
            self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
        }
        Ok(())
    }

    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, Bucket>, StoreError> {
        let hours: Vec<Hour> = hours(first, last).collect();
        let mut buckets: BTreeMap<Hour, Bucket> = BTreeMap::new();
        for told in self.told(&hours).await? {
            let bucket = buckets.entry(told.hour).or_default();
            bucket.entry(told.model).or_default().add(&told.counters);
        }
        Ok(buckets)
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.link.epochs()
    }
}

/// Shares in parts that one script takes each; usually all of them are one.
fn parts<'a, 'b>(mut shares: &'a [(&'b NodeId, &'b Share)]) -> impl Iterator<Item = &'a [(&'b NodeId, &'b Share)]> {
    std::iter::from_fn(move || {
        let mut models = 0_usize;
        let fits = |(_, share): &&(&NodeId, &Share)| {
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

/// Reads what the script says of one hour; answers with how many fields are not weir's.
fn read_hour(hour: Hour, words: &mut IntoIter<String>, told: &mut Vec<NodeShare>) -> Result<usize, StoreError> {
    let cut = || StoreError::Corrupt("a script's answer is too short".to_owned());
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
            // A watermark is for the script.
            (Some(_), None) => {}
            (None, _) => junk += 1,
        }
    }
    Ok(junk)
}

/// When the hash of an hour expires, in seconds since the Unix epoch.
fn expires_at(hour: Hour) -> i64 {
    let kept = DAY_SECONDS * i64::from(RETENTION_DAYS);
    let ends = hour.plus(1).start_seconds().saturating_add(kept);
    ends.clamp(0, LAST_SECOND)
}

fn to_text(counters: &Counters) -> String {
    let Counters {
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

/// Reads what [`to_text`] writes. Numbers behind these are a later weir's.
fn from_text(text: &str) -> Option<Counters> {
    let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(Counters {
        requests: next()?,
        successes: next()?,
        latency_ms: next()?,
        ttft_ms: next()?,
        ttft_count: next()?,
        output_tokens: next()?,
        generation_ms: next()?,
    })
}
