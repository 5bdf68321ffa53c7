//! The operations on a balance that an account remembers: the last [`OPERATIONS_MAX`] of them, in the order in which they
//! were applied. One that is remembered and comes again, from whichever node, has no effect, whatever its amount; one that is
//! forgotten counts as new.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::domain::{ledger::operation_id::OperationId, money::NanoUsd};

/// How many operations an account remembers.
pub(crate) const OPERATIONS_MAX: usize = 1000;

/// An operation and what it added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// The operation's id.
    pub id: OperationId,
    /// What it added to the balance; negative: what it took.
    pub amount: NanoUsd,
}

/// The last operations on an account's balance, for recognising repeated ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations(VecDeque<Recorded>);

impl Operations {
    /// Notes an operation and says whether it is new. What has no id is always new.
    pub(super) fn note(&mut self, id: Option<&OperationId>, amount: NanoUsd) -> bool {
        let Some(id) = id else { return true };
        if self.amount(id).is_some() {
            return false;
        }
        self.0.push_back(Recorded { id: id.clone(), amount });
        if self.0.len() > OPERATIONS_MAX {
            self.0.pop_front();
        }
        true
    }

    /// What a remembered operation added.
    pub(crate) fn amount(&self, id: &OperationId) -> Option<NanoUsd> {
        // They are few, and seldom asked for.
        self.0.iter().find(|one| one.id == *id).map(|one| one.amount)
    }

    /// All of them, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Recorded> {
        self.0.iter()
    }
}

impl FromIterator<Recorded> for Operations {
    fn from_iter<I: IntoIterator<Item = Recorded>>(recorded: I) -> Self {
        Self(recorded.into_iter().collect())
    }
}
