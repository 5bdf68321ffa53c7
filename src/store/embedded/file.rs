//! The file of the embedded store's keys and sessions, and how redb files are opened. A commit is on disk when it returns.

use std::{
    collections::HashSet,
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};
use serde::{Deserialize, Serialize};

use crate::{
    domain::{
        keys::{KeyId, KeyRecord, secret::KeyDigest},
        wire::provider_state::StateKey,
    },
    store::{KeyView, StoreError, StoreOpenError, embedded::key_index::KeyMutation},
};

/// Maps a key id to a [`StoredKey`] as JSON.
pub(super) const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");
/// Maps a key id to the key's last use, in seconds since the Unix epoch. It is separate from the record because it changes often.
pub(super) const USED: TableDefinition<'_, &str, i64> = TableDefinition::new("used");
/// The ids of deleted keys. An id is never used again, so these few bytes are kept forever.
pub(super) const GONE: TableDefinition<'_, &str, ()> = TableDefinition::new("gone");
/// A provider can store a state for an account. This table maps the state's key to the provider and credential that serve the
/// state. Each entry also contains the time at which the entry expires, in seconds since the Unix epoch.
const SESSIONS: TableDefinition<'_, &[u8], (i64, &str)> = TableDefinition::new("sessions");
/// Maps the name of a sign-in document to its expiry, in seconds since the Unix epoch, and its text.
pub(super) const DOCUMENTS: TableDefinition<'_, &[u8], (i64, &str)> = TableDefinition::new("documents");
/// Maps the digest of a browser session to the time at which it expires if there is no further visit, in milliseconds since the
/// Unix epoch, and to the session's data as JSON.
pub(super) const WEB_SESSIONS: TableDefinition<'_, &[u8], (i64, &[u8])> = TableDefinition::new("web_sessions");
/// The number of the format that is written here. A file with another format is refused.
const FORMAT: u64 = 1;
const FILE_NAME: &str = "keys.redb";
/// Name of a file that exists in the folder while a backup is being restored. The files of an unfinished restore are not a store.
pub(super) const UNFINISHED: &str = "restore-unfinished";
/// Memory that redb can use to cache pages, in bytes. All keys are in memory anyway, so only writes use it.
const PAGE_CACHE_BYTES: usize = 2 << 20;

pub(super) struct StoreFile {
    /// The open database; `None` once it is closed.
    database: Option<Database>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    digest: String,
    record: KeyRecord,
}

impl StoreFile {
    /// Opens the file `keys.redb` in `folder`. Creates the folder and the file if necessary, with access for their owner only.
    /// Reads and returns all keys, and the ids of deleted keys.
    pub(super) fn open(folder: &Path) -> Result<(Self, Vec<KeyView>, HashSet<KeyId>), StoreOpenError> {
        let path = folder.join(FILE_NAME);
        catch_damage(&path, || {
            let mut database = open(&path, PAGE_CACHE_BYTES)?;
            // redb verifies the checksums of its pages only on request. It repairs its map of free pages here. Damage to the keys
            // is an error, because all commits are two-phase.
            if !database.check_integrity().map_err(|error| open_error(&path, error))? {
                tracing::warn!(path = %path.display(), "the map of free pages in the key store's file was damaged and has been rebuilt; no key is lost");
            }
            let this = Self {
                database: Some(database),
            };
            this.settle_format().map_err(|reason| corrupt(&path, reason))?;
            let keys = this.read_all().map_err(|reason| corrupt(&path, reason))?;
            let gone = this.read_gone().map_err(|reason| corrupt(&path, reason))?;
            Ok((this, keys, gone))
        })
    }

    /// Closes the file. It cannot be used after that.
    pub(super) fn close(&mut self) {
        self.database = None;
    }

    fn database(&self) -> Result<&Database, redb::Error> {
        self.database.as_ref().ok_or(redb::Error::DatabaseClosed)
    }

    /// Begins a transaction that commits in two phases. With one phase, redb would treat damage to the last commit like an
    /// interrupted commit and return to the previous one, which could make a revoked key valid again.
    pub(super) fn begin_write(&self) -> Result<WriteTransaction, redb::Error> {
        let mut transaction = self.database()?.begin_write()?;
        transaction.set_two_phase_commit(true);
        Ok(transaction)
    }

    /// Returns the current content as a snapshot, which can be read without blocking writes.
    pub(super) fn snapshot(&self) -> Result<ReadTransaction, redb::Error> {
        Ok(self.database()?.begin_read()?)
    }

