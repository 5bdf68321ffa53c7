//! The stores of keys and accounts. The engines, Redis and embedded files, implement the same traits and pass the same tests.
//!
//! Caches learn of changes through a feed. In one atomic step, every change increments a version and adds the affected digests to
//! the bounded feed. A node stores the version up to which it has processed the feed. It continues to read from that version when
//! the store notifies it (a nudge), and at every poll. A lost nudge therefore delays the node by at most one poll interval.

use serde::{Deserialize, Serialize};

use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use thiserror::Error;
use tokio::sync::watch;

use crate::domain::keys::change::{ChangePrecondition, KeyChange, KeyChangeError};
use crate::domain::keys::secret::KeyDigest;
use crate::domain::keys::{KeyId, KeyRecord};
use crate::domain::sign_in::device_request::AccessGrant;

pub(crate) use crate::domain::keys::KeyView;

pub(crate) mod archive;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod embedded;

pub(crate) mod key_cache;
pub(crate) mod ledger;
pub(crate) mod redis;
pub(crate) mod sessions;

pub(crate) mod time;

/// Maximum number of changes in the feed. A node that is further behind flushes its whole cache.
pub(crate) const FEED_CHANGES_MAX: usize = 4096;
/// Maximum number of keys on one page of a list.
pub(crate) const LIST_KEYS_MAX: usize = 1000;

/// The keys of one installation.
///
/// Every method is atomic and may be called from any number of tasks at once. If the future of a method is dropped, the store
/// stays consistent: the change has happened completely or not at all. If a change returns [`StoreError::Unavailable`], it is
/// unknown whether it happened.
#[async_trait]
pub trait KeyStore: KeyHealer {
    /// Returns the record of the key with this digest, and the store version at which it was read, in one atomic read.
    ///
    /// The caller answers 401 for `record: None`, so `None` must mean that the key does not exist. A store that is unreachable or
    /// starting, or has lost its data, returns [`StoreError::Unavailable`] (503). A wrong `None` would reject every customer as
    /// unauthorised, and clients do not retry after a 401. The returned version must not be later than the version at which the
    /// record was read. Otherwise a revoked key could stay valid in a cache until its entry expires. The digest of a key's
    /// previous secret also finds the key's record, even after that secret has expired. The caller checks the expiry with
    /// [`KeyRecord::check`]. The digest of an access token belongs to no key; its grant is in [`KeyLookup::token`].
    async fn find(&self, digest: &KeyDigest) -> Result<KeyLookup, StoreError>;

    /// Adds a key. On an error, nothing has changed. Returns [`StoreError::Duplicate`] if the digest or the id is taken. Returns
    /// [`StoreError::Deleted`] if the key is at revision 0 and a key with its id was deleted, because journals may contain later
    /// revisions of the deleted key.
    ///
    /// An acknowledged key is as durable as the engine can make it, because a key that is lost after its owner has seen it cannot
    /// be shown again.
    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError>;

    /// Returns the key with this id; `None` if there is no such key.
    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError>;

    /// Returns up to `limit` (at most [`LIST_KEYS_MAX`]) keys after `after`, ordered by creation time, then by id. Returns
    /// [`StoreError::NotFound`] if `after` no longer exists. The caller must then start again, so that it does not miss keys.
    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError>;

    /// Changes a key as [`KeyView::apply_change`] decides from its current state, and returns the key after the change. If the
    /// change would leave the key as it is, nothing is stored, and neither version nor feed advance. Returns
    /// [`StoreError::Duplicate`] if a new secret belongs to another key, or belonged to this one before. The digests of all
    /// former and current secrets of the key are added to the feed. Without an old digest, caches would still accept the old
    /// secret. Without the new digest, caches that have recorded it as unknown would refuse the new secret. An acknowledged
    /// change is durable, because losing a revocation would make a stolen key valid again.
    async fn change(&self, id: &KeyId, change: &KeyChange, from: &ChangePrecondition) -> Result<KeyView, ChangeError>;

    /// Deletes a key if it is in the state that `from` requires. The store then records only that the key was deleted. Returns
    /// the key's last state; `None` if the key was already deleted.
    async fn delete(&self, id: &KeyId, from: &ChangePrecondition) -> Result<Option<KeyView>, ChangeError>;

