//! Rows that are exported as a file of the same form as the log's own.

use std::io;

use super::{schema::GROUP_ROWS, table::TableWriter};
use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
};

/// A Parquet file of rows in any order, numbered from 1, made piece by piece. Up to a group of rows is in memory.
pub(crate) struct Export {
    out: TableWriter<Vec<u8>>,
    rows: Vec<NumberedRow>,
    last: u64,
}

impl Export {
    /// Begins a file.
    ///
    /// # Errors
    /// The form of the file is refused; that is a mistake in its definition.
    pub(crate) fn begin() -> io::Result<Self> {
        Ok(Self {
            out: TableWriter::unsorted(Vec::new(), &NodeId::none())?,
            rows: Vec::new(),
            last: 0,
        })
    }

    /// Adds a row; answers with the next bytes of the file, if there are any yet.
    ///
    /// # Errors
    /// A value does not fit into its column.
    pub(crate) fn row(&mut self, row: Row) -> io::Result<Vec<u8>> {
        self.last += 1;
        let number = self.last;
        self.rows.push(NumberedRow { number, row });
        if self.rows.len() < GROUP_ROWS {
            return Ok(Vec::new());
        }
        self.out.group(&self.rows)?;
        self.rows.clear();
        Ok(std::mem::take(self.out.written()?))
    }

    /// Completes the file; answers with its last bytes.
    ///
    /// # Errors
    /// As for [`Export::row`].
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        if !self.rows.is_empty() {
            self.out.group(&self.rows)?;
        }
        Ok(self.out.finish()?)
    }
}
