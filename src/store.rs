//! Where keys are stored: one contract, two engines, one test suite for both.
//!
//! Invalidation: every change increments a version and adds the digests it concerns to a bounded feed, in one atomic step. A
//! node remembers the version up to which it has processed the feed and reads on from there: at once when nudged, and at
//! every poll. A lost nudge therefore costs at most one poll interval.

use serde::{Deserialize, Serialize};

use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use thiserror::Error;
use tokio::sync::watch;

use crate::domain::keys::change::{ChangePrecondition, KeyChange, KeyChangeError};
use crate::domain::keys::key::{KeyId, KeyRecord};
use crate::domain::keys::secret::KeyDigest;
use crate::domain::sign_in::tokens::AccessGrant;

pub(crate) use crate::domain::keys::key::KeyView;

pub(crate) mod archive;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod embedded;

pub(crate) mod key_cache;
pub(crate) mod ledger;
pub(crate) mod redis;
pub(crate) mod sessions;

pub(crate) mod time;

/// The maximum number of changes in the feed. A node that is further behind flushes its whole cache.
pub(crate) const FEED_CHANGES_MAX: usize = 4096;
/// The maximum number of keys on one page of a list.
pub(crate) const LIST_KEYS_MAX: usize = 1000;

/// The keys of one installation.
///
/// Every method is atomic and may be called from any number of tasks at once. Dropping its future leaves the store
/// consistent: the change has happened completely or not at all. If a change returns [`StoreError::Unavailable`], it is
/// unknown whether it happened.
#[async_trait]
pub trait KeyStore: KeyHealer {
    /// The record with this digest, and the store version at which it was read, in one atomic read.
    ///
    /// `record: None` makes the caller answer 401, so it must mean that the key does not exist. A store that is unreachable,
    /// starting, or has lost its data returns [`StoreError::Unavailable`] (503): a wrong `None` rejects every customer as
    /// unauthorised, and clients do not retry that. A version higher than the record's lets a revoked key live on in a cache
    /// until its entry expires. A previous text of a key finds its record too, even after its time is over: the caller checks
    /// that by [`KeyRecord::check`]. The digest of an access token belongs to no key; its grant is in [`KeyLookup::token`].
    async fn find(&self, digest: &KeyDigest) -> Result<KeyLookup, StoreError>;

    /// Adds a key. On an error nothing has changed: [`StoreError::Duplicate`] if the digest or the id is taken,
    /// [`StoreError::Deleted`] if the key is at revision 0 and its id is that of a deleted key, of which journals may know
    /// later revisions.
    ///
    /// An acknowledged key is durable by the engine's own measure: a key that its owner has seen and the store has then
    /// forgotten cannot be shown again.
    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError>;

    /// The key with this id.
    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError>;

    /// Up to `limit` (at most [`LIST_KEYS_MAX`]) keys after `after`, ordered by creation time, then by id.
    /// [`StoreError::NotFound`] if `after` no longer exists: the caller starts again instead of missing keys unknowingly.
    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError>;

    /// Changes a key as [`KeyView::apply_change`] decides on its current state, and returns the key after the change. If the key
    /// already has that state, nothing changes, and neither version nor feed advance. [`StoreError::Duplicate`] if a new text
    /// belongs to another key, or once belonged to this one. The digests of all texts that the key had and has enter the
    /// feed: without an old one, the old text would keep working in caches; without the new one, a cached "unknown" would
    /// refuse it. An acknowledged change is durable: losing a revocation would make a stolen key valid again.
    async fn change(&self, id: &KeyId, change: &KeyChange, from: &ChangePrecondition) -> Result<KeyView, ChangeError>;

    /// Removes a key, if it is still in the state that the decision was based on, and everything known about it except that
    /// it was deleted. Returns the key's last state; `None` if it was deleted before.
    async fn delete(&self, id: &KeyId, from: &ChangePrecondition) -> Result<Option<KeyView>, ChangeError>;

