//! Where keys live: one contract, two engines, one test suite for both.
//!
//! Invalidation: every change counts a version up by one and leaves the digests it concerns in a bounded feed, in the same
//! atomic step. A node remembers the version it has worked through and reads on from there, at once when nudged and at
//! every poll besides, so that a lost nudge costs at most one poll interval.

use serde::{Deserialize, Serialize};

use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use thiserror::Error;
use tokio::sync::watch;

use crate::domain::keys::change::{KeyChange, MadeFrom, NotChanged};
use crate::domain::keys::key::{KeyId, KeyRecord};
use crate::domain::keys::secret::KeyDigest;
use crate::domain::sign_in::access_token::AccessGrant;

pub(crate) use crate::domain::keys::key::KeyView;

pub(crate) mod archive;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod embedded;
mod feed;
pub(crate) mod key_cache;
pub(crate) mod ledger;
pub(crate) mod redis;
pub(crate) mod sessions;
pub(crate) mod sign_ins;
pub(crate) mod stability;
pub(crate) mod time;
pub(crate) mod web_sessions;

/// The most changes in the feed. A node that is further behind flushes its whole cache.
pub(crate) const FEED_CHANGES_MAX: usize = 4096;
/// The most keys on one page of a list.
pub(crate) const LIST_KEYS_MAX: usize = 1000;

/// The keys of one installation.
///
/// Every method is atomic. Every method may be called from any number of tasks at once, and dropping its future leaves the
/// store whole: the change has happened in full or not at all. An answer of [`StoreError::Unavailable`] to a change says
/// only that it is not known whether it happened.
#[async_trait]
pub trait KeyStore: KeyHealer {
    /// The record a key's digest stands for, and the version of the store it was read at, in one atomic read.
    ///
    /// `record: None` makes the caller answer 401, so it must mean that the key does not exist. A store that is away,
    /// starting, or has lost its data says [`StoreError::Unavailable`] (503): a wrong `None` turns every customer away as
    /// unauthorised, and clients do not retry that. A version higher than the record's makes a revoked key live on in a
    /// cache until its lifetime ends. A key's former text finds its record too, also when its time is over: whoever asks checks
    /// that by [`KeyRecord::check`]. No key has the digest of an access token: that is told beside.
    async fn find(&self, digest: &KeyDigest) -> Result<Lookup, StoreError>;

    /// Adds a key. [`StoreError::Duplicate`] if the digest or the id is taken, [`StoreError::Deleted`] if the key is at revision 0
    /// and its id is a deleted key's, whose later revisions journals may know; then nothing has changed.
    ///
    /// Acknowledged means durable by the engine's own measure: a key that was shown to its owner and then forgotten cannot
    /// be shown again.
    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError>;

    /// One key by its public name.
    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError>;

    /// Up to `limit` (at most [`LIST_KEYS_MAX`]) keys behind `after`, ordered by time of creation, then by id.
    /// [`StoreError::NotFound`] if `after` no longer exists: the caller starts again, rather than miss keys unknowingly.
    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError>;

    /// Makes a change as [`KeyView::after`] decides on the key as it is in that very moment, and answers with the key after it.
    /// Where the key is so already nothing changes, and neither version nor feed move. [`StoreError::Duplicate`] if a new text is
    /// another key's, or was this one's. The digests of all texts that the key had and has go into the feed: leaving out an old one
    /// would let the old text work on in caches, leaving out the new one would let a cached "unknown" refuse it. Acknowledged means
    /// durable: a revocation that is lost gives a stolen key back.
    async fn change(&self, id: &KeyId, change: &KeyChange, from: &MadeFrom) -> Result<KeyView, ChangeError>;

    /// Removes a key, if it is in the state that this was decided on, and all that is known of it but that it was deleted. Answers
    /// with the key as it was last; `None`: it was deleted before.
    async fn delete(&self, id: &KeyId, from: &MadeFrom) -> Result<Option<KeyView>, ChangeError>;

