//! Repair of damaged segments. Invalid bytes are saved in quarantine and replaced by filler frames, so that the valid frames
//! after them can be read. Also finds the steps that damage has destroyed.

use std::{
    collections::HashMap,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
};

use smol_str::SmolStr;

use crate::{
    domain::QuickMap,
    journal::{Position, engine::JournalEngine, folder::JournalFolder, frame},
};

/// Saves the bytes between two valid frames in quarantine and replaces them by filler frames. The file's modification time does
/// not change.
pub(super) fn replace_with_filler(
    folder: &JournalFolder,
    number: u64,
    file: &File,
    from: u64,
    to: u64,
) -> io::Result<()> {
    let kept = quarantine(folder, number, file, from, to)?;
    let modified = file.metadata()?.modified()?;
    let filler = frame::filler(number, from, to).ok_or(io::ErrorKind::InvalidData)?;
    file.write_all_at(&filler, from)?;
    file.set_modified(modified)?;
    file.sync_all()?;
    tracing::error!(
        segment = %folder.segment(number).display(), from, bytes = to.saturating_sub(from), kept,
        "a part of a journal segment is damaged and was saved in quarantine (`kept`); the records before and after it are used, but requests recorded in it may remain unbilled",
    );
    Ok(())
}

/// Saves the bytes from `from` to the segment's end in quarantine, because no valid frame follows.
pub(super) fn quarantine_end(folder: &JournalFolder, number: u64, file: &File, from: u64, end: u64) -> io::Result<()> {
    let kept = quarantine(folder, number, file, from, end)?;
    tracing::error!(
        segment = %folder.segment(number).display(), from, kept,
        "the end of a journal segment is damaged and was saved in quarantine (`kept`); the records before it are used, but requests recorded in it may remain unbilled",
    );
    Ok(())
}

/// Saves the bytes in quarantine, without trailing zeros, and returns the path of the copy.
fn quarantine(folder: &JournalFolder, number: u64, file: &File, from: u64, end: u64) -> io::Result<String> {
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or(0)];
    let read = frame::read_at(file, &mut bytes, from)?;
    bytes.truncate(read);
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    bytes.truncate(used);
    let kept = folder.quarantine(number, from, &bytes)?;
    Ok(kept.display().to_string())
}

impl JournalEngine {
    /// Repairs damage that was found while weir runs. Returns the offset of the next valid frame before `end`, or `end` if there
    /// is none. If the segment is `open` and no valid frame follows, it is not repaired, because more may be written there.
    pub(super) fn repair_damage(&self, number: u64, from: u64, end: u64, open: bool) -> io::Result<u64> {
        let path = self.folder.segment(number);
        let file = Arc::new(File::options().read(true).write(true).open(path)?);
        let mut frames = frame::FrameReader::new(Arc::clone(&file), number, from, end);
        let sound = frames.skip_damage()?;
        if sound {
            replace_with_filler(&self.folder, number, &file, from, frames.next_offset())?;
        } else if open {
            return Err(io::ErrorKind::InvalidData.into());
        } else {
            quarantine_end(&self.folder, number, &file, from, end)?;
        }
        self.damaged.fetch_add(1, Ordering::Relaxed);
        if let Some(segment) = self.lock().contents.segments.get_mut(&number) {
            if !sound {
                segment.end = from;
            }
            segment.index_details = None;
        }
        // The index was written before the damage.
        self.folder.remove_index(number)?;
        Ok(if sound { frames.next_offset() } else { end })
    }
}

/// The missing steps that have been found at a start so far. A request whose settlement may be one of them must not be charged
/// twice. Segments are reported in their order.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The position of the last damage found; `None` if none was found.
    damage: Option<Position>,
    /// The number and the position of each account's last step.
    last: HashMap<SmolStr, (u64, Position)>,
    /// For each account, the numbers of its missing steps, with the position of the damage.
    missing: HashMap<SmolStr, Vec<(Range<u64>, Position)>>,
}

impl Gaps {
    /// Records that damage was found at this position.
    pub(super) fn on_damage(&mut self, at: Position) {
        self.damage = Some(at);
    }

    /// Records that a step was found at this position. Numbers that were skipped since the account's previous step are missing if
    /// damage was found in between.
    pub(super) fn on_step(&mut self, account: &str, seq: u64, at: Position) {
        let (before, stood) = self.last.get(account).copied().unwrap_or((0, Position::START));
        if let Some(damage) = self.damage.filter(|damage| *damage > stood)
            && seq > before + 1
        {
            let missing = (before + 1..seq, damage);
            self.missing.entry(account.into()).or_default().push(missing);
        }
        self.last.insert(account.into(), (seq, at));
    }

    /// Records that a segment was restored from its index. `steps` has the first and the last step of each account in the
    /// segment.
    pub(super) fn on_index(&mut self, segment: u64, steps: &QuickMap<SmolStr, (u64, u64)>) {
        let at = Position { segment, offset: 0 };
        for (account, (first, last)) in steps {
            self.on_step(account, *first, at);
            self.last.insert(account.clone(), (*last, at));
        }
    }

    /// Returns the number of a missing step that may be the settlement of a request admitted at this position; `None` if there is
    /// none. Each number is returned once. The caller must call it once for each request, in the order of their admissions.
    pub(super) fn missing_settlement(&mut self, account: &str, admitted: Position) -> Option<u64> {
        let mut missing = self.missing.get_mut(account)?.iter_mut();
        missing.find_map(|(steps, damage)| (*damage > admitted).then(|| steps.next()).flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(segment: u64) -> Position {
        Position { segment, offset: 64 }
    }

    #[test]
    fn a_missing_step_stands_for_one_request_that_was_admitted_before_the_damage() {
        let mut gaps = Gaps::default();
        gaps.on_step("a", 1, at(1));
        gaps.on_damage(at(3));
        gaps.on_step("a", 4, at(5));
        assert_eq!(gaps.missing_settlement("a", at(4)), None, "admitted behind the damage");
        assert_eq!(gaps.missing_settlement("a", at(2)), Some(2));
        assert_eq!(gaps.missing_settlement("a", at(2)), Some(3));
        assert_eq!(gaps.missing_settlement("a", at(2)), None, "two steps are missing");
        assert_eq!(gaps.missing_settlement("b", at(2)), None);
    }

    #[test]
    fn numbers_that_were_left_out_without_damage_are_not_missing() {
        let mut gaps = Gaps::default();
        gaps.on_damage(at(1));
        gaps.on_step("a", 1, at(2));
        gaps.on_step("a", 9, at(3));
        gaps.on_index(4, &QuickMap::from_iter([("a".into(), (12, 20))]));
        gaps.on_step("a", 21, at(5));
        assert_eq!(gaps.missing_settlement("a", Position::START), None);
        gaps.on_damage(at(6));
        gaps.on_index(7, &QuickMap::from_iter([("a".into(), (23, 24))]));
        assert_eq!(gaps.missing_settlement("a", at(5)), Some(22));
        assert_eq!(gaps.missing_settlement("a", at(5)), None);
    }
}