    /// Records when keys were last used (seconds since the Unix epoch). The later time wins; unknown keys are ignored. This
    /// does not count as a change: if version and feed advanced, every request would flush every cache.
    async fn record_uses(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError>;

    /// The digests of all changes after `version`. Omitting one lets a revoked key work until its cached entry expires.
    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError>;

    /// Changes whenever the feed should be read at once. A nudge may be spurious or lost; it carries no content.
    fn nudges(&self) -> watch::Receiver<u64>;

    /// Whether every change is currently nudged, so that the feed need not be read at other times. A nudge announces the end
    /// of that.
    fn nudges_all(&self) -> bool {
        false
    }

    /// Configuration faults that do not stop the store from serving.
    fn warnings(&self) -> BTreeSet<StoreWarning> {
        BTreeSet::new()
    }

    /// The problems that keep the store from serving, or from serving completely.
    fn trouble(&self) -> StoreTrouble {
        StoreTrouble::default()
    }

    /// How full the store's memory is; `None` if memory does not limit it, or if this is unknown.
    fn memory(&self) -> Option<StoreMemory> {
        None
    }

    /// Runs the store's background work (connections) until `shutdown` turns true. [`crate::store::key_cache::KeyCache::run`]
    /// drives it. A store without such work returns at once.
    async fn run(&self, shutdown: watch::Receiver<bool>) {
        drop(shutdown);
    }
}

/// Repeats keys to a store that may have lost them.
#[async_trait]
pub trait KeyHealer: Send + Sync {
    /// Repeats to the store that a key had this form, in case it has lost that: a failover loses acknowledged writes.
    /// [`KeyRecord::merged_with`] decides what holds; a missing key is restored, unless it was deleted. If this is not news to the
    /// store, nothing changes, and neither version nor feed advance. [`StoreError::Duplicate`] if the digest belongs to
    /// another key.
    async fn heal(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError>;

    /// Repeats to the store that a key was deleted at this revision. A key at a later revision stays. Only
    /// [`KeyStore::create`] brings back a key that was deleted, here or by [`KeyStore::delete`].
    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError>;
}

/// The answer to [`KeyStore::find`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLookup {
    /// The key's record; `None` if no key has this digest.
    pub record: Option<KeyRecord>,
    /// The grant, if the digest is that of an access token, which is not a key.
    #[serde(default)]
    pub token: Option<AccessGrant>,
    /// The store version of this read.
    pub version: u64,
}

/// The answer to [`KeyStore::changes_since`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The store's current version. Lower than the requested one after a restart or a failover.
    pub version: u64,
    /// The digests concerned, possibly repeated. `None` if the feed does not reach back that far, the store is behind the
    /// requested version, or another server answers than the last time: then no cached entry can be trusted.
    pub digests: Option<Vec<KeyDigest>>,
}

/// The problems that keep a store from serving, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreTrouble {
    /// A server is reachable but not used because of its configuration, which does not change by itself.
    pub refused: bool,
    /// The problems with their places and remedies; empty if all is well.
    pub details: Vec<String>,
}

/// The memory of a store's fullest server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreMemory {
    /// Memory in use, in bytes.
    pub used: u64,
    /// The memory limit in bytes: the server's own, or else its machine's memory.
    pub limit: u64,
}

impl StoreMemory {
    /// The fuller of two servers.
    #[must_use]
    pub fn fuller(self, other: Self) -> Self {
        let share = |one: Self, by: Self| u128::from(one.used) * u128::from(by.limit);
        if share(self, other) >= share(other, self) {
            self
        } else {
            other
        }
    }
}

/// A fault in a store's configuration that does not stop it from serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreWarning {
    /// The store may evict data to make room.
    Eviction,
    /// The store has evicted data in the past.
    Evicted,
    /// The store does not write changes to disk.
    NoAppendOnlyFile,
    /// A master accepts changes that no replica gets.
    NoMinReplicas,
    /// Two masters of a cluster have keys of the same slot.
    SplitSlot,
    /// The ACL user lacks rights that weir needs.
    MissingRights,
}

