//! Unconfirmed holds: an admission without an answer may have left a hold in the store, which the node's renewals keep alive.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use smol_str::SmolStr;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{AccountChange, AdmitCall, Settlement},
    },
    edges::clock,
    journal::{Journal, JournalError, STEP_BYTES_MAX},
};

/// Maximum number of unconfirmed holds remembered. Further ones are dropped and last until they expire at the store.
const UNCONFIRMED_MAX: usize = 10_000;

/// The unconfirmed holds of this node: an admission without an answer may have left a hold in the store, which the node's
/// renewals keep alive. Once the store is reachable again, a step ends each of them; it does no harm if there is no hold.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedHolds {
    holds: Mutex<Vec<UnconfirmedHold>>,
    lost: AtomicU64,
}

/// A hold that may exist in the store.
#[derive(Debug)]
pub(super) struct UnconfirmedHold {
    account: SmolStr,
    key: KeyId,
    request: SmolStr,
}

/// A running admission at the ledger. If this is dropped before [`Asking::settled`], its hold is unconfirmed.
pub(super) struct AdmitCallGuard<'a> {
    all: &'a UnconfirmedHolds,
    ask: Option<&'a AdmitCall>,
}

impl UnconfirmedHolds {
    /// Marks the start of a call.
    pub(super) fn begin<'a>(&'a self, ask: &'a AdmitCall) -> AdmitCallGuard<'a> {
        AdmitCallGuard {
            all: self,
            ask: Some(ask),
        }
    }

    /// Removes and returns all unconfirmed holds.
    pub(super) fn take_all(&self) -> Vec<UnconfirmedHold> {
        std::mem::take(&mut *self.holds.lock())
    }

    /// Puts back holds that could not be ended.
    pub(super) fn put_back(&self, holds: Vec<UnconfirmedHold>) {
        let mut all = self.holds.lock();
        for hold in holds {
            self.add(&mut all, hold);
        }
    }

    /// The number of holds that were dropped because there were too many.
    pub(super) fn dropped(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn add(&self, all: &mut Vec<UnconfirmedHold>, hold: UnconfirmedHold) {
        if all.len() < UNCONFIRMED_MAX {
            all.push(hold);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl UnconfirmedHold {
    /// The account of the hold.
    pub(super) fn account(&self) -> &str {
        &self.account
    }

    /// Ends the hold, if it exists, by a step in the journal.
    pub(super) fn end(&self, journal: &Journal) -> Result<(), JournalError> {
        let (request, key) = (self.request.clone(), self.key.clone());
        let settlement = Settlement::without_charge(request, key, clock::unix_millis(), 0);
        let mut reservation = journal.reserve(STEP_BYTES_MAX)?;
        let change = AccountChange::Settle(Box::new(settlement));
        journal
            .append_step(&self.account, change, 0, &mut reservation)
            .map(drop)
    }
}

impl AdmitCallGuard<'_> {
    /// The call's result is known: no unconfirmed hold is left.
    pub(super) fn disarm(mut self) {
        self.ask = None;
    }
}

impl Drop for AdmitCallGuard<'_> {
    fn drop(&mut self) {
        let Some(ask) = self.ask else { return };
        let hold = UnconfirmedHold {
            account: ask.key.account.clone(),
            key: ask.key.id.clone(),
            request: ask.request.clone(),
        };
        self.all.add(&mut self.all.holds.lock(), hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ledger::contract::key_id;

    #[test]
    fn unconfirmed_holds_are_bounded_and_those_beyond_it_are_counted() {
        let unconfirmed = UnconfirmedHolds::default();
        let hold = |number: usize| UnconfirmedHold {
            account: "acme".into(),
            key: key_id(1),
            request: format!("r{number}").into(),
        };
        unconfirmed.put_back((0..UNCONFIRMED_MAX).map(hold).collect());
        assert_eq!(unconfirmed.dropped(), 0);
        unconfirmed.put_back(vec![hold(UNCONFIRMED_MAX)]);
        assert_eq!(
            (unconfirmed.dropped(), unconfirmed.take_all().len()),
            (1, UNCONFIRMED_MAX)
        );
    }
}
