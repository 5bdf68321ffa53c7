//! Gives a Parquet reader access to an object in a bucket. The end of the object is fetched first, and then only the row groups
//! that are needed.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Response, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use rusty_s3::{
    Bucket, Credentials, S3Action, UrlStyle,
    actions::{ListObjectsV2, ListObjectsV2Response},
};
use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use crate::{
    edges::{
        clock,
        web_client::{RootsError, WebClient, WebLimits},
    },
    sinks::files::s3::{BucketCall, BucketRequestError, BucketSettings, ObjectPart, object_part},
};

/// The number of bytes at the end of an object that are fetched first. They describe where everything else in the object is.
const TAIL_BYTES: u64 = 64 * 1024;
/// The number of bytes that a sequential reader fetches at once.
const AHEAD_BYTES: u64 = 64 * 1024;

/// An object in a bucket whose end has been fetched. Clones share the fetched data.
#[derive(Clone, Debug)]
pub(in super::super) struct BucketObject(Arc<ObjectState>);

#[derive(Debug)]
struct ObjectState {
    requests: BucketClient,
    key: String,
    length: u64,
    tail: Bytes,
    /// The folder for the file that contains the prefetched part. The part is on disk, because row groups can be large and many
    /// objects can be open.
    folder: PathBuf,
    prefetched: Mutex<Option<PrefetchedPart>>,
}

/// A prefetched part of an object, in an unnamed file.
#[derive(Clone, Debug)]
struct PrefetchedPart {
    range: Range<u64>,
    file: Arc<File>,
}

impl BucketObject {
    /// Opens an object by fetching its end. Parts are later prefetched into `folder`.
    pub(in super::super) fn open(requests: &BucketClient, key: String, folder: PathBuf) -> io::Result<Self> {
        let tail = requests.read(&key, &format!("-{TAIL_BYTES}"));
        let tail = tail.map_err(|error| object_error(&key, &error))?;
        if tail.begin + tail.bytes.len() as u64 != tail.length {
            return Err(object_error(
                &key,
                &BucketRequestError::Unexpected("the server did not send the end of the object".into()),
            ));
        }
        Ok(Self(Arc::new(ObjectState {
            requests: requests.clone(),
            key,
            length: tail.length,
            tail: tail.bytes,
            folder,
            prefetched: Mutex::new(None),
        })))
    }

    /// Returns a copy that has only the end of the object, as if it had just been opened. Returns `None` if the server does not
    /// support ranges, because then the complete object is in memory.
    pub(in super::super) fn with_end_only(&self) -> Option<Self> {
        let parts = &self.0;
        let is_end = parts.tail.len() as u64 <= TAIL_BYTES;
        is_end.then(|| {
            Self(Arc::new(ObjectState {
                requests: parts.requests.clone(),
                key: parts.key.clone(),
                length: parts.length,
                tail: parts.tail.clone(),
                folder: parts.folder.clone(),
                prefetched: Mutex::new(None),
            }))
        })
    }

    /// Returns the length of the object, in bytes.
    pub(in super::super) fn length(&self) -> u64 {
        self.0.length
    }

    /// Fetches a part that will be read soon. It replaces the previously fetched part.
    pub(in super::super) fn prefetch(&self, range: Range<u64>) -> io::Result<()> {
        if self.0.tail_from(range.start).is_some() || self.0.prefetched_from(range.start).is_some() {
            return Ok(());
        }
        let mut file = tempfile::tempfile_in(&self.0.folder)?;
        let mut at = range.start;
        while at < range.end {
            let bytes = self.0.fetch(at..range.end.min(at + PART_BYTES_MAX))?;
            file.write_all(&bytes)?;
            at += bytes.len() as u64;
        }
        *self.0.prefetched.lock() = Some(PrefetchedPart {
            range,
            file: Arc::new(file),
        });
        Ok(())
    }

    /// Reads exactly `count` bytes from the offset `begin` on.
    pub(in super::super) fn bytes(&self, begin: u64, count: usize) -> io::Result<Bytes> {
        let end = begin.checked_add(count as u64).filter(|end| *end <= self.0.length);
        if end.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "cannot read {count} bytes of {} from offset {begin} on: the object is shorter",
                    self.0.key
                ),
            ));
        }
        if let Some(tail) = self.0.tail_from(begin) {
            return Ok(tail.slice(..count));
        }
        let mut bytes = vec![0; count];
        self.reader(begin).read_exact(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Creates a reader that begins at the offset `at`.
    pub(in super::super) fn reader(&self, at: u64) -> ObjectReader {
        ObjectReader {
            parts: Arc::clone(&self.0),
            at,
            ahead: Bytes::new(),
        }
    }
}

impl ObjectState {
    /// Returns the bytes from the offset `at` to the end of the object. `None` if they are not all in memory.
    fn tail_from(&self, at: u64) -> Option<Bytes> {
        let begin = self.length - self.tail.len() as u64;
        let skipped = usize::try_from(at.checked_sub(begin)?).ok()?;
        (skipped <= self.tail.len()).then(|| self.tail.slice(skipped..))
    }

