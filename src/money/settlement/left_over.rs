//! Settles the requests that an ended process left open in its journal, before anything else is written there.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use smol_str::SmolStr;

use crate::{
    domain::ledger::{
        AccountChange, AdmittedRequest, Checkpoint, NodeId, Settlement, settlement_after_crash, settlement_of_charged,
    },
    journal::{Journal, JournalError, OpenedJournal, STEP_BYTES_MAX, UncertainSettlement},
    store::ledger::LedgerStore,
};

/// The timeout for reading a watermark from the store.
const WATERMARK_TIMEOUT: Duration = Duration::from_millis(500);

/// The timeout for ending the holds of these requests at the store.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// Charges the requests that are still open in a journal that was just opened, and ends their holds.
///
/// # Errors
/// As for [`settle_left_over`].
pub(crate) async fn charge_left_over(
    opened: OpenedJournal,
    ledger: &dyn LedgerStore,
) -> Result<Arc<Journal>, JournalError> {
    let OpenedJournal {
        journal,
        unsettled,
        possibly_settled,
        lessees,
    } = opened;
    let mut cut: BTreeSet<(NodeId, SmolStr)> = unsettled
        .iter()
        .map(|(admitted, _)| {
            let holder = admitted.lease.as_ref().map_or(journal.node(), |lease| &lease.holder);
            (holder.clone(), admitted.row.account.clone())
        })
        .collect();
    cut.extend(lessees);
    settle_left_over(&journal, unsettled)?;
    if !possibly_settled.is_empty() {
        settle_possibly_settled(&journal, ledger, possibly_settled).await?;
    }
    release(ledger, &cut).await;
    Ok(journal)
}

/// Ends the holds of requests that died with their process, and the leases that they were admitted from. The nodes in `cut`
/// hold nothing for other requests yet.
async fn release(ledger: &dyn LedgerStore, cut: &BTreeSet<(NodeId, SmolStr)>) {
    let all = join_all(cut.iter().map(|(node, account)| ledger.release(node, account)));
    match tokio::time::timeout(RELEASE_TIMEOUT, all).await {
        Ok(ended) if ended.iter().all(Result::is_ok) => {}
        // Their settlements end them as well.
        Ok(_) | Err(_) => {
            tracing::debug!("the holds of requests that ended with their process could not be ended at once")
        }
    }
}

/// Settles requests by what the journal has of each. Call it once, before anything is admitted.
///
/// # Errors
/// The journal is full. The next start finds the requests that are not settled yet.
pub(super) fn settle_left_over(
    journal: &Journal,
    unsettled: Vec<(AdmittedRequest, Option<Checkpoint>)>,
) -> Result<u64, JournalError> {
    let mut count = 0;
    for (admitted, checkpoint) in unsettled {
        let account = admitted.row.account.clone();
        settle(journal, &account, settlement_after_crash(admitted, checkpoint))?;
        count += 1;
    }
    Ok(count)
}

/// Settles requests whose settlement may be in a damaged part of the journal. A request that the store has charged, or may have
/// charged because it cannot be asked, is not charged again; a lost step is reported when it is skipped.
///
/// # Errors
/// As for [`settle_left_over`].
pub(super) async fn settle_possibly_settled(
    journal: &Journal,
    store: &dyn LedgerStore,
    possibly_settled: Vec<UncertainSettlement>,
) -> Result<(), JournalError> {
    let told = possibly_settled.into_iter().map(|one| async move {
        let account = &one.request.0.row.account;
        let asked = tokio::time::timeout(WATERMARK_TIMEOUT, store.watermark(journal.node(), account)).await;
        let charged = asked
            .ok()
            .and_then(Result::ok)
            .is_none_or(|applied| applied >= one.step);
        (one.request, charged)
    });
    let (mut charged, mut lost) = (0_u64, Vec::new());
    for (request, was_charged) in join_all(told).await {
        if was_charged {
            let account = request.0.row.account.clone();
            settle(journal, &account, settlement_of_charged(request.0))?;
            charged += 1;
        } else {
            lost.push(request);
        }
    }
    let charged_now = settle_left_over(journal, lost)?;
    if charged + charged_now > 0 {
        tracing::warn!(
            charged,
            charged_now,
            "requests with their settlements in a damaged part of the journal: `charged` were most likely charged by the store, `charged_now` are charged now"
        );
    }
    Ok(())
}

fn settle(journal: &Journal, account: &str, settlement: Settlement) -> Result<(), JournalError> {
    let mut room = journal.reserve(STEP_BYTES_MAX)?;
    // The store has no step that is not on this disk, so the journal's own number is right.
    journal.append_step(account, AccountChange::Settle(Box::new(settlement)), 0, &mut room)?;
    Ok(())
}
