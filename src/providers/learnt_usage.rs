//! Values that this node has learnt from finished requests: per model, the error of estimates; per key and model, how much input
//! is usually read from a cache and how long answers usually are. Kept in memory only, so a restarted node learns them again.

use std::hash::Hash;

use ahash::RandomState;
use parking_lot::{Mutex, MutexGuard};

use crate::domain::{
    QuickMap,
    keys::key::KeyId,
    ledger::calibration::{Calibration, TypicalInput, TypicalOutput},
    wire::{json_scan::ConversationTurns, tokens::TokenFactor, usage::Usage},
};

/// The maximum number of values per kind of request, those of keys and of accounts together.
pub(crate) const KINDS_MAX: usize = 65_536;
/// The maximum number of models.
pub(crate) const MODELS_MAX: usize = 4_096;
/// The number of tables, each with its own lock.
const SHARDS: usize = 16;

/// The learnt values. Shared in an `Arc`.
#[derive(Debug, Default)]
pub(crate) struct LearnedUsage {
    hashing: RandomState,
    kinds: UsageTable<TypicalUsage>,
    models: UsageTable<ModelCalibration>,
}

/// A kind of request: by key and model, by whether it begins or continues a conversation, and by whether it has cache marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageKey<'a> {
    /// The account that pays.
    pub account: &'a str,
    /// The key of the requests.
    pub key: &'a KeyId,
    /// The model's name in the catalogue.
    pub model: &'a str,
    /// The facts about the conversation in the body.
    pub turns: ConversationTurns,
}

/// Finds the values of a kind of request. Made once for a request, so that its names are hashed once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageHandle {
    of_key: u64,
    of_account: u64,
    model: u64,
    /// See [`ConversationTurns::since_answer`].
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

/// The error of the estimates for a model.
#[derive(Clone, Copy, Debug, Default)]
struct ModelCalibration {
    input: Calibration,
    output: Calibration,
}

/// Correction factors for a model's estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelFactors {
    /// For estimates of input.
    pub input: TokenFactor,
    /// For estimates of the observed text.
    pub output: TokenFactor,
}

impl LearnedUsage {
    /// Nothing learnt yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The handle of a kind.
    pub(crate) fn handle(&self, kind: &UsageKey<'_>) -> UsageHandle {
        UsageHandle {
            of_key: self.hashing.hash_one(kind.of_key()),
            of_account: self.hashing.hash_one(kind.of_account()),
            model: self.hashing.hash_one(kind.model),
            since_answer: kind.turns.since_answer,
        }
    }

    /// Typical usage of this kind. A new key uses the values of its account's other keys; `None` without any. Values of other
    /// accounts are never used.
    pub(crate) fn typical(&self, kind: &UsageHandle) -> Option<TypicalUsage> {
        let of = |hash| self.kinds.get(hash, KINDS_MAX);
        of(kind.of_key).or_else(|| of(kind.of_account))
    }

    /// The factors of the kind's model; 1 if nothing was learnt.
    pub(crate) fn factors(&self, kind: &UsageHandle) -> ModelFactors {
        let factors = self.models.get(kind.model, MODELS_MAX).unwrap_or_default();
        ModelFactors {
            input: factors.input.factor(),
            output: factors.output.factor(),
        }
    }

    /// Learns from a request with a complete usage report. The estimates are those without factors. Reasoning counts for the
    /// typical output, but not for the factor, because it is not in the observed text.
    pub(crate) fn learn(&self, kind: &UsageHandle, reported: &Usage, input_scanned: u64, output_observed: u64) {
        let new = self.new_tokens(kind);
        let output = reported.output_total();
        for hash in [kind.of_key, kind.of_account] {
            self.kinds.update(hash, KINDS_MAX, |known| {
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
        self.models.update(kind.model, MODELS_MAX, |known| {
            let mut factors = known.unwrap_or_default();
            factors.input.learn(input_scanned, reported.input_total());
            factors.output.learn(output_observed, reported.output_text);
            factors
        });
    }

    /// The input tokens since the model's last answer, corrected by the model's factor.
    pub(crate) fn new_tokens(&self, kind: &UsageHandle) -> Option<u64> {
        let since = kind.since_answer?;
        Some(self.factors(kind).input.apply(since))
    }
}

impl UsageKey<'_> {
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

/// Values by the hash of their name. Two names with the same hash share a value, which only makes an estimate worse.
///
/// A full shard drops the older of its two generations; values that were used since the last time stay.
#[derive(Debug)]
struct UsageTable<T> {
    shards: [Mutex<UsageShard<T>>; SHARDS],
}

#[derive(Debug)]
struct UsageShard<T> {
    young: QuickMap<u64, T>,
    old: QuickMap<u64, T>,
}

impl<T> Default for UsageTable<T> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| {
                Mutex::new(UsageShard {
                    young: QuickMap::default(),
                    old: QuickMap::default(),
                })
            }),
        }
    }
}

impl<T: Copy> UsageTable<T> {
    fn get(&self, hash: u64, max: usize) -> Option<T> {
        let mut shard = self.shard(hash)?;
        if let Some(value) = shard.young.get(&hash) {
            return Some(*value);
        }
        let value = shard.old.remove(&hash)?;
        shard.insert(hash, value, max);
        Some(value)
    }

    /// Replaces a value, or inserts one.
    fn update(&self, hash: u64, max: usize, change: impl FnOnce(Option<T>) -> T) {
        let Some(mut shard) = self.shard(hash) else { return };
        if let Some(value) = shard.young.get_mut(&hash) {
            *value = change(Some(*value));
            return;
        }
        let value = change(shard.old.remove(&hash));
        shard.insert(hash, value, max);
    }

    fn shard(&self, hash: u64) -> Option<MutexGuard<'_, UsageShard<T>>> {
        let at = usize::try_from(hash % 16).ok()?;
        let shard = self.shards.get(at)?;
        Some(shard.lock())
    }
}

impl<T> UsageShard<T> {
    /// Inserts a value. Both generations together hold at most the shard's part of `max`.
    fn insert(&mut self, hash: u64, value: T, max: usize) {
        if self.young.len() >= max / SHARDS / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, value);
    }
}

#[cfg(test)]
mod tests;
