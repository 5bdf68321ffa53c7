//! How long segments are kept: until the store has acknowledged all in them, and then until they are old or in a backup.

use std::{fs, io};

use super::{NUMBERS, Shared};

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
                    let backed_up = **number < state.backed_up.segment;
                    **number < state.tail.current.number && (old || backed_up) && state.contents.done(**number)
                })
                .map(|(number, _)| *number)
                .collect();
            if numbers.is_empty() {
                return;
            }
            (numbers, state.contents.accounts.last_numbers())
        };
        let removed = serde_json::to_string(&known).map_err(io::Error::from).and_then(|body| {
            // The numbers must outlive the steps: whoever counts from 1 again would not be charged.
            let text = format!("{:08x}\n{body}", crc32fast::hash(body.as_bytes()));
            self.folder.replace(NUMBERS, text.as_bytes())?;
            numbers
                .iter()
                .try_for_each(|number| fs::remove_file(self.folder.segment(*number)))
        });
        match removed {
            Ok(()) => {
                let mut state = self.lock();
                for number in numbers {
                    state.contents.remove(number);
                }
            }
            Err(error) => {
                tracing::error!(%error, folder = %self.folder.path.display(), "old journal segments cannot be removed");
            }
        }
    }
}
