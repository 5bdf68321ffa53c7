//! The file of the embedded ledger, in which counters, watermarks and daily sums always agree.
//!
//! Every value has its own checksum, because redb verifies the checksums of its pages only by reading the whole file. With the
//! sums of half a year, that would take too long at a start.

mod archive;
pub(super) mod daily_sums;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::RwLock;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            Account,
            account::{AccountSummary, key::AccountKey, notices::Notices, operations::RecordedOperation},
            daily_sums::Sums,
        },
    },
    store::{
        StoreError, StoreOpenError,
        embedded::{
            file::{self, META, unavailable},
            ledger::file::daily_sums::{SUMS, put_sums},
        },
    },
};

pub(super) use crate::store::embedded::ledger::file::daily_sums::ChangedSum;

/// Maps an account to a sealed [`AccountSummary`]. A sealed value has a checksum ([`seal`]).
const ACCOUNTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("accounts");
/// Maps an account and a key to a sealed [`AccountKey`].
const KEYS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("keys");
/// Maps an account to the operations that it stores: a sealed list of [`RecordedOperation`], oldest first.
const OPERATIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("operations");
/// Maps an account to its waiting [`Notices`], sealed. Backups do not include them.
const NOTICES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notices");
/// Maps an hour and a node to the node's stability counters of that hour, sealed.
const HOURS: TableDefinition<'_, (i64, &str), &[u8]> = TableDefinition::new("stability");
/// The number of the format that is written here. A file with another format is refused.
const FORMAT: u64 = 2;
pub(super) const FILE_NAME: &str = "ledger.redb";
/// Memory that redb can use to cache pages, in bytes. Accounts are in memory anyway, so only writes and queries of sums use it.
const PAGE_CACHE_BYTES: usize = 4 << 20;

/// A function that opens the database, at the start and again after a failure.
pub(super) type DatabaseOpener = Box<dyn Fn() -> Result<Database, StoreOpenError> + Send + Sync>;

pub(super) struct LedgerFile {
    opening: DatabaseOpener,
    /// The open database; `None` once it is closed, or if it could not be opened again.
    database: RwLock<Option<Database>>,
    /// Whether redb has failed. After one failure, even if the disk was only full, redb refuses all further work on a file until
    /// the file is opened again.
    failed: AtomicBool,
}

/// The changes of one account that are to be written, all as of one moment.
pub(super) struct PendingAccountWrite {
    pub(super) account: String,
    /// The account's summary; `None` for an account that does not exist yet.
    pub(super) standing: Option<AccountSummary>,
    /// The operations that the account stores; `None` if they have not changed.
    pub(super) operations: Option<Vec<RecordedOperation>>,
    /// The account's waiting notices; `None` if they have not changed.
    pub(super) notices: Option<Notices>,
    pub(super) keys: Vec<(KeyId, AccountKey)>,
    pub(super) sums: Vec<ChangedSum>,
}

impl LedgerFile {
    /// Opens the file `ledger.redb` in `folder`. Creates the folder and the file if necessary, with access for their owner only.
    /// Reads and returns all accounts.
    pub(super) fn open(folder: &Path) -> Result<(Self, BTreeMap<String, Account>), StoreOpenError> {
        let path = folder.join(FILE_NAME);
        let opening = path.clone();
        Self::open_by(&path, Box::new(move || file::open(&opening, PAGE_CACHE_BYTES)))
    }

    /// Opens the file at `path` with the function `opening`.
    pub(super) fn open_by(
        path: &Path,
        opening: DatabaseOpener,
    ) -> Result<(Self, BTreeMap<String, Account>), StoreOpenError> {
        file::catch_damage(path, || {
            let database = opening()?;
            settle_format(&database).map_err(|reason| file::corrupt(path, reason))?;
            let accounts = read_accounts(&database).map_err(|reason| file::corrupt(path, reason))?;
            let this = Self {
                opening,
                database: RwLock::new(Some(database)),
                failed: AtomicBool::new(false),
            };
            Ok((this, accounts))
        })
    }

