//! The operations on a balance that an account remembers, and its payments by day and month.
//!
//! An account remembers the last [`OPERATIONS_MAX`] operations, in the order in which they were applied. A remembered operation
//! that is repeated, by any node and with any amount, has no effect; a forgotten one counts as new.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::domain::{ledger::operation_id::OperationId, money::NanoUsd};

/// The number of operations that an account remembers.
pub(crate) const OPERATIONS_MAX: usize = 1000;

/// An operation and its amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedOperation {
    /// The operation's id.
    pub id: OperationId,
    /// The amount added to the balance; negative if it was subtracted.
    pub amount: NanoUsd,
}

/// The last operations on an account's balance, for recognising repeated ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations(VecDeque<RecordedOperation>);

impl Operations {
    /// Remembers an operation and returns whether it is new. A change without an id is always new.
    pub(super) fn record(&mut self, id: Option<&OperationId>, amount: NanoUsd) -> bool {
        let Some(id) = id else { return true };
        if self.amount(id).is_some() {
            return false;
        }
        self.0.push_back(RecordedOperation { id: id.clone(), amount });
        if self.0.len() > OPERATIONS_MAX {
            self.0.pop_front();
        }
        true
    }

    /// The amount of a remembered operation.
    pub(crate) fn amount(&self, id: &OperationId) -> Option<NanoUsd> {
        // There are few operations, and lookups are rare.
        self.0.iter().find(|one| one.id == *id).map(|one| one.amount)
    }

    /// All remembered operations, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RecordedOperation> {
        self.0.iter()
    }
}

impl FromIterator<RecordedOperation> for Operations {
    fn from_iter<I: IntoIterator<Item = RecordedOperation>>(recorded: I) -> Self {
        Self(recorded.into_iter().collect())
    }
}
