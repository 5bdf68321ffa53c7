//! The log's files in an S3-compatible bucket: the objects have the names that the files of a folder have.
//!
//! A put is for a new object only (`If-None-Match: *`). Whether it was refused, came late or its answer was lost: it is made again,
//! and there is one object with the bytes that its name stands for. What a process that has ended meanwhile had put on its way may
//! come when another one has put some of the same rows elsewhere; rows are known by node and number wherever they are read.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use jiff::civil::Date;
use parquet::errors::Result;
use tempfile::NamedTempFile;
use tokio::runtime::Handle;

use super::{
    footers::Footers,
    place::{self, Place},
    s3::{BucketError, BucketSettings, Object, RequestError, Requests, failed},
    storage::Storage,
    table::Table,
    workplace::partial_in,
};
use crate::domain::ledger::retention::Retention;

/// The object that says how far removal of old days has gone.
const RETENTION: &str = "retention.json";
/// The most pages of a list; each has up to 1000 names.
const PAGES_MAX: usize = 1000;

/// A bucket, or what is in it below a prefix.
#[derive(Debug)]
pub(super) struct Bucket {
    requests: Requests,
    /// `s3://NAME/PREFIX`
    name: String,
    prefix: String,
    /// The folder of this machine for what is on its way.
    folder: PathBuf,
    footers: Footers,
    /// The server knows no condition on a put.
    knows_no_condition: AtomicBool,
}

impl Bucket {
    /// Connects nowhere yet: a bucket that is away keeps weir from nothing.
    pub(super) fn new(settings: &BucketSettings, folder: &Path, runtime: Handle) -> Result<Self, BucketError> {
        Ok(Self {
            requests: Requests::new(settings, runtime)?,
            name: format!("s3://{}/{}", settings.name, settings.prefix),
            prefix: settings.prefix.clone(),
            folder: folder.to_owned(),
            footers: Footers::default(),
            knows_no_condition: AtomicBool::new(false),
        })
    }

    fn key(&self, place: &Place) -> String {
        format!("{}{}", self.prefix, place.name())
    }

    /// Names below the prefix that begin so, without the prefix, each with its size in bytes. With `by_folder`: the folders among them.
    fn names(&self, begin: &str, by_folder: bool) -> io::Result<Vec<(String, u64)>> {
        let prefix = format!("{}{begin}", self.prefix);
        let (mut names, mut continued) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = self.requests.list(&prefix, by_folder, continued.as_deref());
            let page = page.map_err(|error| io::Error::other(format!("listing {prefix}*: {error}")))?;
            let found: Vec<(String, u64)> = if by_folder {
                page.common_prefixes.into_iter().map(|one| (one.prefix, 0)).collect()
            } else {
                let objects = page.contents.into_iter();
                objects.map(|one| (one.key, one.size.unwrap_or(0))).collect()
            };
            let below = found.iter().filter_map(|(name, bytes)| {
                let name = name.strip_prefix(&self.prefix)?;
                Some((name.to_owned(), *bytes))
            });
            names.extend(below);
            continued = page.next_continuation_token;
            if continued.is_none() {
                return Ok(names);
            }
        }
        Err(io::Error::other(format!(
            "{prefix}* has more than {PAGES_MAX} pages of names; give the log a prefix of its own"
        )))
    }

    /// Files whose names begin so, with their sizes in bytes.
    fn places(&self, begin: &str) -> io::Result<BTreeMap<Place, u64>> {
        let names = self.names(begin, false)?.into_iter();
        Ok(names
            .filter_map(|(name, bytes)| Some((Place::parse(&name)?, bytes)))
            .collect())
    }

    fn put_new(&self, key: &str, file: &std::fs::File) -> Result<(), RequestError> {
        if !self.knows_no_condition.load(Ordering::Relaxed) {
            match self.requests.put(key, file, true) {
                Err(RequestError::Refused(refused)) if refused.is_there() => return Ok(()),
                Err(RequestError::Refused(refused)) if refused.knows_no_condition() => {}
                done => return done,
            }
        }
        // Who puts it there twice in spite of the look puts the same bytes there.
        if !self.requests.has(key)? {
            self.requests.put(key, file, false)?;
        }
        if !self.knows_no_condition.swap(true, Ordering::Relaxed) {
            tracing::info!(
                bucket = self.name,
                "the server knows no If-None-Match: weir looks for a file before it puts it there"
            );
        }
        Ok(())
    }
}

impl Storage for Bucket {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn days(&self) -> io::Result<Vec<Date>> {
        let folders = self.names("", true)?;
        let days = folders
            .iter()
            .filter_map(|(name, _)| place::parse_day(name.strip_suffix('/')?));
        let mut days: Vec<Date> = days.collect();
        days.sort_unstable();
        Ok(days)
    }

    fn all(&self) -> io::Result<Vec<Place>> {
        Ok(self.places("")?.into_keys().collect())
    }

    fn all_of(&self, day: Date) -> io::Result<Vec<Place>> {
        Ok(self.bytes_of(day)?.into_keys().collect())
    }

    fn bytes_of(&self, day: Date) -> io::Result<BTreeMap<Place, u64>> {
        let places = self.places(&format!("{day}/"))?;
        self.footers
            .retain(|place| place.day != day || places.contains_key(place));
        Ok(places)
    }

    fn open(&self, place: &Place) -> Result<Table> {
        let open = || Object::open(&self.requests, self.key(place), self.folder.clone());
        let object = self.footers.object(place, open)?;
        Table::open(object.into(), &place.node)
    }

    fn put(&self, place: &Place, file: NamedTempFile) -> io::Result<()> {
        let key = self.key(place);
        self.put_new(&key, file.as_file()).map_err(|error| failed(&key, &error))
    }

    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, place: &Place) -> io::Result<()> {
        let key = self.key(place);
        self.requests.remove(&key).map_err(|error| failed(&key, &error))
    }

    fn remove_day(&self, day: Date) -> io::Result<()> {
        // Only what is weir's own: others may keep things in the same bucket.
        self.all_of(day)?.iter().try_for_each(|place| self.remove(place))
    }

    fn retention(&self) -> io::Result<Option<Retention>> {
        let key = format!("{}{RETENTION}", self.prefix);
        match self.requests.read_whole(&key) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(failed(&key, &error)),
        }
    }

    fn keep_retention(&self, retention: &Retention) -> io::Result<()> {
        let key = format!("{}{RETENTION}", self.prefix);
        let mut partial = partial_in(&self.folder)?;
        serde_json::to_writer(&mut partial, retention)?;
        let put = self.requests.put(&key, partial.as_file(), false);
        put.map_err(|error| failed(&key, &error))
    }
}
