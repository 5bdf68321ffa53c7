//! The index of a complete segment. It is a small file next to the segment, `NNN.idx`, with all the data from the segment that
//! weir needs when it starts.
//!
//! With the index, weir need not read the segment. weir ignores an index if its checksum is wrong, if it is from another node, or
//! if it does not match the segment's length. In these cases, weir reads the segment and writes the index again. Therefore the
//! index is not synced.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fs::{self, File, OpenOptions},
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{
    config::JournalSink,
    domain::{
        QuickMap,
        faults::stability::{Hour, ModelCounters},
        keys::KeyId,
        ledger::{AccountChange, Checkpoint, NodeId, Record, Settlement, Step},
    },
    journal::{
        Position, Retainers,
        accounts::{RecordedStep, StepTracker},
        folder::{self, JournalFolder},
        hourly_counts::{self, HourlyCounts},
    },
};

/// The maximum size of an index, in bytes. A segment whose index would be larger, because of very many accounts or running
/// requests, has no index.
const INDEX_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The offsets of a request's records in one segment. The request had not ended when the segment was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenRequest {
    /// The offset of the request's admission; `None` if that is in another segment.
    pub(super) admitted: Option<u64>,
    /// The offset of the request's last checkpoint; `None` if that is in another segment.
    pub(super) checkpoint: Option<u64>,
}

/// The data that is collected only to write the index of a segment.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct IndexDetails {
    /// The offset of the last record of each key.
    pub(super) keys: HashMap<KeyId, u64>,
    /// The offset of the last record of each account.
    pub(super) records: HashMap<SmolStr, u64>,
    /// The requests that were admitted in earlier segments and ended in this one.
    pub(super) ended: Vec<SmolStr>,
    /// The counters of the segment's settled rows, by hour and model.
    pub(super) tallies: BTreeMap<Hour, ModelCounters>,
    /// The requests that have records in the segment and had not ended when the segment was complete; `None` while the segment is
    /// not complete.
    pub(super) left: Option<HashMap<SmolStr, OpenRequest>>,
}

/// All the data from a segment that weir needs when it starts, if all steps of the segment are acknowledged.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SegmentIndex {
    /// The length of the segment's data, which is also the length of its file, in bytes.
    pub(super) end: u64,
    /// The time at which the segment's last record was written, in milliseconds since the Unix epoch.
    pub(super) last_ms: i64,
    /// The offset of the segment's last settlement with a row; `None` if it has none.
    pub(super) last_row: Option<u64>,
    /// The numbers of the first and the last step of each account in the segment.
    pub(super) steps: QuickMap<SmolStr, (u64, u64)>,
    pub(super) rest: IndexDetails,
}

/// The content of an index file, after its checksum.
#[derive(Serialize, Deserialize)]
struct IndexFile<I> {
    node: NodeId,
    segment: u64,
    index: I,
}

/// Reads the index of a segment; `None` if there is no valid one and the segment has to be read.
pub(super) fn read(folder: &JournalFolder, number: u64) -> Option<SegmentIndex> {
    let path = folder.index(number);
    let bytes = fs::metadata(&path).ok()?.len();
    let index = (bytes <= INDEX_BYTES_MAX)
        .then(|| parse(folder, number, &fs::read_to_string(&path).ok()?))
        .flatten();
    if index.is_none() {
        tracing::warn!(
            index = %path.display(),
            "cannot use the index of a journal segment, because it does not match the segment: the segment is read instead"
        );
    }
    index
}

fn parse(folder: &JournalFolder, number: u64, text: &str) -> Option<SegmentIndex> {
    let body = folder::without_checksum(text)?;
    let written: IndexFile<SegmentIndex> = serde_json::from_str(body).ok()?;
    let length = fs::metadata(folder.segment(number)).ok()?.len();
    let fits = written.node == folder.node && written.segment == number && written.index.end == length;
    fits.then_some(written.index)
}

/// Truncates a complete segment to its data and writes its index.
pub(super) fn write(folder: &JournalFolder, number: u64, index: &SegmentIndex) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(folder.segment(number))?;
    truncate(&file, index.end, index.last_ms)?;
    let written = IndexFile {
        node: folder.node.clone(),
        segment: number,
        index,
    };
    let text = folder::with_checksum(&serde_json::to_string(&written)?);
    if text.len() as u64 > INDEX_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    folder.write_index(number, text.as_bytes())
}