    /// Runs `work` with the database. redb panics on some damaged pages; such a panic is returned as an error.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, StoreError> {
        let database = self.database.read();
        let Some(database) = database.as_ref() else {
            let what = "the ledger's file is closed";
            return Err(StoreError::Unavailable(what.to_owned()));
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| work(database)));
        let outcome =
            outcome.unwrap_or_else(|_| Err(redb::Error::Corrupted("pages of the file are damaged".to_owned())));
        outcome.map_err(|error| {
            self.failed.store(true, Ordering::Relaxed);
            unavailable(error)
        })
    }

    /// Closes the file when running work has ended. It is not opened again.
    pub(super) fn close(&self) {
        *self.database.write() = None;
        self.failed.store(false, Ordering::Relaxed);
    }

    /// Opens the file again if redb has failed.
    fn recover(&self) -> Result<(), StoreError> {
        if !self.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut database = self.database.write();
        let again = AssertUnwindSafe(|| {
            // The old database is closed first, because a file can be open only once.
            drop(database.take());
            (self.opening)()
        });
        match catch_unwind(again) {
            Ok(Ok(again)) => {
                *database = Some(again);
                self.failed.store(false, Ordering::Relaxed);
                Ok(())
            }
            Ok(Err(error)) => Err(StoreError::Unavailable(error.to_string())),
            Err(_) => Err(StoreError::Unavailable("the ledger's file is damaged".to_owned())),
        }
    }

    /// Writes all of the changes to the file, or none.
    pub(super) fn commit(&self, changes: &[PendingAccountWrite]) -> Result<(), StoreError> {
        self.recover()?;
        self.with(|database| {
            let transaction = begin_write(database)?;
            {
                let mut accounts = transaction.open_table(ACCOUNTS)?;
                let mut keys = transaction.open_table(KEYS)?;
                let mut sums = transaction.open_table(SUMS)?;
                for changed in changes {
                    let Some(standing) = &changed.standing else { continue };
                    let account = changed.account.as_str();
                    accounts.insert(account, seal(standing)?.as_slice())?;
                    // Operations and notices change rarely.
                    if let Some(recorded) = &changed.operations {
                        let mut operations = transaction.open_table(OPERATIONS)?;
                        operations.insert(account, seal(recorded)?.as_slice())?;
                    }
                    if let Some(waiting) = &changed.notices {
                        let mut notices = transaction.open_table(NOTICES)?;
                        notices.insert(account, seal(waiting)?.as_slice())?;
                    }
                    for (id, key) in &changed.keys {
                        keys.insert((account, id.as_str()), seal(key)?.as_slice())?;
                    }
                    put_sums(&mut sums, account, &changed.sums)?;
                }
            }
            Ok(transaction.commit()?)
        })
    }
}

