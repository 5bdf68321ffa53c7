//! Writes a file of the log atomically.

use std::{
    fs::File,
    io::{self, BufWriter},
};

use parquet::errors::Result;

use super::{place::FileName, storage::FileStorage, table::TableWriter, workplace::StagingFolder};

/// Writes a file of the log with the rows that `fill` adds, and puts it into the storage.
pub(super) fn write_file(
    workplace: &StagingFolder,
    storage: &dyn FileStorage,
    place: &FileName,
    fill: impl FnOnce(&mut TableWriter<BufWriter<File>>) -> Result<()>,
) -> Result<()> {
    let partial = workplace.new_partial_file()?;
    let mut out = TableWriter::new(BufWriter::new(partial.reopen()?), place)?;
    fill(&mut out)?;
    out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    storage.put(place, partial)?;
    Ok(())
}
