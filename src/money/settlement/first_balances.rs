//! The balances at a start: a store that writes behind may lack the last steps that it had applied before a crash.

use std::{pin::pin, sync::Arc, time::Duration};

use crate::{journal::Journal, store::ledger::LedgerStore};

/// The maximum time that a start waits for [`wait_for_balances`].
pub(super) const BALANCES_WAIT: Duration = Duration::from_secs(10);

/// Waits at most [`BALANCES_WAIT`] until the store has every step that these journals have now; their settlers send them.
/// A store that writes behind may have lost the last steps that it had applied: until they are sent again, its balances are
/// slightly out of date.
pub(crate) async fn wait_for_balances(journals: &[Arc<Journal>], store: &dyn LedgerStore) {
    if tokio::time::timeout(BALANCES_WAIT, wait_until_settled(journals, store))
        .await
        .is_err()
    {
        tracing::warn!(
            waited_seconds = BALANCES_WAIT.as_secs(),
            "the store does not have all steps of the journal yet; requests are admitted anyway, and balances may lack the last \
             charges"
        );
    }
}

/// Waits until the store has every step that these journals have now.
pub(super) async fn wait_until_settled(journals: &[Arc<Journal>], store: &dyn LedgerStore) {
    for journal in journals {
        for (account, last) in journal.last_steps() {
            wait_for_step(journal, store, &account, last).await;
        }
    }
}

/// Waits until the store has applied a step of an account. An acknowledgement in the journal is not enough: the store may have
/// lost the step since.
async fn wait_for_step(journal: &Journal, store: &dyn LedgerStore, account: &str, step: u64) {
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
        // From here on no acknowledgement is missed.
        acknowledged.as_mut().enable();
        if is_there().await {
            return;
        }
        acknowledged.await;
    }
}
