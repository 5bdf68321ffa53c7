//! How long segments are kept: until the store has acknowledged all their steps and the stability record has their
//! rows, and then until they are old enough. A clock that jumps ahead makes only one day of them old at a time.

use std::{io, sync::Arc};

use crate::{
    domain::ledger::retention::Retention,
    journal::{
        checked,
        engine::{JournalEngine, WriteState},
        folder::NUMBERS,
    },
};

/// The file that says how far removal has gone.
const RETENTION: &str = "retention";
const DAY_MS: i64 = 24 * 3600 * 1000;

impl JournalEngine {
    /// Removes the segments at the beginning that nobody needs any more.
    pub(super) fn remove_old(self: &Arc<Self>, now_ms: i64) {
        self.go_on(now_ms);
        let short = self.is_disk_short();
        let (numbers, known) = {
            let state = self.lock();
            let Some(retention) = state.retention else { return };
            let first_kept = retention.first_kept(now_ms);
            let numbers: Vec<u64> = last_days(&state)
                .take_while(|(number, day)| {
                    *number < state.tail.current.number
                        && *day < first_kept
                        && state.contents.done(*number)
                        && state.contents.taken(*number, short)
                })
                .map(|(number, _)| number)
                .collect();
            if numbers.is_empty() {
                return;
            }
            (numbers, state.contents.accounts.numbers())
        };
        self.count_dropped(&numbers);
        let removed = serde_json::to_string(&known).map_err(io::Error::from).and_then(|body| {
            // The numbers must outlive the steps: whoever counts from 1 again would not be charged.
            self.folder.replace(NUMBERS, checked::text(&body).as_bytes())?;
            numbers.iter().try_for_each(|number| self.folder.remove(*number))
        });
        match removed {
            Ok(()) => {
                let mut state = self.lock();
                for number in numbers {
                    state.contents.remove(number, now_ms);
                }
            }
            Err(error) => {
                tracing::error!(%error, folder = %self.folder.path.display(), "old journal segments cannot be removed");
            }
        }
    }

    /// Notes how far removal may go now, on the disk first: a start must not forget that the day was taken.
    fn go_on(&self, now_ms: i64) {
        let keep_days = i64::try_from(self.settings.keep.as_secs()).unwrap_or(i64::MAX) / (DAY_MS / 1000);
        let (before, after) = {
            let state = self.lock();
            let oldest = last_days(&state).next().map(|(_, day)| day);
            let before = state.retention;
            let after = match before.or_else(|| self.read_retention()) {
                Some(retention) => retention.go_on(now_ms, keep_days, oldest),
                None => Retention::begin(now_ms, keep_days, oldest),
            };
            (before, after)
        };
        if before == Some(after) {
            return;
        }
        let written = serde_json::to_string(&after).map_err(io::Error::from);
        let written = written.and_then(|body| self.folder.replace(RETENTION, checked::text(&body).as_bytes()));
        match written {
            Ok(()) => {
                self.lock().retention = Some(after);
                let behind = after.behind(now_ms);
                if behind > 0 {
                    tracing::info!(
                        behind_days = behind,
                        "retention of the journal goes on by a day at a time: weir was not running for days, or the clock has jumped"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(%error, folder = %self.folder.path.display(), "old journal segments stay: how far removal has gone cannot be noted");
            }
        }
    }

    fn read_retention(&self) -> Option<Retention> {
        let text = self.folder.read(RETENTION).ok()??;
        serde_json::from_str(checked::body(&text)?).ok()
    }
}

/// The segments in their order, each with the day of its last record. It is no day before that of a segment in front of it,
/// whatever the clock said when it was written.
fn last_days(state: &WriteState) -> impl Iterator<Item = (u64, i64)> {
    let segments = state.contents.segments.iter();
    segments.scan(i64::MIN, |latest, (number, segment)| {
        *latest = segment.last_ms.div_euclid(DAY_MS).max(*latest);
        Some((*number, *latest))
    })
}
