//! The index of a complete segment: a small file next to it, `NNN.idx`, with everything that a start needs of the segment.
//!
//! It only saves reading the segment. An index with a wrong checksum, of another node, or for another segment length is
//! ignored, and written again after the segment was read. Therefore it is not synced.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters},
        keys::key::KeyId,
        ledger::NodeId,
        quick_map::QuickMap,
    },
    journal::{checked, folder::JournalFolder},
};

/// The largest index. A segment that would need a larger one, for very many accounts or running requests, gets none.
const INDEX_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The records in a segment of a request that had not ended: the offsets where they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenRequest {
    /// Its admission, if that is in this segment.
    pub(super) admitted: Option<u64>,
    /// Its last checkpoint, if that is in this segment.
    pub(super) checkpoint: Option<u64>,
}

/// The part of an index that is collected only for it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct IndexDetails {
    /// Where the last record of each key begins.
    pub(super) keys: HashMap<KeyId, u64>,
    /// Where the last record of each account begins.
    pub(super) records: HashMap<SmolStr, u64>,
    /// Requests of earlier segments that ended in this one.
    pub(super) ended: Vec<SmolStr>,
    /// The counts of the segment's settled rows, by hour and model.
    pub(super) tallies: BTreeMap<Hour, ModelCounters>,
    /// Requests with records in the segment that had not ended when it was complete; `None` while it is not.
    pub(super) left: Option<HashMap<SmolStr, OpenRequest>>,
}

/// All that a start needs to know of a segment whose steps are all acknowledged.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SegmentIndex {
    /// The length of its data, and of its file.
    pub(super) end: u64,
    /// When its last record was written, in milliseconds since the Unix epoch.
    pub(super) last_ms: i64,
    /// The offset of its last settlement with a row, if it has any.
    pub(super) last_row: Option<u64>,
    /// The first and the last step of each account.
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

/// The index of a segment; `None` if the segment has to be read.
pub(super) fn read(folder: &JournalFolder, number: u64) -> Option<SegmentIndex> {
    let path = folder.index(number);
    let bytes = fs::metadata(&path).ok()?.len();
    let index = (bytes <= INDEX_BYTES_MAX)
        .then(|| parse(folder, number, &fs::read_to_string(&path).ok()?))
        .flatten();
    if index.is_none() {
        tracing::warn!(
            index = %path.display(),
            "the index of a journal segment does not match its segment: the segment is read instead"
        );
    }
    index
}

fn parse(folder: &JournalFolder, number: u64, text: &str) -> Option<SegmentIndex> {
    let body = checked::without_checksum(text)?;
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
    let text = checked::with_checksum(&serde_json::to_string(&written)?);
    if text.len() as u64 > INDEX_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    folder.write_index(number, text.as_bytes())
}

/// Truncates a segment to its data. Its modification time stays that of its last record, which is its age.
pub(super) fn truncate(file: &File, end: u64, last_ms: i64) -> io::Result<()> {
    file.set_len(end)?;
    let since = Duration::from_millis(u64::try_from(last_ms).unwrap_or(0));
    file.set_modified(SystemTime::UNIX_EPOCH + since)
}
