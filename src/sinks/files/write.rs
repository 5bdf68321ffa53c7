//! Writes a file of the log whole, or not at all.

use std::{
    fs::{self, File},
    io::{self, BufWriter},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use parquet::errors::Result;

use super::{place::Place, table::TableWriter};

/// The name of a file that is being written begins so.
pub(super) const PARTIAL: &str = ".partial-";

/// Makes a file of the log in `folder`, with whatever `fill` puts into it.
pub(super) fn file(
    folder: &Path,
    place: &Place,
    fill: impl FnOnce(&mut TableWriter<BufWriter<File>>) -> Result<()>,
) -> Result<()> {
    let of_day = place.folder(folder);
    make_folder(&of_day)?;
    let partial = tempfile::Builder::new().prefix(PARTIAL).tempfile_in(&of_day)?;
    let mut out = TableWriter::new(BufWriter::new(partial.reopen()?), place)?;
    fill(&mut out)?;
    let file = out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    partial.persist(place.path(folder)).map_err(|error| error.error)?;
    sync(&of_day)?;
    sync(folder)?;
    Ok(())
}

/// Rows name accounts and what they use: nobody else's business.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Brings the names in a folder to disk.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
