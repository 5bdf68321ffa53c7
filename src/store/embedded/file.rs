//! The durable form of the embedded store: one redb file, and how redb files are opened. Every commit is on disk when it returns.

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
        keys::{
            key::{KeyId, KeyRecord},
            secret::KeyDigest,
        },
        wire::provider_state::StateKey,
    },
    store::{KeyView, StoreError, StoreOpenError, embedded::key_index::KeyMutation},
};

/// Key id to a [`StoredKey`] as JSON.
pub(super) const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");
/// Key id to the last use in seconds since the Unix epoch. Apart from the record, because it changes all the time.
pub(super) const USED: TableDefinition<'_, &str, i64> = TableDefinition::new("used");
/// The ids of deleted keys. Ids are never drawn again, so these few bytes stay.
pub(super) const GONE: TableDefinition<'_, &str, ()> = TableDefinition::new("gone");
/// State at a provider to the end of its lifetime here, in seconds since the Unix epoch, and the provider and credential that
/// serve it.
const SESSIONS: TableDefinition<'_, &[u8], (i64, &str)> = TableDefinition::new("sessions");
/// The name of a sign-in document to its end, in seconds since the Unix epoch, and its text.
pub(super) const DOCUMENTS: TableDefinition<'_, &[u8], (i64, &str)> = TableDefinition::new("documents");
/// The digest of a browser session to its end if nobody visits it, in milliseconds since the Unix epoch, and its data as
/// JSON.
pub(super) const WEB_SESSIONS: TableDefinition<'_, &[u8], (i64, &[u8])> = TableDefinition::new("web_sessions");
/// The layout written here. A file with another one is refused, not guessed at.
const FORMAT: u64 = 1;
const FILE_NAME: &str = "keys.redb";
/// Exists in the folder while a backup is being restored: the files of an unfinished restore are not a store.
pub(super) const UNFINISHED: &str = "restore-unfinished";
/// Memory that redb may use to cache pages. All keys are in memory anyway, so only writes pass through it.
const PAGE_CACHE_BYTES: usize = 2 << 20;

pub(super) struct StoreFile {
    /// `None` once it is closed.
    database: Option<Database>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    digest: String,
    record: KeyRecord,
}

impl StoreFile {
    /// Opens `folder/keys.redb`, creating both if necessary, readable by the owner only, and reads everything in it: the
    /// keys, and the ids of deleted keys.
    pub(super) fn open(folder: &Path) -> Result<(Self, Vec<KeyView>, HashSet<KeyId>), StoreOpenError> {
        let path = folder.join(FILE_NAME);
        catch_damage(&path, || {
            let mut database = open(&path, PAGE_CACHE_BYTES)?;
            // redb verifies the checksums of its pages only on request. It repairs its map of free pages here; damage to the
            // keys is an error, because all commits are two-phase.
            if !database.check_integrity().map_err(|error| open_error(&path, error))? {
                tracing::warn!(path = %path.display(), "the key store's map of free pages was damaged and has been rebuilt");
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

    /// Closes the file for good.
    pub(super) fn close(&mut self) {
        self.database = None;
    }

    fn database(&self) -> Result<&Database, redb::Error> {
        self.database.as_ref().ok_or(redb::Error::DatabaseClosed)
    }

    /// A transaction that commits in two phases. With one phase, redb would take damage to the last commit for an interrupted
    /// commit and return to the one before, which would make a revoked key valid again.
    pub(super) fn begin_write(&self) -> Result<WriteTransaction, redb::Error> {
        let mut transaction = self.database()?.begin_write()?;
        transaction.set_two_phase_commit(true);
        Ok(transaction)
    }

    /// The current content, for reading at leisure.
    pub(super) fn snapshot(&self) -> Result<ReadTransaction, redb::Error> {
        Ok(self.database()?.begin_read()?)
    }

    /// Makes one mutation durable.
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

    /// Makes a batch of last uses durable.
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

    /// For each state, the text that names who serves it, if it is remembered at `now`.
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

    /// Remembers until `until` who serves the states; on disk when it returns. Beyond `most` entries, removes those that
    /// ended before `now`, and the older half.
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

    /// Ensures that the file has the format that is read here, and all tables.
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
        let parse = |id: String| KeyId::parse(&id).map_err(|_| "the id of a deleted key is invalid".to_owned());
        read()
            .map_err(|error| error.to_string())?
            .into_iter()
            .map(parse)
            .collect()
    }

    /// All keys. `Err` describes what cannot be read, and never the content.
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
    let fault = |what: &str| format!("the record of {id} {what}");
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

/// Opens `path`, creating it and its folder if necessary.
pub(super) fn open(path: &Path, page_cache_bytes: usize) -> Result<Database, StoreOpenError> {
    let file = open_file(path).map_err(|error| StoreOpenError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let mut builder = Database::builder();
    builder.set_cache_size(page_cache_bytes);
    builder.create_file(file).map_err(|error| open_error(path, error))
}

/// Runs `work`, which opens and reads a file at the start. redb panics on some damaged pages; such a panic is returned as an
/// error, and nothing of the database is used after it.
pub(super) fn catch_damage<T>(
    path: &Path,
    work: impl FnOnce() -> Result<T, StoreOpenError>,
) -> Result<T, StoreOpenError> {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome.unwrap_or_else(|_| Err(corrupt(path, "its pages are damaged".to_owned())))
}

fn open_file(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    if let Some(folder) = path.parent() {
        // A power cut must not lose the name of a file that others rely on.
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

/// The table that contains the format of a file.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";

/// Writes the format into a new file, or checks that of an existing one, and commits the tables opened in `transaction`.
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
        found => Err(format!("its format is {found}, this weir reads format {format}")),
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
    StoreError::Unavailable(format!("the store file cannot be used: {error}"))
}
