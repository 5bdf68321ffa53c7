//! The steps that the store has not acknowledged: [`crate::money::settlement`] sends them and reports acknowledgements here.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering,
};

use smol_str::SmolStr;

use crate::{
    domain::{ledger::Record, quick_map::QuickMap},
    journal::{
        accounts::{RecordedStep, UnsentSteps},
        error::JournalError,
        files::SegmentFiles,
        frame,
        handle::Journal,
        position::Position,
    },
};

impl Journal {
    /// Waits until more steps are on disk; returns their accounts. Only one task may call this.
    pub(crate) async fn wait_for_steps(&self) -> HashSet<SmolStr> {
        loop {
            let woken = std::mem::take(&mut self.engine.lock().ready);
            if !woken.is_empty() {
                return woken;
            }
            self.engine.steps_synced.notified().await;
        }
    }

    /// The number of steps of an account that the store has not acknowledged.
    pub(crate) fn unacknowledged_steps_of(&self, account: &str) -> usize {
        self.engine.lock().contents.accounts.unacknowledged_count(account)
    }

    /// The number of steps of an account that the store has not acknowledged; `None` if any of them is urgent. Settlements of
    /// requests that were admitted from leases are not: nothing waits for them.
    pub(crate) fn patient_steps(&self, account: &str) -> Option<usize> {
        let state = self.engine.lock();
        let accounts = &state.contents.accounts;
        accounts
            .is_patient(account)
            .then(|| accounts.unacknowledged_count(account))
    }

    /// The result of [`Journal::unsent`], if the steps are still in memory: each stays there until it is returned here. `None` if
    /// [`Journal::unsent`] must read them.
    pub(crate) fn unsent_in_memory(&self, account: &str, max: usize) -> Option<UnsentSteps> {
        let synced = *self.engine.synced.borrow();
        self.engine.lock().contents.accounts.take_cached(account, max, &synced)
    }

    /// Up to `max` steps of an account that are on disk and that the store has not acknowledged: the store must never know more
    /// than the journal knows after a power cut. Blocks on the disk, rarely for long.
    ///
    /// # Errors
    /// A segment cannot be read. Another attempt may succeed.
    pub(crate) fn unsent(&self, account: &str, max: usize) -> Result<UnsentSteps, JournalError> {
        if self.engine.lock().contents.accounts.is_rewound(account) {
            self.look_up_forgotten()?;
        }
        let synced = *self.engine.synced.borrow();
        let (mut places, acknowledged, last) = {
            let state = self.engine.lock();
            let accounts = &state.contents.accounts;
            let places = accounts.unacknowledged_positions(account, max);
            (places, accounts.watermark(account), accounts.last(account))
        };
        let none_left = places.is_empty();
        places.retain(|(_, position)| synced.is_decided(*position));
        let mut unsent = UnsentSteps::default();
        let mut files = SegmentFiles::default();
        let mut next = acknowledged + 1;
        for (seq, position) in places {
            while next < seq && unsent.steps.len() < max {
                unsent.push_filler(next);
                next += 1;
            }
            if unsent.steps.len() >= max {
                break;
            }
            match files.read_record(&self.engine.folder, position)? {
                Some(Record::Step { account: owner, step }) if owner == account && step.seq == seq => {
                    unsent.steps.push(step);
                    unsent.update_last_row(position);
                }
                _ => unsent.push_filler(seq),
            }
            next = seq + 1;
        }
        // The last steps were lost with the end of a segment.
        if none_left {
            while next <= last && unsent.steps.len() < max {
                unsent.push_filler(next);
                next += 1;
            }
        }
        if unsent.lost > 0 {
            let engine = &self.engine;
            (engine.ensure_present()).map_err(|source| JournalError::io(&engine.folder.path, source))?;
        }
        Ok(unsent)
    }

    /// Records that the store has applied the steps of an account up to `watermark`. Returns `false` if the store has forgotten
    /// steps that it had acknowledged; [`Journal::look_up_forgotten`] finds them again.
    pub(crate) fn acknowledge(&self, account: &str, watermark: u64) -> bool {
        let mut state = self.engine.lock();
        let forward = state.contents.accounts.acknowledge(account, watermark);
        self.engine.request_housekeeping(&mut state);
        drop(state);
        self.engine.progress.notify_waiters();
        forward
    }

