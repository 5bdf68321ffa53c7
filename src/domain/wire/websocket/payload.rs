//! The payload of WebSocket frames: masks (RFC 6455 section 5.3), and texts that arrive in pieces.

/// Masks a payload, or unmasks a masked one. `payload` is a piece of the frame's payload that begins at `offset`.
pub fn mask_in_place(payload: &mut [u8], mut mask: [u8; 4], offset: usize) {
    mask.rotate_left(offset % 4);
    let [a, b, c, d] = mask;
    let word_mask = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ word_mask).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// The error for bytes that cannot be part of a UTF-8 text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Utf8Fault;

/// A check of UTF-8 text that arrives in pieces. A piece can end in the middle of a character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Utf8Check {
    /// The first `length` bytes are the begin of a character whose other bytes have not arrived.
    begun: [u8; 4],
    length: usize,
}

impl Utf8Check {
    /// Checks the next piece of the text. Fails as soon as no further bytes could make the text valid.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Utf8Fault> {
        let mut rest = piece;
        while !self.is_complete() {
            let [byte, behind @ ..] = rest else { return Ok(()) };
            rest = behind;
            *self.begun.get_mut(self.length).ok_or(Utf8Fault)? = *byte;
            self.length += 1;
            let begun = self.begun.get(..self.length).unwrap_or_default();
            match std::str::from_utf8(begun) {
                Ok(_) => self.length = 0,
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(Utf8Fault),
            }
        }
        let Err(error) = std::str::from_utf8(rest) else {
            return Ok(());
        };
        // Otherwise the error is that a character at the end of the piece is not complete.
        if error.error_len().is_some() {
            return Err(Utf8Fault);
        }
        let begun = rest.get(error.valid_up_to()..).unwrap_or_default();
        for (to, from) in self.begun.iter_mut().zip(begun) {
            *to = *from;
        }
        self.length = begun.len();
        Ok(())
    }

    /// Whether the text so far ends with a complete character.
    pub(super) const fn is_complete(&self) -> bool {
        self.length == 0
    }
}
