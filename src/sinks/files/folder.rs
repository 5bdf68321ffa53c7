//! The log's files in a folder of this machine, or in one that several machines share.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use jiff::civil::Date;
use parquet::errors::Result;
use tempfile::NamedTempFile;

use super::{
    place::{self, FileName},
    storage::FileStorage,
    table::TableReader,
    workplace::{file_names, make_folder, new_partial_file_in},
};
use crate::domain::ledger::retention::RetentionProgress;

/// The file with the state of removing old days.
const RETENTION: &str = "retention.json";

/// The log's files in a folder, which several machines may share. It has a subfolder for each day.
pub(super) struct FolderStorage(PathBuf);

impl FolderStorage {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    fn day_folder(&self, day: Date) -> PathBuf {
        self.0.join(day.to_string())
    }
}

impl FileStorage for FolderStorage {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn days(&self) -> io::Result<Vec<Date>> {
        let mut days: Vec<Date> = file_names(&self.0)?
            .iter()
            .filter_map(|name| place::parse_day(name))
            .collect();
        days.sort_unstable();
        Ok(days)
    }

    fn all_files(&self) -> io::Result<Vec<FileName>> {
        let mut all = Vec::new();
        for day in self.days()? {
            all.extend(self.day_files(day)?);
        }
        Ok(all)
    }

    fn day_files(&self, day: Date) -> io::Result<Vec<FileName>> {
        let names = file_names(&self.day_folder(day))?;
        let mut places: Vec<FileName> = names
            .iter()
            .filter_map(|name| FileName::parse(&format!("{day}/{name}")))
            .collect();
        places.sort_unstable();
        Ok(places)
    }

    fn file_sizes(&self, day: Date) -> io::Result<BTreeMap<FileName, u64>> {
        let mut bytes = BTreeMap::new();
        for place in self.day_files(day)? {
            match fs::metadata(self.0.join(place.name())) {
                Ok(file) => {
                    bytes.insert(place, file.len());
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn open(&self, place: &FileName) -> Result<TableReader> {
        TableReader::open(File::open(self.0.join(place.name()))?.into(), &place.node)
    }

    fn put(&self, place: &FileName, file: NamedTempFile) -> io::Result<()> {
        let of_day = self.day_folder(place.day);
        make_folder(&of_day)?;
        file.as_file().sync_all()?;
        file.persist(self.0.join(place.name())).map_err(|error| error.error)?;
        sync(&of_day)?;
        sync(&self.0)
    }

    fn sync_files(&self) -> io::Result<()> {
        for day in self.days()? {
            sync(&self.day_folder(day))?;
        }
        sync(&self.0)
    }

    fn remove(&self, place: &FileName) -> io::Result<()> {
        ignore_missing(fs::remove_file(self.0.join(place.name())))
    }

    fn remove_day(&self, day: Date) -> io::Result<()> {
        ignore_missing(fs::remove_dir_all(self.day_folder(day)))?;
        sync(&self.0)
    }

    fn retention(&self) -> io::Result<Option<RetentionProgress>> {
        let text = fs::read(self.0.join(RETENTION)).ok();
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    fn set_retention(&self, retention: &RetentionProgress) -> io::Result<()> {
        let mut partial = new_partial_file_in(&self.0)?;
        serde_json::to_writer(&mut partial, retention)?;
        partial.as_file().sync_all()?;
        partial.persist(self.0.join(RETENTION)).map_err(|error| error.error)?;
        sync(&self.0)
    }
}

/// Syncs the names in a folder.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
