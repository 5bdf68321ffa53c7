//! Follows the framing of a chunked body (RFC 9112 section 7.1) without decoding it: where it ends, and whether it can
//! be read in one way only.
//!
//! The content ends with the line of the last chunk; a body without trailer fields is as complete as one with them
//! (RFC 9112 sections 7.1.2 and 8).

use crate::domain::wire::http1::head::{is_field_content, is_token};

/// The most digits of a chunk's size; so many always fit into 64 bits.
const SIZE_DIGITS_MAX: usize = 15;

/// The most bytes of one chunk's extensions.
const EXTENSION_BYTES_MAX: usize = 256;

/// The most bytes of all trailer fields.
const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// The body does not follow the framing, or goes beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkFault;

/// The content of a chunked body, followed as it arrives: to the end of the line of the last chunk, behind which
/// [`Trailers`] stand.
#[derive(Debug, Default)]
pub struct Chunked {
    at: At,
    /// Bytes of the current chunk's data that are still to come, or its size as read so far.
    size: u64,
    /// Bytes of the current size or extension.
    count: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Size,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    Done,
}

impl Chunked {
    /// Takes the next bytes. `Some(n)` if the content ends with the first `n` of them.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<usize>, ChunkFault> {
        let mut rest = bytes;
        while let [byte, behind @ ..] = rest {
            if self.at == At::Data {
                let here = usize::try_from(self.size).unwrap_or(usize::MAX).min(rest.len());
                self.size -= here as u64;
                rest = rest.get(here..).unwrap_or_default();
                if self.size == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            self.at = self.next(*byte)?;
            rest = behind;
            if self.at == At::Done {
                return Ok(Some(bytes.len() - rest.len()));
            }
        }
        Ok(None)
    }

    fn next(&mut self, byte: u8) -> Result<At, ChunkFault> {
        Ok(match (self.at, byte) {
            (At::Size, b'\r') if self.count > 0 => self.begin(At::SizeEnd),
            (At::Size, b';') if self.count > 0 => self.begin(At::Extension),
            (At::Size, digit) => {
                let digit = char::from(digit).to_digit(16).ok_or(ChunkFault)?;
                counted(&mut self.count, SIZE_DIGITS_MAX)?;
                self.size = self.size << 4 | u64::from(digit);
                At::Size
            }
            (At::Extension, b'\r') => self.begin(At::SizeEnd),
            (At::Extension, byte) if is_field_content(byte) => {
                counted(&mut self.count, EXTENSION_BYTES_MAX)?;
                At::Extension
            }
            (At::SizeEnd, b'\n') if self.size > 0 => At::Data,
            (At::SizeEnd, b'\n') => At::Done,
            (At::DataReturn, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => self.begin(At::Size),
            _ => return Err(ChunkFault),
        })
    }

    fn begin(&mut self, at: At) -> At {
        self.count = 0;
        at
    }
}

/// What stands behind the content of a chunked body: trailer fields, and an empty line. Followed as it arrives.
#[derive(Debug, Default)]
pub struct Trailers {
    at: Field,
    /// Bytes of all fields.
    count: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Field {
    /// The beginning of a field, or of the empty line.
    #[default]
    Begin,
    Name,
    Value,
    End,
    LastEnd,
    Done,
}

impl Trailers {
    /// Takes the next bytes. `Some(n)` if the body ends with the first `n` of them.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<usize>, ChunkFault> {
        for (at, byte) in bytes.iter().enumerate() {
            self.at = self.next(*byte)?;
            if self.at == Field::Done {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    fn next(&mut self, byte: u8) -> Result<Field, ChunkFault> {
        Ok(match (self.at, byte) {
            (Field::Begin, b'\r') => Field::LastEnd,
            (Field::Begin | Field::Name, byte) if is_token(byte) => {
                counted(&mut self.count, TRAILER_BYTES_MAX)?;
                Field::Name
            }
            (Field::Name, b':') => Field::Value,
            (Field::Value, b'\r') => Field::End,
            (Field::Value, byte) if is_field_content(byte) => {
                counted(&mut self.count, TRAILER_BYTES_MAX)?;
                Field::Value
            }
            (Field::End, b'\n') => Field::Begin,
            (Field::LastEnd, b'\n') => Field::Done,
            _ => return Err(ChunkFault),
        })
    }
}

fn counted(count: &mut usize, max: usize) -> Result<(), ChunkFault> {
    *count += 1;
    (*count <= max).then_some(()).ok_or(ChunkFault)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The length of the body at the beginning of `bytes`, fed in pieces of `step`.
    fn end(bytes: &[u8], step: usize) -> Result<Option<usize>, ChunkFault> {
        let (mut body, mut trailers) = (Chunked::default(), None::<Trailers>);
        let mut before = 0;
        for mut piece in bytes.chunks(step) {
            if trailers.is_none()
                && let Some(here) = body.push(piece)?
            {
                trailers = Some(Trailers::default());
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
        let mut body = Chunked::default();
        assert_eq!(body.push(all.as_bytes()), Ok(Some(content.len())));
        let behind = &all.as_bytes()[content.len()..];
        assert_eq!(Trailers::default().push(behind), Ok(Some(trailers.len())));
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
