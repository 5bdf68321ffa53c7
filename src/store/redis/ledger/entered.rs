//! The accounts that this process knows to be in the index.

use std::collections::HashSet;

use parking_lot::Mutex;

/// How many accounts are remembered. Beyond that all are forgotten, and entered again.
const ENTERED_MAX: usize = 100_000;

/// The accounts that this process has entered into the index in one epoch of the store, so that not every change needs two
/// round trips. In the next epoch they may be missing again.
#[derive(Default)]
pub(super) struct KnownAccounts(Mutex<(u64, HashSet<String>)>);

impl KnownAccounts {
    pub(super) fn contains(&self, account: &str, epoch: u64) -> bool {
        let entered = self.0.lock();
        entered.0 == epoch && entered.1.contains(account)
    }

    pub(super) fn insert(&self, account: &str, epoch: u64) {
        let mut entered = self.0.lock();
        if entered.0 != epoch || entered.1.len() >= ENTERED_MAX {
            *entered = (epoch, HashSet::new());
        }
        entered.1.insert(account.to_owned());
    }
}
