//! Background work: checkpoints in the journal, renewal of holds at the ledger, ending unconfirmed holds, and the calls about
//! leases.

use std::collections::HashMap;

use crate::{edges::clock, money::billing::engine::BillingEngine};

impl BillingEngine {
    /// Writes checkpoints while something is consumed. Never returns.
    pub(super) async fn keep_checkpoints(&self) {
        loop {
            let due = self.running.next_checkpoint().await;
            tokio::time::sleep_until(due.into()).await;
            self.checkpoint();
        }
    }

    /// Writes a checkpoint of all requests that have consumed something since the last one.
    pub(super) fn checkpoint(&self) {
        self.running.on_checkpoint(clock::instant());
        for _ in 0..self.journal.record_checkpoints(&self.running.take_changed()) {
            self.counters.record_failure();
        }
    }

    /// Renews the holds, then ends the unconfirmed ones wherever the ledger is reachable. The others stay unconfirmed.
    pub(super) async fn renew(&self) {
        let accounts: Vec<String> = self.running.by_account().into_keys().map(String::from).collect();
        let unconfirmed = self.unconfirmed.take_all();
        let renewed = self.ledger.renew(&self.node, &accounts).await;
        if let Err(error) = &renewed {
            tracing::debug!(%error, "the holds of running requests could not be renewed everywhere");
        }
        let mut there = HashMap::new();
        let mut open = Vec::new();
        for hold in unconfirmed {
            let is_there = match there.get(hold.account()) {
                Some(is_there) => *is_there,
                None => {
                    // One part of the ledger may be unreachable and another not.
                    let account = [hold.account().to_owned()];
                    let is_there = renewed.is_ok() || self.ledger.renew(&self.node, &account).await.is_ok();
                    let [account] = account;
                    there.insert(account, is_there);
                    is_there
                }
            };
            if is_there && hold.end(&self.journal).is_ok() {
                continue;
            }
            if is_there {
                self.counters.record_failure();
            }
            open.push(hold);
        }
        self.unconfirmed.put_back(open);
    }
}