    /// Notes when keys were last used (seconds since the Unix epoch). The later time wins, unknown keys are passed over.
    /// This is no change: neither version nor feed move, or every request would flush every cache.
    async fn touch(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError>;

    /// The digests of all changes after `version`. Leaving one out lets a revoked key work until its cached entry ends.
    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError>;

    /// Moves whenever the feed should be read at once. A nudge may be spurious and may be lost; it carries no content.
    fn nudges(&self) -> watch::Receiver<u64>;

    /// Whether each change is nudged as things are now, so that the feed need not be read at other times. A nudge tells when that
    /// ends.
    fn nudges_all(&self) -> bool {
        false
    }

    /// Faults in the store's configuration that do not stop it from serving.
    fn warnings(&self) -> BTreeSet<StoreWarning> {
        BTreeSet::new()
    }

    /// What keeps the store from serving, or from serving completely.
    fn trouble(&self) -> StoreTrouble {
        StoreTrouble::default()
    }

    /// How full the store is; `None` if memory does not limit it, or is unknown.
    fn memory(&self) -> Option<StoreMemory> {
        None
    }

    /// What the store does in the background (connections), until `shutdown` turns true. [`crate::store::key_cache::KeyCache::run`]
    /// drives it. A store without such work returns at once.
    async fn run(&self, shutdown: watch::Receiver<bool>) {
        drop(shutdown);
    }
}

/// Repeats keys to a store that may have forgotten them.
#[async_trait]
pub trait KeyHealer: Send + Sync {
    /// Tells the store again that a key stood in this form, in case it has forgotten: a failover loses what was acknowledged.
    /// [`KeyRecord::healed`] decides what holds; a key that is missing comes back, unless it was deleted. Where nothing is
    /// news, nothing changes and neither version nor feed move. [`StoreError::Duplicate`] if the digest is another key's.
    async fn heal(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError>;

    /// Tells the store again that a key was deleted at this revision. A key that stands at a later one stays. A key that is
    /// deleted, here or by [`KeyStore::delete`], comes back by [`KeyStore::create`] alone.
    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError>;
}

/// The answer to [`KeyStore::find`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// The record, `None` if no key has this digest.
    pub record: Option<KeyRecord>,
    /// What the digest stands for as that of an access token, which is no key.
    #[serde(default)]
    pub token: Option<AccessGrant>,
    /// The version of the store at which this was so.
    pub version: u64,
}

/// The answer to [`KeyStore::changes_since`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The version the store is at now. Lower than the one asked for after a restart or a failover.
    pub version: u64,
    /// The digests concerned, perhaps repeated; `None` if the feed does not reach back that far, or the store is behind
    /// the version asked for, or another server answers for it than the last time: then nothing that is cached can be
    /// trusted.
    pub digests: Option<Vec<KeyDigest>>,
}

/// What keeps a store from serving, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreTrouble {
    /// A server is reachable but not used because of its configuration, which does not change by itself.
    pub refused: bool,
    /// What is wrong, where, and what to do; empty if all is well.
    pub details: Vec<String>,
}

/// The memory of a store's fullest server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreMemory {
    /// Memory in use, in bytes.
    pub used: u64,
    /// The memory limit in bytes: the server's own, or else its machine's memory.
    pub most: u64,
}

impl StoreMemory {
    /// The fuller one of two servers.
    #[must_use]
    pub fn fuller(self, other: Self) -> Self {
        let share = |one: Self, by: Self| u128::from(one.used) * u128::from(by.most);
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
    /// The store has evicted data before it was told not to.
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
                "redis has evicted keys, perhaps of weir's: bring back what the journals still have, see \"Redis may evict\" in docs/operations.md; then end this warning with CONFIG RESETSTAT"
            }
            Self::NoAppendOnlyFile => {
                "redis keeps no append-only file, a crash of it loses what it acknowledged since its last snapshot: set appendonly to yes"
            }
            Self::NoMinReplicas => {
                "redis acknowledges changes that no replica has, a failover may lose them: set min-replicas-to-write to 1"
            }
            Self::SplitSlot => {
                "a redis master has keys of a slot that is another's: if no slots are being moved, the move was cut off; end it with redis-cli --cluster fix, see \"Moving slots\" in docs/redis.md"
            }
            Self::MissingRights => {
                "the redis user lacks rights that weir needs: grant those that the log and /readyz name"
            }
        }
    }
}

/// Why a store did not do as asked.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum StoreError {
    /// No key has this id.
    #[error("no key has this id, `weir key list` shows the ids there are")]
    NotFound,
    /// The id or the digest is taken.
    #[error("a key with this id or this text exists already, draw a new one")]
    Duplicate,
    /// The id is that of a key that was deleted.
    #[error("the key with this id was deleted and does not come back: use another operation id")]
    Deleted,
    /// The store cannot answer now.
    #[error("the key store is unavailable: {0}")]
    Unavailable(String),
    /// The store is reachable but overloaded: too many calls wait already.
    #[error("the key store has more to do than it can: {0}")]
    Busy(String),
    /// The store returned data that weir cannot have written.
    #[error("the key store holds unreadable data: {0}")]
    Corrupt(String),
}

/// Why a key was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key is not as the change wants it.
    #[error(transparent)]
    NotChanged(NotChanged),
}

impl From<NotChanged> for ChangeError {
    fn from(why: NotChanged) -> Self {
        match why {
            NotChanged::FormerText => Self::Store(StoreError::Duplicate),
            other => Self::NotChanged(other),
        }
    }
}

/// Why a store could not be opened. None of these goes away by waiting.
#[derive(Debug, Error)]
pub enum StoreOpenError {
    /// A setting is not valid.
    #[error("{0}")]
    Settings(String),
    /// Another process uses the embedded store.
    #[error("another weir process has this store open: {}, stop it first or give this one a path of its own", .0.display())]
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
    /// The ledger has no accounts and was never in use, but the journal knows some.
    #[error(
        "the ledger {} has no accounts, but the journal knows {accounts}: the file was removed or replaced. Put it back; or \
         move the store's folder away and put a backup into a new one with `weir store restore`, to which the journal adds what \
         came after it; or go on with what the journal still has, by `weir store init --adopt`",
        path.display()
    )]
    Emptied {
        /// The ledger's file.
        path: PathBuf,
        /// How many accounts the journal knows.
        accounts: usize,
    },
    /// The data is damaged.
    #[error("the key store {} is unreadable: {reason}, restore it from a backup", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with its content.
        reason: String,
    },
}
