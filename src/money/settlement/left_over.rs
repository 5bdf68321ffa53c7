//! Settles once what a process that has ended left running in its lane of the journal, before anything else is written there.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use smol_str::SmolStr;

use crate::{
    domain::ledger::{Admitted, Change, Checkpoint, NodeId, Settlement, settlement_after_crash, settlement_of_charged},
    journal::{Journal, JournalError, Opened, PossiblySettled, STEP_BYTES_MAX},
    store::ledger::LedgerStore,
};

/// How long the store may take to tell what it has applied.
const TOLD_WITHIN: Duration = Duration::from_millis(500);

/// How long the store may take to end what was held for these requests.
const RELEASE_WAIT: Duration = Duration::from_millis(500);

/// Charges what is left open in a lane of the journal that was just opened, and ends what was held for it.
///
/// # Errors
/// As for [`settle_left_over`].
pub(crate) async fn charge_left_over(opened: Opened, ledger: &dyn LedgerStore) -> Result<Arc<Journal>, JournalError> {
    let Opened {
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
        judge_possibly_settled(&journal, ledger, possibly_settled).await?;
    }
    release(ledger, &cut).await;
    Ok(journal)
}

/// Ends what was held for requests that died with their process, and the leases that they were admitted out of: nothing of
/// these nodes is held for others yet.
async fn release(ledger: &dyn LedgerStore, cut: &BTreeSet<(NodeId, SmolStr)>) {
    let all = join_all(cut.iter().map(|(node, account)| ledger.release(node, account)));
    match tokio::time::timeout(RELEASE_WAIT, all).await {
        Ok(ended) if ended.iter().all(Result::is_ok) => {}
        // Their settlements end them, too.
        Ok(_) | Err(_) => tracing::debug!("the holds of requests that were cut could not be ended at once"),
    }
}

/// Settles requests with what is known of each. To be called once, before anything is admitted.
///
/// # Errors
/// The journal has no room. The rest is still found at the next start.
pub(super) fn settle_left_over(
    journal: &Journal,
    unsettled: Vec<(Admitted, Option<Checkpoint>)>,
) -> Result<u64, JournalError> {
    let mut count = 0;
    for (admitted, checkpoint) in unsettled {
        let account = admitted.row.account.clone();
        settle(journal, &account, settlement_after_crash(admitted, checkpoint))?;
        count += 1;
    }
    Ok(count)
}

/// Settles requests that may have been settled in a damaged part of the journal. Whom the store has charged, or may have, for
/// it cannot be asked, is not charged again; that the step is lost then is said when it is passed over.
///
/// # Errors
/// As for [`settle_left_over`].
pub(super) async fn judge_possibly_settled(
    journal: &Journal,
    store: &dyn LedgerStore,
    possibly_settled: Vec<PossiblySettled>,
) -> Result<(), JournalError> {
    let told = possibly_settled.into_iter().map(|one| async move {
        let account = &one.request.0.row.account;
        let asked = tokio::time::timeout(TOLD_WITHIN, store.watermark(journal.node(), account)).await;
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
            "requests whose settlements stood in a damaged part of the journal: the store has most likely charged some, the others are charged now"
        );
    }
    Ok(())
}

fn settle(journal: &Journal, account: &str, settlement: Settlement) -> Result<(), JournalError> {
    let mut room = journal.reserve(STEP_BYTES_MAX)?;
    // The store knows no step that is not on this disk, so the journal's own number is right.
    journal.append_step(account, Change::Settle(Box::new(settlement)), 0, &mut room)?;
    Ok(())
}
