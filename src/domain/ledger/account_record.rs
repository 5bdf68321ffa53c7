//! The record of an account: its settings by operators.

use serde::{Deserialize, Serialize};

use crate::domain::{keys::terms::AccountTerms, version::Version};

/// The settings of an account. A store replaces them as a whole, and only if its record is the one that the change was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// The number of changes; 0 for an account on which nothing was set.
    pub revision: u64,
    /// Whether all requests are refused.
    pub suspended: bool,
    /// The account's limits.
    pub terms: AccountTerms,
}

impl AccountRecord {
    /// The record with these limits and this state, one revision later unless nothing changes.
    #[must_use]
    pub(crate) fn with_terms(&self, terms: AccountTerms, suspended: bool) -> Self {
        if (terms, suspended) == (self.terms, self.suspended) {
            return *self;
        }
        Self {
            revision: self.revision.saturating_add(1),
            suspended,
            terms,
        }
    }

    /// The record that a store with this record keeps when a journal reports the record `told`; `None` if it keeps its own. The
    /// higher revision wins. At the same revision a suspension wins: a failover has lost one of two changes.
    pub(crate) fn healed(&self, told: &Self) -> Option<Self> {
        if told.revision > self.revision {
            return Some(*told);
        }
        // Neither side had this combination, so it gets a new revision.
        let is_suspended = told.revision == self.revision && told.suspended && !self.suspended;
        is_suspended.then(|| self.with_terms(self.terms, true))
    }

    /// The version that operators name so as to change exactly this record.
    pub(crate) fn version(&self) -> Version {
        let content = serde_json::to_vec(&(self.suspended, &self.terms)).unwrap_or_default();
        Version::new(self.revision, crc32fast::hash(&content))
    }
}

#[cfg(test)]
pub(crate) mod tests;
