//! Checks HTTP/1.1 requests (RFC 9112) before any other parser reads them: validates the head, and finds the end of the body.
//!
//! If two parsers read the same bytes differently, one request can pass as another (request smuggling). weir therefore refuses
//! everything that RFC 9112 leaves to the recipient's judgement.

pub mod head;

use crate::domain::wire::http1::head::{is_field_content, is_token};

/// The maximum number of hexadecimal digits in a chunk's size. A number with this many digits fits into 64 bits.
const SIZE_DIGITS_MAX: usize = 15;

/// The maximum length of the extensions of one chunk, in bytes.
const EXTENSION_BYTES_MAX: usize = 256;

/// The maximum length of all trailer fields of one body together, in bytes.
const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// The error for a chunked body whose framing is invalid or exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkFault;

/// A parser that finds the end of a chunked body's content, which arrives in pieces. It checks that the framing can be read in
/// only one way (RFC 9112 section 7.1).
///
/// The content ends with the line of the last chunk, which has the size 0. [`ChunkedTrailers`] reads the trailer fields after it.
/// The body is complete even if its trailer fields are missing (RFC 9112 sections 7.1.2 and 8).
#[derive(Debug, Default)]
pub struct ChunkedContent {
    at: ChunkState,
    /// The number of bytes of the current chunk that have not arrived. While the digits of the chunk's size are being read, this
    /// is the value of the digits that have arrived.
    size: u64,
    /// The number of bytes of the current size or extension that have been read.
    count: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    Done,
}

impl ChunkedContent {
    /// Reads the next bytes of the body. Returns `Some(n)` if the content ends after the first `n` of these bytes, and `None` if
    /// it does not end in them.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<usize>, ChunkFault> {
        let mut rest = bytes;
        while let [byte, behind @ ..] = rest {
            if self.at == ChunkState::Data {
                let here = usize::try_from(self.size).unwrap_or(usize::MAX).min(rest.len());
                self.size -= here as u64;
                rest = rest.get(here..).unwrap_or_default();
                if self.size == 0 {
                    self.at = ChunkState::DataReturn;
                }
                continue;
            }
            self.at = self.next(*byte)?;
            rest = behind;
            if self.at == ChunkState::Done {
                return Ok(Some(bytes.len() - rest.len()));
            }
        }
        Ok(None)
    }

    fn next(&mut self, byte: u8) -> Result<ChunkState, ChunkFault> {
        Ok(match (self.at, byte) {
            (ChunkState::Size, b'\r') if self.count > 0 => self.begin(ChunkState::SizeEnd),
            (ChunkState::Size, b';') if self.count > 0 => self.begin(ChunkState::Extension),
            (ChunkState::Size, digit) => {
                let digit = char::from(digit).to_digit(16).ok_or(ChunkFault)?;
                count_up_to(&mut self.count, SIZE_DIGITS_MAX)?;
                self.size = self.size << 4 | u64::from(digit);
                ChunkState::Size
            }
            (ChunkState::Extension, b'\r') => self.begin(ChunkState::SizeEnd),
            (ChunkState::Extension, byte) if is_field_content(byte) => {
                count_up_to(&mut self.count, EXTENSION_BYTES_MAX)?;
                ChunkState::Extension
            }
            (ChunkState::SizeEnd, b'\n') if self.size > 0 => ChunkState::Data,
            (ChunkState::SizeEnd, b'\n') => ChunkState::Done,
            (ChunkState::DataReturn, b'\r') => ChunkState::DataEnd,
            (ChunkState::DataEnd, b'\n') => self.begin(ChunkState::Size),
            _ => return Err(ChunkFault),
        })
    }

    fn begin(&mut self, at: ChunkState) -> ChunkState {
        self.count = 0;
        at
    }
}

