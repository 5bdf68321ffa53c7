//! Admissions whose answer did not come: the store may have put a hold that nobody knows of, and that the node's lease would
//! keep alive. When the store is there again each is ended by a step, which does no harm where there is no hold.

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

/// The most that are looked after; further ones are lost, and their holds last as long as the node's lease. While the store is
/// away few calls reach it.
const DOUBTS_MAX: usize = 10_000;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Uncertain {
    doubts: Mutex<Vec<Doubt>>,
    lost: AtomicU64,
}

/// A hold that may be there.
#[derive(Debug)]
pub(super) struct Doubt {
    account: String,
    key: KeyId,
    request: String,
}

/// A question to the ledger. Dropped before it is settled, its hold is in doubt.
pub(super) struct Asking<'a> {
    uncertain: &'a Uncertain,
    ask: Option<&'a Admit>,
}

impl Uncertain {
    /// A question is about to be asked.
    pub(super) fn begin<'a>(&'a self, ask: &'a Admit) -> Asking<'a> {
        Asking {
            uncertain: self,
            ask: Some(ask),
        }
    }

    /// Takes all of them.
    pub(super) fn take(&self) -> Vec<Doubt> {
        std::mem::take(&mut *self.lock())
    }

    /// They are still in doubt.
    pub(super) fn put_back(&self, doubts: Vec<Doubt>) {
        let mut all = self.lock();
        for doubt in doubts {
            self.add(&mut all, doubt);
        }
    }

    /// How many were lost, because there were too many.
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
    /// Whose hold it is.
    pub(super) fn account(&self) -> &str {
        &self.account
    }

    /// Ends the hold, if it is there.
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
    /// It is known what became of it.
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