    /// The last step of an account that the store has acknowledged.
    pub(crate) fn acknowledged_step(&self, account: &str) -> u64 {
        self.engine.lock().contents.accounts.watermark(account)
    }

    /// Every account with steps in the journal, with the number of its last step.
    pub(crate) fn last_steps(&self) -> Vec<(SmolStr, u64)> {
        let state = self.engine.lock();
        let names = state.contents.account_names().into_iter();
        names
            .map(|name| {
                let last = state.contents.accounts.last(&name);
                (name, last)
            })
            .collect()
    }

    /// Counts and logs steps that were skipped because they are lost.
    pub(crate) fn report_lost(&self, account: &str, lost: u64) {
        if lost > 0 {
            self.engine.lost.fetch_add(lost, Ordering::Relaxed);
            tracing::error!(
                account,
                lost,
                "steps of the account are lost from the journal and are skipped, its balance may be wrong"
            );
        }
    }

    /// Looks up the steps that the store has forgotten, in one pass over the segments for all accounts. Blocks.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub(crate) fn look_up_forgotten(&self) -> Result<(), JournalError> {
        // One thread at a time; one that has waited may find the work done.
        let _turn = self.engine.lookup.lock();
        let wanted = self.engine.lock().contents.accounts.missing_ranges();
        if wanted.is_empty() {
            return Ok(());
        }
        let segments: Vec<u64> = {
            let state = self.engine.lock();
            let needed = |steps: &QuickMap<SmolStr, (u64, u64)>| {
                wanted.iter().any(|(name, (above, below))| {
                    steps
                        .get(name)
                        .is_some_and(|(first, last)| last > above && first < below)
                })
            };
            let segments = state.contents.segments.iter();
            segments
                .filter(|(_, segment)| needed(&segment.steps))
                .map(|(number, _)| *number)
                .collect()
        };
        let mut found: HashMap<SmolStr, Vec<RecordedStep>> = HashMap::new();
        for number in segments {
            let mut reader = self.reader(Position {
                segment: number,
                offset: frame::HEADER as u64,
            });
            while let Some((position, record)) = reader.read()? {
                if position.segment != number {
                    break;
                }
                let Record::Step { account, step } = record else {
                    continue;
                };
                let Some((above, below)) = wanted.get(&account) else {
                    continue;
                };
                if step.seq > *above && step.seq < *below {
                    let at_ms = crate::edges::clock::unix_millis();
                    let place = RecordedStep {
                        seq: step.seq,
                        position,
                        at_ms,
                        key: None,
                        is_patient: false,
                        cached_step: None,
                    };
                    found.entry(account).or_default().push(place);
                }
            }
        }
        let mut state = self.engine.lock();
        for (account, (above, _)) in wanted {
            let places = found.remove(&account).unwrap_or_default();
            state.contents.accounts.restore(&account, above, places);
        }
        Ok(())
    }

    /// Every account with steps in the journal.
    pub(crate) fn account_names(&self) -> Vec<SmolStr> {
        self.engine.lock().contents.account_names()
    }

    /// The last record of each key and of each account in the journal, for a store that may have lost them. Blocks on the disk.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub(crate) fn last_records(&self) -> Result<Vec<Record>, JournalError> {
        let mut positions: Vec<Position> = {
            let state = self.engine.lock();
            let (keys, records) = (&state.contents.keys, &state.contents.records);
            keys.values().chain(records.values()).copied().collect()
        };
        positions.sort_unstable();
        let mut files = SegmentFiles::default();
        let mut last = Vec::new();
        for position in positions {
            last.extend(files.read_record(&self.engine.folder, position)?);
        }
        Ok(last)
    }

    /// Waits until the store has acknowledged all steps recorded so far.
    pub(crate) async fn wait_until_acknowledged(&self) {
        let mut behind = self.engine.lock().contents.accounts.unacknowledged_accounts();
        loop {
            let progress = self.engine.progress.notified();
            tokio::pin!(progress);
            // From now on no notification is missed.
            progress.as_mut().enable();
            {
                let state = self.engine.lock();
                behind.retain(|(name, last)| state.contents.accounts.watermark(name) < *last);
            }
            if behind.is_empty() {
                return;
            }
            progress.await;
        }
    }
}
