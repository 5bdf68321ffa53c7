//! The content of a store as a sequence of items that does not depend on the engine. Backups consist of these items.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use smol_str::SmolStr;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters},
        keys::{KeyId, KeyRecord, secret::KeyDigest},
        ledger::{
            NodeId,
            account::{AccountSummary, key::AccountKey, operations::RecordedOperation},
            consumption::Row,
            daily_sums::{DailySums, Sums},
        },
    },
    store::StoreError,
};

/// One item of a store's content. Data that expires or ends by itself is not archived: holds, leases, rate-limit buckets,
/// sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArchiveItem {
    /// A key, with its record.
    Key {
        /// The digest by which the key is found.
        digest: KeyDigest,
        /// The key's record.
        record: Box<KeyRecord>,
        /// The time of the key's last use, in seconds since the Unix epoch; `None` if it was never used.
        last_used: Option<i64>,
    },
    /// The id of a deleted key.
    KeyGone {
        /// The deleted key's id.
        id: KeyId,
    },
    /// An account: balance, limits and watermarks.
    Account {
        /// The account's name.
        id: String,
        /// The account's balance, limits and watermarks.
        standing: Box<AccountSummary>,
        /// The operations that the account stores, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        operations: Vec<RecordedOperation>,
    },
    /// The data of an account about one of its keys: its copy of the key's terms, and the key's counters.
    AccountKey {
        /// The account to which the key belongs.
        account: String,
        /// The key's id.
        id: KeyId,
        /// The copy of the key's terms, and the key's spending.
        state: Box<AccountKey>,
    },
    /// The sums of one subject over an account's rows of a day, by model. If several items have the same day and subject, the
    /// last one is valid: rows may be added to a day while it is read.
    DaySums {
        /// The account's name.
        account: String,
        /// The day, as the number of days since the Unix epoch, in UTC.
        day: i64,
        /// The subject's name in the stores: `a` (the account), `k:KEY_ID`, `t:TAG`, or `o` (all tags without sums of their own).
        subject: String,
        /// The subject's sums by model.
        models: BTreeMap<SmolStr, Sums>,
    },
    /// A row of the consumption log, from a store that keeps the log. The sums of the row's day already include it. The rows of
    /// one account and day are in their original order.
    Row { row: Box<Row> },
    /// The stability counters of one node for one hour.
    Stability {
        /// The node that counted.
        node: NodeId,
        /// The hour, in UTC.
        hour: Hour,
        /// The hour's counters by model.
        bucket: ModelCounters,
    },
}

impl ArchiveItem {
    /// Returns the sums of an account's day as items.
    pub(crate) fn day_sums(account: &str, day: i64, sums: &DailySums) -> Vec<Self> {
        let mut subjects: BTreeMap<String, BTreeMap<SmolStr, Sums>> = BTreeMap::new();
        for sum in sums.iter().filter(|sum| sum.day == day) {
            let models = subjects.entry(sum.subject.store_name()).or_default();
            models.insert(sum.model, sum.sums);
        }
        let items = subjects.into_iter().map(|(subject, models)| Self::DaySums {
            account: account.to_owned(),
            day,
            subject,
            models,
        });
        items.collect()
    }
}

/// A part of a store that can be backed up and restored.
#[async_trait]
pub(crate) trait Archive: Send + Sync {
    /// Sends all items to `to`. An account is sent with its keys, sums and rows as of one moment, so that the log and the
    /// counters agree. Ends early if the receiver is dropped. Returns [`StoreError::Busy`] if rows were added faster than they
    /// were read. The caller must then start again.
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError>;

    /// Whether the store has no key and no account. The store may contain hours of the stability record, because a restore merges
    /// them with the hours in the backup.
    async fn is_empty(&self) -> Result<bool, StoreError>;

    /// Adds items to a store that was empty before. Ignores items that belong to another part of the store. The items are on disk
    /// when this returns.
    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError>;
}

/// Several archives as one: first the keys, then the accounts with their log.
pub(crate) struct Archives(pub Vec<Arc<dyn Archive>>);

#[async_trait]
impl Archive for Archives {
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        for archive in &self.0 {
            archive.dump(to.clone()).await?;
        }
        Ok(())
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        for archive in &self.0 {
            if !archive.is_empty().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        for archive in &self.0 {
            archive.load(items).await?;
        }
        Ok(())
    }
}

/// The version of the backup format. Backups of other versions are refused: in earlier versions, the daily sums include only the rows
/// that the backup contains.
pub(crate) const FORMAT: u32 = 4;
/// Maximum length of a line, in bytes. Every item is much shorter.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// Maximum number of items that wait to be written. If a client reads slowly, the store sends slowly too.
const ITEMS_WAITING: usize = 256;
/// The size that a piece of a backup must reach before it is sent, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// The first line of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupHeader {
    /// The number of the backup format.
    pub weir_backup: u32,
    /// The time at which the backup was started, in RFC 3339 format.
    pub time: String,
    /// The engine that wrote the backup, as information for operators. Any engine can read the backup.
    pub engine: String,
    /// The generation of the store, by which nodes recognise it; `None` for an engine without one.
    pub generation: Option<String>,
}

