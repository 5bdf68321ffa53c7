//! Opening a redb file: readable by its owner only, open in one process, and refused when damaged.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, ReadableTable, TableDefinition, WriteTransaction};

use crate::store::{StoreError, StoreOpenError};

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
