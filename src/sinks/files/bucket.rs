//! The log's files in an S3-compatible bucket: the objects have the same names as the files of a folder.

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
    footers::FooterCache,
    place::{self, FileName},
    s3::{BucketClient, BucketError, BucketObject, BucketRequestError, BucketSettings, object_error},
    storage::FileStorage,
    table::TableReader,
    workplace::new_partial_file_in,
};
use crate::domain::ledger::retention::RetentionProgress;

/// The object with the state of removing old days.
const RETENTION: &str = "retention.json";
/// The maximum number of pages of a list; each has up to 1000 names.
const PAGES_MAX: usize = 1000;

/// The log's files in an S3-compatible bucket, below a prefix. The objects have the same names as the files of a folder.
///
/// A put creates a new object only (`If-None-Match: *`). If it was refused, came late or its reply was lost, it is made again,
/// and there is one object with the bytes that its name stands for. A put of a process that has ended may still arrive after
/// another process has put some of the same rows under another name; readers identify rows by node and number.
#[derive(Debug)]
pub(super) struct BucketStorage {
    requests: BucketClient,
    /// `s3://NAME/PREFIX`
    name: String,
    prefix: String,
    /// The staging folder of this machine.
    folder: PathBuf,
    footers: FooterCache,
    /// The server does not support a condition on a put.
    conditions_unsupported: AtomicBool,
}

impl BucketStorage {
    /// Creates the storage without connecting: an unreachable bucket does not prevent a start.
    pub(super) fn new(settings: &BucketSettings, folder: &Path, runtime: Handle) -> Result<Self, BucketError> {
        Ok(Self {
            requests: BucketClient::new(settings, runtime)?,
            name: format!("s3://{}/{}", settings.name, settings.prefix),
            prefix: settings.prefix.clone(),
            folder: folder.to_owned(),
            footers: FooterCache::default(),
            conditions_unsupported: AtomicBool::new(false),
        })
    }

    fn key(&self, place: &FileName) -> String {
        format!("{}{}", self.prefix, place.name())
    }

    /// The names below the prefix that begin with `begin`, without the prefix, each with its size in bytes. With `by_folder`,
    /// only the folders.
    fn list_names(&self, begin: &str, by_folder: bool) -> io::Result<Vec<(String, u64)>> {
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
            "{prefix}* has more than {PAGES_MAX} pages of names; give the log its own prefix"
        )))
    }

    /// The files whose names begin with `begin`, with their sizes in bytes.
    fn list_files(&self, begin: &str) -> io::Result<BTreeMap<FileName, u64>> {
        let names = self.list_names(begin, false)?.into_iter();
        Ok(names
            .filter_map(|(name, bytes)| Some((FileName::parse(&name)?, bytes)))
            .collect())
    }

    fn put_new(&self, key: &str, file: &std::fs::File) -> Result<(), BucketRequestError> {
        if !self.conditions_unsupported.load(Ordering::Relaxed) {
            match self.requests.put(key, file, true) {
                Err(BucketRequestError::Refused(refused)) if refused.is_existing() => return Ok(()),
                Err(BucketRequestError::Refused(refused)) if refused.is_condition_unsupported() => {}
                done => return done,
            }
        }
        // A second put in spite of the check puts the same bytes.
        if !self.requests.has_object(key)? {
            self.requests.put(key, file, false)?;
        }
        if !self.conditions_unsupported.swap(true, Ordering::Relaxed) {
            tracing::info!(
                bucket = self.name,
                "the server does not support If-None-Match: weir checks whether a file exists before it puts it"
            );
        }
        Ok(())
    }
}

impl FileStorage for BucketStorage {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn days(&self) -> io::Result<Vec<Date>> {
        let folders = self.list_names("", true)?;
        let days = folders
            .iter()
            .filter_map(|(name, _)| place::parse_day(name.strip_suffix('/')?));
        let mut days: Vec<Date> = days.collect();
        days.sort_unstable();
        Ok(days)
    }

    fn all_files(&self) -> io::Result<Vec<FileName>> {
        Ok(self.list_files("")?.into_keys().collect())
    }

    fn day_files(&self, day: Date) -> io::Result<Vec<FileName>> {
        Ok(self.file_sizes(day)?.into_keys().collect())
    }

    fn file_sizes(&self, day: Date) -> io::Result<BTreeMap<FileName, u64>> {
        let places = self.list_files(&format!("{day}/"))?;
        self.footers
            .retain(|place| place.day != day || places.contains_key(place));
        Ok(places)
    }

    fn open(&self, place: &FileName) -> Result<TableReader> {
        let open = || BucketObject::open(&self.requests, self.key(place), self.folder.clone());
        let object = self.footers.object(place, open)?;
        TableReader::open(object.into(), &place.node)
    }

    fn put(&self, place: &FileName, file: NamedTempFile) -> io::Result<()> {
        let key = self.key(place);
        self.put_new(&key, file.as_file())
            .map_err(|error| object_error(&key, &error))
    }

    fn sync_files(&self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, place: &FileName) -> io::Result<()> {
        let key = self.key(place);
        self.requests.remove(&key).map_err(|error| object_error(&key, &error))
    }

    fn remove_day(&self, day: Date) -> io::Result<()> {
        // Only weir's own files: others may use the same bucket.
        self.day_files(day)?.iter().try_for_each(|place| self.remove(place))
    }

    fn retention(&self) -> io::Result<Option<RetentionProgress>> {
        let key = format!("{}{RETENTION}", self.prefix);
        match self.requests.read_whole(&key) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(object_error(&key, &error)),
        }
    }

    fn set_retention(&self, retention: &RetentionProgress) -> io::Result<()> {
        let key = format!("{}{RETENTION}", self.prefix);
        let mut partial = new_partial_file_in(&self.folder)?;
        serde_json::to_writer(&mut partial, retention)?;
        let put = self.requests.put(&key, partial.as_file(), false);
        put.map_err(|error| object_error(&key, &error))
    }
}