/// Begins a two-phase transaction. If the process crashes after such a transaction, the file can be opened without reading all of
/// it.
fn begin_write(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// Checks that the file has the format that is read here, and creates missing tables.
fn settle_format(database: &Database) -> Result<(), String> {
    let tables = || -> Result<WriteTransaction, redb::Error> {
        let transaction = begin_write(database)?;
        transaction.open_table(ACCOUNTS)?;
        transaction.open_table(KEYS)?;
        transaction.open_table(OPERATIONS)?;
        transaction.open_table(NOTICES)?;
        transaction.open_table(HOURS)?;
        transaction.open_table(SUMS)?;
        Ok(transaction)
    };
    file::settle_format(tables().map_err(|error| error.to_string())?, FORMAT)
}

/// Returns all accounts. The error describes what cannot be read, and never contains the data.
fn read_accounts(database: &Database) -> Result<BTreeMap<String, Account>, String> {
    let failed = |error: redb::Error| error.to_string();
    let mut keys: BTreeMap<String, Vec<(KeyId, AccountKey)>> = BTreeMap::new();
    let read = database.begin_read().map_err(|error| failed(error.into()))?;
    let table = read.open_table(KEYS).map_err(|error| failed(error.into()))?;
    for entry in table.iter().map_err(|error| failed(error.into()))? {
        let (name, sealed) = entry.map_err(|error| failed(error.into()))?;
        let (account, key) = name.value();
        let fault = || format!("the spending of key {key} of account `{account}` is unreadable");
        let id = KeyId::parse(key).map_err(|_| fault())?;
        let known = unseal(sealed.value()).ok_or_else(fault)?;
        keys.entry(account.to_owned()).or_default().push((id, known));
    }
    let operations = read.open_table(OPERATIONS).map_err(|error| failed(error.into()))?;
    let notices = read.open_table(NOTICES).map_err(|error| failed(error.into()))?;
    let mut accounts = BTreeMap::new();
    let table = read.open_table(ACCOUNTS).map_err(|error| failed(error.into()))?;
    for entry in table.iter().map_err(|error| failed(error.into()))? {
        let (account, sealed) = entry.map_err(|error| failed(error.into()))?;
        let account = account.value();
        let standing: AccountSummary =
            unseal(sealed.value()).ok_or_else(|| format!("account `{account}` is unreadable"))?;
        let keys = keys.remove(account).unwrap_or_default();
        let recorded = read_operations(&operations, account).map_err(failed)?;
        let recorded =
            recorded.ok_or_else(|| format!("the stored operations of account `{account}` are unreadable"))?;
        let waiting = notices.get(account).map_err(|error| failed(error.into()))?;
        let waiting = waiting.map_or_else(|| Some(Notices::default()), |sealed| unseal(sealed.value()));
        let waiting = waiting.ok_or_else(|| format!("the notices of account `{account}` are unreadable"))?;
        let known = Account::from_stored(standing, keys, recorded).with_notices(waiting);
        accounts.insert(account.to_owned(), known);
    }
    match keys.keys().next() {
        None => Ok(accounts),
        Some(account) => Err(format!(
            "the file has keys of account `{account}`, but not the account itself"
        )),
    }
}

/// Returns the operations that an account stores; `None` if they are unreadable.
fn read_operations(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    account: &str,
) -> Result<Option<Vec<RecordedOperation>>, redb::Error> {
    Ok(match table.get(account)? {
        None => Some(Vec::new()),
        Some(sealed) => unseal(sealed.value()),
    })
}

const META_BEGUN: &str = "begun";

impl LedgerFile {
    /// Whether [`LedgerFile::begin`] was ever called on this file. If a new file has replaced a lost file, this is `false`.
    pub(in crate::store::embedded::ledger) fn is_begun(&self) -> Result<bool, StoreError> {
        self.with(|database| {
            let meta = database.begin_read()?.open_table(META)?;
            Ok(meta.get(META_BEGUN)?.is_some())
        })
    }

    /// Marks the file as begun. The mark is on disk when this returns.
    pub(in crate::store::embedded::ledger) fn begin(&self) -> Result<(), StoreError> {
        self.recover()?;
        self.with(|database| {
            let transaction = begin_write(database)?;
            transaction.open_table(META)?.insert(META_BEGUN, 1)?;
            Ok(transaction.commit()?)
        })
    }
}

/// The size of the checksum before a value, in bytes.
const CHECKSUM_BYTES: usize = 4;

/// Returns a value as JSON, after its checksum.
fn seal(value: &impl Serialize) -> Result<Vec<u8>, redb::Error> {
    seal_with(|json| serde_json::to_writer(json, value))
}

/// Returns daily sums in a binary format, after their checksum. The format is binary because one query can read hundreds of
/// thousands of them.
fn seal_sums(sums: &Sums) -> Result<Vec<u8>, redb::Error> {
    seal_with(|bytes| {
        sums.write_bytes(bytes);
        Ok(())
    })
}

fn seal_with(write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) -> Result<Vec<u8>, redb::Error> {
    let mut sealed = vec![0; CHECKSUM_BYTES];
    write(&mut sealed).map_err(|error| redb::Error::Io(error.into()))?;
    let checksum = crc32fast::hash(sealed.get(CHECKSUM_BYTES..).unwrap_or_default());
    if let Some(place) = sealed.first_chunk_mut::<CHECKSUM_BYTES>() {
        *place = checksum.to_le_bytes();
    }
    Ok(sealed)
}

/// Returns a sealed value; `None` if its checksum does not match, or if it cannot be parsed.
fn unseal<T: DeserializeOwned>(sealed: &[u8]) -> Option<T> {
    serde_json::from_slice(verified_bytes(sealed)?).ok()
}

/// Returns sealed daily sums; `None` if their checksum does not match, or if they cannot be parsed.
fn unseal_sums(sealed: &[u8]) -> Option<Sums> {
    Sums::read_bytes(verified_bytes(sealed)?)
}

/// Returns the bytes after a checksum; `None` if the checksum does not match.
fn verified_bytes(sealed: &[u8]) -> Option<&[u8]> {
    let (checksum, bytes) = sealed.split_first_chunk::<CHECKSUM_BYTES>()?;
    (crc32fast::hash(bytes) == u32::from_le_bytes(*checksum)).then_some(bytes)
}