/// The last line of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupTrailer {
    /// The number of items in the backup.
    pub items: u64,
    /// The SHA-256 of all bytes before this line, in hexadecimal digits.
    pub sha256: String,
}

#[derive(Serialize, Deserialize)]
struct TrailerLine {
    end: BackupTrailer,
}

/// The reason why a backup cannot be read. After such an error, nothing of the backup has been used.
#[derive(Debug, Error)]
pub(crate) enum BackupError {
    /// The file could not be read.
    #[error("cannot read the backup: {0}")]
    Io(#[from] io::Error),
    /// The file is not a backup.
    #[error("this file is not a weir backup: its first line is not a backup header")]
    NoBackup,
    /// The backup was written by an earlier or a later weir, in another format.
    #[error(
        "the backup has format {0}, but this version of weir reads only format {FORMAT}; restore the backup with the version that wrote it"
    )]
    Format(u32),
    /// The last line of the backup is missing.
    #[error("the backup is incomplete: its last line is missing")]
    CutShort,
    /// The last line does not match the lines before it.
    #[error("the backup is damaged: its content does not match the checksum or the number of items in its last line")]
    Damaged,
    /// A line is too long, or is not the JSON of an item.
    #[error("line {0} of the backup is invalid or too long")]
    Line(u64),
}

/// An encoder for the lines of a backup. It counts the items and hashes the lines.
#[derive(Default)]
pub(crate) struct BackupEncoder {
    hash: Sha256,
    items: u64,
}

impl BackupEncoder {
    /// Returns the first line.
    ///
    /// # Errors
    /// Never in practice: every header can be written as JSON.
    pub(crate) fn header(&mut self, header: &BackupHeader) -> serde_json::Result<Vec<u8>> {
        self.line(header)
    }

    /// Returns the line of an item.
    ///
    /// # Errors
    /// Never in practice: every item can be written as JSON.
    pub(crate) fn item(&mut self, item: &ArchiveItem) -> serde_json::Result<Vec<u8>> {
        self.items += 1;
        self.line(item)
    }

    /// Returns the last line.
    ///
    /// # Errors
    /// Never in practice.
    pub(crate) fn end(self) -> serde_json::Result<Vec<u8>> {
        let end = BackupTrailer {
            items: self.items,
            sha256: hex(self.hash),
        };
        let mut line = serde_json::to_vec(&TrailerLine { end })?;
        line.push(b'\n');
        Ok(line)
    }

    fn line(&mut self, value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.hash.update(&line);
        Ok(line)
    }
}

/// Reads a backup to its end in constant memory, and checks that it is complete and undamaged. Returns its first and last lines.
///
/// # Errors
/// The backup is incomplete, damaged, or not readable by this weir.
pub(crate) fn check(bytes: impl Read) -> Result<(BackupHeader, BackupTrailer), BackupError> {
    let mut lines = BackupLines::new(bytes);
    let first = lines.next_line()?.ok_or(BackupError::NoBackup)?;
    let header: BackupHeader = serde_json::from_slice(&first).map_err(|_| BackupError::NoBackup)?;
    if header.weir_backup != FORMAT {
        return Err(BackupError::Format(header.weir_backup));
    }
    let mut hash = Sha256::new();
    let mut items = 0;
    let mut before = first;
    loop {
        let Some(line) = lines.next_line()? else {
            return Err(BackupError::CutShort);
        };
        hash.update(&before);
        if let Some(end) = parse_trailer(&line) {
            let is_whole = end.items == items && end.sha256 == hex(hash) && lines.next_line()?.is_none();
            return if is_whole {
                Ok((header, end))
            } else {
                Err(BackupError::Damaged)
            };
        }
        serde_json::from_slice::<ArchiveItem>(&line).map_err(|_| BackupError::Line(lines.number))?;
        items += 1;
        before = line;
    }
}

/// The items of a backup that [`check`] has accepted.
pub(crate) struct BackupItems {
    lines: BackupLines<File>,
}

impl BackupItems {
    /// Opens the file and skips the header.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self, BackupError> {
        let mut lines = BackupLines::new(File::open(path)?);
        lines.next_line()?;
        Ok(Self { lines })
    }

    /// Returns the next items, at most `most`; empty at the end of the backup.
    ///
    /// # Errors
    /// The file has changed since it was checked.
    pub(crate) fn next_batch(&mut self, most: usize) -> Result<Vec<ArchiveItem>, BackupError> {
        let mut batch = Vec::new();
        while batch.len() < most {
            let line = self.lines.next_line()?.ok_or(BackupError::CutShort)?;
            if parse_trailer(&line).is_some() {
                // The last line is kept, so that the next call returns no items.
                self.lines.end_line = Some(line);
                break;
            }
            batch.push(serde_json::from_slice(&line).map_err(|_| BackupError::Line(self.lines.number))?);
        }
        Ok(batch)
    }
}

