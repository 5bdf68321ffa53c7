//! Repairs damaged segments: bytes that are no frame are saved aside and replaced by empty frames, so that the sound
//! frames behind them can be read from now on.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
};

use crate::journal::{engine::JournalEngine, folder::Folder, frame};

/// Keeps the bytes of a segment between two sound frames aside and covers them. Its time stays.
pub(super) fn cover(folder: &Folder, number: u64, file: &File, from: u64, to: u64) -> io::Result<()> {
    let kept = keep_aside(folder, number, file, from, to)?;
    let modified = file.metadata()?.modified()?;
    let filler = frame::filler(number, from, to).ok_or(io::ErrorKind::InvalidData)?;
    file.write_all_at(&filler, from)?;
    file.set_modified(modified)?;
    file.sync_all()?;
    tracing::error!(
        segment = %folder.segment(number).display(), from, bytes = to.saturating_sub(from), kept,
        "a part of the journal is damaged: the records in front of it and behind it are used, it is kept aside, requests recorded in it may be unbilled",
    );
    Ok(())
}

/// Keeps the bytes of a segment from `from` to its end aside: no sound frame stands there.
pub(super) fn give_up(folder: &Folder, number: u64, file: &File, from: u64, end: u64) -> io::Result<()> {
    let kept = keep_aside(folder, number, file, from, end)?;
    tracing::error!(
        segment = %folder.segment(number).display(), from, kept,
        "the end of a journal segment is damaged: the records in front of it are used, it is kept aside, requests recorded in it may be unbilled",
    );
    Ok(())
}

/// Where the bytes are kept.
fn keep_aside(folder: &Folder, number: u64, file: &File, from: u64, end: u64) -> io::Result<String> {
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or(0)];
    let read = frame::read_at(file, &mut bytes, from)?;
    bytes.truncate(read);
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    bytes.truncate(used);
    let kept = folder.quarantine(number, from, &bytes)?;
    Ok(kept.display().to_string())
}

impl JournalEngine {
    /// Goes on behind damage that was found in a segment while weir runs: the place of the next sound frame in front of
    /// `end`, or `end` where there is none. `open`: more may come there, so its end is not given up.
    pub(super) fn mend(&self, number: u64, from: u64, end: u64, open: bool) -> io::Result<u64> {
        let path = self.folder.segment(number);
        let file = Arc::new(File::options().read(true).write(true).open(path)?);
        let mut frames = frame::Frames::new(Arc::clone(&file), number, from, end);
        let sound = frames.skip_damage()?;
        if sound {
            cover(&self.folder, number, &file, from, frames.at())?;
        } else if open {
            return Err(io::ErrorKind::InvalidData.into());
        } else {
            give_up(&self.folder, number, &file, from, end)?;
        }
        self.damaged.fetch_add(1, Ordering::Relaxed);
        if let Some(segment) = self.lock().contents.segments.get_mut(&number) {
            if !sound {
                segment.end = from;
            }
            segment.rest = None;
        }
        // It knew nothing of the damage.
        self.folder.remove_index(number)?;
        Ok(if sound { frames.at() } else { end })
    }
}
