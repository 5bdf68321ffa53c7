//! A client for buckets of S3-compatible servers: signs requests, reads and writes objects.

mod object;

use std::{
    fmt,
    fs::File,
    io::{self, SeekFrom},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, Method, Request, Response, StatusCode, header};
use http_body_util::{
    BodyExt, Full,
    channel::{Channel, Sender},
};
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt},
    time::sleep,
};

use crate::{
    domain::keys::secret::Secret,
    edges::web_client::{Upload, WebClient, WebError},
};

pub(super) use crate::sinks::files::s3::object::BucketClient;
pub(crate) use crate::sinks::files::s3::object::BucketError;
pub(super) use crate::sinks::files::s3::object::{BucketObject, ObjectReader, object_error};

/// The settings of `[log.files.bucket]`. The secrets and files that the configuration names have already been read.
#[derive(Clone, Debug)]
pub(crate) struct BucketSettings {
    /// The name of the bucket.
    pub name: String,
    /// The prefix of the names of all objects. It ends with `/`, or is empty.
    pub prefix: String,
    /// The region for which requests are signed.
    pub region: String,
    /// The URL of the server, which begins with `http://` or `https://`.
    pub endpoint: String,
    /// Whether the bucket's name is in the path of URLs instead of the host name.
    pub path_style: bool,
    pub access_key_id: Secret,
    pub secret_access_key: Secret,
    /// CA certificates in PEM that are trusted instead of the platform's. `None` for the platform's.
    pub ca: Option<Vec<u8>>,
    /// The timeout for opening a connection.
    pub connect: Duration,
    /// The timeout for a response, including all attempts.
    pub answer: Duration,
    /// The timeout for putting a file, including all attempts. It grows by one second per MiB of the file.
    pub write: Duration,
}

/// The reason why a request to a bucket failed. The messages contain no secret.
#[derive(Debug, thiserror::Error)]
pub(in crate::sinks::files) enum BucketRequestError {
    /// The server refused the request.
    #[error("{0}")]
    Refused(BucketRefusal),
    /// No response was received, because the connection failed.
    #[error("{0}")]
    Connection(#[from] WebError),
    /// The timeout has passed.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The request cannot be built, or the response does not fit the request. Contains the reason.
    #[error("{0}")]
    Unexpected(String),
    /// The file that is to be put cannot be read.
    #[error("cannot read the local file to upload: {0}")]
    Local(#[from] io::Error),
    /// The request was abandoned, because the process is stopping.
    #[error("weir stopped before the response arrived")]
    Stopping,
}

impl BucketRequestError {
    /// Returns whether the same request may succeed if it is sent again.
    fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.is_transient(),
            Self::Connection(WebError::Connect(_) | WebError::Broken(_) | WebError::Late(_)) => true,
            Self::Connection(WebError::TooLong(_) | WebError::Address)
            | Self::Timeout(_)
            | Self::Unexpected(_)
            | Self::Local(_)
            | Self::Stopping => false,
        }
    }

    /// Returns whether the request failed because the object does not exist.
    pub(in crate::sinks::files) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.status == StatusCode::NOT_FOUND && refused.code != "NoSuchBucket")
    }
}

/// The maximum number of attempts within the timeout, and the pause before the second attempt. Each further pause is longer by
/// the same time.
const ATTEMPTS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// The size in bytes of the pieces in which a file is sent, and the maximum number of pieces that are in memory at once.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES_MAX: usize = 4;

/// A request to a bucket, whose signature is in the URL.
struct BucketCall {
    client: WebClient,
    method: Method,
    url: String,
    headers: Vec<(HeaderName, String)>,
    /// The file to be sent as the body, with its length in bytes. `None` for a request without a body.
    file: Option<(File, u64)>,
}

impl BucketCall {
    /// Sends the request, with up to [`ATTEMPTS_MAX`] attempts. Returns the response if its status is a success.
    async fn send(self) -> Result<Response<Bytes>, BucketRequestError> {
        let mut attempt = 1;
        loop {
            match self.send_once().await {
                Err(error) if attempt < ATTEMPTS_MAX && error.is_transient() => sleep(PAUSE * attempt).await,
                done => return done,
            }
            attempt += 1;
        }
    }

