//! The log's files in a folder of this machine, or one that several machines share.

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
    place::{self, Place},
    storage::Storage,
    table::Table,
    workplace::{make_folder, names, partial_in},
};
use crate::domain::ledger::retention::Retention;

/// The file that says how far removal of old days has gone.
const RETENTION: &str = "retention.json";

/// A folder with a folder for each day.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    fn of_day(&self, day: Date) -> PathBuf {
        self.0.join(day.to_string())
    }
}

impl Storage for Folder {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn days(&self) -> io::Result<Vec<Date>> {
        let mut days: Vec<Date> = names(&self.0)?
            .iter()
            .filter_map(|name| place::parse_day(name))
            .collect();
        days.sort_unstable();
        Ok(days)
    }

    fn all(&self) -> io::Result<Vec<Place>> {
        let mut all = Vec::new();
        for day in self.days()? {
            all.extend(self.all_of(day)?);
        }
        Ok(all)
    }

    fn all_of(&self, day: Date) -> io::Result<Vec<Place>> {
        let names = names(&self.of_day(day))?;
        let mut places: Vec<Place> = names
            .iter()
            .filter_map(|name| Place::parse(&format!("{day}/{name}")))
            .collect();
        places.sort_unstable();
        Ok(places)
    }

    fn bytes_of(&self, day: Date) -> io::Result<BTreeMap<Place, u64>> {
        let mut bytes = BTreeMap::new();
        for place in self.all_of(day)? {
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

    fn open(&self, place: &Place) -> Result<Table> {
        Table::open(File::open(self.0.join(place.name()))?.into(), &place.node)
    }

    fn put(&self, place: &Place, file: NamedTempFile) -> io::Result<()> {
        let of_day = self.of_day(place.day);
        make_folder(&of_day)?;
        file.as_file().sync_all()?;
        file.persist(self.0.join(place.name())).map_err(|error| error.error)?;
        sync(&of_day)?;
        sync(&self.0)
    }

    fn settle(&self) -> io::Result<()> {
        for day in self.days()? {
            sync(&self.of_day(day))?;
        }
        sync(&self.0)
    }

    fn remove(&self, place: &Place) -> io::Result<()> {
        gone(fs::remove_file(self.0.join(place.name())))
    }

    fn remove_day(&self, day: Date) -> io::Result<()> {
        gone(fs::remove_dir_all(self.of_day(day)))?;
        sync(&self.0)
    }

    fn retention(&self) -> io::Result<Option<Retention>> {
        let text = fs::read(self.0.join(RETENTION)).ok();
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    fn keep_retention(&self, retention: &Retention) -> io::Result<()> {
        let mut partial = partial_in(&self.0)?;
        serde_json::to_writer(&mut partial, retention)?;
        partial.as_file().sync_all()?;
        partial.persist(self.0.join(RETENTION)).map_err(|error| error.error)?;
        sync(&self.0)
    }
}

/// Brings the names in a folder to disk.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
