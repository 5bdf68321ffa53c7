//! The balances that a start serves with. A store that writes behind may lack what its process had applied last: until the
//! settlers have sent that again from the journals, its balances are those of a moment before.

use std::{pin::pin, sync::Arc, time::Duration};

use crate::{journal::Journal, store::ledger::LedgerStore};

/// How long a start waits for its balances.
pub(super) const BALANCES_WAIT: Duration = Duration::from_secs(10);

/// Waits, [`BALANCES_WAIT`] at most, until the store has every step that these journals have now. Their settlers send them.
pub(crate) async fn wait_for_balances(journals: &[Arc<Journal>], store: &dyn LedgerStore) {
    if tokio::time::timeout(BALANCES_WAIT, are_settled(journals, store))
        .await
        .is_err()
    {
        tracing::warn!(
            waited_seconds = BALANCES_WAIT.as_secs(),
            "the store has not got all steps of the journal yet, and requests are admitted all the same: balances may be older \
             than what was charged"
        );
    }
}

/// Waits until the store has every step that these journals have now.
pub(super) async fn are_settled(journals: &[Arc<Journal>], store: &dyn LedgerStore) {
    for journal in journals {
        for (account, last) in journal.last_steps() {
            has_step(journal, store, &account, last).await;
        }
    }
}

/// Waits until the store has applied a step of an account. What the journal knows to be acknowledged says nothing: the store may
/// have forgotten it.
async fn has_step(journal: &Journal, store: &dyn LedgerStore, account: &str, step: u64) {
    let is_there = async || {
        let applied = store.watermark(journal.node(), account).await;
        applied.is_ok_and(|applied| applied >= step)
    };
    if is_there().await {
        return;
    }
    let acknowledgements = journal.acknowledgements(account);
    loop {
        let mut acknowledged = pin!(acknowledgements.notified());
        // From here on nothing is missed.
        acknowledged.as_mut().enable();
        if is_there().await {
            return;
        }
        acknowledged.await;
    }
}