    async fn send_once(&self) -> Result<Response<Bytes>, BucketRequestError> {
        let answer = match &self.file {
            None => {
                let body = Full::default().map_err(|never| match never {}).boxed_unsync();
                self.client.upload(self.request(body)?).await?
            }
            Some((file, bytes)) => {
                let (sender, body) = Channel::new(PIECES_MAX);
                let sending = send_file(file.try_clone()?, *bytes, sender);
                let request = self.request(body.boxed_unsync())?;
                let (sent, answer) = tokio::join!(sending, self.client.upload(request));
                sent?;
                answer?
            }
        };
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(BucketRequestError::Refused(BucketRefusal::from_response(&answer)))
        }
    }

    fn request(&self, body: Upload) -> Result<Request<Upload>, BucketRequestError> {
        let mut request = Request::builder().method(self.method.clone()).uri(&self.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
            .body(body)
            .map_err(|error| BucketRequestError::Unexpected(format!("cannot build the request: {error}")))
    }
}

/// Sends a file in pieces, until its end or until the receiver is dropped. The receiver is dropped when the server has responded
/// early.
async fn send_file(file: File, bytes: u64, mut to: Sender<Bytes, io::Error>) -> io::Result<()> {
    let mut file = tokio::fs::File::from_std(file);
    file.seek(SeekFrom::Start(0)).await?;
    let mut left = bytes;
    while left > 0 {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        let read = (&mut file).take(left).read_buf(&mut piece).await?;
        left = left.saturating_sub(read as u64);
        if read == 0 || to.send_data(piece.freeze()).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The maximum length of an error code, in characters. A longer one is ignored.
const CODE_CHARS_MAX: usize = 64;

/// A response with an error status. The code is read from its body and is one of
/// <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>. The rest of the body is ignored, because it may quote
/// the access key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sinks::files) struct BucketRefusal {
    status: StatusCode,
    /// The error code. Empty if the body has no valid code.
    code: String,
}

impl BucketRefusal {
    fn from_response(answer: &Response<Bytes>) -> Self {
        let text = String::from_utf8_lossy(answer.body());
        let code = text
            .split_once("<Code>")
            .and_then(|(_, rest)| rest.split_once("</Code>"));
        let code = code.map(|(code, _)| code).filter(|code| {
            code.len() <= CODE_CHARS_MAX && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        });
        Self {
            status: answer.status(),
            code: code.unwrap_or_default().to_owned(),
        }
    }

    /// Returns whether the same request may succeed soon.
    fn is_transient(&self) -> bool {
        let is_own_fault = self.status.is_server_error() && self.status != StatusCode::NOT_IMPLEMENTED;
        let is_conflict = self.status == StatusCode::CONFLICT && self.code == "ConditionalRequestConflict";
        is_own_fault
            || is_conflict
            || matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
    }

    /// Returns whether a put of a new object was refused because an object of this name exists already.
    pub(in crate::sinks::files) fn is_existing(&self) -> bool {
        self.status == StatusCode::PRECONDITION_FAILED
    }

    /// Returns whether the server refused a conditional put because it does not support the condition.
    pub(in crate::sinks::files) fn is_condition_unsupported(&self) -> bool {
        self.status == StatusCode::NOT_IMPLEMENTED
            || (self.status == StatusCode::BAD_REQUEST
                && matches!(
                    self.code.as_str(),
                    "NotImplemented" | "InvalidArgument" | "InvalidRequest"
                ))
    }

    /// Returns advice for the operator; empty if there is none.
    fn advice(&self) -> &'static str {
        match (self.status.as_u16(), self.code.as_str()) {
            (_, "RequestTimeTooSkewed" | "RequestExpired") => "set this machine's clock",
            (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
                "correct access_key_id and secret_access_key, and region"
            }
            (_, "NoSuchBucket") => "create the bucket, or correct its name",
            (_, "AuthorizationHeaderMalformed" | "AuthorizationQueryParametersError" | "PermanentRedirect")
            | (300..=399, _) => "correct region and endpoint",
            (401 | 403, _) => {
                "give the access key s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject, and check this \
                 machine's clock"
            }
            (404, _) => "",
            (413, _) | (_, "EntityTooLarge") => "lower rows_max",
            _ => "",
        }
    }
}

