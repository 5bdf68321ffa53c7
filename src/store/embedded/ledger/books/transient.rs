//! What the accounts have in memory alone, for the next process.

use super::Books;
use crate::domain::ledger::Transient;

/// What the accounts have that no file keeps, by account.
pub(crate) type Carried = Vec<(String, Transient)>;

impl Books {
    /// What the accounts have now.
    pub(in crate::store::embedded::ledger) fn transient(&self) -> Carried {
        let accounts = self.accounts.read();
        let of = accounts
            .iter()
            .map(|(id, slot)| (id.clone(), slot.lock().account.transient()));
        of.filter(|(_, transient)| !transient.is_empty()).collect()
    }

    /// Takes over what another process has read by [`Self::transient`], for accounts that are there.
    pub(in crate::store::embedded::ledger) fn take_over(&self, carried: Carried, now_ms: i64) {
        for (account, transient) in carried {
            if let Some(slot) = self.slot(&account) {
                slot.lock().account.take_over(transient, now_ms);
            }
        }
    }
}
