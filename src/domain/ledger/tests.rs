//! Records of accounts, and what becomes of two of them.

use proptest::prelude::*;

use super::*;
use crate::domain::{
    keys::terms::{ProviderState, RateLimits, Thresholds},
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
            rates: RateLimits { rpm, tpm, concurrency },
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
    assert_eq!(record.with_terms(record.terms, false), record);
    let suspended = record.with_terms(record.terms, true);
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