    fn prefetched_from(&self, at: u64) -> Option<PrefetchedPart> {
        self.prefetched.lock().clone().filter(|kept| kept.range.contains(&at))
    }

    /// Fetches a part of at most [`PART_BYTES_MAX`] bytes from the bucket.
    fn fetch(&self, range: Range<u64>) -> io::Result<Bytes> {
        let text = format!("{}-{}", range.start, range.end.saturating_sub(1));
        let part = self.requests.read(&self.key, &text);
        let part = part.map_err(|error| object_error(&self.key, &error))?;
        let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let skipped = range
            .start
            .checked_sub(part.begin)
            .and_then(|skipped| usize::try_from(skipped).ok());
        let found = skipped.and_then(|skipped| Some(skipped..skipped.checked_add(wanted)?));
        match found {
            Some(found) if part.length == self.length && found.end <= part.bytes.len() => Ok(part.bytes.slice(found)),
            _ => Err(object_error(
                &self.key,
                &BucketRequestError::Unexpected("the server sent another part than the requested one".into()),
            )),
        }
    }
}

/// Reads an object sequentially from an offset on.
pub(in super::super) struct ObjectReader {
    parts: Arc<ObjectState>,
    at: u64,
    /// The next bytes of the object, which have been fetched already.
    ahead: Bytes,
}

impl Read for ObjectReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.parts.length || into.is_empty() {
            return Ok(0);
        }
        let count = if !self.ahead.is_empty() {
            move_bytes(&mut self.ahead, into)
        } else if let Some(mut tail) = self.parts.tail_from(self.at) {
            move_bytes(&mut tail, into)
        } else if let Some(kept) = self.parts.prefetched_from(self.at) {
            let most = usize::try_from(kept.range.end - self.at)
                .unwrap_or(usize::MAX)
                .min(into.len());
            kept.file
                .read_at(into.get_mut(..most).unwrap_or_default(), self.at - kept.range.start)?
        } else {
            let end = self.parts.length.min(self.at + AHEAD_BYTES);
            self.ahead = self.parts.fetch(self.at..end)?;
            move_bytes(&mut self.ahead, into)
        };
        self.at += count as u64;
        Ok(count)
    }
}

/// Moves as many bytes as possible from `from` to `into`. Returns the number of moved bytes.
fn move_bytes(from: &mut Bytes, into: &mut [u8]) -> usize {
    let count = from.len().min(into.len());
    std::iter::zip(into, from.split_to(count)).for_each(|(to, byte)| *to = byte);
    count
}

/// Converts a failed request for an object into an I/O error that names the object.
pub(in super::super) fn object_error(key: &str, error: &BucketRequestError) -> io::Error {
    let kind = if error.is_not_found() {
        io::ErrorKind::NotFound
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, format!("{key}: {error}"))
}

/// The time for which a signed URL is valid. Therefore this is also the maximum time by which this machine's clock may be
/// slow.
const SIGNED_FOR: Duration = Duration::from_secs(900);
/// The maximum number of bytes of an object that one request fetches.
pub(super) const PART_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The maximum size of a response, in bytes. A list has up to 1000 names of up to 1024 bytes; a part of an object has up to
/// [`PART_BYTES_MAX`].
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The maximum number of idle connections that stay open.
const IDLE_MAX: usize = 8;
/// The timeout for putting a file grows by one second per this many bytes of the file.
const BYTES_PER_SECOND: u64 = 1024 * 1024;

/// A client of one bucket, with the access key.
#[derive(Clone)]
pub(in super::super) struct BucketClient {
    client: WebClient,
    bucket: Bucket,
    credentials: Credentials,
    answer: Duration,
    write: Duration,
    runtime: Handle,
}

impl BucketClient {
    /// Creates the client without connecting. Requests run on `runtime`. Callers block, so they must not be tasks of `runtime`.
    pub(in super::super) fn new(settings: &BucketSettings, runtime: Handle) -> Result<Self, BucketError> {
        let endpoint = settings.endpoint.parse().map_err(|_| BucketError::Address)?;
        let style = if settings.path_style {
            UrlStyle::Path
        } else {
            UrlStyle::VirtualHost
        };
        let (name, region) = (settings.name.clone(), settings.region.clone());
        let credentials = Credentials::new(settings.access_key_id.expose(), settings.secret_access_key.expose());
        let limits = WebLimits {
            connect: settings.connect,
            total: None,
            answer_bytes_max: ANSWER_BYTES_MAX,
            idle_max: IDLE_MAX,
        };
        Ok(Self {
            client: WebClient::new(settings.ca.as_deref(), limits)?,
            bucket: Bucket::new(endpoint, style, name, region).map_err(|_| BucketError::Address)?,
            credentials,
            answer: settings.answer,
            write: settings.write,
            runtime,
        })
    }

