//! Content codings (RFC 9110 section 8.4): determines the coding of a body, and decodes a body step by step into a given buffer.
//! [`decoding`] runs the steps in a loop.
//!
//! A decoder never writes more than the buffer has room for, so its caller decides how far a few bytes may expand.

use std::fmt;

use brotli::{BrotliDecompressStream, BrotliResult, BrotliState, enc::StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, header};
use zstd::{
    stream::raw::{Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer},
    zstd_safe::DParameter,
};

pub mod decoding;
#[cfg(test)]
pub(in crate::gateway) mod tests;

/// The base-2 logarithm of the largest zstd window: 8 MiB, the limit of RFC 9659 for content codings.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// The magic number of a zstd frame (RFC 8878 section 3.1.1). Older formats and skippable frames are rejected.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The base-2 logarithm of the window size for gzip and deflate: the maximum of both formats.
const GZIP_WINDOW_LOG: u8 = 15;

/// The content codings that weir decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip` (RFC 1952).
    Gzip,
    /// `deflate`: zlib (RFC 1950), and bare deflate (RFC 1951), which some clients send under the same name.
    Deflate,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
}

/// The content coding that the `content-encoding` header of a message names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageCoding {
    /// No coding.
    No,
    /// One coding, and weir decodes it.
    By(Coding),
    /// A coding that weir does not decode, or several codings. The string is the header's value in lower case.
    Otherwise(String),
}

/// The registered names of content codings that weir does not decode
/// (<https://www.iana.org/assignments/http-parameters/http-parameters.xhtml#content-coding>).
const NOT_DECODED: [&str; 7] = [
    "aes128gcm",
    "compress",
    "dcb",
    "dcz",
    "exi",
    "pack200-gzip",
    "x-compress",
];

impl Coding {
    /// Returns the coding with this name in `content-encoding` (RFC 9110 section 8.4.1, `x-gzip` included); `None` if weir does
    /// not decode it.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The coding's name in `content-encoding`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// Reads the content coding of a request's body from the headers. `identity` and empty list members are ignored. An unknown name
/// counts as a coding that weir does not decode.
pub(crate) fn of_request(headers: &HeaderMap) -> MessageCoding {
    read_coding(headers, |_| true)
}

/// Reads the content coding of an answer from the headers. Names that are not codings are ignored, because some providers send
/// such names, for example `none` or `utf-8`.
pub(crate) fn of_answer(headers: &HeaderMap) -> MessageCoding {
    read_coding(headers, |name| {
        Coding::from_name(name).is_some() || NOT_DECODED.iter().any(|known| name.eq_ignore_ascii_case(known))
    })
}

fn read_coding(headers: &HeaderMap, counts: impl Fn(&str) -> bool) -> MessageCoding {
    let mut names = Vec::new();
    for line in headers.get_all(header::CONTENT_ENCODING) {
        let line = line.to_str().unwrap_or("unreadable");
        let listed = line.split(',').map(str::trim);
        names.extend(listed.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity") && counts(name)));
    }
    match names.as_slice() {
        [] => MessageCoding::No,
        [name] => Coding::from_name(name).map_or_else(
            || MessageCoding::Otherwise((*name).to_ascii_lowercase()),
            MessageCoding::By,
        ),
        several => MessageCoding::Otherwise(several.join(", ").to_ascii_lowercase()),
    }
}

/// The bytes are not valid in their content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data does not conform to its content coding")]
pub struct CodingBroken;

/// The numbers of bytes that one decoding step has read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeStep {
    /// The number of bytes taken from the input.
    pub read: usize,
    /// The number of bytes put into the output.
    pub written: usize,
}

/// A decoder for one compressed stream.
pub(crate) struct Decoder {
    engine: DecoderEngine,
    ended: bool,
}

enum DecoderEngine {
    Zlib(Decompress),
    /// Deflate before the first byte has arrived. That byte distinguishes zlib from bare deflate.
    DeflateUnknown,
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd {
        decoder: ZstdDecoder<'static>,
        /// The number of bytes of the magic number that have been read.
        magic: usize,
    },
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = match &self.engine {
            DecoderEngine::Zlib(_) | DecoderEngine::DeflateUnknown => "zlib",
            DecoderEngine::Brotli(_) => "brotli",
            DecoderEngine::Zstd { .. } => "zstd",
        };
        f.debug_struct("Decoder")
            .field("engine", &engine)
            .field("ended", &self.ended)
            .finish()
    }
}

