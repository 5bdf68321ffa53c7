//! Settles one account: sends its steps in order until the store has all of them. Nothing waits for the settlements of requests
//! that were admitted from leases, so these settlements are collected for a moment. If a step of another kind is waiting, all
//! steps are sent immediately. This module also has the functions for the start of a process: they settle the requests that an
//! ended process left open, and wait until the balances in the store are up to date.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use futures_util::future::join_all;
use smol_str::SmolStr;

use crate::{
    domain::ledger::{
        AccountChange, AdmittedRequest, Checkpoint, NodeId, Settlement, settlement_after_crash, settlement_of_charged,
    },
    journal::{Journal, JournalError, OpenedJournal, STEP_BYTES_MAX, UncertainSettlement, UnsentSteps},
    money::settlement::{APPLY_STEPS_MAX, Settler, back_off},
    store::{StoreError, ledger::LedgerStore},
};

/// The minimum number of steps per call, if at least this number of steps is waiting.
const STEPS_MIN: usize = 3;
/// The maximum time, in milliseconds, for which settlements of requests from leases are collected before they are sent. They are
/// sent earlier if [`LedgerStore::batch_steps_max`] of them are collected.
const GATHER_MS: u32 = 250;
/// The interval, in milliseconds, at which the account is checked for a step that must not wait.
const LOOK_EVERY_MS: u32 = 25;

impl Settler {
    /// Sends the account's steps until all are acknowledged. If `ask` is true, reads the store's watermark first.
    pub(super) async fn settle_account(&self, account: &str, ask: bool) {
        let mut ask = ask;
        // A reply that the store sent before it lost writes may arrive afterwards. The watermark in the reply is then too high.
        let mut epochs = self.store.epochs();
        let mut pause = self.pause;
        // Steps lost from the journal are skipped only after the store's watermark was read, and are logged once.
        let mut asked_for_lost = false;
        loop {
            if epochs.has_changed().unwrap_or(false) {
                epochs.mark_unchanged();
                ask = true;
            }
            if ask {
                match self.read_watermark(account).await {
                    Ok(()) => {
                        ask = false;
                        pause = self.pause;
                    }
                    Err(error) => {
                        log_failure(account, &error);
                        back_off(&mut pause).await;
                    }
                }
                continue;
            }
            self.gather(account).await;
            let unsent = match self.unsent(account).await {
                Ok(unsent) => unsent,
                Err(error) => {
                    tracing::error!(account, %error, "cannot read the account's requests from the journal; weir tries again");
                    back_off(&mut pause).await;
                    continue;
                }
            };
            if unsent.steps.is_empty() {
                return;
            }
            if unsent.lost == 0 {
                asked_for_lost = false;
            } else if !asked_for_lost {
                (ask, asked_for_lost) = (true, true);
                continue;
            }
            let Ok(call) = self.calls.acquire().await else { return };
            let (node, steps) = (self.journal.node(), &unsent.steps);
            let applied = self.store.apply(node, account, steps, unsent.last_row).await;
            drop(call);
            match applied {
                Ok(watermark) => {
                    pause = self.pause;
                    self.charged.record(account);
                    let forward = self.journal.acknowledge(account, watermark);
                    let taken = unsent.steps.first().is_some_and(|first| watermark >= first.seq);
                    if forward && taken {
                        self.journal.report_lost(account, unsent.lost);
                        asked_for_lost = false;
                    } else if forward {
                        // If the store applies nothing and has lost nothing, it is faulty. Calling it in a loop would not help.
                        tracing::error!(
                            account,
                            watermark,
                            "the store acknowledged a call but did not apply the account's next step; trying again"
                        );
                        back_off(&mut pause).await;
                    }
                }
                Err(error) => {
                    log_failure(account, &error);
                    back_off(&mut pause).await;
                }
            }
        }
    }

    /// Waits a short time for more steps to send in the same call. Returns early if something waits for one of the account's
    /// current steps.
    async fn gather(&self, account: &str) {
        for _ in 0..GATHER_MS / LOOK_EVERY_MS {
            let waiting = self.journal.patient_steps(account).unwrap_or(0);
            if waiting == 0 || waiting >= self.store.batch_steps_max() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS.into())).await;
        }
    }

    /// Returns the next steps to send, from memory or else from the disk.
    async fn unsent(&self, account: &str) -> Result<UnsentSteps, JournalError> {
        let most = match self.journal.patient_steps(account) {
            Some(gathered) => gathered.clamp(STEPS_MIN, self.store.batch_steps_max()),
            None => steps_at_once(self.journal.unacknowledged_steps_of(account)),
        };
        if let Some(unsent) = self.journal.unsent_in_memory(account, most) {
            return Ok(unsent);
        }
        let name = account.to_owned();
        self.blocking(move |journal| journal.unsent(&name, most)).await
    }

    /// Reads the account's watermark from the store and records it in the journal.
    pub(super) async fn read_watermark(&self, account: &str) -> Result<(), StoreError> {
        // This cannot fail: the semaphore is never closed.
        let _call = self.calls.acquire().await;
        let watermark = self.store.watermark(self.journal.node(), account).await?;
        self.journal.acknowledge(account, watermark);
        Ok(())
    }
}

