//! Bodies in the content codings that weir decodes.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};

/// The codings by their names.
pub(crate) const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

/// `plain` in this coding.
pub(crate) fn packed(coding: &str, plain: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut out = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 1, 22);
            encoder.write_all(plain).unwrap();
            drop(encoder);
            out
        }
        "zstd" => zstd::encode_all(plain, 1).unwrap(),
        other => panic!("no coding {other}"),
    }
}

/// What bytes in gzip say, as far as they go.
pub(crate) fn gunzipped(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    // Bytes that break off are an error behind all that they say.
    let _ = GzDecoder::new(bytes).read_to_end(&mut plain);
    plain
}

/// The pieces of a stream as a provider sends it in this coding: one per text, flushed, the last one with the end.
pub(crate) fn packed_pieces(coding: &str, texts: &[&str]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            for text in texts {
                encoder.write_all(text.as_bytes()).unwrap();
                encoder.flush().unwrap();
                pieces.push(std::mem::take(encoder.get_mut()));
            }
            pieces.push(encoder.finish().unwrap());
        }
        "zstd" => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            for text in texts {
                encoder.write_all(text.as_bytes()).unwrap();
                encoder.flush().unwrap();
                pieces.push(std::mem::take(encoder.get_mut()));
            }
            pieces.push(encoder.finish().unwrap());
        }
        other => {
            // What matters is that the pieces end anywhere.
            let whole = packed(other, texts.concat().as_bytes());
            pieces.extend(whole.chunks(50).map(<[u8]>::to_vec));
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}
