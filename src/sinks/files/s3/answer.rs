//! The responses of a bucket.

use std::fmt;

use bytes::Bytes;
use http::{Response, StatusCode, header};

/// The longest code of an error.
const CODE_CHARS_MAX: usize = 64;

/// A refusal: its status, and the code in its body, which is one of
/// <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>. The rest of the body may quote the access key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct BucketRefusal {
    pub(super) status: StatusCode,
    /// Empty if there is none.
    pub(super) code: String,
}

impl BucketRefusal {
    pub(super) fn from_response(answer: &Response<Bytes>) -> Self {
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

    /// Whether the same request may succeed soon.
    pub(super) fn is_transient(&self) -> bool {
        let is_own_fault = self.status.is_server_error() && self.status != StatusCode::NOT_IMPLEMENTED;
        let is_conflict = self.status == StatusCode::CONFLICT && self.code == "ConditionalRequestConflict";
        is_own_fault
            || is_conflict
            || matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
    }

    /// Whether an object of this name exists already: the response to a put of a new object.
    pub(in super::super) fn is_existing(&self) -> bool {
        self.status == StatusCode::PRECONDITION_FAILED
    }

    /// Whether the server does not support a condition on a put.
    pub(in super::super) fn is_condition_unsupported(&self) -> bool {
        self.status == StatusCode::NOT_IMPLEMENTED
            || (self.status == StatusCode::BAD_REQUEST
                && matches!(
                    self.code.as_str(),
                    "NotImplemented" | "InvalidArgument" | "InvalidRequest"
                ))
    }

    /// What the operator has to do.
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
        write!(out, "it answered {}", self.status.as_u16())?;
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
pub(in super::super) struct ObjectPart {
    /// The offset of the first byte in the object.
    pub(super) begin: u64,
    /// The length of the object.
    pub(super) length: u64,
    pub(super) bytes: Bytes,
}

/// The part of an object in a response: the requested one, or the whole object from a server that does not support ranges.
pub(super) fn object_part(answer: Response<Bytes>) -> Option<ObjectPart> {
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
                "it answered 403 SignatureDoesNotMatch; correct access_key_id and secret_access_key, and region",
            ),
            (
                404,
                "<Error><Code>NoSuchBucket</Code></Error>",
                "it answered 404 NoSuchBucket; create the bucket, or correct its name",
            ),
            (301, "", "it answered 301; correct region and endpoint"),
            (500, "<Code>AKIA CANARY\n</Code>", "it answered 500"),
            (503, "<Code>SlowDown</Code>", "it answered 503 SlowDown"),
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
