//! How long segments are kept: until the store has acknowledged all in them and the stability record has been told
//! their rows, and then until they are old.

use std::io;

use super::{NUMBERS, Shared, checked};

impl Shared {
    /// Removes the segments at the beginning that nobody needs any more.
    pub(super) fn remove_old(&self, now_ms: i64) {
        let (numbers, known) = {
            let state = self.lock();
            let keep_ms = i64::try_from(self.settings.keep.as_millis()).unwrap_or(i64::MAX);
            let numbers: Vec<u64> = state
                .contents
                .segments
                .iter()
                .take_while(|(number, segment)| {
                    let old = segment.last_ms.saturating_add(keep_ms) < now_ms;
                    **number < state.tail.current.number && old && state.contents.done(**number)
                })
                .map(|(number, _)| *number)
                .collect();
            if numbers.is_empty() {
                return;
            }
            (numbers, state.contents.accounts.numbers())
        };
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
}
