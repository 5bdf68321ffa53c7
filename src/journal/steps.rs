//! The steps that the store has not acknowledged: [`crate::money::settlement`] sends them and reports the answers here.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering,
};

use smol_str::SmolStr;

use crate::{
    domain::{ledger::Record, quick_map::QuickMap},
    journal::{
        accounts::{RecordedStep, Unsent},
        error::JournalError,
        files::Files,
        frame,
        handle::Journal,
        position::Position,
    },
};

impl Journal {
    /// Waits until steps are on disk; answers with their accounts. For one caller.
    pub(crate) async fn woken(&self) -> HashSet<SmolStr> {
        loop {
            let woken = std::mem::take(&mut self.engine.lock().ready);
            if !woken.is_empty() {
                return woken;
            }
            self.engine.woken.notified().await;
        }
    }

    /// How many steps of an account the store has not acknowledged.
    pub(crate) fn waiting(&self, account: &str) -> usize {
        self.engine.lock().contents.accounts.waiting(account)
    }

    /// How many steps of an account the store has not acknowledged, if all of them settle requests that were admitted out of
    /// leases: nobody waits for these.
    pub(crate) fn patient(&self, account: &str) -> Option<usize> {
        let state = self.engine.lock();
        let accounts = &state.contents.accounts;
        accounts.is_patient(account).then(|| accounts.waiting(account))
    }

    /// What [`Journal::unsent`] would answer with, where that needs no disk: the steps are still in memory, which each is
    /// until it is given here. `None`: ask [`Journal::unsent`].
    pub(crate) fn unsent_at_hand(&self, account: &str, max: usize) -> Option<Unsent> {
        let synced = *self.engine.synced.borrow();
        self.engine.lock().contents.accounts.take_kept(account, max, &synced)
    }

    /// Up to `max` steps of an account that the store has not acknowledged, and that are on this disk: a
    /// store never knows more than the journal does after a power cut. Blocks on the disk, seldom for long.
    ///
    /// # Errors
    /// A segment cannot be read; trying again may help.
    pub(crate) fn unsent(&self, account: &str, max: usize) -> Result<Unsent, JournalError> {
        if self.engine.lock().contents.accounts.is_rewound(account) {
            self.look_up_forgotten()?;
        }
        let synced = *self.engine.synced.borrow();
        let (mut places, acknowledged, last) = {
            let state = self.engine.lock();
            let accounts = &state.contents.accounts;
            let places = accounts.places(account, max);
            (places, accounts.watermark(account), accounts.last(account))
        };
        let none_left = places.is_empty();
        places.retain(|(_, position)| synced.knows(*position));
        let mut unsent = Unsent::default();
        let mut files = Files::default();
        let mut next = acknowledged + 1;
        for (seq, position) in places {
            while next < seq && unsent.steps.len() < max {
                unsent.fill(next);
                next += 1;
            }
            if unsent.steps.len() >= max {
                break;
            }
            match files.record(&self.engine.folder, position)? {
                Some(Record::Step { account: owner, step }) if owner == account && step.seq == seq => {
                    unsent.steps.push(step);
                    unsent.note_row(position);
                }
                _ => unsent.fill(seq),
            }
            next = seq + 1;
        }
        // Steps behind the last one that is left, lost with the end of a segment.
        if none_left {
            while next <= last && unsent.steps.len() < max {
                unsent.fill(next);
                next += 1;
            }
        }
        if unsent.lost > 0 {
            let engine = &self.engine;
            (engine.is_there()).map_err(|source| JournalError::io(&engine.folder.path, source))?;
        }
        Ok(unsent)
    }

    /// The store has applied the steps of an account up to `watermark`. `false`: it has forgotten steps that it had
    /// acknowledged before; [`Journal::look_up_forgotten`] finds them again.
    pub(crate) fn acknowledged(&self, account: &str, watermark: u64) -> bool {
        let mut state = self.engine.lock();
        let forward = state.contents.accounts.acknowledged(account, watermark);
        self.engine.stir(&mut state);
        drop(state);
        self.engine.progress.notify_waiters();
        forward
    }

    /// The last step of an account that the store has acknowledged.
    pub(crate) fn acknowledged_step(&self, account: &str) -> u64 {
        self.engine.lock().contents.accounts.watermark(account)
    }

    /// Every account with steps in the journal, and the number of its last one.
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

    /// Steps that were passed over as lost; said aloud.
    pub(crate) fn note_lost(&self, account: &str, lost: u64) {
        if lost > 0 {
            self.engine.lost.fetch_add(lost, Ordering::Relaxed);
            tracing::error!(
                account,
                lost,
                "steps of the account are lost from the journal and are passed over, its balance may be wrong"
            );
        }
    }

    /// Finds the steps that the store has forgotten in the segments: one pass over them for all accounts. Blocks.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub(crate) fn look_up_forgotten(&self) -> Result<(), JournalError> {
        // One at a time: whoever waited may find the work done.
        let _turn = self.engine.lookup.lock();
        let wanted = self.engine.lock().contents.accounts.rewound();
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
                        kept: None,
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
    pub(crate) fn accounts(&self) -> Vec<SmolStr> {
        self.engine.lock().contents.account_names()
    }

    /// The last record of each key and of each account that the journal has: what a store may have to be told again. Blocks on
    /// the disk.
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
        let mut files = Files::default();
        let mut last = Vec::new();
        for position in positions {
            last.extend(files.record(&self.engine.folder, position)?);
        }
        Ok(last)
    }

    /// Waits until all steps that are recorded now are acknowledged.
    pub(crate) async fn drained(&self) {
        let mut behind = self.engine.lock().contents.accounts.behind();
        loop {
            let progress = self.engine.progress.notified();
            tokio::pin!(progress);
            // From here on nothing is missed.
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