    /// Lists one page of the names that begin with `prefix`. With `by_folder`, each name is cut off after the first `/` that
    /// follows `prefix`, and equal names are listed once. `continued` is the position from the previous page; `None` for the
    /// first page.
    pub(in super::super) fn list(
        &self,
        prefix: &str,
        by_folder: bool,
        continued: Option<&str>,
    ) -> Result<ListObjectsV2Response, BucketRequestError> {
        let mut list = self.bucket.list_objects_v2(Some(&self.credentials));
        list.with_prefix(prefix);
        if by_folder {
            list.with_delimiter("/");
        }
        if let Some(token) = continued {
            list.with_continuation_token(token);
        }
        let answer = self.call(Method::GET, &list, &[])?;
        let text = std::str::from_utf8(answer.body()).map_err(|_| {
            BucketRequestError::Unexpected("the server sent a list of objects that is not UTF-8".into())
        })?;
        ListObjectsV2::parse_response(text).map_err(|error| {
            BucketRequestError::Unexpected(format!("the server sent an invalid list of objects: {error}"))
        })
    }

    /// Reads a range of an object. `range` has the syntax of the HTTP header, without `bytes=`.
    pub(in super::super) fn read(&self, key: &str, range: &str) -> Result<ObjectPart, BucketRequestError> {
        let get = self.bucket.get_object(Some(&self.credentials), key);
        let answer = self.call(Method::GET, &get, &[(header::RANGE, format!("bytes={range}"))])?;
        object_part(answer)
            .ok_or_else(|| BucketRequestError::Unexpected("the server did not send a valid part of the object".into()))
    }

    /// Reads a small object completely.
    pub(in super::super) fn read_whole(&self, key: &str) -> Result<Bytes, BucketRequestError> {
        let get = self.bucket.get_object(Some(&self.credentials), key);
        Ok(self.call(Method::GET, &get, &[])?.into_body())
    }

    /// Returns whether an object exists.
    pub(in super::super) fn has_object(&self, key: &str) -> Result<bool, BucketRequestError> {
        let head = self.bucket.head_object(Some(&self.credentials), key);
        match self.call(Method::HEAD, &head, &[]) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an object. Succeeds if it does not exist.
    pub(in super::super) fn remove(&self, key: &str) -> Result<(), BucketRequestError> {
        let delete = self.bucket.delete_object(Some(&self.credentials), key);
        match self.call(Method::DELETE, &delete, &[]) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Puts a file as the object `key`. With `only_new`, fails if an object of this name exists.
    pub(in super::super) fn put(&self, key: &str, file: &File, only_new: bool) -> Result<(), BucketRequestError> {
        let bytes = file.metadata()?.len();
        let file = file.try_clone()?;
        let mut put = self.bucket.put_object(Some(&self.credentials), key);
        let mut headers = vec![(header::CONTENT_LENGTH, bytes.to_string())];
        if only_new {
            put.headers_mut().insert("if-none-match", "*");
            headers.push((header::IF_NONE_MATCH, "*".to_owned()));
        }
        let limit = self.write + Duration::from_secs(bytes / BYTES_PER_SECOND);
        let call = BucketCall {
            client: self.client.clone(),
            method: Method::PUT,
            url: self.signed_url(&put)?,
            headers,
            file: Some((file, bytes)),
        };
        self.run(limit, call)?;
        Ok(())
    }

    fn call<'a>(
        &'a self,
        method: Method,
        action: &impl S3Action<'a>,
        headers: &[(header::HeaderName, String)],
    ) -> Result<Response<Bytes>, BucketRequestError> {
        let call = BucketCall {
            client: self.client.clone(),
            method,
            url: self.signed_url(action)?,
            headers: headers.to_vec(),
            file: None,
        };
        self.run(self.answer, call)
    }

    /// Returns the signed URL of a request. It is valid for [`SIGNED_FOR`].
    fn signed_url<'a>(&self, action: &impl S3Action<'a>) -> Result<String, BucketRequestError> {
        let now = Timestamp::from_second(clock::unix_seconds()).ok();
        let now = now.ok_or_else(|| {
            BucketRequestError::Unexpected("the clock of this machine is out of range; set it".into())
        })?;
        Ok(action.sign_with_time(SIGNED_FOR, &now).into())
    }

    /// Sends a request on the runtime, and blocks until there is a result or the runtime has ended.
    fn run(&self, limit: Duration, call: BucketCall) -> Result<Response<Bytes>, BucketRequestError> {
        let (done, result) = oneshot::channel();
        self.runtime.spawn(async move {
            let answer = timeout(limit, call.send()).await;
            let _ = done.send(answer.unwrap_or(Err(BucketRequestError::Timeout(limit))));
        });
        result.blocking_recv().unwrap_or(Err(BucketRequestError::Stopping))
    }
}

impl fmt::Debug for BucketClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Requests")
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

/// The reason why the settings of a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BucketError {
    /// The CA certificates in `ca_file` cannot be used.
    #[error("[log.files.bucket] ca_file cannot be used: {0}")]
    Roots(#[from] RootsError),
    /// The bucket's name and the setting `endpoint` do not form a URL.
    #[error("[log.files.bucket] endpoint cannot be combined with the bucket's name into a URL; try path_style = true")]
    Address,
}