impl fmt::Display for BucketRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the server responded with {}", self.status.as_u16())?;
        if !self.code.is_empty() {
            write!(out, " {}", self.code)?;
        }
        match self.advice() {
            "" => Ok(()),
            advice => write!(out, "; {advice}"),
        }
    }
}

/// Some bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sinks::files) struct ObjectPart {
    /// The offset of the first byte of `bytes` in the object.
    begin: u64,
    /// The length of the complete object, in bytes.
    length: u64,
    bytes: Bytes,
}

/// Returns the part of an object that a response contains: the requested part, or the complete object from a server that does not
/// support ranges. `None` if the response does not say correctly which part it contains.
fn object_part(answer: Response<Bytes>) -> Option<ObjectPart> {
    let (head, bytes) = answer.into_parts();
    if head.status != StatusCode::PARTIAL_CONTENT {
        let length = bytes.len() as u64;
        return Some(ObjectPart {
            begin: 0,
            length,
            bytes,
        });
    }
    let range = head.headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, length) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (begin, end) = range.split_once('-')?;
    let (begin, end, length): (u64, u64, u64) = (begin.parse().ok()?, end.parse().ok()?, length.parse().ok()?);
    let is_whole = end.checked_sub(begin)?.checked_add(1)? == bytes.len() as u64 && end < length;
    is_whole.then_some(ObjectPart { begin, length, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, range: &str, body: &str) -> Response<Bytes> {
        Response::builder()
            .status(status)
            .header(header::CONTENT_RANGE, range)
            .body(Bytes::from(body.to_owned()))
            .unwrap()
    }

    #[test]
    fn a_refusal_says_its_code_and_what_to_do_and_nothing_that_the_body_quotes() {
        let quoting = "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIACANARY</AWSAccessKeyId></Error>";
        for (status, body, told) in [
            (
                403,
                quoting,
                "the server responded with 403 SignatureDoesNotMatch; correct access_key_id and secret_access_key, and region",
            ),
            (
                404,
                "<Error><Code>NoSuchBucket</Code></Error>",
                "the server responded with 404 NoSuchBucket; create the bucket, or correct its name",
            ),
            (301, "", "the server responded with 301; correct region and endpoint"),
            (500, "<Code>AKIA CANARY\n</Code>", "the server responded with 500"),
            (503, "<Code>SlowDown</Code>", "the server responded with 503 SlowDown"),
        ] {
            assert_eq!(
                BucketRefusal::from_response(&answer(status, "", body)).to_string(),
                told
            );
        }
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        for (status, code, passes) in [
            (503, "SlowDown", true),
            (500, "InternalError", true),
            (429, "", true),
            (409, "ConditionalRequestConflict", true),
            (409, "BucketAlreadyExists", false),
            (501, "NotImplemented", false),
            (403, "AccessDenied", false),
            (412, "PreconditionFailed", false),
        ] {
            let refused = BucketRefusal {
                status: StatusCode::from_u16(status).unwrap(),
                code: code.to_owned(),
            };
            assert_eq!(refused.is_transient(), passes, "{refused}");
        }
    }

    #[test]
    fn a_part_is_what_its_range_says_or_none() {
        let whole = object_part(answer(200, "", "abcdef")).unwrap();
        assert_eq!((whole.begin, whole.length, &whole.bytes[..]), (0, 6, &b"abcdef"[..]));
        let some = object_part(answer(206, "bytes 2-4/6", "cde")).unwrap();
        assert_eq!((some.begin, some.length), (2, 6));
        for wrong in [
            "",
            "bytes 2-4/*",
            "bytes */6",
            "bytes 2-5/6",
            "bytes 4-2/6",
            "bytes 4-6/6",
            "bytes 0-18446744073709551615/1",
            "2-4/6",
        ] {
            assert_eq!(object_part(answer(206, wrong, "cde")), None, "{wrong}");
        }
    }
}