/// Truncates a segment to its data. Sets the file's modification time to the time of the segment's last record, because the
/// segment's age is computed from the modification time.
pub(super) fn truncate(file: &File, end: u64, last_ms: i64) -> io::Result<()> {
    file.set_len(end)?;
    let since = Duration::from_millis(u64::try_from(last_ms).unwrap_or(0));
    file.set_modified(SystemTime::UNIX_EPOCH + since)
}

/// The facts about one segment that the journal holds in memory.
#[derive(Debug, Default)]
pub(super) struct SegmentSummary {
    /// The offset after the segment's last frame.
    pub(super) end: u64,
    /// The segment's size on disk, in bytes.
    pub(super) bytes: u64,
    /// The numbers of the first and the last step of each account in the segment.
    pub(super) steps: QuickMap<SmolStr, (u64, u64)>,
    /// The number of requests that were admitted in the segment and have not ended.
    pub(super) running: u64,
    /// The time at which the segment's last record was written, in milliseconds since the Unix epoch.
    pub(super) last_ms: i64,
    /// The offset of the segment's last settlement with a row; `None` if it has none.
    pub(super) last_row: Option<u64>,
    /// The remaining data for the segment's index; `None` if the segment already has an index, or must not get one.
    pub(super) index_details: Option<Box<IndexDetails>>,
}

/// The positions of the records of a request that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningRequest {
    /// The position of the request's admission.
    pub(super) admitted: Position,
    /// The position of the request's last checkpoint; `None` if it has none.
    pub(super) checkpoint: Option<Position>,
}

/// The facts about all segments that the journal holds in memory.
#[derive(Debug, Default)]
pub(super) struct JournalContents {
    pub(super) segments: BTreeMap<u64, SegmentSummary>,
    pub(super) accounts: StepTracker,
    /// The requests that have not ended, by their ids.
    pub(super) running: QuickMap<SmolStr, RunningRequest>,
    /// The position of the last record of each key.
    pub(super) keys: HashMap<KeyId, Position>,
    /// The position of the last record of each account.
    pub(super) records: HashMap<SmolStr, Position>,
    /// The counters of settled rows by hour and model.
    pub(super) hourly_counts: HourlyCounts,
    /// The position up to which all rows are published in the stability record.
    pub(super) published: Position,
    /// The positions of the sinks.
    pub(super) retainers: Retainers,
    /// For each account, the holder of the last lease from which an earlier process admitted a request of the account.
    pub(super) lessees: HashMap<SmolStr, NodeId>,
}

impl JournalContents {
    /// Adds a new segment. The previous one is complete.
    pub(super) fn begin_segment(&mut self, position: Position, bytes: u64, at_ms: i64) {
        self.seal_last();
        let summary = SegmentSummary {
            end: position.offset,
            bytes,
            last_ms: at_ms,
            index_details: Some(Box::default()),
            ..SegmentSummary::default()
        };
        self.segments.insert(position.segment, summary);
    }

    /// Completes the last segment: records which requests are running, because the segment's index needs this list.
    pub(super) fn seal_last(&mut self) {
        let Some(mut last) = self.segments.last_entry() else {
            return;
        };
        let number = *last.key();
        let Some(rest) = last.get_mut().index_details.as_mut().filter(|rest| rest.left.is_none()) else {
            return;
        };
        let here = |position: Position| (position.segment == number).then_some(position.offset);
        let left = self.running.iter().map(|(request, places)| {
            let left = OpenRequest {
                admitted: here(places.admitted),
                checkpoint: places.checkpoint.and_then(here),
            };
            (request, left)
        });
        let left = left.filter(|(_, left)| *left != OpenRequest::default());
        rest.left = Some(left.map(|(request, left)| (request.clone(), left)).collect());
    }

    /// Cancels the indexes that are not written yet. After a failed sync, their segments may not be on disk.
    pub(super) fn cancel_indexes(&mut self) {
        for segment in self.segments.values_mut() {
            segment.index_details = None;
        }
    }

