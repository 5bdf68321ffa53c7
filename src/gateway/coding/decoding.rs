//! Decodes a compressed stream while its pieces arrive. Request bodies, answers and error answers all use the loop of
//! [`Decoding`]. [`AnswerDecoder`] decodes a compressed answer for the observer; the client gets the compressed bytes unchanged.

use crate::gateway::coding::{Coding, CodingBroken, Decoder};

/// The size in bytes of the buffer for decoded parts, which is allocated once per stream.
pub(crate) const PART_BYTES: usize = 16 * 1024;

/// The reason why a stream cannot be decoded further. Its [`Decoding`] must not be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodingError {
    /// The bytes are not valid in their coding, or there are bytes after the end of the stream.
    #[error(transparent)]
    Broken(#[from] CodingBroken),
    /// The decoded bytes exceed the limit.
    #[error("the decoded bytes exceed the limit")]
    TooLarge,
}

/// The data that may follow the end of a compressed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// No data.
    Nothing,
    /// Another member (RFC 1952 section 2.2) or frame (RFC 8878 section 3.1), if the coding has them.
    Member,
}

/// A compressed stream that is being decoded.
#[derive(Debug)]
pub struct Decoding {
    coding: Coding,
    following: Following,
    decoder: Decoder,
    output: Box<[u8]>,
    /// The number of further decoded bytes that the limit allows.
    left: usize,
}

impl Decoding {
    /// Starts to decode a stream. The decoder returns at most `bytes_max` decoded bytes.
    ///
    /// # Errors
    /// Fails if the decoder's state cannot be allocated.
    pub fn new(coding: Coding, following: Following, bytes_max: usize) -> Result<Self, DecodingError> {
        Ok(Self {
            coding,
            following,
            decoder: Decoder::new(coding)?,
            output: vec![0; PART_BYTES].into_boxed_slice(),
            left: bytes_max,
        })
    }

    /// Sets the maximum number of further decoded bytes.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.left = bytes_max;
    }

    /// Decodes the next part of `piece`, and removes the decoded part from `piece`. Returns the decoded bytes; `None` once all of
    /// `piece` is decoded.
    ///
    /// # Errors
    /// A [`DecodingError`], if the bytes are not valid in the coding or the decoded bytes exceed the limit.
    pub fn next(&mut self, piece: &mut &[u8]) -> Result<Option<&[u8]>, DecodingError> {
        loop {
            if self.decoder.has_ended() {
                if piece.is_empty() {
                    return Ok(None);
                }
                self.decoder = match (self.following, self.coding) {
                    (Following::Member, Coding::Gzip | Coding::Zstd) => Decoder::new(self.coding)?,
                    (Following::Member, Coding::Deflate | Coding::Brotli) | (Following::Nothing, _) => {
                        return Err(CodingBroken.into());
                    }
                };
            }
            // The buffer takes one byte more than the limit allows, which distinguishes a stream that is too large from one that
            // just fits.
            let room = self.left.saturating_add(1).min(PART_BYTES);
            let output = self.output.get_mut(..room).unwrap_or_default();
            let step = self.decoder.step(piece, output)?;
            *piece = piece.get(step.read..).unwrap_or_default();
            self.left = self.left.checked_sub(step.written).ok_or(DecodingError::TooLarge)?;
            if step.written > 0 {
                return Ok(self.output.get(..step.written));
            }
            if step.read == 0 {
                return Ok(None);
            }
        }
    }

    /// Whether the compressed stream has ended, so that the decoded bytes are complete.
    pub fn has_ended(&self) -> bool {
        self.decoder.has_ended()
    }
}

/// The maximum number of decoded bytes of one piece. It limits the time for decoding, because the hook that decodes cannot yield.
/// A real piece has about 16 KiB, and its text is perhaps twenty times as long.
const PIECE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Decodes an answer as it passes to the client, and gives the text to the observer.
#[derive(Debug)]
pub(crate) struct AnswerDecoder {
    /// The stream being decoded; `None` once decoding has failed or a piece has exceeded [`PIECE_BYTES_MAX`].
    decoding: Option<Decoding>,
}

impl AnswerDecoder {
    /// Creates a decoder at the start of an answer.
    pub(crate) fn new(coding: Coding) -> Self {
        Self {
            decoding: Decoding::new(coding, Following::Member, PIECE_BYTES_MAX).ok(),
        }
    }

