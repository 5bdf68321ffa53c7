//! Sends signed requests to a bucket.
//!
//! The crate `rusty-s3` signs URLs and parses lists, and weir's own client sends the requests. The crate `object_store` does
//! more, but adds a second HTTP and XML stack (`reqwest` or a connector for its own traits, `quick-xml`, `chrono`) and with its
//! usual features a second cryptography library (`aws-lc-rs`, which is built with a C compiler and cmake). Only five kinds of
//! requests are needed here.

use std::{fmt, fs::File, time::Duration};

use bytes::Bytes;
use http::{Method, Response, header};
use jiff::Timestamp;
use rusty_s3::{
    Bucket, Credentials, S3Action, UrlStyle,
    actions::{ListObjectsV2, ListObjectsV2Response},
};
use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use crate::edges::{
    clock,
    web_client::{RootsError, WebClient, WebLimits},
};
use crate::sinks::files::s3::{BucketCall, BucketRequestError, BucketSettings, ObjectPart, object_part};

/// How long a signed URL is valid. Therefore this is also the maximum time by which this machine's clock may be behind.
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

    /// Lists one page of the names that begin with `prefix`. With `by_folder`, names are cut off after the next `/` and each is
    /// listed once. `continued` is the position from the previous page; `None` for the first page.
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

/// Why the settings of a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BucketError {
    /// The CA certificates in `ca_file` cannot be used.
    #[error("[log.files.bucket] ca_file cannot be used: {0}")]
    Roots(#[from] RootsError),
    /// The bucket's name and the setting `endpoint` do not form a URL.
    #[error("[log.files.bucket] endpoint cannot be combined with the bucket's name into a URL; try path_style = true")]
    Address,
}
