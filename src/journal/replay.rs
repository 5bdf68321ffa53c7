//! Reads the journal's segments at a start, and handles damage.
//!
//! A segment whose steps are all acknowledged is restored from its index ([`index`]), and only the records of its running
//! requests are read. Every other segment is read from its beginning. If a crash has left an incomplete record at the very end,
//! that record is cut off. All other invalid bytes are damage: weir saves them in `quarantine` and continues with the next valid
//! frame ([`replace_with_filler`]).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    sync::{Arc, atomic::Ordering},
};

use smol_str::SmolStr;

use crate::{
    domain::{
        QuickMap,
        ledger::{AdmittedRequest, Checkpoint, Record},
    },
    journal::{
        JournalEngine, JournalError, Position,
        folder::{self, ACKNOWLEDGED, JournalFolder, NUMBERS, SegmentFiles},
        frame::{self, FrameOutcome, FrameReader, HEADER, HeaderCheck},
        index::{self, JournalContents},
    },
};

/// The result of reading the journal at a start.
#[derive(Debug, Default)]
pub(super) struct JournalReplay {
    pub(super) contents: JournalContents,
    pub(super) unsettled: Vec<UnsettledRequest>,
    /// The requests that were running, but whose settlements may have been in a damaged part of the journal.
    pub(super) possibly_settled: Vec<UncertainSettlement>,
    gaps: Gaps,
    /// The number of damaged parts.
    pub(super) damaged: u64,
    /// The number of the next segment.
    pub(super) next_segment: u64,
    /// The segments that were read completely rather than restored from their index.
    pub(super) segments_read: Vec<u64>,
}

/// A request that was running, with its last checkpoint.
type UnsettledRequest = (AdmittedRequest, Option<Checkpoint>);

/// A request that was running, with its last checkpoint and the position of its admission.
type LocatedRequest = (Position, UnsettledRequest);

/// A request whose settlement may be among the steps that damage has destroyed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UncertainSettlement {
    /// The request, with its last checkpoint.
    pub request: UnsettledRequest,
    /// The number of the missing step. A store that has applied this step has charged the request.
    pub step: u64,
}

/// Reads all segments of the journal.
pub(super) fn replay(folder: &JournalFolder) -> Result<JournalReplay, JournalError> {
    let mut distrusted = BTreeSet::new();
    let mut damaged = 0;
    loop {
        let mut replayed = read_segments(folder, &distrusted)?;
        damaged += replayed.damaged;
        let (unsettled, missing) = find_unsettled(folder, &replayed.contents)?;
        if missing.is_empty() {
            for (at, request) in unsettled {
                match replayed.gaps.missing_settlement(&request.0.row.account, at) {
                    Some(step) => replayed.possibly_settled.push(UncertainSettlement { request, step }),
                    None => replayed.unsettled.push(request),
                }
            }
            replayed.damaged = damaged;
            return Ok(replayed);
        }
        for number in missing {
            // The index names records that the segment lacks, so the next pass reads the segment itself.
            if !distrusted.insert(number) {
                let path = folder.segment(number);
                return Err(JournalError::io(&path, io::ErrorKind::InvalidData.into()));
            }
        }
    }
}

/// Reads each segment or its index. Reads only the index if the index suffices and the segment is not among `distrusted`.
fn read_segments(folder: &JournalFolder, distrusted: &BTreeSet<u64>) -> Result<JournalReplay, JournalError> {
    let failed = |source| JournalError::io(&folder.path, source);
    let mut replayed = JournalReplay::default();
    let numbers_damaged = restore_numbers(folder, &mut replayed.contents).map_err(failed)?;
    // Counted only in the first pass, because a second pass finds the same damage again.
    replayed.damaged = u64::from(numbers_damaged && distrusted.is_empty());
    let acknowledged = folder.read(ACKNOWLEDGED).map_err(failed)?;
    let acknowledged = acknowledged
        .and_then(|text| Position::parse(&text))
        .unwrap_or(Position::START);
    let segments = folder.segments().map_err(failed)?;
    replayed.next_segment = segments.last().map_or(1, |last| last + 1).max(acknowledged.segment + 1);
    let last = last_with_data(folder, &segments).map_err(failed)?;
    for number in segments {
        // An index does not contain the positions of steps, which are necessary for unacknowledged ones.
        let index = (number < acknowledged.segment && !distrusted.contains(&number))
            .then(|| index::read(folder, number))
            .flatten();
        match index {
            Some(index) => {
                replayed.gaps.on_index(number, &index.steps);
                replayed.contents.add_indexed(number, index);
            }
            None => replay_segment(folder, number, number == last, acknowledged, &mut replayed)?,
        }
    }
    Ok(replayed)
}