/// A parser that finds the end of a chunked body's trailer fields, including the empty line after them. The fields arrive in
/// pieces.
#[derive(Debug, Default)]
pub struct ChunkedTrailers {
    at: TrailerState,
    /// The number of bytes of all trailer fields read so far.
    count: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TrailerState {
    /// At the beginning of a trailer field, or of the empty line after the fields.
    #[default]
    Begin,
    Name,
    Value,
    End,
    LastEnd,
    Done,
}

impl ChunkedTrailers {
    /// Reads the next bytes of the body. Returns `Some(n)` if the body ends after the first `n` of these bytes, and `None` if it
    /// does not end in them.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<usize>, ChunkFault> {
        for (at, byte) in bytes.iter().enumerate() {
            self.at = self.next(*byte)?;
            if self.at == TrailerState::Done {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    fn next(&mut self, byte: u8) -> Result<TrailerState, ChunkFault> {
        Ok(match (self.at, byte) {
            (TrailerState::Begin, b'\r') => TrailerState::LastEnd,
            (TrailerState::Begin | TrailerState::Name, byte) if is_token(byte) => {
                count_up_to(&mut self.count, TRAILER_BYTES_MAX)?;
                TrailerState::Name
            }
            (TrailerState::Name, b':') => TrailerState::Value,
            (TrailerState::Value, b'\r') => TrailerState::End,
            (TrailerState::Value, byte) if is_field_content(byte) => {
                count_up_to(&mut self.count, TRAILER_BYTES_MAX)?;
                TrailerState::Value
            }
            (TrailerState::End, b'\n') => TrailerState::Begin,
            (TrailerState::LastEnd, b'\n') => TrailerState::Done,
            _ => return Err(ChunkFault),
        })
    }
}

fn count_up_to(count: &mut usize, max: usize) -> Result<(), ChunkFault> {
    *count += 1;
    (*count <= max).then_some(()).ok_or(ChunkFault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the length of the body at the beginning of `bytes`, which are read in pieces of `step` bytes.
    fn end(bytes: &[u8], step: usize) -> Result<Option<usize>, ChunkFault> {
        let (mut body, mut trailers) = (ChunkedContent::default(), None::<ChunkedTrailers>);
        let mut before = 0;
        for mut piece in bytes.chunks(step) {
            if trailers.is_none()
                && let Some(here) = body.push(piece)?
            {
                trailers = Some(ChunkedTrailers::default());
                piece = &piece[here..];
                before += here;
            }
            if let Some(trailers) = &mut trailers
                && let Some(here) = trailers.push(piece)?
            {
                return Ok(Some(before + here));
            }
            before += piece.len();
        }
        Ok(None)
    }

    #[test]
    fn the_content_ends_before_the_trailers() {
        let (content, trailers) = ("5\r\nhello\r\n0;last\r\n", "x-sum: 1\r\n\r\n");
        let all = [content, trailers, "GET /"].concat();
        let mut body = ChunkedContent::default();
        assert_eq!(body.push(all.as_bytes()), Ok(Some(content.len())));
        let behind = &all.as_bytes()[content.len()..];
        assert_eq!(ChunkedTrailers::default().push(behind), Ok(Some(trailers.len())));
    }

    #[test]
    fn a_body_ends_behind_its_last_line_whatever_follows() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"5\r\nhello\r\n0\r\n\r\n",
            b"5;a=b; c=\"d\"\r\nhello\r\n000\r\n\r\n",
            b"A\r\n0\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",
            b"1\r\na\r\n0\r\nx-sum: 1\r\nx-more:\r\n\r\n",
        ] {
            let mut followed = body.to_vec();
            followed.extend_from_slice(b"GET / HTTP/1.1\r\n");
            for step in 1..followed.len() {
                assert_eq!(end(&followed, step), Ok(Some(body.len())), "{body:?} by {step}");
                assert_eq!(end(&body[..body.len() - 1], step), Ok(None));
            }
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for body in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello0\r\n\r\n",
            b"5;a\nb\r\nhello\r\n0\r\n\r\n",
            b"5;a\r\rhello\r\n0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"\r\n5\r\nhello\r\n0\r\n\r\n",
            b";a\r\n\r\n",
            b"0\r\n folded: x\r\n\r\n",
            b"0\r\nx : y\r\n\r\n",
            b"0\r\nx: y\n\r\n",
            b"0\r\nx: \0\r\n\r\n",
            b"0\r\nx\r\n\r\n",
            b"0\r\n\n",
            b"0\n\n",
            b"0\r\n\rX",
        ] {
            for step in 1..=body.len() {
                assert_eq!(end(body, step), Err(ChunkFault), "{:?}", String::from_utf8_lossy(body));
            }
        }
    }

    #[test]
    fn sizes_extensions_and_trailers_have_limits() {
        let sized = |digits: usize| format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(digits - 1)).into_bytes();
        assert!(end(&sized(SIZE_DIGITS_MAX), 7).is_ok_and(|end| end.is_some()));
        assert_eq!(end(&sized(SIZE_DIGITS_MAX + 1), 7), Err(ChunkFault));
        let extended = |bytes: usize| format!("0;{}\r\n\r\n", "e".repeat(bytes)).into_bytes();
        assert!(end(&extended(EXTENSION_BYTES_MAX), 7).is_ok_and(|end| end.is_some()));
        assert_eq!(end(&extended(EXTENSION_BYTES_MAX + 1), 7), Err(ChunkFault));
        let trailed = |bytes: usize| format!("0\r\na:{}\r\nb:c\r\n\r\n", "v".repeat(bytes - 3)).into_bytes();
        assert!(end(&trailed(TRAILER_BYTES_MAX), 7).is_ok_and(|end| end.is_some()));
        assert_eq!(end(&trailed(TRAILER_BYTES_MAX + 1), 7), Err(ChunkFault));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'3'), Just(b';'), Just(b'a'), any::<u8>()], 0..60),
            step in 1..20_usize)
        {
            prop_assert_eq!(end(&bytes, step), end(&bytes, 60));
        }

        #[test]
        fn data_of_any_kind_and_length_is_passed(parts in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 1..50), 0..5), step in 1..20_usize)
        {
            let mut body = Vec::new();
            for part in &parts {
                body.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                body.extend_from_slice(part);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(end(&body, step), Ok(Some(body.len())));
        }
    }
}