    /// Records when keys were last used, in seconds since the Unix epoch. The later time wins; unknown keys are ignored. This
    /// does not advance the version or the feed, because otherwise every request would flush every cache.
    async fn record_uses(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError>;

    /// Returns the digests of all changes after `version`. If a digest were missing, a revoked key would work until its cached
    /// entry expires.
    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError>;

    /// Returns a receiver whose value changes whenever the feed should be read at once. Such a change is called a nudge. A nudge
    /// may be spurious or lost, and its value has no meaning.
    fn nudges(&self) -> watch::Receiver<u64>;

    /// Whether every change currently causes a nudge. If so, the feed need not be read at other times. There is also a nudge
    /// when this becomes false.
    fn nudges_all(&self) -> bool {
        false
    }

    /// Returns those faults in the store's configuration that do not keep the store from serving.
    fn warnings(&self) -> BTreeSet<StoreWarning> {
        BTreeSet::new()
    }

    /// Returns the problems because of which the store cannot serve at all, or cannot serve some of the keys or accounts.
    fn trouble(&self) -> StoreTrouble {
        StoreTrouble::default()
    }

    /// Returns the memory use of the store; `None` if memory does not limit the store, or if the use is unknown.
    fn memory(&self) -> Option<StoreMemory> {
        None
    }

    /// Runs the store's background work, which maintains connections, until `shutdown` becomes true.
    /// [`crate::store::key_cache::KeyCache::run`] drives it. A store without background work returns at once.
    async fn run(&self, shutdown: watch::Receiver<bool>) {
        drop(shutdown);
    }
}

/// A store to which lost records of keys can be sent again.
#[async_trait]
pub trait KeyHealer: Send + Sync {
    /// Sends the store a former record of a key again, because a failover may have lost it. [`KeyRecord::merged_with`] decides
    /// which parts are used. A missing key is restored, unless it was deleted. If the store already has this record, nothing
    /// changes, and neither version nor feed advance. Returns [`StoreError::Duplicate`] if the digest belongs to another key.
    async fn heal(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError>;

    /// Records again that the key with this id was deleted at this revision, because a failover may have lost the deletion. A key
    /// at a later revision is not removed. After this or [`KeyStore::delete`], only [`KeyStore::create`] brings the key back.
    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError>;
}

/// The result of [`KeyStore::find`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLookup {
    /// The key's record; `None` if no key has this digest.
    pub record: Option<KeyRecord>,
    /// The grant of the access token with this digest; `None` if there is no such token. A token is not a key.
    #[serde(default)]
    pub token: Option<AccessGrant>,
    /// The store version at which this was read.
    pub version: u64,
}

/// The result of [`KeyStore::changes_since`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The store's current version. After a restart or a failover, it can be lower than the requested one.
    pub version: u64,
    /// The digests that the changes concern, possibly repeated. `None` if no cached entry can be trusted any more: the feed does
    /// not reach back that far, the store's version is lower than the requested one, or a different server answers.
    pub digests: Option<Vec<KeyDigest>>,
}

/// The problems that keep a store from serving, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreTrouble {
    /// Whether weir can reach a server but does not use it because of the server's configuration. Such a problem does not go away
    /// by itself.
    pub refused: bool,
    /// The problems. Each entry says where the problem occurs and how to solve it. Empty if there are no problems.
    pub details: Vec<String>,
}

/// The memory use of the store's fullest server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreMemory {
    /// Memory in use, in bytes.
    pub used: u64,
    /// The memory limit in bytes: the server's own limit, or otherwise its machine's memory.
    pub limit: u64,
}

impl StoreMemory {
    /// Returns the memory of the fuller one of two servers.
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

/// A fault in a store's configuration that does not keep it from serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreWarning {
    /// The store may evict data to make room.
    Eviction,
    /// The store has evicted data in the past.
    Evicted,
    /// The store does not write changes to disk.
    NoAppendOnlyFile,
    /// A master acknowledges changes that no replica has.
    NoMinReplicas,
    /// Two masters of a cluster have keys of the same hash slot.
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

    /// Returns the label of this warning in metrics and logs.
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

    /// Returns a message that says what is wrong and what to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Eviction => "redis may evict weir's data to free memory: set maxmemory-policy to noeviction",
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
                "the redis user lacks rights that weir needs: grant the rights that the log and /readyz name"
            }
        }
    }
}

/// The reason why a store operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum StoreError {
    /// No key has this id.
    #[error("no key has this id: `weir key list` prints all ids")]
    NotFound,
    /// The id or the digest belongs to another key.
    #[error("a key with this id or this secret already exists; generate a new key")]
    Duplicate,
    /// The id is that of a deleted key.
    #[error(
        "a key with this id was deleted, and the id cannot be used again; use another operation id, because the key's id is derived from it"
    )]
    Deleted,
    /// The store is unreachable, or cannot answer now.
    #[error("the key store is unavailable: {0}")]
    Unavailable(String),
    /// The store is reachable but overloaded: too many calls wait already.
    #[error("the key store is overloaded: {0}")]
    Busy(String),
    /// The store contains data that weir cannot have written.
    #[error("the key store contains unreadable data: {0}")]
    Corrupt(String),
}

/// The reason why a key was not changed.
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

/// The reason why a store could not be opened. Waiting and trying again does not help.
#[derive(Debug, Error)]
pub enum StoreOpenError {
    /// A setting is invalid; the message says which one.
    #[error("{0}")]
    Settings(String),
    /// Another process has the embedded store open.
    #[error("another weir process has the store {} open; stop that process first, or configure a different path", .0.display())]
    InUse(PathBuf),
    /// A restore into this folder was interrupted.
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
    /// The ledger has no accounts and was never in use, but the journal has accounts.
    #[error(
        "the ledger {} has no accounts, but the journal has {accounts}: the ledger's file was removed or replaced. \
         Either put the file back; or move the store's folder away and restore a backup into a new folder with `weir store \
         restore` (weir then adds the later changes from the journal); or continue with only the data that is still in the \
         journal: `weir store init --adopt`",
        path.display()
    )]
    Emptied {
        /// The ledger's file.
        path: PathBuf,
        /// The number of accounts in the journal.
        accounts: usize,
    },
    /// The data in the file is damaged.
    #[error("the key store {} is unreadable: {reason}; restore it from a backup", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// A description of the fault in the file's content.
        reason: String,
    },
}
