//! Rows that the ledger has lost come back behind the others of their day.

use std::sync::Arc;

use super::Books;
use crate::{domain::ledger::consumption::Row, store::StoreError};

impl Books {
    /// Puts rows of a day behind those that are there, and writes them. `false`: there is no such account, or rows of the day have
    /// left.
    pub(in crate::store::embedded::ledger) fn put_rows(
        &self,
        id: &str,
        day: i64,
        rows: Vec<Row>,
    ) -> Result<bool, StoreError> {
        let Some(slot) = self.slot(id) else { return Ok(false) };
        let on_disk = self.file.log_days(id, &(day..=day))?;
        if on_disk.iter().any(|of_day| of_day.trimmed > 0) {
            return Ok(false);
        }
        // Once the place is known it stays so until the day's rows are removed with their retention.
        self.load_day(id, day)?;
        {
            let mut book = slot.lock();
            self.push(&mut book, rows.into_iter().map(Arc::new).collect());
            self.note(id, &mut book);
        }
        self.flush()?;
        Ok(true)
    }
}
