//! The rendered documents of the public service, each in all content codings. A document is compressed with a coding when the
//! document is first sent in this coding.

use std::{
    fmt::Write as _,
    io::Write as _,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwapOption;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::{
    domain::{
        catalogue::Catalogue,
        faults::stability::{Hour, ModelWindow, StabilityWindow},
    },
    stability::{
        Snapshot,
        public::{
            self, AcceptedCoding, CodingWeights, PublicResponse, open_headers, page,
            record::{self, PublicRefusal},
        },
    },
};

/// The size below which a body is not compressed, in bytes. Such a body fits into the first packets without compression.
const SMALL_BYTES: usize = 512;
/// The quality of Brotli compression, at most 11. A higher quality takes many times the processor time and saves only a few per
/// cent.
const BROTLI_QUALITY: i32 = 5;
/// The base-2 logarithm of the size of the Brotli window. A window of 2^18 bytes is enough, because no answer is much larger.
const BROTLI_WINDOW_LOG: i32 = 18;
/// The number of bytes of the digest in an entity tag: 16 bytes, which are 128 bits.
const TAG_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DocumentKind {
    Json,
    Html,
}

/// A response body in all content codings.
#[derive(Debug)]
pub(super) struct RenderedDocument {
    kind: DocumentKind,
    plain: Bytes,
    /// The entity tag of the uncompressed bytes, without quotes.
    tag: String,
    gzip: OnceLock<Option<Bytes>>,
    brotli: OnceLock<Option<Bytes>>,
}

impl RenderedDocument {
    pub(super) fn json(text: Vec<u8>) -> Self {
        Self::new(DocumentKind::Json, text)
    }

    /// Creates the document of an HTML page.
    pub(super) fn html(text: String) -> Self {
        Self::new(DocumentKind::Html, text.into_bytes())
    }

    fn new(kind: DocumentKind, text: Vec<u8>) -> Self {
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

    /// Returns the answer in the coding that the client prefers, or 304 if the client already has the document.
    pub(super) fn answer(
        &self,
        asked: &HeaderMap,
        cache_control: &HeaderValue,
    ) -> Result<PublicResponse, PublicRefusal> {
        let small = self.plain.len() < SMALL_BYTES;
        let wanted = CodingWeights::from_headers(asked)
            .choose(small)
            .ok_or(PublicRefusal::EncodingNotAvailable)?;
        let (coding, body) = match wanted {
            AcceptedCoding::Identity => (None, None),
            AcceptedCoding::Gzip => (Some("gzip"), self.gzip.get_or_init(|| gzip(&self.plain)).as_ref()),
            AcceptedCoding::Brotli => (Some("br"), self.brotli.get_or_init(|| brotli(&self.plain)).as_ref()),
        };
        // If compression failed, the uncompressed bytes are sent, although compression in memory should never fail.
        let (coding, body) = match (coding, body) {
            (Some(coding), Some(body)) => (Some(coding), body),
            _ => (None, &self.plain),
        };
        // Each coding is a separate representation, and a strong tag identifies only one representation (RFC 9110, section
        // 8.8.3).
        let tag = match coding {
            Some(coding) => format!("\"{}-{coding}\"", self.tag),
            None => format!("\"{}\"", self.tag),
        };
        let known = public::names_tag(asked, &tag);
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
            DocumentKind::Json => "application/json; charset=utf-8",
            DocumentKind::Html => "text/html; charset=utf-8",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.kind == DocumentKind::Html {
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

/// All documents that are rendered from one snapshot, catalogue and hour.
#[derive(Debug)]
pub(super) struct Edition {
    snapshot: Arc<Snapshot>,
    catalogue: Arc<Catalogue>,
    window: StabilityWindow,
    summary: OnceLock<RenderedDocument>,
    index: OnceLock<RenderedDocument>,
    /// The documents of each model, in the order of the window's models.
    models: Vec<ModelDocuments>,
}

/// The documents about one model.
#[derive(Debug, Default)]
struct ModelDocuments {
    detail: OnceLock<RenderedDocument>,
    page: OnceLock<RenderedDocument>,
}

impl Edition {
    /// Creates an edition with the models in the catalogue and the models that served requests in the window.
    fn new(snapshot: Arc<Snapshot>, catalogue: Arc<Catalogue>, now: Hour) -> Self {
        let names = catalogue.served_models().map(|model| model.name.as_str());
        let window = StabilityWindow::new(now, names, &snapshot.buckets);
        let models = window.models.iter().map(|_| ModelDocuments::default()).collect();
        Self {
            snapshot,
            catalogue,
            window,
            summary: OnceLock::new(),
            index: OnceLock::new(),
            models,
        }
    }

    fn is_for(&self, snapshot: &Arc<Snapshot>, catalogue: &Arc<Catalogue>, now: Hour) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot) && Arc::ptr_eq(&self.catalogue, catalogue) && self.window.now == now
    }

    /// Returns the time of the snapshot, in seconds since the Unix epoch.
    fn updated_at(&self) -> i64 {
        self.snapshot.read_at_ms.div_euclid(1000)
    }

    /// Returns the JSON document about all models.
    pub(super) fn summary(&self) -> &RenderedDocument {
        self.summary
            .get_or_init(|| RenderedDocument::json(record::summary(&self.window)))
    }

    /// Returns the HTML page about all models.
    pub(super) fn index(&self) -> &RenderedDocument {
        self.index
            .get_or_init(|| RenderedDocument::html(page::index(&self.window, self.updated_at())))
    }

    /// Returns the JSON document about one model; `None` if no model is named `key`.
    pub(super) fn detail(&self, key: &str) -> Option<&RenderedDocument> {
        let (model, leaves) = self.find(key)?;
        let render = || RenderedDocument::json(record::detail(model, self.updated_at()));
        Some(leaves.detail.get_or_init(render))
    }

    pub(super) fn model(&self, key: &str) -> Option<&RenderedDocument> {
        let (model, leaves) = self.find(key)?;
        let render = || RenderedDocument::html(page::model(model, self.updated_at()));
        Some(leaves.page.get_or_init(render))
    }

    /// Finds a model by its name or one of its aliases.
    fn find(&self, key: &str) -> Option<(&ModelWindow, &ModelDocuments)> {
        let place = |name: &str| {
            self.window
                .models
                .binary_search_by(|model| model.name.as_str().cmp(name))
                .ok()
        };
        let place = place(key).or_else(|| place(&self.catalogue.find_name_or_alias(key)?.name))?;
        self.window.models.get(place).zip(self.models.get(place))
    }
}

/// A cache with the current edition.
#[derive(Debug, Default)]
pub(super) struct EditionCache {
    current: ArcSwapOption<Edition>,
    /// Locked while an edition is created, so that concurrent requests create only one.
    making: Mutex<()>,
}

impl EditionCache {
    /// Returns the edition for these inputs. Creates the edition if the current edition has other inputs.
    pub(super) fn edition(&self, snapshot: Arc<Snapshot>, catalogue: Arc<Catalogue>, now: Hour) -> Arc<Edition> {
        let fitting = || {
            let current = self.current.load_full();
            current.filter(|edition| edition.is_for(&snapshot, &catalogue, now))
        };
        if let Some(edition) = fitting() {
            return edition;
        }
        let _making = self.making.lock();
        if let Some(edition) = fitting() {
            return edition;
        }
        let edition = Arc::new(Edition::new(snapshot, catalogue, now));
        self.current.store(Some(Arc::clone(&edition)));
        edition
    }
}