    /// Finds the first complete segment that precedes the segment `end` and has no index yet. Returns the number of this segment
    /// and the content for its index; `None` if there is no such segment.
    pub(super) fn take_index(&mut self, end: u64) -> Option<(u64, SegmentIndex)> {
        let mut complete = self.segments.range_mut(..end);
        complete.find_map(|(number, segment)| {
            let rest = segment.index_details.take_if(|rest| rest.left.is_some())?;
            let index = SegmentIndex {
                end: segment.end,
                last_ms: segment.last_ms,
                last_row: segment.last_row,
                steps: segment.steps.clone(),
                rest: *rest,
            };
            Some((*number, index))
        })
    }

    /// Adds the next segment from its index. The store must have acknowledged all steps of the segment.
    pub(super) fn add_indexed(&mut self, number: u64, index: SegmentIndex) {
        let at = |offset: u64| Position {
            segment: number,
            offset,
        };
        let rest = index.rest;
        for request in &rest.ended {
            self.remove_running(request);
        }
        for (account, (_, last)) in &index.steps {
            self.accounts.restore_numbers(account.clone(), *last, *last);
        }
        let keys = rest.keys.into_iter().map(|(key, offset)| (key, at(offset)));
        self.keys.extend(keys);
        let records = rest.records.into_iter().map(|(account, offset)| (account, at(offset)));
        self.records.extend(records);
        self.hourly_counts.add_segment(&rest.tallies, index.last_row.map(at));
        let mut running = 0;
        for (request, left) in rest.left.into_iter().flatten() {
            let checkpoint = left.checkpoint.map(at);
            match (self.running.entry(request), left.admitted) {
                (Entry::Occupied(mut known), _) => {
                    let known = known.get_mut();
                    known.checkpoint = checkpoint.or(known.checkpoint);
                }
                (Entry::Vacant(free), Some(offset)) => {
                    let admitted = at(offset);
                    free.insert(RunningRequest { admitted, checkpoint });
                    running += 1;
                }
                // The record of the request's admission is lost.
                (Entry::Vacant(_), None) => {}
            }
        }
        let summary = SegmentSummary {
            end: index.end,
            bytes: index.end,
            steps: index.steps,
            running,
            last_ms: index.last_ms,
            last_row: index.last_row,
            index_details: None,
        };
        self.segments.insert(number, summary);
    }

    /// Adds a record that begins at `position` and ends at offset `end`. `live` is true if this process has written the record.
    pub(super) fn add_record(&mut self, record: &Record, position: Position, end: u64, at_ms: i64, live: bool) {
        self.extend_segment(position, end, at_ms);
        match record {
            Record::Admit(admitted) => {
                if let Entry::Vacant(free) = self.running.entry(admitted.row.request_id.clone()) {
                    free.insert(RunningRequest {
                        admitted: position,
                        checkpoint: None,
                    });
                    if let Some(segment) = self.segments.get_mut(&position.segment) {
                        segment.running += 1;
                    }
                }
            }
            Record::Checkpoints(checkpoints) => self.set_checkpoints(checkpoints, position),
            Record::Step { account, step } => self.add_step(account, step, position, at_ms, live),
            Record::Key { record, .. } => self.add_key(&record.id, position),
            Record::KeyGone { id, .. } => self.add_key(id, position),
            Record::Account { account, .. } => self.add_account(account, position),
        }
    }

    /// Adds a record of checkpoints that begins at `position` and ends at offset `end`.
    pub(super) fn add_checkpoints(&mut self, checkpoints: &[Checkpoint], position: Position, end: u64, at_ms: i64) {
        self.extend_segment(position, end, at_ms);
        self.set_checkpoints(checkpoints, position);
    }

    fn extend_segment(&mut self, position: Position, end: u64, at_ms: i64) {
        let segment = self.segments.entry(position.segment).or_default();
        segment.end = end;
        segment.last_ms = at_ms;
    }

    fn set_checkpoints(&mut self, checkpoints: &[Checkpoint], position: Position) {
        for checkpoint in checkpoints {
            if let Some(request) = self.running.get_mut(&checkpoint.request) {
                request.checkpoint = Some(position);
            }
        }
    }

    fn add_key(&mut self, id: &KeyId, position: Position) {
        self.keys.insert(id.clone(), position);
        if let Some(rest) = self.details_mut(position.segment) {
            rest.keys.insert(id.clone(), position.offset);
        }
    }

    fn add_account(&mut self, account: &SmolStr, position: Position) {
        self.records.insert(account.clone(), position);
        if let Some(rest) = self.details_mut(position.segment) {
            rest.records.insert(account.clone(), position.offset);
        }
    }