    /// Writes one mutation to the file.
    pub(super) fn commit(&self, step: &KeyMutation) -> Result<(), StoreError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.begin_write()?;
            {
                let mut keys = transaction.open_table(KEYS)?;
                let mut used = transaction.open_table(USED)?;
                let mut gone = transaction.open_table(GONE)?;
                match step {
                    KeyMutation::Nothing(_) => {}
                    KeyMutation::Put(held) => {
                        gone.remove(held.record.id.as_str())?;
                        keys.insert(held.record.id.as_str(), encode(held)?.as_slice())?;
                    }
                    KeyMutation::Remove(id) => {
                        keys.remove(id.as_str())?;
                        used.remove(id.as_str())?;
                        gone.insert(id.as_str(), ())?;
                    }
                }
            }
            Ok(transaction.commit()?)
        };
        write().map_err(unavailable)
    }

    /// Writes a batch of last uses to the file.
    pub(super) fn commit_uses(&self, batch: &[(KeyId, i64)]) -> Result<(), StoreError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.begin_write()?;
            {
                let keys = transaction.open_table(KEYS)?;
                let mut used = transaction.open_table(USED)?;
                for (id, at) in batch {
                    if keys.get(id.as_str())?.is_some() {
                        used.insert(id.as_str(), at)?;
                    }
                }
            }
            Ok(transaction.commit()?)
        };
        write().map_err(unavailable)
    }

    /// Returns, for each state, the text with the provider and credential that serve the state; `None` if no text is stored or
    /// the entry has expired at `now`.
    pub(super) fn sessions<'s>(
        &self,
        states: impl Iterator<Item = &'s [u8]>,
        now: i64,
    ) -> Result<Vec<Option<String>>, StoreError> {
        let read = || -> Result<Vec<Option<String>>, redb::Error> {
            let transaction = self.database()?.begin_read()?;
            let sessions = transaction.open_table(SESSIONS)?;
            let mut texts = Vec::new();
            for state in states {
                let found = sessions.get(state)?;
                texts.push(found.and_then(|found| {
                    let (until, text) = found.value();
                    (until > now).then(|| text.to_owned())
                }));
            }
            Ok(texts)
        };
        read().map_err(unavailable)
    }

    /// Stores which provider and credential serve the states. The new entries expire at `until`, and are on disk when this
    /// returns. If there are more than `most` entries, removes the half that expires first, and all entries that have expired at
    /// `now`.
    pub(super) fn commit_sessions(
        &self,
        served: &[(StateKey, String)],
        now: i64,
        until: i64,
        most: u64,
    ) -> Result<(), StoreError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.begin_write()?;
            {
                let mut sessions = transaction.open_table(SESSIONS)?;
                for (state, text) in served {
                    sessions.insert(state.0.as_slice(), (until, text.as_str()))?;
                }
                if sessions.len()? > most {
                    let mut ends: Vec<i64> = Vec::new();
                    for entry in sessions.iter()? {
                        ends.push(entry?.1.value().0);
                    }
                    ends.sort_unstable();
                    let middle = ends.get(ends.len() / 2).copied().unwrap_or(now).max(now);
                    sessions.retain(|_, (end, _)| end > middle)?;
                }
            }
            Ok(transaction.commit()?)
        };
        write().map_err(unavailable)
    }

    /// Checks that the file has the format that is read here, and creates missing tables.
    fn settle_format(&self) -> Result<(), String> {
        let tables = || -> Result<WriteTransaction, redb::Error> {
            let transaction = self.begin_write()?;
            transaction.open_table(KEYS)?;
            transaction.open_table(USED)?;
            transaction.open_table(SESSIONS)?;
            transaction.open_table(DOCUMENTS)?;
            transaction.open_table(GONE)?;
            transaction.open_table(WEB_SESSIONS)?;
            Ok(transaction)
        };
        settle_format(tables().map_err(|error| error.to_string())?, FORMAT)
    }

    fn read_gone(&self) -> Result<HashSet<KeyId>, String> {
        let read = || -> Result<Vec<String>, redb::Error> {
            let transaction = self.database()?.begin_read()?;
            let gone = transaction.open_table(GONE)?;
            let mut ids = Vec::new();
            for entry in gone.iter()? {
                ids.push(entry?.0.value().to_owned());
            }
            Ok(ids)
        };
        let parse =
            |id: String| KeyId::parse(&id).map_err(|_| "the file contains an invalid id of a deleted key".to_owned());
        read()
            .map_err(|error| error.to_string())?
            .into_iter()
            .map(parse)
            .collect()
    }

    /// Returns all keys. The error describes what cannot be read, and never contains a key's data.
    fn read_all(&self) -> Result<Vec<KeyView>, String> {
        let read = || -> Result<Vec<Result<KeyView, String>>, redb::Error> {
            let transaction = self.database()?.begin_read()?;
            let keys = transaction.open_table(KEYS)?;
            let used = transaction.open_table(USED)?;
            let mut all = Vec::new();
            for entry in keys.iter()? {
                let (id, stored) = entry?;
                let last_used = used.get(id.value())?.map(|at| at.value());
                all.push(decode(id.value(), stored.value(), last_used));
            }
            Ok(all)
        };
        read().map_err(|error| error.to_string())?.into_iter().collect()
    }
}

