//! Admissions whose answer did not come: the store may have put a hold that nobody knows of, and that the node's lease would
//! keep alive. When the store is there again each is ended by a step, which does no harm where there is no hold.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    clock,
    domain::{
        key::KeyId,
        ledger::{Admit, Change, Settlement},
        money::NanoUsd,
    },
    journal::{Journal, JournalError, STEP_BYTES_MAX},
};

/// The most that are looked after. While the store is away few calls reach it.
const DOUBTS_MAX: usize = 10_000;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Uncertain {
    doubts: Mutex<Vec<Doubt>>,
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
        self.lock().extend(doubts);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Doubt>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doubt {
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
        let mut doubts = self.uncertain.lock();
        if doubts.len() < DOUBTS_MAX {
            doubts.push(Doubt {
                account: ask.key.account.clone(),
                key: ask.key.id.clone(),
                request: ask.request.clone(),
            });
        }
    }
}
