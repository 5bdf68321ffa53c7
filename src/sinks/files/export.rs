//! Exports rows as a file in the format of the log's files.

use std::io;

use super::{schema::GROUP_ROWS, table::TableWriter};
use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
};

/// Exports rows in any order as a Parquet file in the format of the log's files, piece by piece. Numbers the rows from 1. Up to a
/// group of rows is in memory.
pub(crate) struct ParquetExport {
    out: TableWriter<Vec<u8>>,
    rows: Vec<NumberedRow>,
    last: u64,
}

impl ParquetExport {
    /// Begins a file.
    ///
    /// # Errors
    /// The schema is invalid, which is a bug.
    pub(crate) fn begin() -> io::Result<Self> {
        Ok(Self {
            out: TableWriter::unsorted(Vec::new(), &NodeId::none())?,
            rows: Vec::new(),
            last: 0,
        })
    }

    /// Adds a row; returns the next bytes of the file, if there are any yet.
    ///
    /// # Errors
    /// A value does not fit into its column.
    pub(crate) fn add_row(&mut self, row: Row) -> io::Result<Vec<u8>> {
        self.last += 1;
        let number = self.last;
        self.rows.push(NumberedRow { number, row });
        if self.rows.len() < GROUP_ROWS {
            return Ok(Vec::new());
        }
        self.out.write_group(&self.rows)?;
        self.rows.clear();
        Ok(std::mem::take(self.out.output()?))
    }

    /// Completes the file; returns its last bytes.
    ///
    /// # Errors
    /// As for [`Export::row`].
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        if !self.rows.is_empty() {
            self.out.write_group(&self.rows)?;
        }
        Ok(self.out.finish()?)
    }
}