pub(super) fn encode(held: &KeyView) -> Result<Vec<u8>, redb::Error> {
    let stored = StoredKey {
        digest: held.digest.to_hex(),
        record: held.record.clone(),
    };
    serde_json::to_vec(&stored).map_err(|error| redb::Error::Io(error.into()))
}

pub(super) fn decode(id: &str, stored: &[u8], last_used: Option<i64>) -> Result<KeyView, String> {
    let fault = |what: &str| format!("the record of key {id} {what}");
    let stored: StoredKey = serde_json::from_slice(stored).map_err(|_| fault("is not a key record"))?;
    let digest = KeyDigest::from_hex(&stored.digest).ok_or_else(|| fault("has no digest"))?;
    if stored.record.id.as_str() != id {
        return Err(fault("is that of another key"));
    }
    Ok(KeyView {
        digest,
        record: stored.record,
        last_used,
    })
}

/// Opens the redb file `path`, creating it and its folder if necessary.
pub(super) fn open(path: &Path, page_cache_bytes: usize) -> Result<Database, StoreOpenError> {
    let file = open_file(path).map_err(|error| StoreOpenError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let mut builder = Database::builder();
    builder.set_cache_size(page_cache_bytes);
    builder.create_file(file).map_err(|error| open_error(path, error))
}

/// Runs `work`, which opens and reads a file at the start. redb panics on some damaged pages. Such a panic is returned as an
/// error, and the database is not used afterwards.
pub(super) fn catch_damage<T>(
    path: &Path,
    work: impl FnOnce() -> Result<T, StoreOpenError>,
) -> Result<T, StoreOpenError> {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome.unwrap_or_else(|_| Err(corrupt(path, "pages of the file are damaged".to_owned())))
}

fn open_file(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    if let Some(folder) = path.parent() {
        // A power cut must not lose the name of a file on which other files depend.
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

/// The table that contains the format of a file.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";

/// Writes the format into a new file, or checks the format of an existing file. Commits the tables that were opened in
/// `transaction`.
pub(super) fn settle_format(transaction: WriteTransaction, format: u64) -> Result<(), String> {
    let settle = || -> Result<u64, redb::Error> {
        let found = {
            let mut meta = transaction.open_table(META)?;
            let found = meta.get(META_FORMAT)?.map(|found| found.value());
            if found.is_none() {
                meta.insert(META_FORMAT, format)?;
            }
            found.unwrap_or(format)
        };
        transaction.commit()?;
        Ok(found)
    };
    match settle().map_err(|error| error.to_string())? {
        found if found == format => Ok(()),
        found => Err(format!(
            "the file has format {found}, but this version of weir reads only format {format}"
        )),
    }
}

pub(super) fn open_error(path: &Path, error: DatabaseError) -> StoreOpenError {
    let path = PathBuf::from(path);
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreOpenError::InUse(path),
        DatabaseError::Storage(redb::StorageError::Io(error)) => StoreOpenError::File {
            path,
            reason: error.to_string(),
        },
        other => StoreOpenError::Corrupt {
            path,
            reason: other.to_string(),
        },
    }
}

pub(super) fn corrupt(path: &Path, reason: String) -> StoreOpenError {
    StoreOpenError::Corrupt {
        path: path.to_owned(),
        reason,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is the mapper of map_err")]
pub(super) fn unavailable(error: redb::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot read or write the store's file: {error}"))
}
