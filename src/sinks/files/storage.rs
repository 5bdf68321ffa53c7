//! The storage of log files: a folder of this machine, or a bucket.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use jiff::civil::Date;
use parquet::errors::Result;
use tempfile::NamedTempFile;
use tokio::runtime::Handle;

use crate::{
    domain::ledger::daily_sums::RetentionProgress,
    sinks::files::{
        self, FileName, file_names, make_folder, new_partial_file_in,
        s3::{BucketClient, BucketError, BucketObject, BucketRequestError, BucketSettings, object_error},
        table::{FooterCache, TableReader},
    },
};

/// The place where log files are stored. All calls block, at most until the timeouts of the implementation.
///
/// A file is complete and never changes once it is visible. Its name says which rows it has, so putting a file again puts the
/// same bytes.
pub(super) trait FileStorage: Send + Sync {
    /// Returns the storage's name in messages: its path or URL.
    fn name(&self) -> String;

    /// Returns the days that may have files, in ascending order.
    fn days(&self) -> io::Result<Vec<Date>>;

    /// Returns the files of all days, ordered by day, lane and number.
    fn all_files(&self) -> io::Result<Vec<FileName>>;

    /// Returns all files of a day, ordered by lane and number.
    fn day_files(&self, day: Date) -> io::Result<Vec<FileName>>;

    /// Returns the files of a day that were not merged into another one.
    fn unmerged_files(&self, day: Date) -> io::Result<Vec<FileName>> {
        Ok(files::without_merged(&self.day_files(day)?))
    }

    /// Returns the sizes of a day's files, in bytes. Files that are removed during the call may be missing.
    fn file_sizes(&self, day: Date) -> io::Result<BTreeMap<FileName, u64>>;

    /// Opens a file. If the file no longer exists, the error is [`parquet::errors::ParquetError::External`] and contains
    /// [`io::ErrorKind::NotFound`].
    fn open(&self, place: &FileName) -> Result<TableReader>;

    /// Adds a complete file atomically. Succeeds without a change if the file exists. When this returns, the file is durable.
    fn put(&self, place: &FileName, file: NamedTempFile) -> io::Result<()>;

    /// Makes all files durable, including files whose [`FileStorage::put`] was interrupted before the file was durable.
    fn sync_files(&self) -> io::Result<()>;

    /// Removes a file. Succeeds if it does not exist.
    fn remove(&self, place: &FileName) -> io::Result<()>;

    /// Removes all files of a day.
    fn remove_day(&self, day: Date) -> io::Result<()>;

    /// Returns the stored progress of removing old days. `None` if none has been stored.
    fn retention(&self) -> io::Result<Option<RetentionProgress>>;

    /// Stores the progress of removing old days.
    fn set_retention(&self, retention: &RetentionProgress) -> io::Result<()>;
}

/// The name of the object that stores the progress of removing old days.
const RETENTION: &str = "retention.json";
/// The maximum number of pages of a list of objects. Each page has up to 1000 names.
const PAGES_MAX: usize = 1000;

/// Stores log files in an S3-compatible bucket, below a prefix. Objects have the same names as files in a folder.
///
/// A put creates a new object and never replaces one (`If-None-Match: *`). A put that was refused, was slow or got no response is
/// repeated. Nevertheless there is only one object, because its name determines its bytes. A put of a process that has ended may
/// still arrive after another process has put some of the same rows under another name. Readers therefore identify rows by node
/// and number.
#[derive(Debug)]
pub(super) struct BucketStorage {
    requests: BucketClient,
    /// The storage's name in messages: `s3://BUCKET/PREFIX`.
    name: String,
    prefix: String,
    /// The staging folder of this machine. Parts of objects are prefetched into it.
    folder: PathBuf,
    footers: FooterCache,
    /// Whether the server has refused a conditional put because it does not support the condition.
    conditions_unsupported: AtomicBool,
}

impl BucketStorage {
    /// Creates the storage without connecting, so that weir can start while the bucket is unreachable.
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

    /// Lists the objects whose names, after the storage's prefix, begin with `begin`. Returns these names without the storage's
    /// prefix, each with its object's size in bytes. With `by_folder`, returns the names of folders instead.
    fn list_names(&self, begin: &str, by_folder: bool) -> io::Result<Vec<(String, u64)>> {
        let prefix = format!("{}{begin}", self.prefix);
        let (mut names, mut continued) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = self.requests.list(&prefix, by_folder, continued.as_deref());
            let page = page.map_err(|error| io::Error::other(format!("cannot list {prefix}*: {error}")))?;
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
            "cannot list {prefix}*: there are more than {PAGES_MAX} pages of names; give the log a prefix of its own"
        )))
    }

    /// Lists the log files whose names begin with `begin`, with their sizes in bytes.
    fn list_files(&self, begin: &str) -> io::Result<BTreeMap<FileName, u64>> {
        let names = self.list_names(begin, false)?.into_iter();
        Ok(names
            .filter_map(|(name, bytes)| Some((FileName::parse(&name)?, bytes)))
            .collect())
    }

    fn put_new(&self, key: &str, file: &File) -> Result<(), BucketRequestError> {
        if !self.conditions_unsupported.load(Ordering::Relaxed) {
            match self.requests.put(key, file, true) {
                Err(BucketRequestError::Refused(refused)) if refused.is_existing() => return Ok(()),
                Err(BucketRequestError::Refused(refused)) if refused.is_condition_unsupported() => {}
                done => return done,
            }
        }
        // If another put comes between the check and this put, both put the same bytes.
        if !self.requests.has_object(key)? {
            self.requests.put(key, file, false)?;
        }
        if !self.conditions_unsupported.swap(true, Ordering::Relaxed) {
            tracing::info!(
                bucket = self.name,
                "the server of the bucket does not support If-None-Match, so weir checks before each upload that the file does not exist"
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
            .filter_map(|(name, _)| files::parse_day(name.strip_suffix('/')?));
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
        // Removes only weir's own files, because the bucket may have others.
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

/// Stores log files in a folder, which several machines can share. The folder has a subfolder for each day.
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
            .filter_map(|name| files::parse_day(name))
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

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
