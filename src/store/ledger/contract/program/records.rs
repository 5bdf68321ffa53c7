//! The part of a random program in which operators set records, based on a record that they have read: the current or an earlier
//! one.

use rand::RngExt;

use super::{ACCOUNTS, Program};
use crate::domain::{
    keys::terms::{AccountTerms, ProviderState, Thresholds},
    ledger::AccountRecord,
};

impl Program<'_> {
    /// Sets a record with other terms or another state, based on one of the last records that an operator has read. If that one
    /// is outdated, nothing changes. Suspended accounts are mostly resumed, so that the program does not run out of active ones.
    pub(super) async fn set_terms(&mut self, what: &str) {
        let account = usize::from(self.one_of(3));
        let is_earlier = self.chance(20);
        let seen = &self.records[account];
        let from = seen[seen.len() - 1 - usize::from(is_earlier && seen.len() > 1)];
        let (terms, suspended) = if self.chance(25) {
            (from.terms, !from.suspended)
        } else {
            let any = self.chance(30);
            let terms = AccountTerms {
                low_balance: None,
                provider_state: if any { ProviderState::Any } else { ProviderState::Own },
                notify: Thresholds::of([50, 90]).ok().filter(|_| self.chance(30)),
                rates: self.rates(),
            };
            (terms, from.suspended && self.chance(30))
        };
        let to = from.with_terms(terms, suspended);
        let expected = self.model.set_terms(ACCOUNTS[account], &from, &to);
        let given = self.fixture.store.set_terms(ACCOUNTS[account], &from, &to).await;
        assert_eq!(given, Ok(expected), "{what}: {from:?}, {to:?}");
        self.see(account, expected.then_some(to)).await;
    }

    /// Stores the record that was set, or otherwise the current record, as read by an operator.
    async fn see(&mut self, account: usize, set: Option<AccountRecord>) {
        let record = match set {
            Some(record) => record,
            None => {
                let view = self.fixture.store.account(ACCOUNTS[account]).await.unwrap();
                view.map(|view| view.record).unwrap_or_default()
            }
        };
        self.records[account].push(record);
    }

    /// Makes every node send the records that it has set to the store again, in any order, as after a failover.
    pub(super) async fn tell_records_again(&mut self) {
        for (account, seen) in ACCOUNTS.into_iter().zip(&self.records) {
            let mut told = seen.clone();
            if self.rng.random() {
                told.reverse();
            }
            for record in told {
                self.fixture.store.heal_terms(account, &record).await.unwrap();
            }
        }
    }
}
