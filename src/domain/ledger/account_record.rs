//! The record of an account: what operators set of it.

use serde::{Deserialize, Serialize};

use crate::domain::{keys::terms::AccountTerms, version::Version};

/// What operators set of an account. A store replaces it as a whole, and only the one that the new one was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// How often it has changed; 0 for an account of which nothing was set.
    pub revision: u64,
    /// No request is admitted.
    pub suspended: bool,
    /// The account's limits.
    pub terms: AccountTerms,
}

impl AccountRecord {
    /// The record with these limits and this state, one revision later unless they are the ones that it has.
    #[must_use]
    pub(crate) fn with(&self, terms: AccountTerms, suspended: bool) -> Self {
        if (terms, suspended) == (self.terms, self.suspended) {
            return *self;
        }
        Self {
            revision: self.revision.saturating_add(1),
            suspended,
            terms,
        }
    }

    /// What a store that has this record holds once it is told that the record was `told`; `None`: it stays as it is. The higher
    /// revision wins. At the same revision a suspension wins: a failover has lost one of two changes.
    pub(crate) fn healed(&self, told: &Self) -> Option<Self> {
        if told.revision > self.revision {
            return Some(*told);
        }
        // Neither side has had this combination, so it gets a revision that neither has.
        let is_suspended = told.revision == self.revision && told.suspended && !self.suspended;
        is_suspended.then(|| self.with(self.terms, true))
    }

    /// The version that operators name to change this record and no other.
    pub(crate) fn version(&self) -> Version {
        let content = serde_json::to_vec(&(self.suspended, &self.terms)).unwrap_or_default();
        Version::new(self.revision, crc32fast::hash(&content))
    }
}

#[cfg(test)]
pub(crate) mod tests;
