//! Settles one account: sends its steps in order until the store has them all. Settlements of requests that were admitted from
//! leases are collected for a moment, since nobody waits for them; any other step among them has all sent at once. At a start,
//! requests that an ended process left open are settled first, and the start waits for the balances.

use std::time::Duration;

use super::{APPLY_STEPS_MAX, Settler, back_off};
use crate::{
    journal::{JournalError, UnsentSteps},
    store::StoreError,
};

/// The minimum number of steps per call, if there are as many.
const STEPS_MIN: usize = 3;
/// How long settlements of leases may wait for others, and the number of them that is sent without waiting.
const GATHER_MS: u32 = 250;
const GATHERED_MAX: usize = 128;
/// How often the queue is checked for a step that must not wait.
const LOOK_EVERY_MS: u32 = 25;

impl Settler {
    /// Sends the account's steps until all are acknowledged. With `ask`, reads the store's watermark first.
    pub(super) async fn settle_account(&self, account: &str, ask: bool) {
        let mut ask = ask;
        // A reply from before the store lost writes may arrive afterwards; its watermark is too high then.
        let mut epochs = self.store.epochs();
        let mut pause = self.pause;
        // Lost steps are skipped only after the store was asked, and logged once.
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
                    tracing::error!(account, %error, "steps cannot be read from the journal");
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
                        // A store that applies nothing and has lost nothing is broken; it must not be asked in a loop.
                        tracing::error!(account, watermark, "the store did not apply the account's next step");
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

    /// Waits a little for more steps, as long as nobody waits for any of them.
    async fn gather(&self, account: &str) {
        for _ in 0..GATHER_MS / LOOK_EVERY_MS {
            let waiting = self.journal.patient_steps(account).unwrap_or(0);
            if waiting == 0 || waiting >= GATHERED_MAX {
                return;
            }
            tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS.into())).await;
        }
    }

    /// The next steps, from memory or else from the disk.
    async fn unsent(&self, account: &str) -> Result<UnsentSteps, JournalError> {
        let most = match self.journal.patient_steps(account) {
            Some(gathered) => gathered.clamp(STEPS_MIN, GATHERED_MAX),
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
        // The semaphore is never closed.
        let _call = self.calls.acquire().await;
        let watermark = self.store.watermark(self.journal.node(), account).await?;
        self.journal.acknowledge(account, watermark);
        Ok(())
    }
}

/// How many of `waiting` steps go into one call. The store runs the calls one by one, and an admission may wait for the longest:
/// so few steps per call while few wait, and many when the store is behind.
fn steps_at_once(waiting: usize) -> usize {
    (waiting / 8).clamp(STEPS_MIN, APPLY_STEPS_MAX)
}

fn log_failure(account: &str, error: &StoreError) {
    match error {
        StoreError::Unavailable(_) | StoreError::Busy(_) => {
            tracing::debug!(account, %error, "settlements wait for the store")
        }
        StoreError::NotFound | StoreError::Duplicate | StoreError::Deleted | StoreError::Corrupt(_) => {
            tracing::error!(account, %error, "the store rejects settlements; they are sent again");
        }
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