/// Reads a segment, truncates it to its valid records, and syncs it.
fn replay_segment(
    folder: &JournalFolder,
    number: u64,
    last: bool,
    acknowledged: Position,
    replayed: &mut JournalReplay,
) -> Result<(), JournalError> {
    let path = folder.segment(number);
    let failed = |source| JournalError::io(&path, source);
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?);
    let mut head = [0; HEADER];
    frame::read_at(&file, &mut head, 0).map_err(failed)?;
    match frame::check_header(&head, &folder.node, number) {
        HeaderCheck::Own => {}
        HeaderCheck::Foreign => return Err(JournalError::Foreign(path)),
        // A crash may leave a new segment without its header.
        HeaderCheck::Damaged if head.iter().all(|byte| *byte == 0) => {}
        HeaderCheck::Damaged => {
            tracing::error!(segment = %path.display(), "the header of a journal segment is damaged; weir reads the segment's records nevertheless");
        }
    }
    let meta = file.metadata().map_err(failed)?;
    let written_ms = meta
        .mtime()
        .saturating_mul(1000)
        .saturating_add(meta.mtime_nsec() / 1_000_000);
    let begin = Position {
        segment: number,
        offset: HEADER as u64,
    };
    replayed.contents.begin_segment(begin, 0, written_ms);
    let end = read_records(
        folder,
        number,
        &file,
        last,
        replayed,
        |replayed, position, end, record| {
            if let Record::Step { account, step } = record {
                replayed.gaps.on_step(account, step.seq, position);
                if position < acknowledged {
                    replayed
                        .contents
                        .accounts
                        .restore_numbers(account.clone(), step.seq, step.seq);
                }
            }
            replayed.contents.add_record(record, position, end, written_ms, false);
        },
    )
    .map_err(failed)?;
    if end <= HEADER as u64 {
        replayed.contents.segments.remove(&number);
        return folder.remove(number).map_err(failed);
    }
    replayed.segments_read.push(number);
    replayed.contents.seal_last();
    let longer = meta.len() > end;
    if longer {
        index::truncate(&file, end, written_ms).map_err(failed)?;
    }
    // The previous process may not have synced the segment.
    if longer || last {
        file.sync_all().map_err(failed)?;
    }
    if let Some(summary) = replayed.contents.segments.get_mut(&number) {
        (summary.end, summary.bytes) = (end, end);
    }
    Ok(())
}

/// Returns two collections. The first contains the requests that have not ended, each with its last checkpoint and the position
/// of its admission. The second contains the segments in which records of such requests are missing.
fn find_unsettled(
    folder: &JournalFolder,
    contents: &JournalContents,
) -> Result<(Vec<LocatedRequest>, BTreeSet<u64>), JournalError> {
    let mut requests: Vec<_> = contents.running.iter().collect();
    requests.sort_unstable_by_key(|(_, request)| request.admitted);
    let mut files = SegmentFiles::default();
    let mut missing = BTreeSet::new();
    let mut found = Vec::new();
    // One record has the last checkpoints of many requests.
    let mut reached: BTreeMap<Position, HashMap<&str, usize>> = BTreeMap::new();
    for (id, request) in requests {
        let Some(Record::Admit(admitted)) = files.read_record(folder, request.admitted)? else {
            missing.insert(request.admitted.segment);
            continue;
        };
        if let Some(position) = request.checkpoint {
            reached.entry(position).or_default().insert(id, found.len());
        }
        found.push((request.admitted, (*admitted, None)));
    }
    for (position, mut requests) in reached {
        if let Some(Record::Checkpoints(checkpoints)) = files.read_record(folder, position)? {
            for checkpoint in checkpoints {
                let index = requests.remove(checkpoint.request.as_str());
                if let Some((_, (_, last))) = index.and_then(|index| found.get_mut(index)) {
                    *last = Some(checkpoint);
                }
            }
        }
        if !requests.is_empty() {
            missing.insert(position.segment);
        }
    }
    Ok((found, missing))
}

