//! Who has the files of the embedded store: this process, or the one that has taken its place.
//!
//! Keys and ledger have an [`Ownership`] each, and their files are in it. A call reaches them by a guard that it holds to its
//! end, so the files are closed when no call runs, and later calls wait until it is decided who has them. A call that holds a
//! guard takes no second one: between the two there may be somebody who waits for the first one to end.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::{call::Call, successor::Successor};
use crate::store::StoreError;

pub(super) mod call;
pub(crate) mod successor;

/// Who has the files `F`.
pub(super) enum Owner<F> {
    /// This process.
    Here(Arc<F>),
    /// The process that has taken this one's place. It answers what the last requests of this one need.
    At(Successor),
    /// They were closed, and could not be opened again.
    Nobody,
}

/// The files `F`, as long as they are this process's.
pub(super) struct Ownership<F>(RwLock<Owner<F>>);

impl<F> Owner<F> {
    /// Asks the successor.
    ///
    /// # Errors
    /// What the successor's store says; [`StoreError::Unavailable`] where the successor is gone, or there is none.
    pub(super) async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, StoreError> {
        match self {
            Self::At(successor) => successor.ask(call).await,
            Self::Here(_) | Self::Nobody => Err(elsewhere()),
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
    /// Of files that this process has opened.
    pub(super) fn new(files: F) -> Self {
        Self(RwLock::new(Owner::Here(Arc::new(files))))
    }

    /// Who has the files, for a call that a successor answers as well.
    pub(super) async fn owner(&self) -> RwLockReadGuard<'_, Owner<F>> {
        self.0.read().await
    }

    /// The files, for a call that only their owner answers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] where they are not this process's.
    pub(super) async fn here(&self) -> Result<RwLockReadGuard<'_, Arc<F>>, StoreError> {
        RwLockReadGuard::try_map(self.0.read().await, Owner::files).map_err(|_| elsewhere())
    }

    /// The files, without waiting; `None` where they are not this process's, or that is being decided.
    pub(super) fn here_now(&self) -> Option<RwLockReadGuard<'_, Arc<F>>> {
        RwLockReadGuard::try_map(self.0.try_read().ok()?, Owner::files).ok()
    }

    /// Waits until no call runs. Later calls wait for the guard to go.
    pub(super) async fn lock(&self) -> RwLockWriteGuard<'_, Owner<F>> {
        self.0.write().await
    }
}

/// The answer to what no successor is asked.
pub(super) fn elsewhere() -> StoreError {
    StoreError::Unavailable(
        "another weir process has taken this store over: ask that one, by running the command again".to_owned(),
    )
}
