//! The owner of the embedded store's files: this process, or the one that has taken its place.
//!
//! Keys and ledger each have an [`Ownership`], which contains their files. A call reaches them through a guard that it holds
//! to its end, so that the files are closed only when no call runs, and later calls wait until the new owner is decided. A
//! call that holds a guard must not take a second one: somebody who waits for the first one to end may be queued between the
//! two.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::{call::SuccessorCall, successor::Successor};
use crate::store::StoreError;

pub(super) mod call;
pub(crate) mod successor;

/// The owner of the files `F`.
pub(super) enum FilesOwner<F> {
    /// This process.
    Here(Arc<F>),
    /// The process that has taken this one's place. It answers the calls that this one's last requests need.
    At(Successor),
    /// They were closed, and could not be opened again.
    Nobody,
}

/// The files `F` and their owner.
pub(super) struct Ownership<F>(RwLock<FilesOwner<F>>);

impl<F> FilesOwner<F> {
    /// Forwards a call to the successor.
    ///
    /// # Errors
    /// The error of the successor's store; [`StoreError::Unavailable`] if the successor is gone, or if there is none.
    pub(super) async fn forward<T: DeserializeOwned>(&self, call: &SuccessorCall) -> Result<T, StoreError> {
        match self {
            Self::At(successor) => successor.call(call).await,
            Self::Here(_) | Self::Nobody => Err(not_owner_error()),
        }
    }

    fn files(&self) -> Option<&Arc<F>> {
        match self {
            Self::Here(files) => Some(files),
            Self::At(_) | Self::Nobody => None,
        }
    }
}

impl<F> Ownership<F> {
    /// For files that this process has opened.
    pub(super) fn new(files: F) -> Self {
        Self(RwLock::new(FilesOwner::Here(Arc::new(files))))
    }

    /// The owner, for a call that a successor answers as well.
    pub(super) async fn owner(&self) -> RwLockReadGuard<'_, FilesOwner<F>> {
        self.0.read().await
    }

    /// The files, for a call that only their owner answers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if they are not this process's.
    pub(super) async fn here(&self) -> Result<RwLockReadGuard<'_, Arc<F>>, StoreError> {
        RwLockReadGuard::try_map(self.0.read().await, FilesOwner::files).map_err(|_| not_owner_error())
    }

    /// The files, without waiting; `None` if they are not this process's, or if that is being decided.
    pub(super) fn here_now(&self) -> Option<RwLockReadGuard<'_, Arc<F>>> {
        RwLockReadGuard::try_map(self.0.try_read().ok()?, FilesOwner::files).ok()
    }

    /// Waits until no call runs. Later calls wait until the guard is dropped.
    pub(super) async fn lock(&self) -> RwLockWriteGuard<'_, FilesOwner<F>> {
        self.0.write().await
    }
}

/// The error of a call that only the owner of the files answers.
pub(super) fn not_owner_error() -> StoreError {
    StoreError::Unavailable(
        "another weir process has taken over this store: run the command again to reach that one".to_owned(),
    )
}
