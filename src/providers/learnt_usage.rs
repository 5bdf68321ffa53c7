//! Values that this node has learned from finished requests. For each model, it learns the error of the estimates. For each key
//! and model, it learns how much of the input is usually read from a cache, and how long answers usually are. The values are in
//! memory only, so a restarted node learns them again.

use std::hash::Hash;

use ahash::RandomState;
use parking_lot::{Mutex, MutexGuard};

use crate::domain::{
    QuickMap,
    keys::KeyId,
    ledger::calibration::{Calibration, TypicalInput, TypicalOutput},
    wire::{json_scan::ConversationTurns, tokens::TokenFactor, usage::Usage},
};

/// The maximum number of stored kinds of requests, for keys and accounts together.
pub(crate) const KINDS_MAX: usize = 65_536;
/// The maximum number of models with stored values.
pub(crate) const MODELS_MAX: usize = 4_096;
/// The number of parts into which a table is divided, each with its own lock.
const SHARDS: usize = 16;

/// The learned values of this node. They are shared in an `Arc`.
#[derive(Debug, Default)]
pub(crate) struct LearnedUsage {
    hashing: RandomState,
    kinds: UsageTable<TypicalUsage>,
    models: UsageTable<ModelCalibration>,
}

/// A kind of request. Kinds differ by key and model, by whether a request begins or continues a conversation, and by whether it
/// has cache marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageKey<'a> {
    /// The account that pays.
    pub account: &'a str,
    /// The key that sends the requests.
    pub key: &'a KeyId,
    /// The model's name in the catalogue.
    pub model: &'a str,
    /// The facts about the conversation in the request's body.
    pub turns: ConversationTurns,
}

/// A handle for the stored values of a kind of request. It is created once per request, so that the names in the kind are hashed
/// only once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageHandle {
    of_key: u64,
    of_account: u64,
    model: u64,
    /// The number of input tokens since the last answer, as in [`ConversationTurns::since_answer`].
    since_answer: Option<u64>,
}

/// The typical usage of requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypicalUsage {
    /// The typical input of the requests, divided into parts.
    pub input: TypicalInput,
    /// The typical output of the requests.
    pub output: TypicalOutput,
}

/// The error of the estimates for one model.
#[derive(Clone, Copy, Debug, Default)]
struct ModelCalibration {
    input: Calibration,
    output: Calibration,
}

/// The correction factors for estimates of one model's usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelFactors {
    /// The factor for estimates of the input.
    pub input: TokenFactor,
    /// The factor for estimates of the output from the observed text.
    pub output: TokenFactor,
}

impl LearnedUsage {
    /// Creates an empty set of values.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the handle of a kind of request.
    pub(crate) fn handle(&self, kind: &UsageKey<'_>) -> UsageHandle {
        UsageHandle {
            of_key: self.hashing.hash_one(kind.of_key()),
            of_account: self.hashing.hash_one(kind.of_account()),
            model: self.hashing.hash_one(kind.model),
            since_answer: kind.turns.since_answer,
        }
    }

    /// Returns the typical usage of a kind of request. For a new key, returns the typical usage of its account's other keys.
    /// Returns `None` if no typical usage is known. Values of other accounts are never used.
    pub(crate) fn typical(&self, kind: &UsageHandle) -> Option<TypicalUsage> {
        let of = |hash| self.kinds.get(hash, KINDS_MAX);
        of(kind.of_key).or_else(|| of(kind.of_account))
    }

    /// Returns the factors of the kind's model; 1 if nothing has been learned about the model.
    pub(crate) fn factors(&self, kind: &UsageHandle) -> ModelFactors {
        let factors = self.models.get(kind.model, MODELS_MAX).unwrap_or_default();
        ModelFactors {
            input: factors.input.factor(),
            output: factors.output.factor(),
        }
    }

    /// Learns from a request with a complete usage report. `input_scanned` and `output_observed` are the estimates before
    /// correction. The typical output includes reasoning. The factor for the output does not, because the observed text does not
    /// contain reasoning.
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

    /// Estimates the input tokens since the model's last answer, corrected by the model's factor; `None` if the request begins a
    /// conversation.
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
/// The table is divided into shards. Each shard has two generations of values. When a shard is full, it drops its older
/// generation. It keeps the values that were used after the previous drop.
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

    /// Replaces the value for this hash with the result of `change`, or inserts that result.
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
    /// Inserts a value. Both generations together contain at most the shard's part of `max`.
    fn insert(&mut self, hash: u64, value: T, max: usize) {
        if self.young.len() >= max / SHARDS / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, value);
    }
}

#[cfg(test)]
mod tests;
