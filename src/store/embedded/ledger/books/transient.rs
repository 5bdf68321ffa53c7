//! The state that accounts have only in memory, for the next process.

use super::AccountTable;
use crate::domain::ledger::VolatileState;

/// The state of accounts that no file keeps, by account.
pub(crate) type HandoverState = Vec<(String, VolatileState)>;

impl AccountTable {
    /// The current state of the accounts.
    pub(in crate::store::embedded::ledger) fn handover_state(&self) -> HandoverState {
        let accounts = self.accounts.read();
        let of = accounts
            .iter()
            .map(|(id, slot)| (id.clone(), slot.lock().account.volatile_state()));
        of.filter(|(_, transient)| !transient.is_empty()).collect()
    }

    /// Takes over the state that another process has read by [`Self::transient`], for accounts that exist.
    pub(in crate::store::embedded::ledger) fn take_over(&self, carried: HandoverState, now_ms: i64) {
        for (account, transient) in carried {
            if let Some(slot) = self.slot(&account) {
                slot.lock().account.restore_volatile_state(transient, now_ms);
            }
        }
    }
}
