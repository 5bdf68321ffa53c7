//! Whether a ledger file is in use. A new file in the place of a lost one is not.

use redb::ReadableDatabase;

use super::{LedgerFile, META, begin_write};
use crate::store::StoreError;

const META_BEGUN: &str = "begun";

impl LedgerFile {
    /// Whether [`LedgerFile::begin`] was ever called on this file. A new file in the place of a lost one is not begun.
    pub(in crate::store::embedded::ledger) fn is_begun(&self) -> Result<bool, StoreError> {
        self.with(|database| {
            let meta = database.begin_read()?.open_table(META)?;
            Ok(meta.get(META_BEGUN)?.is_some())
        })
    }

    /// Marks the file as begun. The mark is on disk when it returns.
    pub(in crate::store::embedded::ledger) fn begin(&self) -> Result<(), StoreError> {
        self.recover()?;
        self.with(|database| {
            let transaction = begin_write(database)?;
            transaction.open_table(META)?.insert(META_BEGUN, 1)?;
            Ok(transaction.commit()?)
        })
    }
}
