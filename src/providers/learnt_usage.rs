//! What this node has learnt from finished requests: per model how far estimates are off; per key and model how much
//! input is usually read from a cache and how long answers usually are. Kept in memory only, so a restarted node learns
//! anew.

use std::hash::Hash;

use ahash::RandomState;
use parking_lot::{Mutex, MutexGuard};

use crate::domain::{
    keys::key::KeyId,
    ledger::calibration::{Calibration, TypicalInput, TypicalOutput},
    quick_map::QuickMap,
    wire::{json_scan::Turns, tokens::Factor, usage::Usage},
};

/// The most kinds of requests remembered, over keys and accounts.
pub(crate) const KINDS_MAX: usize = 65_536;
/// The most models remembered.
pub(crate) const MODELS_MAX: usize = 4_096;
/// The number of tables, each with its own lock.
const SHARDS: usize = 16;

/// The learnt values. Shared in an `Arc`.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    hashing: RandomState,
    kinds: Table<TypicalUsage>,
    models: Table<Factors>,
}

/// A kind of request: those of one key to one model that begin or continue a conversation, with or without cache marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind<'a> {
    /// The account that pays.
    pub account: &'a str,
    /// The key of the requests.
    pub key: &'a KeyId,
    /// The model's name in the catalogue.
    pub model: &'a str,
    /// What the body tells about its conversation.
    pub turns: Turns,
}

/// Where the values of a kind of request are found: made once for a request, so that their names are not looked up again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    of_key: u64,
    of_account: u64,
    model: u64,
    /// See [`Turns::since_answer`].
    since_answer: Option<u64>,
}

/// Typical usage of requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypicalUsage {
    /// Their typical input, by parts.
    pub input: TypicalInput,
    /// Their typical output.
    pub output: TypicalOutput,
}

/// How far the estimates for a model are off.
#[derive(Clone, Copy, Debug, Default)]
struct Factors {
    input: Calibration,
    output: Calibration,
}

/// Correction factors for a model's estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelFactors {
    /// For estimates of input.
    pub input: Factor,
    /// For estimates of the observed text.
    pub output: Factor,
}

impl Learnt {
    /// Starts without anything learnt.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The handle of a kind.
    pub(crate) fn handle(&self, kind: &Kind<'_>) -> Handle {
        Handle {
            of_key: self.hashing.hash_one(kind.of_key()),
            of_account: self.hashing.hash_one(kind.of_account()),
            model: self.hashing.hash_one(kind.model),
            since_answer: kind.turns.since_answer,
        }
    }

    /// Typical usage of this kind. A new key takes the values of its account's other keys; `None` if there are none
    /// either. Other accounts are never used.
    pub(crate) fn typical(&self, kind: &Handle) -> Option<TypicalUsage> {
        let of = |hash| self.kinds.get(hash, KINDS_MAX);
        of(kind.of_key).or_else(|| of(kind.of_account))
    }

    /// The factors of the kind's model; 1 where nothing was learnt.
    pub(crate) fn factors(&self, kind: &Handle) -> ModelFactors {
        let factors = self.models.get(kind.model, MODELS_MAX).unwrap_or_default();
        ModelFactors {
            input: factors.input.factor(),
            output: factors.output.factor(),
        }
    }

    /// Learns from a request with a complete usage report. The estimates come without factors. Reasoning counts for the
    /// typical output, but not for the factor, because it is not in the observed text.
    pub(crate) fn learn(&self, kind: &Handle, reported: &Usage, input_scanned: u64, output_observed: u64) {
        let new = self.new_tokens(kind);
        let output = reported.output_total();
        for hash in [kind.of_key, kind.of_account] {
            self.kinds.change(hash, KINDS_MAX, |known| {
                let mut usual = known.unwrap_or(TypicalUsage {
                    input: TypicalInput::default(),
                    output: TypicalOutput::new(output),
                });
                if known.is_some() {
                    usual.output.learn(output);
                }
                usual.input.learn(reported, new);
                usual
            });
        }
        self.models.change(kind.model, MODELS_MAX, |known| {
            let mut factors = known.unwrap_or_default();
            factors.input.learn(input_scanned, reported.input_total());
            factors.output.learn(output_observed, reported.output_text);
            factors
        });
    }

    /// The input tokens since the model's last answer, corrected by the model's factor.
    pub(crate) fn new_tokens(&self, kind: &Handle) -> Option<u64> {
        let since = kind.since_answer?;
        Some(self.factors(kind).input.apply(since))
    }
}

impl Kind<'_> {
    fn of_key(&self) -> impl Hash {
        ("key", self.key.as_str(), self.model, self.form())
    }

    fn of_account(&self) -> impl Hash {
        ("account", self.account, self.model, self.form())
    }

    fn form(&self) -> (bool, bool) {
        (self.turns.since_answer.is_some(), self.turns.marks_cache)
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
    young: QuickMap<u64, T>,
    old: QuickMap<u64, T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    young: QuickMap::default(),
                    old: QuickMap::default(),
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

    /// Replaces a value, or makes one where there was none.
    fn change(&self, hash: u64, max: usize, change: impl FnOnce(Option<T>) -> T) {
        let Some(mut shard) = self.shard(hash) else { return };
        if let Some(value) = shard.young.get_mut(&hash) {
            *value = change(Some(*value));
            return;
        }
        let value = change(shard.old.remove(&hash));
        shard.keep(hash, value, max);
    }

    fn shard(&self, hash: u64) -> Option<MutexGuard<'_, Shard<T>>> {
        let at = usize::try_from(hash % 16).ok()?;
        let shard = self.shards.get(at)?;
        Some(shard.lock())
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

#[cfg(test)]
mod tests;
