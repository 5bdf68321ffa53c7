//! What comes over a client's connection before anything trusts it: heads, chunks, PROXY headers, coded bodies.

use weir::parts::decoding::{Decoding, Following};
use weir::parts::head::{HeadEnd, HeadFault, HeadLimits, RequestFraming, check};
use weir::parts::http1::{ChunkFault, ChunkedContent, ChunkedTrailers};
use weir::parts::{Coding, proxy_protocol};

const HEAD_LIMITS: HeadLimits = HeadLimits {
    bytes_max: 2048,
    fields_max: 20,
};
/// The most that a coded body may become.
const DECODED_BYTES_MAX: usize = 48 * 1024;
/// The most trailer fields that the other parser is asked for.
const TRAILERS_MAX: usize = 4096;

/// A head: any split is read in the same way, and the parser that Pingora uses reads what is let in as weir does.
pub(crate) fn request_head(data: &[u8]) {
    let whole = head_in_pieces(data, data.len().max(1));
    for step in [1, 7] {
        assert_eq!(head_in_pieces(data, step), whole, "by {step}");
    }
    let Ok(Some((length, framing))) = whole else { return };
    let mut fields = [httparse::EMPTY_HEADER; HEAD_LIMITS.fields_max];
    let mut request = httparse::Request::new(&mut fields);
    assert_eq!(request.parse(data), Ok(httparse::Status::Complete(length)));
    let named = |name: &str| {
        let fields = request.headers.iter();
        fields
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value.trim_ascii().to_vec())
            .collect::<Vec<_>>()
    };
    let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
    match framing {
        RequestFraming::Chunked => {
            assert!(lengths.is_empty() && codings.len() == 1 && codings[0].eq_ignore_ascii_case(b"chunked"))
        }
        RequestFraming::Empty | RequestFraming::Length(_) => {
            assert!(codings.is_empty() && lengths.len() <= 1);
            let said = lengths.first().map_or(0, |digits| {
                let digits = String::from_utf8(digits.clone()).expect("digits");
                digits.parse::<u64>().expect("a length that was let in is a number")
            });
            assert_eq!(framing == RequestFraming::Empty, said == 0);
            assert!(framing == RequestFraming::Empty || framing == RequestFraming::Length(said));
        }
    }
    assert!(named("host").len() <= 1 && (request.version == Some(0) || named("host").len() == 1));
}

fn head_in_pieces(data: &[u8], step: usize) -> Result<Option<(usize, RequestFraming)>, HeadFault> {
    let mut end = HeadEnd::default();
    let mut came = 0;
    while came < data.len() {
        came = (came + step).min(data.len());
        if let Some(length) = end.find(&data[..came], HEAD_LIMITS)? {
            return Ok(Some((length, check(&data[..length], HEAD_LIMITS)?)));
        }
    }
    Ok(None)
}

/// A chunked body: its end is the same in any split, and another parser finds it there.
pub(crate) fn chunked_body(data: &[u8]) {
    let whole = end_of_chunks(data, data.len().max(1));
    for step in [1, 5] {
        assert_eq!(end_of_chunks(data, step), whole, "by {step}");
    }
    if let Ok(Some(end)) = whole {
        assert_eq!(other_end_of_chunks(data), Some(end));
    }
}

fn end_of_chunks(data: &[u8], step: usize) -> Result<Option<usize>, ChunkFault> {
    let (mut body, mut trailers) = (ChunkedContent::default(), None);
    for (number, piece) in data.chunks(step).enumerate() {
        let mut content = 0;
        if trailers.is_none() {
            let Some(here) = body.push(piece)? else {
                continue;
            };
            (trailers, content) = (Some(ChunkedTrailers::default()), here);
        }
        if let Some(trailers) = &mut trailers
            && let Some(here) = trailers.push(&piece[content..])?
        {
            return Ok(Some(number * step + content + here));
        }
    }
    Ok(None)
}

fn other_end_of_chunks(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let httparse::Status::Complete((line, size)) = httparse::parse_chunk_size(&data[at..]).ok()? else {
            return None;
        };
        at += line;
        if size == 0 {
            break;
        }
        at += usize::try_from(size).ok()?;
        assert_eq!(
            data.get(at..at + 2),
            Some(&b"\r\n"[..]),
            "data ends where its size says"
        );
        at += 2;
    }
    let mut fields = vec![httparse::EMPTY_HEADER; TRAILERS_MAX];
    match httparse::parse_headers(&data[at..], &mut fields).ok()? {
        httparse::Status::Complete((length, _)) => Some(at + length),
        httparse::Status::Partial => None,
    }
}

/// A PROXY header: read with as many bytes as it asks for, no byte behind it is taken, and more are refused.
pub(crate) fn proxy_header(data: &[u8]) {
    let mut came = 0;
    while let Ok(progress) = proxy_protocol::read(&data[..came]) {
        match progress {
            proxy_protocol::ProxyHeaderProgress::Needs(more) => {
                assert!(more > 0 && came + more <= proxy_protocol::HEADER_BYTES_MAX);
                if came + more > data.len() {
                    return;
                }
                came += more;
            }
            proxy_protocol::ProxyHeaderProgress::Whole(_) => {
                let one_more = [&data[..came], b"x"].concat();
                assert!(
                    proxy_protocol::read(&one_more).is_err(),
                    "a byte behind the header was taken"
                );
                return;
            }
        }
    }
}

/// Coded bytes: never more than the limit comes out, and a split changes nothing that can be decoded.
pub(crate) fn content_coding(data: &[u8]) {
    let Some((first, data)) = data.split_first() else {
        return;
    };
    let (coding, known) = match first % 4 {
        0 => (Coding::Gzip, true),
        1 => (Coding::Deflate, true),
        // Of damaged bytes its decoder says so sooner or later, by how many it sees at a time.
        2 => (Coding::Brotli, false),
        // A frame that comes in one piece is decoded without its window, which may then be larger than the limit for it.
        _ => (Coding::Zstd, false),
    };
    for following in [Following::Nothing, Following::Member] {
        let whole = decoded(coding, following, data, data.len().max(1));
        for step in [1, 13] {
            let pieces = decoded(coding, following, data, step);
            assert!(!known || pieces.is_some() == whole.is_some(), "{coding:?} by {step}");
            if pieces.is_some() && whole.is_some() {
                assert_eq!(pieces, whole, "{coding:?} by {step}");
            }
        }
    }
}

/// The text, and whether it is complete; `None` if it cannot be decoded.
fn decoded(coding: Coding, following: Following, data: &[u8], step: usize) -> Option<(Vec<u8>, bool)> {
    let mut decoding = Decoding::new(coding, following, DECODED_BYTES_MAX).expect("a decoder");
    let mut text = Vec::new();
    for mut piece in data.chunks(step) {
        while let Some(part) = decoding.next(&mut piece).ok()? {
            assert!(!part.is_empty());
            text.extend_from_slice(part);
            assert!(text.len() <= DECODED_BYTES_MAX);
        }
        assert!(piece.is_empty(), "all of a piece is read");
    }
    Some((text, decoding.has_ended()))
}
