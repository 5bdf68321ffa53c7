//! Unconfirmed holds: an admission without an answer may have left a hold in the store, which the node's lease would
//! keep alive. Once the store is reachable again, a step ends each of them; the step does no harm if there is no hold.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    clock,
    domain::{
        key::KeyId,
        ledger::{Admit, Change, Settlement},
        money::NanoUsd,
    },
    journal::{Journal, JournalError, STEP_BYTES_MAX},
};

/// The most unconfirmed holds kept. Further ones are dropped and last as long as the node's lease.
const DOUBTS_MAX: usize = 10_000;

/// All unconfirmed holds of this node.
#[derive(Debug, Default)]
pub(super) struct Uncertain {
    doubts: Mutex<Vec<Doubt>>,
    lost: AtomicU64,
}

/// A hold that may exist in the store.
#[derive(Debug)]
pub(super) struct Doubt {
    account: String,
    key: KeyId,
    request: String,
}

/// A running call to the ledger. If it is dropped before it is settled, its hold is unconfirmed.
pub(super) struct Asking<'a> {
    uncertain: &'a Uncertain,
    ask: Option<&'a Admit>,
}

impl Uncertain {
    /// Marks the start of a call.
    pub(super) fn begin<'a>(&'a self, ask: &'a Admit) -> Asking<'a> {
        Asking {
            uncertain: self,
            ask: Some(ask),
        }
    }

    /// Takes all unconfirmed holds out.
    pub(super) fn take(&self) -> Vec<Doubt> {
        std::mem::take(&mut *self.lock())
    }

    /// Puts back the ones that could not be ended.
    pub(super) fn put_back(&self, doubts: Vec<Doubt>) {
        let mut all = self.lock();
        for doubt in doubts {
            self.add(&mut all, doubt);
        }
    }

    /// How many were dropped because there were too many.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn add(&self, all: &mut Vec<Doubt>, doubt: Doubt) {
        if all.len() < DOUBTS_MAX {
            all.push(doubt);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Doubt>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doubt {
    /// The account of the hold.
    pub(super) fn account(&self) -> &str {
        &self.account
    }

    /// Ends the hold, if it exists, by a step in the journal.
    pub(super) fn end(&self, journal: &Journal) -> Result<(), JournalError> {
        let settlement = Settlement {
            request: self.request.clone(),
            key: self.key.clone(),
            at_ms: clock::unix_millis(),
            tokens_estimated: 0,
            tokens_used: 0,
            cost: NanoUsd::ZERO,
            row: None,
        };
        let mut reservation = journal.reserve(STEP_BYTES_MAX)?;
        let change = Change::Settle(Box::new(settlement));
        journal
            .append_step(&self.account, change, 0, &mut reservation)
            .map(drop)
    }
}

impl Asking<'_> {
    /// The call's result is known.
    pub(super) fn settled(mut self) {
        self.ask = None;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(ask) = self.ask else { return };
        let doubt = Doubt {
            account: ask.key.account.clone(),
            key: ask.key.id.clone(),
            request: ask.request.clone(),
        };
        self.uncertain.add(&mut self.uncertain.lock(), doubt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ledger::contract::key_id;

    #[test]
    fn doubts_are_bounded_and_those_beyond_it_are_counted() {
        let uncertain = Uncertain::default();
        let doubt = |number: usize| Doubt {
            account: "acme".to_owned(),
            key: key_id(1),
            request: format!("r{number}"),
        };
        uncertain.put_back((0..DOUBTS_MAX).map(doubt).collect());
        assert_eq!(uncertain.lost(), 0);
        uncertain.put_back(vec![doubt(DOUBTS_MAX)]);
        assert_eq!((uncertain.lost(), uncertain.take().len()), (1, DOUBTS_MAX));
    }
}