    fn add_step(&mut self, account: &str, step: &Step, position: Position, at_ms: i64, live: bool) {
        if let Some(segment) = self.segments.get_mut(&position.segment) {
            match segment.steps.get_mut(account) {
                Some((_, last)) => *last = step.seq.max(*last),
                None => {
                    segment.steps.insert(account.into(), (step.seq, step.seq));
                }
            }
        }
        let mut is_patient = false;
        let key = match &step.change {
            AccountChange::Settle(settlement) => {
                self.on_settlement(settlement, position);
                is_patient = settlement.lease.is_some();
                if let Some(lease) = settlement.lease.as_ref().filter(|_| !live) {
                    self.lessees.insert(account.into(), lease.holder.clone());
                }
                // The store itself counts the running requests of a lease.
                (live && !is_patient).then(|| Arc::new(settlement.key.clone()))
            }
            AccountChange::Open { .. } | AccountChange::Credit { .. } | AccountChange::Adjust { .. } => None,
        };
        let place = RecordedStep {
            seq: step.seq,
            position,
            at_ms,
            key,
            is_patient,
            cached_step: None,
        };
        self.accounts.add(account, place);
    }

    fn on_settlement(&mut self, settlement: &Settlement, position: Position) {
        let admitted_in = self.remove_running(&settlement.request);
        if admitted_in.is_some_and(|number| number != position.segment)
            && let Some(rest) = self.details_mut(position.segment)
        {
            rest.ended.push(settlement.request.clone());
        }
        let Some(row) = &settlement.row else { return };
        self.hourly_counts.count_row(row, position);
        if let Some(segment) = self.segments.get_mut(&position.segment) {
            segment.last_row = Some(position.offset);
            if let Some(rest) = &mut segment.index_details {
                hourly_counts::count(row, |hour| rest.tallies.entry(hour).or_default());
            }
        }
    }

    /// Removes a request that has ended. Returns the number of the segment in which it was admitted; `None` if the request is
    /// unknown.
    fn remove_running(&mut self, request: &str) -> Option<u64> {
        let number = self.running.remove(request)?.admitted.segment;
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.running = segment.running.saturating_sub(1);
        }
        Some(number)
    }

    fn details_mut(&mut self, number: u64) -> Option<&mut IndexDetails> {
        self.segments.get_mut(&number)?.index_details.as_deref_mut()
    }

    /// Whether neither settlement nor the stability record needs the segment any more.
    pub(super) fn is_settled(&self, number: u64) -> bool {
        self.segments.get(&number).is_some_and(|segment| {
            let acknowledged = |(name, (_, last)): (&SmolStr, &(u64, u64))| self.accounts.watermark(name) >= *last;
            let told = |offset: u64| {
                let segment = number;
                self.published >= Position { segment, offset }
            };
            segment.running == 0 && segment.steps.iter().all(acknowledged) && segment.last_row.is_none_or(told)
        })
    }

    /// Whether every sink has the segment's rows, and an embedded store has written all of the segment's steps to its file. If
    /// the disk is nearly full (`short`), only the required sinks count.
    pub(super) fn is_delivered(&self, number: u64, short: bool) -> bool {
        let store = self.retainers.get(JournalSink::EMBEDDED_STORE.name);
        let written = store.is_none_or(|store| store.passed.segment > number);
        written
            && self.segments.get(&number).is_some_and(|segment| {
                let last = segment.last_row.map(|offset| Position {
                    segment: number,
                    offset,
                });
                last.is_none_or(|last| self.retainers.can_remove(last, short))
            })
    }

    /// Removes the facts about a segment whose file was removed.
    pub(super) fn remove_segment(&mut self, number: u64, now_ms: i64) {
        self.segments.remove(&number);
        self.keys.retain(|_, position| position.segment != number);
        self.records.retain(|_, position| position.segment != number);
        self.hourly_counts.remove_segment(number, Hour::from_unix_ms(now_ms));
    }

    /// Returns the names of all accounts with steps in the segments.
    pub(super) fn account_names(&self) -> Vec<SmolStr> {
        let mut names: Vec<SmolStr> = self
            .segments
            .values()
            .flat_map(|segment| segment.steps.keys().cloned())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
