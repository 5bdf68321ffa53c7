//! The accounts that this process knows to be in the list of accounts, so that not every change needs two round trips.

use std::collections::HashSet;

use parking_lot::Mutex;

/// How many are remembered. Beyond it all are forgotten, and entered again.
const ENTERED_MAX: usize = 100_000;

/// The accounts that were entered in one epoch of the store; in the next one they may be gone again.
#[derive(Default)]
pub(super) struct Entered(Mutex<(u64, HashSet<String>)>);

impl Entered {
    pub(super) fn has(&self, account: &str, epoch: u64) -> bool {
        let entered = self.0.lock();
        entered.0 == epoch && entered.1.contains(account)
    }

    pub(super) fn note(&self, account: &str, epoch: u64) {
        let mut entered = self.0.lock();
        if entered.0 != epoch || entered.1.len() >= ENTERED_MAX {
            *entered = (epoch, HashSet::new());
        }
        entered.1.insert(account.to_owned());
    }
}
