//! The one loop that decodes a coded stream while its pieces arrive, for request bodies, answers and error answers. Decodes a
//! compressed answer for the observer; the client gets the compressed bytes unchanged.

use crate::gateway::coding::{Coding, CodingBroken, Decoder};

/// The size of the buffer for decoded parts, which is allocated once per stream.
pub(crate) const PART_BYTES: usize = 16 * 1024;

/// Why a stream cannot be decoded further. Its [`Decoding`] must not be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodingError {
    /// The bytes do not follow their coding, or bytes follow the end of the stream.
    #[error(transparent)]
    Broken(#[from] CodingBroken),
    /// The decoded bytes exceed the limit.
    #[error("the decoded bytes exceed the limit")]
    TooLarge,
}

/// What may follow the end of a compressed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// Nothing.
    Nothing,
    /// Another member (RFC 1952 section 2.2) or frame (RFC 8878 section 3.1), in the codings that have them.
    Member,
}

/// A coded stream being decoded.
#[derive(Debug)]
pub struct Decoding {
    coding: Coding,
    following: Following,
    decoder: Decoder,
    output: Box<[u8]>,
    /// How many more bytes the limit allows.
    left: usize,
}

impl Decoding {
    /// Starts a stream. Returns at most `bytes_max` decoded bytes of it.
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

    /// Sets the number of further decoded bytes to `bytes_max`.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.left = bytes_max;
    }

    /// Decodes the next part of `piece`, which is shortened by the bytes read. `None` if all of it is decoded.
    ///
    /// # Errors
    /// A [`DecodingError`], if the bytes do not follow the coding or become too many.
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
            // One byte more than allowed distinguishes a stream that is too large from one that just fits.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::coding::tests::{ALL, packed};

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
}
