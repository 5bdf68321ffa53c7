//! Repairs damaged segments: invalid bytes are saved in quarantine and replaced by filler frames, so that the valid frames
//! after them can be read. Finds steps that damage has destroyed.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
};

use crate::journal::{engine::JournalEngine, folder::JournalFolder, frame};

/// Saves the bytes between two valid frames in quarantine and replaces them by filler. The file's modification time is kept.
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
        "a part of the journal is damaged: it is saved in quarantine, the records before and after it are used, requests recorded in it may be unbilled",
    );
    Ok(())
}

/// Saves the bytes from `from` to the segment's end in quarantine: they contain no valid frame.
pub(super) fn quarantine_end(folder: &JournalFolder, number: u64, file: &File, from: u64, end: u64) -> io::Result<()> {
    let kept = quarantine(folder, number, file, from, end)?;
    tracing::error!(
        segment = %folder.segment(number).display(), from, kept,
        "the end of a journal segment is damaged: it is saved in quarantine, the records before it are used, requests recorded in it may be unbilled",
    );
    Ok(())
}

/// Saves the bytes in quarantine, without trailing zeros; returns the path of the copy.
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
    /// Repairs damage found while weir runs. Returns the offset of the next valid frame before `end`, or `end` if there is none.
    /// The end of an `open` segment is not given up, because more may be written there.
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
        // The index predates the damage.
        self.folder.remove_index(number)?;
        Ok(if sound { frames.next_offset() } else { end })
    }
}
