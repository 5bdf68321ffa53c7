//! The index of a complete segment: what a start needs of it, in a small file next to it, `NNN.idx`.
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
        faults::stability::{Bucket, Hour},
        keys::key::KeyId,
        ledger::NodeId,
        quick_map::QuickMap,
    },
    journal::{checked, folder::Folder},
};

/// The largest index. A segment that would need a larger one, of very many accounts or running requests, is read.
const INDEX_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a segment leaves open of a request: the bytes in it where its records begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Left {
    /// Its admission, if that is in this segment.
    pub(super) admitted: Option<u64>,
    /// Its last checkpoint, if that is in this segment.
    pub(super) checkpoint: Option<u64>,
}

/// What is gathered for an index and not needed otherwise.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Rest {
    /// Where the last record of each key begins.
    pub(super) keys: HashMap<KeyId, u64>,
    /// Where the last record of each account begins.
    pub(super) records: HashMap<SmolStr, u64>,
    /// Requests of earlier segments that ended in this one.
    pub(super) ended: Vec<SmolStr>,
    /// What the segment's settled rows count, by hour and model.
    pub(super) tallies: BTreeMap<Hour, Bucket>,
    /// Requests with records in it that had not ended when it was complete; `None` before it is.
    pub(super) left: Option<HashMap<SmolStr, Left>>,
}

/// All that a start needs to know of a segment whose steps are all acknowledged.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Index {
    /// Where its data end; its file is as long.
    pub(super) end: u64,
    /// When its last record was written, in milliseconds since the Unix epoch.
    pub(super) last_ms: i64,
    /// Where the last row of a billed request begins, if it has any.
    pub(super) last_row: Option<u64>,
    /// The first and the last step of each account.
    pub(super) steps: QuickMap<SmolStr, (u64, u64)>,
    pub(super) rest: Rest,
}

/// The file, behind its checksum.
#[derive(Serialize, Deserialize)]
struct Written<I> {
    node: NodeId,
    segment: u64,
    index: I,
}

/// The index of a segment; `None`: the segment has to be read.
pub(super) fn read(folder: &Folder, number: u64) -> Option<Index> {
    let path = folder.index(number);
    let bytes = fs::metadata(&path).ok()?.len();
    let index = (bytes <= INDEX_BYTES_MAX)
        .then(|| parse(folder, number, &fs::read_to_string(&path).ok()?))
        .flatten();
    if index.is_none() {
        tracing::warn!(
            index = %path.display(),
            "the index of a journal segment does not fit its segment, the segment is read instead"
        );
    }
    index
}

fn parse(folder: &Folder, number: u64, text: &str) -> Option<Index> {
    let body = checked::body(text)?;
    let written: Written<Index> = serde_json::from_str(body).ok()?;
    let length = fs::metadata(folder.segment(number)).ok()?.len();
    let fits = written.node == folder.node && written.segment == number && written.index.end == length;
    fits.then_some(written.index)
}

/// Cuts a complete segment to its data and writes its index.
pub(super) fn write(folder: &Folder, number: u64, index: &Index) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(folder.segment(number))?;
    cut(&file, index.end, index.last_ms)?;
    let written = Written {
        node: folder.node.clone(),
        segment: number,
        index,
    };
    let text = checked::text(&serde_json::to_string(&written)?);
    if text.len() as u64 > INDEX_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    folder.place_index(number, text.as_bytes())
}

/// Cuts off what stands behind a segment's data. Its time stays that of the last record: it says how old the segment is.
pub(super) fn cut(file: &File, end: u64, last_ms: i64) -> io::Result<()> {
    file.set_len(end)?;
    let since = Duration::from_millis(u64::try_from(last_ms).unwrap_or(0));
    file.set_modified(SystemTime::UNIX_EPOCH + since)
}
