//! What operators set of an account.

use super::*;

#[test]
fn a_suspended_account_admits_nothing_until_it_is_resumed() {
    let mut account = with_balance(100);
    let from = account.record();
    let suspended = from.with_terms(from.terms, true);
    assert!(account.set_terms(&from, &suspended));
    assert_eq!(
        denied(account.admit(&ask("a", 1, KeyTerms::default()), NOON)),
        Denial::AccountSuspended
    );
    assert!(
        !account.set_terms(&from, &AccountRecord { revision: 9, ..from }),
        "it is another one by now"
    );
    assert!(account.set_terms(&suspended, &suspended.with_terms(from.terms, false)));
    assert_eq!(hold(&account.admit(&ask("a", 1, KeyTerms::default()), NOON)), 1);
}
