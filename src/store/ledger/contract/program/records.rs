//! The records that operators set, based on what they have seen: the current record, or an earlier one.

use rand::RngExt;

use super::{ACCOUNTS, Program};
use crate::domain::{
    keys::terms::{AccountTerms, ProviderState, Thresholds},
    ledger::AccountRecord,
};

impl Program<'_> {
    /// One of the last records that somebody has seen, with other terms or another state. An outdated one changes nothing.
    /// Suspended accounts are mostly resumed, so that the program does not run out of them.
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

    /// Records what was set, or else the current record.
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

    /// Every node repeats to the store what it has set, in any order, as after a failover.
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