/// Sends a complete backup, in pieces of about `PIECE_BYTES`.
///
/// # Errors
/// The store does not send everything. Then the last line is missing.
pub(crate) async fn send_backup(
    archive: &dyn Archive,
    header: &BackupHeader,
    to: mpsc::Sender<Vec<u8>>,
) -> Result<(), StoreError> {
    let (items_to, mut items) = mpsc::channel(ITEMS_WAITING);
    let unwritable = |_| StoreError::Corrupt("cannot encode an item of the backup".to_owned());
    let encoding = async move {
        let mut encoder = BackupEncoder::default();
        let mut piece = encoder.header(header).map_err(unwritable)?;
        while let Some(item) = items.recv().await {
            piece.extend(encoder.item(&item).map_err(unwritable)?);
            if piece.len() >= PIECE_BYTES && to.send(std::mem::take(&mut piece)).await.is_err() {
                break;
            }
        }
        Ok((encoder, piece, to))
    };
    let (dumped, encoded) = tokio::join!(archive.dump(items_to), encoding);
    let (encoder, mut piece, to) = encoded?;
    if dumped.is_ok() {
        piece.extend(encoder.end().map_err(unwritable)?);
    }
    // If the receiver was dropped, it does not need the last piece.
    let _ = to.send(piece).await;
    dumped
}

fn parse_trailer(line: &[u8]) -> Option<BackupTrailer> {
    line.starts_with(b"{\"end\":")
        .then(|| serde_json::from_slice::<TrailerLine>(line).ok())
        .flatten()
        .map(|line| line.end)
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

struct BackupLines<R> {
    reader: BufReader<R>,
    number: u64,
    end_line: Option<Vec<u8>>,
}

impl<R: Read> BackupLines<R> {
    fn new(bytes: R) -> Self {
        Self {
            reader: BufReader::new(bytes),
            number: 0,
            end_line: None,
        }
    }

    /// Returns the next line with its line feed; `None` at the end of the file. A line without a line feed is an error.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, BackupError> {
        if self.end_line.is_some() {
            return Ok(self.end_line.clone());
        }
        let mut line = Vec::new();
        self.number += 1;
        self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) if u64::try_from(line.len()).is_ok_and(|length| length < LINE_BYTES_MAX) => {
                Err(BackupError::CutShort)
            }
            Some(_) => Err(BackupError::Line(self.number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::id;

    fn backup() -> Vec<u8> {
        let mut encoder = BackupEncoder::default();
        let header = BackupHeader {
            weir_backup: FORMAT,
            time: "2026-11-21T12:00:00Z".into(),
            engine: "embedded".into(),
            generation: None,
        };
        let mut bytes = encoder.header(&header).unwrap();
        for number in 1..=3 {
            bytes.extend(encoder.item(&ArchiveItem::KeyGone { id: id(number) }).unwrap());
        }
        bytes.extend(encoder.end().unwrap());
        bytes
    }

    #[test]
    fn a_backup_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        std::fs::write(&path, backup()).unwrap();
        assert_eq!(check(File::open(&path).unwrap()).unwrap().1.items, 3);
        let mut items = BackupItems::open(&path).unwrap();
        let sizes: Vec<usize> = (0..4).map(|_| items.next_batch(2).unwrap().len()).collect();
        assert_eq!(sizes, [2, 1, 0, 0]);
    }

    #[test]
    fn no_part_and_no_changed_byte_of_a_backup_passes_for_one() {
        let whole = backup();
        for length in 0..whole.len() {
            assert!(check(&whole[..length]).is_err(), "{length} bytes");
        }
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            assert!(check(&*bytes).is_err(), "byte {place}");
        }
        let mut longer = whole.clone();
        longer.extend(b"{}\n");
        assert!(matches!(check(&*longer), Err(BackupError::Damaged)));
    }

    #[test]
    fn a_backup_of_another_format_is_refused_with_the_weir_that_reads_it() {
        let whole = String::from_utf8(backup()).unwrap();
        for format in [1, 2, 3, 5] {
            let other = whole.replacen("\"weir_backup\":4", &format!("\"weir_backup\":{format}"), 1);
            let refused = check(other.as_bytes()).unwrap_err().to_string();
            let said = format!("the backup has format {format}, but this version of weir reads only format 4");
            assert!(
                refused.starts_with(&said) && refused.contains("the version that wrote it"),
                "{refused}"
            );
        }
    }
}