impl Decoder {
    /// Creates a decoder at the start of a stream.
    ///
    /// # Errors
    /// Fails if the decoding library cannot allocate its state.
    pub(crate) fn new(coding: Coding) -> Result<Self, CodingBroken> {
        let engine = match coding {
            Coding::Gzip => DecoderEngine::Zlib(Decompress::new_gzip(GZIP_WINDOW_LOG)),
            Coding::Deflate => DecoderEngine::DeflateUnknown,
            // Strict: rejects windows larger than the 16 MiB of the format.
            Coding::Brotli => DecoderEngine::Brotli(Box::new(BrotliState::new_strict(
                StandardAlloc::default(),
                StandardAlloc::default(),
                StandardAlloc::default(),
            ))),
            Coding::Zstd => {
                let mut decoder = ZstdDecoder::new().map_err(|_| CodingBroken)?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
                    .map_err(|_| CodingBroken)?;
                DecoderEngine::Zstd { decoder, magic: 0 }
            }
        };
        Ok(Self { engine, ended: false })
    }

    /// Whether the compressed stream has ended. Later input is not a part of it and is not read.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Decodes some of `input` into `output`. If nothing is read and nothing written, the decoder needs more input or the stream
    /// has ended. A full output may mean that more can be decoded without further input.
    ///
    /// # Errors
    /// The bytes are not valid in their coding. The decoder must not be used again.
    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeStep, CodingBroken> {
        if self.ended {
            return Ok(DecodeStep { read: 0, written: 0 });
        }
        if let (DecoderEngine::DeflateUnknown, Some(first)) = (&self.engine, input.first()) {
            // In a zlib header, the low half of the first byte is 8. In bare deflate, it would mean a stored block with a padding
            // bit set.
            self.engine = DecoderEngine::Zlib(Decompress::new(first & 0x0F == 8));
        }
        match &mut self.engine {
            DecoderEngine::DeflateUnknown => Ok(DecodeStep { read: 0, written: 0 }),
            DecoderEngine::Zlib(zlib) => {
                let (read, written) = (zlib.total_in(), zlib.total_out());
                let status = zlib
                    .decompress(input, output, FlushDecompress::None)
                    .map_err(|_| CodingBroken)?;
                self.ended = status == Status::StreamEnd;
                Ok(DecodeStep {
                    read: difference(zlib.total_in(), read),
                    written: difference(zlib.total_out(), written),
                })
            }
            DecoderEngine::Brotli(state) => {
                let (mut left, mut read) = (input.len(), 0);
                let (mut room, mut written, mut total) = (output.len(), 0, 0);
                let result = BrotliDecompressStream(
                    &mut left,
                    &mut read,
                    input,
                    &mut room,
                    &mut written,
                    output,
                    &mut total,
                    state,
                );
                match result {
                    BrotliResult::ResultFailure => return Err(CodingBroken),
                    BrotliResult::ResultSuccess => self.ended = true,
                    BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
                }
                Ok(DecodeStep { read, written })
            }
            DecoderEngine::Zstd { decoder, magic } => {
                let expected = ZSTD_MAGIC.get(*magic..).unwrap_or_default();
                let seen = expected.len().min(input.len());
                if expected.iter().zip(input).any(|(wanted, came)| wanted != came) {
                    return Err(CodingBroken);
                }
                let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
                let hint = decoder.run(&mut from, &mut to).map_err(|_| CodingBroken)?;
                *magic += seen.min(from.pos());
                self.ended = hint == 0;
                Ok(DecodeStep {
                    read: from.pos(),
                    written: to.pos(),
                })
            }
        }
    }
}

fn difference(after: u64, before: u64) -> usize {
    usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX)
}