/// Returns the number of steps that are sent in one call while `waiting` steps wait. The store runs the calls one by one, and an
/// admission may have to wait for the longest call. So a call has few steps if few wait, and many if the store is behind.
fn steps_at_once(waiting: usize) -> usize {
    (waiting / 8).clamp(STEPS_MIN, APPLY_STEPS_MAX)
}

fn log_failure(account: &str, error: &StoreError) {
    match error {
        StoreError::Unavailable(_) | StoreError::Busy(_) => {
            tracing::debug!(account, %error, "cannot send settlements to the store; weir tries again")
        }
        StoreError::NotFound | StoreError::Duplicate | StoreError::Deleted | StoreError::Corrupt(_) => {
            tracing::error!(account, %error, "the store rejects settlements; weir sends them again");
        }
    }
}

/// The timeout for reading one watermark from the store.
const WATERMARK_TIMEOUT: Duration = Duration::from_millis(500);

/// The timeout for ending the holds of left-over requests in the store.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// Charges the requests that an ended process left open in its journal, and ends their holds. The caller has just opened the
/// journal.
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

/// Ends the holds of requests whose process ended, and the leases from which these requests were admitted. When this is called,
/// the nodes in `cut` must have no other holds.
async fn release(ledger: &dyn LedgerStore, cut: &BTreeSet<(NodeId, SmolStr)>) {
    let all = join_all(cut.iter().map(|(node, account)| ledger.release(node, account)));
    match tokio::time::timeout(RELEASE_TIMEOUT, all).await {
        Ok(ended) if ended.iter().all(Result::is_ok) => {}
        // The settlements of these requests end their holds as well.
        Ok(_) | Err(_) => {
            tracing::debug!(
                "cannot end the holds of requests whose process has ended; the holds end when these requests are settled"
            )
        }
    }
}

/// Settles each request with the consumption that the journal has for it. Must be called once, before anything is admitted.
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

/// Settles requests whose settlement may be in a damaged part of the journal. A request that the store has charged is not charged
/// again. If the store cannot be reached, the request is not charged either, because the store may have charged it. A lost step
/// is reported later, when the settlement skips it.
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
            "the settlements of some requests are in a damaged part of the journal; the store has most likely charged some of these requests already (the field `charged` is their number), and weir charges the others now (the field `charged_now` is their number)"
        );
    }
    Ok(())
}

fn settle(journal: &Journal, account: &str, settlement: Settlement) -> Result<(), JournalError> {
    let mut room = journal.reserve(STEP_BYTES_MAX)?;
    // The store has no step that is not on this disk, so the journal assigns the right number.
    journal.append_step(account, AccountChange::Settle(Box::new(settlement)), 0, &mut room)?;
    Ok(())
}

/// The maximum time that a process waits in [`wait_for_balances`] when it starts.
pub(super) const BALANCES_WAIT: Duration = Duration::from_secs(10);

/// Waits at most [`BALANCES_WAIT`] until the store has every step that these journals have at present. The journals' settlers
/// send the steps. A store that applies steps before it writes them to its file may have lost the last steps. Until these steps
/// are sent again, the store's balances are slightly out of date.
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

/// Waits until the store has every step that these journals have at present.
pub(super) async fn wait_until_settled(journals: &[Arc<Journal>], store: &dyn LedgerStore) {
    for journal in journals {
        for (account, last) in journal.last_steps() {
            wait_for_step(journal, store, &account, last).await;
        }
    }
}

/// Waits until the store has applied a step of an account. An acknowledgement in the journal is not enough, because the store may
/// have lost the step afterwards.
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
        // From here on, no acknowledgement is missed.
        acknowledged.as_mut().enable();
        if is_there().await {
            return;
        }
        acknowledged.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_steps_go_into_a_call_while_few_wait() {
        for (waiting, steps) in [(0, 3), (24, 3), (32, 4), (800, 100), (usize::MAX, APPLY_STEPS_MAX)] {
            assert_eq!(steps_at_once(waiting), steps, "{waiting}");
        }
    }
}
