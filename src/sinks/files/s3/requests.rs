//! Signed requests to a bucket.
//!
//! `rusty-s3` signs addresses and reads lists; what it signs weir sends with its own client. `object_store` does more, and
//! brings for it a second way to HTTP and XML (`reqwest` or a connector for its own traits, `quick-xml`, `chrono`), and with its
//! usual features a second cryptography (`aws-lc-rs`, built with a C compiler and cmake). What is needed here are five kinds
//! of requests.

use std::{fmt, fs::File, time::Duration};

use bytes::Bytes;
use http::{Method, Response, header};
use jiff::Timestamp;
use rusty_s3::{
    Bucket, Credentials, S3Action, UrlStyle,
    actions::{ListObjectsV2, ListObjectsV2Response},
};
use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use super::{
    answer::{Part, part},
    call::Call,
    error::RequestError,
    settings::BucketSettings,
};
use crate::edges::{
    clock,
    roots::RootsError,
    web_client::{WebClient, WebLimits},
};

/// How long an address is valid that was signed, and so how far this machine's clock may be behind.
const SIGNED_FOR: Duration = Duration::from_secs(900);
/// The most bytes that one request reads of an object.
pub(super) const PART_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The most bytes of an answer: lists have up to 1000 names of up to 1024 bytes, and parts of an object up to [`PART_BYTES_MAX`].
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Idle connections that are kept for the next requests.
const IDLE_MAX: usize = 8;
/// A file gets a second more for each so many bytes.
const BYTES_PER_SECOND: u64 = 1024 * 1024;

/// A bucket, and who asks it.
#[derive(Clone)]
pub(in super::super) struct Requests {
    client: WebClient,
    bucket: Bucket,
    credentials: Credentials,
    answer: Duration,
    write: Duration,
    runtime: Handle,
}

impl Requests {
    /// Connects nowhere yet. Requests run on the runtime, and whoever makes them waits outside of it.
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

    /// One page of names that begin with `prefix`; with `by_folder` those up to the next `/` are one.
    pub(in super::super) fn list(
        &self,
        prefix: &str,
        by_folder: bool,
        continued: Option<&str>,
    ) -> Result<ListObjectsV2Response, RequestError> {
        let mut list = self.bucket.list_objects_v2(Some(&self.credentials));
        list.with_prefix(prefix);
        if by_folder {
            list.with_delimiter("/");
        }
        if let Some(token) = continued {
            list.with_continuation_token(token);
        }
        let answer = self.ask(Method::GET, &list, &[])?;
        let text =
            std::str::from_utf8(answer.body()).map_err(|_| RequestError::Odd("a list that is no text".into()))?;
        ListObjectsV2::parse_response(text).map_err(|error| RequestError::Odd(format!("a list that is none: {error}")))
    }

    /// Bytes of an object: those of a range as HTTP has it, without `bytes=`.
    pub(in super::super) fn read(&self, key: &str, range: &str) -> Result<Part, RequestError> {
        let get = self.bucket.get_object(Some(&self.credentials), key);
        let answer = self.ask(Method::GET, &get, &[(header::RANGE, format!("bytes={range}"))])?;
        part(answer).ok_or_else(|| RequestError::Odd("a part of an object that was not asked for".into()))
    }

    /// A small object as a whole.
    pub(in super::super) fn read_whole(&self, key: &str) -> Result<Bytes, RequestError> {
        let get = self.bucket.get_object(Some(&self.credentials), key);
        Ok(self.ask(Method::GET, &get, &[])?.into_body())
    }

    /// Whether there is such an object.
    pub(in super::super) fn has(&self, key: &str) -> Result<bool, RequestError> {
        let head = self.bucket.head_object(Some(&self.credentials), key);
        match self.ask(Method::HEAD, &head, &[]) {
            Ok(_) => Ok(true),
            Err(error) if error.is_gone() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an object, if it is there.
    pub(in super::super) fn remove(&self, key: &str) -> Result<(), RequestError> {
        let delete = self.bucket.delete_object(Some(&self.credentials), key);
        match self.ask(Method::DELETE, &delete, &[]) {
            Err(error) if !error.is_gone() => Err(error),
            _ => Ok(()),
        }
    }

    /// Puts a file there; with `only_new` only if there is no object of this name.
    pub(in super::super) fn put(&self, key: &str, file: &File, only_new: bool) -> Result<(), RequestError> {
        let bytes = file.metadata()?.len();
        let file = file.try_clone()?;
        let mut put = self.bucket.put_object(Some(&self.credentials), key);
        let mut headers = vec![(header::CONTENT_LENGTH, bytes.to_string())];
        if only_new {
            put.headers_mut().insert("if-none-match", "*");
            headers.push((header::IF_NONE_MATCH, "*".to_owned()));
        }
        let limit = self.write + Duration::from_secs(bytes / BYTES_PER_SECOND);
        let call = Call {
            client: self.client.clone(),
            method: Method::PUT,
            url: self.signed(&put)?,
            headers,
            file: Some((file, bytes)),
        };
        self.wait(limit, call)?;
        Ok(())
    }

    fn ask<'a>(
        &'a self,
        method: Method,
        action: &impl S3Action<'a>,
        headers: &[(header::HeaderName, String)],
    ) -> Result<Response<Bytes>, RequestError> {
        let call = Call {
            client: self.client.clone(),
            method,
            url: self.signed(action)?,
            headers: headers.to_vec(),
            file: None,
        };
        self.wait(self.answer, call)
    }

    /// The address with its signature, which says for a while who asks.
    fn signed<'a>(&self, action: &impl S3Action<'a>) -> Result<String, RequestError> {
        let now = Timestamp::from_second(clock::unix_seconds()).ok();
        let now = now.ok_or_else(|| RequestError::Odd("nothing: this machine's clock is out of reach".into()))?;
        Ok(action.sign_with_time(SIGNED_FOR, &now).into())
    }

    /// Has the runtime make a call, and waits for its end. When the runtime ends, so does the wait.
    fn wait(&self, limit: Duration, call: Call) -> Result<Response<Bytes>, RequestError> {
        let (done, result) = oneshot::channel();
        self.runtime.spawn(async move {
            let answer = timeout(limit, call.made()).await;
            let _ = done.send(answer.unwrap_or(Err(RequestError::Late(limit))));
        });
        result.blocking_recv().unwrap_or(Err(RequestError::Stopping))
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Requests")
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

/// Why a bucket cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BucketError {
    /// There is nobody to trust.
    #[error("[log.files.bucket] ca_file: {0}")]
    Roots(#[from] RootsError),
    /// Name and server make no address.
    #[error("[log.files.bucket] endpoint: it makes no address together with the bucket's name; try path_style = true")]
    Address,
}
