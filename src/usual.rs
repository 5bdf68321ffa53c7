//! What this node has learnt from finished requests: per model how far the estimates are off, per key and model how long
//! answers usually are. Kept in memory only; a node that starts learns anew.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::domain::{
    calibration::{Calibration, Factor, Usual},
    key::KeyId,
    usage::Usage,
};

/// Pairs of key and model that are remembered.
pub const PAIRS_MAX: usize = 65_536;
/// Models that are remembered.
pub const MODELS_MAX: usize = 4_096;
/// Tables, each with a lock of its own.
const SHARDS: usize = 16;

/// What finished requests have shown. Share it in an `Arc`.
#[derive(Debug, Default)]
pub struct Learnt {
    outputs: Table<Usual>,
    models: Table<Factors>,
}

/// How far the estimates for a model are off.
#[derive(Clone, Copy, Debug, Default)]
struct Factors {
    input: Calibration,
    output: Calibration,
}

/// The factors of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFactors {
    /// For estimates of input.
    pub input: Factor,
    /// For estimates of the text that passed.
    pub output: Factor,
}

impl Learnt {
    /// Nothing learnt yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a key's requests to a model usually put out; `None` if there were none.
    pub fn usual(&self, key: &KeyId, model: &str) -> Option<Usual> {
        self.outputs.get(hash(&(key.as_str(), model)), PAIRS_MAX)
    }

    /// The factors of a model; one where nothing was learnt.
    pub fn factors(&self, model: &str) -> ModelFactors {
        let factors = self.models.get(hash(&model), MODELS_MAX).unwrap_or_default();
        ModelFactors {
            input: factors.input.factor(),
            output: factors.output.factor(),
        }
    }

    /// Learns from a request whose usage was reported whole; estimates are without factor. Reasoning takes part in what is
    /// usual, but not in the factor: it is not in the text that passes.
    pub fn learn(&self, key: &KeyId, model: &str, reported: &Usage, input_scanned: u64, output_observed: u64) {
        let output = reported.output_total();
        self.outputs
            .change(hash(&(key.as_str(), model)), PAIRS_MAX, |usual| match usual {
                Some(usual) => usual.learn(output),
                None => *usual = Some(Usual::new(output)),
            });
        self.models.change(hash(&model), MODELS_MAX, |factors| {
            let factors = factors.get_or_insert_default();
            factors.input.learn(input_scanned, reported.input_total());
            factors.output.learn(output_observed, reported.output_text);
        });
    }

    /// How many pairs of key and model, and how many models are remembered.
    pub fn sizes(&self) -> (usize, usize) {
        (self.outputs.len(), self.models.len())
    }
}

/// Values by the hash of their name: two names with one hash share a value, which costs an estimate and nothing else.
///
/// A shard that is full loses the older of its two generations: what was used since the last time stays.
#[derive(Debug)]
struct Table<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
}

#[derive(Debug)]
struct Shard<T> {
    young: HashMap<u64, T>,
    old: HashMap<u64, T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    young: HashMap::new(),
                    old: HashMap::new(),
                })
            }),
        }
    }
}

impl<T: Copy> Table<T> {
    fn get(&self, hash: u64, max: usize) -> Option<T> {
        let mut shard = self.shard(hash)?;
        if let Some(value) = shard.young.get(&hash) {
            return Some(*value);
        }
        let value = shard.old.remove(&hash)?;
        shard.keep(hash, value, max);
        Some(value)
    }

    /// Changes a value, or makes one where there was none.
    fn change(&self, hash: u64, max: usize, change: impl FnOnce(&mut Option<T>)) {
        let Some(mut shard) = self.shard(hash) else { return };
        let mut value = shard.young.remove(&hash).or_else(|| shard.old.remove(&hash));
        change(&mut value);
        if let Some(value) = value {
            shard.keep(hash, value, max);
        }
    }

    fn shard(&self, hash: u64) -> Option<MutexGuard<'_, Shard<T>>> {
        let at = usize::try_from(hash % 16).ok()?;
        let shard = self.shards.get(at)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn len(&self) -> usize {
        let length = |shard: &Mutex<Shard<T>>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.len() + shard.old.len()
        };
        self.shards.iter().map(length).sum()
    }
}

impl<T> Shard<T> {
    /// Both generations together hold at most a shard's part of `max`.
    fn keep(&mut self, hash: u64, value: T, max: usize) {
        if self.young.len() >= max / SHARDS / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, value);
    }
}

fn hash(name: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