/// Reads a segment, saves damaged bytes in quarantine, and calls `each` with every record. Returns the offset after the valid
/// records.
fn read_records(
    folder: &JournalFolder,
    number: u64,
    file: &Arc<File>,
    last: bool,
    replayed: &mut JournalReplay,
    mut each: impl FnMut(&mut JournalReplay, Position, u64, &Record),
) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut frames = FrameReader::new(Arc::clone(file), number, HEADER as u64, length.max(HEADER as u64));
    loop {
        let end = frames.next_offset();
        let place = Position {
            segment: number,
            offset: end,
        };
        let (at, record) = match frames.next_frame()? {
            FrameOutcome::Frame { payload, .. } if frame::is_filler(payload) => {
                replayed.gaps.on_damage(place);
                continue;
            }
            FrameOutcome::Frame { at, payload } => (at, Record::read(payload)),
            FrameOutcome::End if frame::is_zero_from(file, end)? => return Ok(end),
            FrameOutcome::Bad { claimed } if last && is_torn(file, end, claimed)? => return Ok(end),
            FrameOutcome::End | FrameOutcome::Bad { .. } => {
                replayed.damaged += 1;
                replayed.gaps.on_damage(place);
                if frames.skip_damage()? {
                    replace_with_filler(folder, number, file, end, frames.next_offset())?;
                    continue;
                }
                quarantine_end(folder, number, file, end, length)?;
                return Ok(end);
            }
        };
        match record {
            Some(record) => each(replayed, place, frames.next_offset(), &record),
            None => {
                tracing::error!(
                    segment = number,
                    offset = at,
                    "cannot decode a journal record; weir skips the record, and a charge or a change in it may be lost"
                );
            }
        }
    }
}

/// Whether an invalid frame was written last and is incomplete because of a crash. A complete payload contains no zero bytes
/// ([`crate::domain::ledger::journaled`]). Therefore, the first zero byte of the payload marks the end of the written bytes, and
/// only zeros follow it. If other bytes follow it, the frame was not written last.
fn is_torn(file: &File, at: u64, claimed: u64) -> io::Result<bool> {
    let payload = at.saturating_add(frame::HEAD as u64);
    match frame::first_zero(file, payload, at.saturating_add(claimed))? {
        Some(lacking) => frame::is_zero_from(file, lacking),
        None => Ok(false),
    }
}

/// Returns the number of the last segment that has a frame; 0 if no segment has one.
fn last_with_data(folder: &JournalFolder, segments: &[u64]) -> io::Result<u64> {
    for number in segments.iter().rev() {
        let mut head = [0; frame::HEAD];
        frame::read_at(&File::open(folder.segment(*number))?, &mut head, HEADER as u64)?;
        if head.iter().any(|byte| *byte != 0) {
            return Ok(*number);
        }
    }
    Ok(0)
}

/// Restores the step numbers of accounts whose segments may have been removed. Returns whether the file with these numbers is
/// damaged.
fn restore_numbers(folder: &JournalFolder, contents: &mut JournalContents) -> io::Result<bool> {
    let Some(text) = folder.read(NUMBERS)? else {
        return Ok(false);
    };
    let Some(known) = folder::without_checksum(&text)
        .and_then(|body| serde_json::from_str::<HashMap<SmolStr, (u64, u64)>>(body).ok())
    else {
        tracing::error!(
            file = %folder.path.join(NUMBERS).display(),
            "the file of the accounts' last step numbers is damaged: weir takes the numbers from the store and the segments",
        );
        return Ok(true);
    };
    for (account, (last, acknowledged)) in known {
        contents.accounts.restore_numbers(account, last, acknowledged);
    }
    Ok(false)
}

/// Saves the bytes between two valid frames in quarantine and replaces them with filler frames. The file's modification time
/// does not change.
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
        "a part of a journal segment is damaged; weir saves a copy of this part in a file (see the field `kept`) and uses the records before and after the part. Requests that were recorded in the damaged part may remain unbilled",
    );
    Ok(())
}

/// Saves the bytes from `from` to the segment's end in quarantine, because no valid frame follows.
pub(super) fn quarantine_end(folder: &JournalFolder, number: u64, file: &File, from: u64, end: u64) -> io::Result<()> {
    let kept = quarantine(folder, number, file, from, end)?;
    tracing::error!(
        segment = %folder.segment(number).display(), from, kept,
        "the end of a journal segment is damaged; weir saves a copy of the damaged end in a file (see the field `kept`) and uses the records before it. Requests that were recorded in the damaged end may remain unbilled",
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
        let mut frames = FrameReader::new(Arc::clone(&file), number, from, end);
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

/// The steps that weir has so far detected as missing, while it reads the journal at a start. A request whose settlement may be
/// one of these steps must not be charged twice. The caller must report the segments in order.
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

    /// Records that a step was found at this position. If damage was found since the account's previous step, the step numbers
    /// between the two steps are recorded as missing.
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

    /// Records that a segment was restored from its index. `steps` contains the numbers of the first and the last step of each
    /// account in the segment.
    pub(super) fn on_index(&mut self, segment: u64, steps: &QuickMap<SmolStr, (u64, u64)>) {
        let at = Position { segment, offset: 0 };
        for (account, (first, last)) in steps {
            self.on_step(account, *first, at);
            self.last.insert(account.clone(), (*last, at));
        }
    }

    /// Returns the number of a missing step that may be the settlement of a request admitted at this position; `None` if there is
    /// none. Each number is returned once. Call this method once for each request, in the order of the admissions.
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
