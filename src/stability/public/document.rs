//! One rendered answer in each content coding, each made once, on first use.

use std::{fmt::Write as _, io::Write as _, sync::OnceLock};

use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

use crate::stability::public::{
    accept::{Coding, Wishes},
    answer::{PublicResponse, open_headers},
    conditional, page,
    refusal::PublicRefusal,
};

/// Smaller bodies are not compressed: they fit in the first packets anyway.
const SMALL_BYTES: usize = 512;
/// Of 11: more costs many times the processor for a few per cent.
const BROTLI_QUALITY: i32 = 5;
/// The window, 2 to the power of 18 bytes: no answer is much larger.
const BROTLI_WINDOW_LOG: i32 = 18;
/// Of the digest, for an entity tag: 128 bits.
const TAG_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Json,
    Html,
}

/// A body with its codings.
#[derive(Debug)]
pub(super) struct Document {
    kind: Kind,
    plain: Bytes,
    /// Of the plain bytes, without quotes.
    tag: String,
    gzip: OnceLock<Option<Bytes>>,
    brotli: OnceLock<Option<Bytes>>,
}

impl Document {
    pub(super) fn json(text: Vec<u8>) -> Self {
        Self::new(Kind::Json, text)
    }

    /// A whole page.
    pub(super) fn html(text: String) -> Self {
        Self::new(Kind::Html, text.into_bytes())
    }

    fn new(kind: Kind, text: Vec<u8>) -> Self {
        let mut tag = String::with_capacity(2 * TAG_BYTES);
        for byte in Sha256::digest(&text).iter().take(TAG_BYTES) {
            // Writing to a String cannot fail.
            let _ = write!(tag, "{byte:02x}");
        }
        Self {
            kind,
            plain: Bytes::from(text),
            tag,
            gzip: OnceLock::new(),
            brotli: OnceLock::new(),
        }
    }

    /// The answer in the coding that the client wants most; 304 if it has that already.
    pub(super) fn answer(
        &self,
        asked: &HeaderMap,
        cache_control: &HeaderValue,
    ) -> Result<PublicResponse, PublicRefusal> {
        let small = self.plain.len() < SMALL_BYTES;
        let wanted = Wishes::of(asked)
            .choose(small)
            .ok_or(PublicRefusal::EncodingNotAvailable)?;
        let (coding, body) = match wanted {
            Coding::Identity => (None, None),
            Coding::Gzip => (Some("gzip"), self.gzip.get_or_init(|| gzip(&self.plain)).as_ref()),
            Coding::Brotli => (Some("br"), self.brotli.get_or_init(|| brotli(&self.plain)).as_ref()),
        };
        // A coding that failed leaves the bytes as they are; compressing in memory has no reason to.
        let (coding, body) = match (coding, body) {
            (Some(coding), Some(body)) => (Some(coding), body),
            _ => (None, &self.plain),
        };
        // Each coding is a representation of its own, and a strong tag belongs to one (RFC 9110 section 8.8.3).
        let tag = match coding {
            Some(coding) => format!("\"{}-{coding}\"", self.tag),
            None => format!("\"{}\"", self.tag),
        };
        let known = conditional::has(asked, &tag);
        let mut headers = open_headers();
        headers.insert(header::CACHE_CONTROL, cache_control.clone());
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if let Ok(tag) = HeaderValue::try_from(tag) {
            headers.insert(header::ETAG, tag);
        }
        if known {
            return Ok(PublicResponse {
                status: StatusCode::NOT_MODIFIED,
                headers,
                body: Bytes::new(),
            });
        }
        if let Some(coding) = coding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        self.describe(&mut headers);
        Ok(PublicResponse {
            status: StatusCode::OK,
            headers,
            body: body.clone(),
        })
    }

    fn describe(&self, headers: &mut HeaderMap) {
        let kind = match self.kind {
            Kind::Json => "application/json; charset=utf-8",
            Kind::Html => "text/html; charset=utf-8",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.kind == Kind::Html {
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::CSP));
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        }
    }
}

fn gzip(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

fn brotli(plain: &[u8]) -> Option<Bytes> {
    let parameters = BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: BROTLI_WINDOW_LOG,
        size_hint: plain.len(),
        ..BrotliEncoderParams::default()
    };
    let (mut input, mut packed) = (plain, Vec::new());
    brotli::BrotliCompress(&mut input, &mut packed, &parameters).ok()?;
    Some(Bytes::from(packed))
}
