//! Decodes a compressed answer for the observer. The client gets the compressed bytes unchanged.

use crate::gateway::coding::{
    Coding,
    decoding::{Decoding, Following},
};

/// The most decoded bytes of one piece. Decoding runs in a hook that cannot wait; a real piece is about 16 KiB and
/// compresses perhaps twenty-fold.
const PIECE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Decodes an answer as it passes and gives the text to the observer.
#[derive(Debug)]
pub(crate) struct AnswerDecoder {
    /// `None` once decoding has failed or a piece has exceeded [`PIECE_BYTES_MAX`].
    decoding: Option<Decoding>,
}

impl AnswerDecoder {
    /// A decoder at the start of an answer.
    pub(crate) fn new(coding: Coding) -> Self {
        Self {
            decoding: Decoding::new(coding, Following::Member, PIECE_BYTES_MAX).ok(),
        }
    }

    /// Whether all pieces so far could be decoded.
    pub(crate) fn is_readable(&self) -> bool {
        self.decoding.is_some()
    }

    /// Decodes a piece and passes the text to `observe` in parts.
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
