//! The durable form of the embedded ledger: one redb file, in which counters, watermarks and daily sums always agree.
//!
//! Every value has a checksum of its own: redb would look at those of its pages only in a walk through the whole file, which
//! the sums of half a year make too long for a start.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::domain::{
    keys::key::KeyId,
    ledger::{
        Account,
        account::{AccountSummary, key::AccountKey, notices::Notices, operations::Recorded},
    },
};
use crate::store::embedded::database::{self, META, unavailable};
use crate::store::{StoreError, StoreOpenError};

mod archive;
mod begun;
mod daily_sums;
pub(super) mod retention;
mod sealed;
mod stability;
mod sums_table;

use self::sealed::{seal, unseal};
pub(super) use self::sums_table::ChangedSum;
use self::sums_table::{SUMS, put_sums};

/// Account to a sealed [`AccountSummary`].
const ACCOUNTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("accounts");
/// Account and key to a sealed [`AccountKey`].
const KEYS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("keys");
/// Account to the sealed operations that it remembers, a list of [`Recorded`], the oldest first.
const OPERATIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("operations");
/// Account to the sealed [`Notices`] that wait there. They are in no backup.
const NOTICES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notices");
/// Hour and node to what the node has counted in it, a sealed `Bucket`.
const HOURS: TableDefinition<'_, (i64, &str), &[u8]> = TableDefinition::new("stability");
/// The layout written here. A file with another one is refused, not guessed at.
const FORMAT: u64 = 2;
pub(super) const FILE_NAME: &str = "ledger.redb";
/// Memory redb may use to cache pages: accounts are in memory anyway, so only writes and queries of sums pass through it.
const PAGE_CACHE_BYTES: usize = 4 << 20;

/// Opens the database, at the start and again after a failure.
pub(super) type Opening = Box<dyn Fn() -> Result<Database, StoreOpenError> + Send + Sync>;

pub(super) struct LedgerFile {
    opening: Opening,
    /// `None` where it could not be opened again.
    database: RwLock<Option<Database>>,
    /// redb does nothing more with a file that has failed once, were it only for a disk that was full: it has to be opened
    /// again.
    failed: AtomicBool,
}

/// What is to be written of one account, all of it as it was at one moment.
pub(super) struct Changed {
    pub(super) account: String,
    /// `None` for an account that has not come into being.
    pub(super) standing: Option<AccountSummary>,
    /// The operations that it remembers, if they have changed.
    pub(super) operations: Option<Vec<Recorded>>,
    /// What waits to be told, if that has changed.
    pub(super) notices: Option<Notices>,
    pub(super) keys: Vec<(KeyId, AccountKey)>,
    pub(super) sums: Vec<ChangedSum>,
}

impl LedgerFile {
    /// Opens `folder/ledger.redb`, making both if need be, readable by the owner alone, and reads all accounts.
    pub(super) fn open(folder: &Path) -> Result<(Self, BTreeMap<String, Account>), StoreOpenError> {
        let path = folder.join(FILE_NAME);
        let opening = path.clone();
        Self::open_by(&path, Box::new(move || database::open(&opening, PAGE_CACHE_BYTES)))
    }

    /// The same with another way to open `path`.
    pub(super) fn open_by(path: &Path, opening: Opening) -> Result<(Self, BTreeMap<String, Account>), StoreOpenError> {
        database::at_start(path, || {
            let database = opening()?;
            settle_format(&database).map_err(|reason| database::corrupt(path, reason))?;
            let accounts = accounts(&database).map_err(|reason| database::corrupt(path, reason))?;
            let this = Self {
                opening,
                database: RwLock::new(Some(database)),
                failed: AtomicBool::new(false),
            };
            Ok((this, accounts))
        })
    }

    /// Works with the file. A panic of redb, which is what some damaged pages lead to, is an error.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, StoreError> {
        let database = self.database.read();
        let Some(database) = database.as_ref() else {
            let what = "the ledger's file is closed";
            return Err(StoreError::Unavailable(what.to_owned()));
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| work(database)));
        let outcome = outcome.unwrap_or_else(|_| Err(redb::Error::Corrupted("its pages are damaged".to_owned())));
        outcome.map_err(|error| {
            self.failed.store(true, Ordering::Relaxed);
            unavailable(error)
        })
    }

    /// Closes it, when who works with it has ended. It is not opened again.
    pub(super) fn close(&self) {
        *self.database.write() = None;
        self.failed.store(false, Ordering::Relaxed);
    }

    /// Opens the file again if it has failed.
    fn recover(&self) -> Result<(), StoreError> {
        if !self.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut database = self.database.write();
        let again = AssertUnwindSafe(|| {
            // The old one first: the file has one owner.
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

    /// Makes changes durable, all or none.
    pub(super) fn commit(&self, changes: &[Changed]) -> Result<(), StoreError> {
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
                    // These change seldom.
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

/// A transaction after which a start needs no walk through the file. It commits in two phases.
fn begin_write(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// Makes sure that the file is of the format that is read here and has all tables.
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
    database::settle_format(tables().map_err(|error| error.to_string())?, FORMAT)
}

/// All accounts. `Err` says what cannot be read, and never the content.
fn accounts(database: &Database) -> Result<BTreeMap<String, Account>, String> {
    let failed = |error: redb::Error| error.to_string();
    let mut keys: BTreeMap<String, Vec<(KeyId, AccountKey)>> = BTreeMap::new();
    let read = database.begin_read().map_err(|error| failed(error.into()))?;
    let table = read.open_table(KEYS).map_err(|error| failed(error.into()))?;
    for entry in table.iter().map_err(|error| failed(error.into()))? {
        let (name, sealed) = entry.map_err(|error| failed(error.into()))?;
        let (account, key) = name.value();
        let fault = || format!("what key {key} of account `{account}` has spent is not readable");
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
            unseal(sealed.value()).ok_or_else(|| format!("account `{account}` is not readable"))?;
        let keys = keys.remove(account).unwrap_or_default();
        let recorded = operations_of(&operations, account).map_err(failed)?;
        let recorded =
            recorded.ok_or_else(|| format!("the operations that account `{account}` remembers are not readable"))?;
        let waiting = notices.get(account).map_err(|error| failed(error.into()))?;
        let waiting = waiting.map_or_else(|| Some(Notices::default()), |sealed| unseal(sealed.value()));
        let waiting = waiting.ok_or_else(|| format!("what waits to be told of account `{account}` is not readable"))?;
        let known = Account::restored(standing, keys, recorded).with_notices(waiting);
        accounts.insert(account.to_owned(), known);
    }
    match keys.keys().next() {
        None => Ok(accounts),
        Some(account) => Err(format!("account `{account}` has keys and is not there")),
    }
}

/// The operations that an account remembers; `None`: they are not readable.
fn operations_of(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    account: &str,
) -> Result<Option<Vec<Recorded>>, redb::Error> {
    Ok(match table.get(account)? {
        None => Some(Vec::new()),
        Some(sealed) => unseal(sealed.value()),
    })
}
