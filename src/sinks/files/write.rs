//! Writes a file of the log whole, or not at all.

use std::{
    fs::File,
    io::{self, BufWriter},
};

use parquet::errors::Result;

use super::{place::Place, storage::Storage, table::TableWriter, workplace::Workplace};

/// Makes a file of the log, with whatever `fill` puts into it, and puts it into the storage.
pub(super) fn file(
    workplace: &Workplace,
    storage: &dyn Storage,
    place: &Place,
    fill: impl FnOnce(&mut TableWriter<BufWriter<File>>) -> Result<()>,
) -> Result<()> {
    let partial = workplace.partial()?;
    let mut out = TableWriter::new(BufWriter::new(partial.reopen()?), place)?;
    fill(&mut out)?;
    out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    storage.put(place, partial)?;
    Ok(())
}
