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
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::{
        keys::{
            terms::{ProviderState, Rates},
            thresholds::Thresholds,
        },
        money::NanoUsd,
    };

    fn terms() -> impl Strategy<Value = AccountTerms> {
        let some = || prop::option::of(0..5_u64);
        (
            prop::option::of(-3..3_i64),
            any::<bool>(),
            any::<bool>(),
            some(),
            some(),
            some(),
        )
            .prop_map(|(low, any_state, notify, rpm, tpm, concurrency)| AccountTerms {
                low_balance: low.map(NanoUsd::from_nanos),
                provider_state: if any_state {
                    ProviderState::Any
                } else {
                    ProviderState::Own
                },
                notify: Thresholds::of([50, 90]).ok().filter(|_| notify),
                rates: Rates { rpm, tpm, concurrency },
            })
    }

    /// Any record.
    pub(crate) fn record() -> impl Strategy<Value = AccountRecord> {
        (0..4_u64, any::<bool>(), terms()).prop_map(|(revision, suspended, terms)| AccountRecord {
            revision,
            suspended,
            terms,
        })
    }

    #[test]
    fn what_is_set_already_is_no_later_revision() {
        let record = AccountRecord::default();
        assert_eq!(record.with(record.terms, false), record);
        let suspended = record.with(record.terms, true);
        assert_eq!((suspended.revision, suspended.suspended), (1, true));
    }

    proptest! {
        #[test]
        fn the_higher_revision_wins_and_at_the_same_one_a_suspension(held in record(), told in record()) {
            let after = held.healed(&told).unwrap_or(held);
            prop_assert!(after.revision >= held.revision.max(told.revision));
            if told.revision > held.revision {
                prop_assert_eq!(after, told);
            } else if told.revision < held.revision {
                prop_assert_eq!(after, held);
            } else {
                prop_assert_eq!(after.suspended, held.suspended || told.suspended);
                prop_assert_eq!(after.terms, held.terms);
            }
            prop_assert_eq!(after.healed(&told), None, "told again it is no news");
            prop_assert_eq!(after.healed(&held), None);
        }

        #[test]
        fn a_version_is_of_one_record(one in record(), other in record()) {
            prop_assert_eq!(one.version() == other.version(), one == other);
        }
    }
}