impl StoreWarning {
    /// All warnings, for the metrics.
    pub const ALL: [Self; 6] = [
        Self::Eviction,
        Self::Evicted,
        Self::NoAppendOnlyFile,
        Self::NoMinReplicas,
        Self::SplitSlot,
        Self::MissingRights,
    ];

    /// The label in metrics and logs.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Eviction => "eviction",
            Self::Evicted => "evicted",
            Self::NoAppendOnlyFile => "no_append_only_file",
            Self::NoMinReplicas => "no_min_replicas",
            Self::SplitSlot => "split_slot",
            Self::MissingRights => "missing_rights",
        }
    }

    /// What is wrong and what to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Eviction => "redis may evict keys: set maxmemory-policy to noeviction",
            Self::Evicted => {
                "redis has evicted keys, possibly weir's: restore what the journals still have, see \"Redis may evict\" in docs/operations.md; then clear this warning with CONFIG RESETSTAT"
            }
            Self::NoAppendOnlyFile => {
                "redis keeps no append-only file, so a crash loses what it has acknowledged since its last snapshot: set appendonly to yes"
            }
            Self::NoMinReplicas => {
                "redis acknowledges changes that no replica has, so a failover may lose them: set min-replicas-to-write to 1"
            }
            Self::SplitSlot => {
                "a redis master has keys of a slot that belongs to another master: if no slots are being moved, an earlier move was interrupted; complete it with redis-cli --cluster fix, see \"Moving slots\" in docs/redis.md"
            }
            Self::MissingRights => {
                "the redis user lacks rights that weir needs: grant those named in the log and in /readyz"
            }
        }
    }
}

/// Why a store operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum StoreError {
    /// No key has this id.
    #[error("no key has this id: `weir key list` shows all ids")]
    NotFound,
    /// The id or the digest is taken.
    #[error("a key with this id or text already exists: generate a new one")]
    Duplicate,
    /// The id is that of a deleted key.
    #[error("the key with this id was deleted and cannot be created again: use another operation id")]
    Deleted,
    /// The store cannot answer now.
    #[error("the key store is unavailable: {0}")]
    Unavailable(String),
    /// The store is reachable but overloaded: too many calls wait already.
    #[error("the key store is overloaded: {0}")]
    Busy(String),
    /// The store returned data that weir cannot have written.
    #[error("the key store contains unreadable data: {0}")]
    Corrupt(String),
}

/// Why a key was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// The store operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key is not in the state that the change requires.
    #[error(transparent)]
    NotChanged(KeyChangeError),
}

impl From<KeyChangeError> for ChangeError {
    fn from(why: KeyChangeError) -> Self {
        match why {
            KeyChangeError::TextReused => Self::Store(StoreError::Duplicate),
            other => Self::NotChanged(other),
        }
    }
}

/// Why a store could not be opened. None of these errors goes away by waiting.
#[derive(Debug, Error)]
pub enum StoreOpenError {
    /// A setting is not valid.
    #[error("{0}")]
    Settings(String),
    /// Another process uses the embedded store.
    #[error("another weir process has this store open: {}; stop it first or configure a different path", .0.display())]
    InUse(PathBuf),
    /// A restore was interrupted.
    #[error("a restore into {} did not finish: remove the store's files there and restore again", .0.display())]
    Unfinished(PathBuf),
    /// The store's file cannot be opened.
    #[error("cannot open the key store {}: {reason}", path.display())]
    File {
        /// The store's file.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// The ledger has no accounts and was never in use, but the journal knows accounts.
    #[error(
        "the ledger {} has no accounts, but the journal knows {accounts}: the file was removed or replaced. Put it back; or \
         move the store's folder away and restore a backup into a new one with `weir store restore`, to which the journal adds what \
         came after it; or continue with what the journal still has: `weir store init --adopt`",
        path.display()
    )]
    Emptied {
        /// The ledger's file.
        path: PathBuf,
        /// How many accounts the journal knows.
        accounts: usize,
    },
    /// The data is damaged.
    #[error("the key store {} is unreadable: {reason}; restore it from a backup", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with its content.
        reason: String,
    },
}