    /// Whether all pieces so far could be decoded.
    pub(crate) fn is_readable(&self) -> bool {
        self.decoding.is_some()
    }

    /// Decodes a piece and passes the decoded text to `observe` in parts.
    pub(crate) fn push(&mut self, piece: &[u8], mut observe: impl FnMut(&[u8])) {
        let Some(decoding) = &mut self.decoding else { return };
        decoding.set_bytes_max(PIECE_BYTES_MAX);
        let mut rest = piece;
        loop {
            match decoding.next(&mut rest) {
                Ok(Some(text)) => observe(text),
                Ok(None) => return,
                Err(_) => {
                    self.decoding = None;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::coding::{
        decoding::PART_BYTES,
        tests::{ALL, packed},
    };

    fn decoded(coding: Coding, following: Following, limit: usize, bytes: &[u8]) -> Result<Vec<u8>, DecodingError> {
        let (mut decoding, mut text) = (Decoding::new(coding, following, limit)?, Vec::new());
        for mut piece in bytes.chunks(1000) {
            while let Some(part) = decoding.next(&mut piece)? {
                text.extend_from_slice(part);
            }
        }
        Ok(text)
    }

    #[test]
    fn the_limit_is_exact_whatever_the_part_it_falls_into() {
        for coding in ALL {
            for size in [1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES] {
                let plain = vec![b'a'; size];
                let bytes = packed(coding, &plain);
                let decode = |limit| decoded(coding, Following::Nothing, limit, &bytes);
                assert_eq!(decode(size), Ok(plain), "{coding:?} {size}");
                assert_eq!(decode(size - 1), Err(DecodingError::TooLarge), "{coding:?} {size}");
            }
        }
    }

    #[test]
    fn what_follows_the_stream_is_decoded_or_an_error() {
        for coding in ALL {
            let two = [packed(coding, b"one "), packed(coding, b"two")].concat();
            let whole = decoded(coding, Following::Nothing, 100, &two);
            assert_eq!(whole, Err(CodingBroken.into()), "{coding:?}");
            let members = decoded(coding, Following::Member, 100, &two);
            let expected = match coding {
                Coding::Gzip | Coding::Zstd => Ok(b"one two".to_vec()),
                Coding::Deflate | Coding::Brotli => Err(CodingBroken.into()),
            };
            assert_eq!(members, expected, "{coding:?}");
        }
    }

    fn read(coding: Coding, bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
        let mut decoder = AnswerDecoder::new(coding);
        let mut text = Vec::new();
        for part in bytes.chunks(piece) {
            decoder.push(part, |plain| text.extend_from_slice(plain));
        }
        (text, decoder.is_readable())
    }

    #[test]
    fn the_text_is_read_whatever_the_pieces() {
        let plain = b"data: {\"type\":\"x\"}\n\n".repeat(5000);
        for coding in ALL {
            for piece in [1, 7, 100_000] {
                assert_eq!(read(coding, &packed(coding, &plain), piece), (plain.clone(), true));
            }
        }
    }

    #[test]
    fn several_members_are_one_text() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let bytes = [packed(coding, b"one "), packed(coding, b"two")].concat();
            assert_eq!(read(coding, &bytes, 5), (b"one two".to_vec(), true));
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_read_no_further() {
        for coding in ALL {
            let mut bytes = packed(coding, b"text");
            bytes.extend_from_slice(b"\0garbage that is none of it");
            assert_eq!(read(coding, &bytes, 1000), (b"text".to_vec(), false), "{coding:?}");
        }
        assert_eq!(read(Coding::Gzip, b"\x1fnot really gzip", 3), (Vec::new(), false));
    }

    #[test]
    fn a_piece_that_becomes_too_much_ends_the_reading() {
        for coding in ALL {
            let fits = packed(coding, &vec![b'a'; PIECE_BYTES_MAX]);
            assert!(read(coding, &fits, usize::MAX).1, "{coding:?}");
            let much = packed(coding, &vec![b'a'; PIECE_BYTES_MAX + 2 * PART_BYTES]);
            let (text, readable) = read(coding, &much, usize::MAX);
            assert!(!readable && text.len() <= PIECE_BYTES_MAX + PART_BYTES, "{coding:?}");
        }
    }
}
